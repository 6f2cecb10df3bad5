"""What all tests share: hypothesis draws the same examples each time, which may take as long as they take.

The compiled build (`make test-compiled`) seals its classes: what subclasses or patches them is skipped there.
"""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from simserve.engine import is_compiled

settings.register_profile("simserve", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("simserve")

SUBCLASSING = {"test_conservation.py", "test_disaggregation_laws.py", "test_impatient.py", "test_mutations.py"}
"""Files of tests that subclass what is compiled as soon as they are imported."""

SEALED = "compiled classes can be neither subclassed nor patched: runs on the plain source"


class Sealed(pytest.Module):
    """A file of tests that the compiled build cannot even import."""

    def collect(self) -> list[pytest.Item]:
        pytest.skip(SEALED, allow_module_level=True)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--compiled", action="store_true", help="fail unless the compiled build is what is tested")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--compiled") and not is_compiled():
        raise pytest.UsageError("--compiled: what is imported is the plain source")


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    if is_compiled() and module_path.name in SUBCLASSING:
        return Sealed.from_parent(parent, path=module_path)
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if is_compiled():
        for item in items:
            if item.get_closest_marker("plain_source"):
                item.add_marker(pytest.mark.skip(reason=SEALED))
