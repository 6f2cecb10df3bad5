"""The files that come with simserve are found by one function, and nothing else is."""

import pytest

import simserve
from simserve.spec import resources


@pytest.mark.parametrize("kind", ["hardware_profiles", "models", "scenarios"])
def test_every_kind_has_a_folder_and_names_that_can_be_found(kind):
    suffix = {"hardware_profiles": "/profile.yaml", "models": ".json", "scenarios": ".yaml"}[kind]
    names = resources.names(kind)
    assert names == sorted(names)
    assert all(resources.find(kind, name + suffix) for name in names)


def test_a_name_cannot_lead_out_of_its_folder():
    assert resources.find("models", "../__init__.py") is None
    assert resources.find("models", "/etc/hostname") is None
    assert resources.find("models", "nix.json") is None


def test_the_package_goes_before_the_checkout(tmp_path, monkeypatch):
    for parent in (tmp_path / "simserve", tmp_path):
        (parent / "scenarios").mkdir(parents=True)
    (tmp_path / "scenarios" / "outside.yaml").touch()
    (tmp_path / "hardware_profiles").mkdir()
    monkeypatch.setattr(resources, "_PACKAGE", tmp_path / "simserve")
    resources.folder.cache_clear()
    try:
        assert resources.folder("scenarios") == tmp_path / "simserve" / "scenarios"
        assert resources.folder("hardware_profiles") == tmp_path / "hardware_profiles"
        with pytest.raises(FileNotFoundError, match="models"):
            resources.folder("models")
    finally:
        resources.folder.cache_clear()


def test_data_files_are_absolute_or_simserves_own(tmp_path):
    assert resources.data_path(str(tmp_path / "a.csv")) == tmp_path / "a.csv"
    assert resources.data_path("traces/a.csv") == resources.folder("scenarios") / "traces" / "a.csv"
    assert resources.folder("models").parent.name == simserve.__name__
