"""What all tests share: hypothesis draws the same examples each time, which may take as long as they take."""

from hypothesis import HealthCheck, settings

settings.register_profile("simserve", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("simserve")
