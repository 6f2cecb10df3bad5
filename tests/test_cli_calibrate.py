"""`simserve calibrate` and `simserve validate live` where they cannot run: one clear error, nothing written."""

import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from simserve.cli import app

CALL = CliRunner()
WITHOUT_TORCH = [["calibrate", "-o", "mine"], ["validate", "live", "--profile", "cpu-calibrated-example"]]


@pytest.mark.parametrize("command", WITHOUT_TORCH, ids=" ".join)
def test_without_torch_there_is_one_clear_error(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "torch", None)
    result = CALL.invoke(app, command)
    assert result.exit_code == 2
    assert result.stderr.splitlines()[0].endswith("pip install 'simserve[calibrate]'")
    assert not list(tmp_path.iterdir())


def test_a_profile_is_not_overwritten(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="needs the calibrate extra")
    (tmp_path / "profile.yaml").write_text("mine\n")
    result = CALL.invoke(app, ["calibrate", "-o", str(tmp_path)])
    assert result.exit_code == 2
    assert "exists; --force replaces it" in result.stderr
    assert (tmp_path / "profile.yaml").read_text() == "mine\n"


@pytest.mark.parametrize("load", ["", "much", "0.3,0", "0.3;0.6"])
def test_loads_are_shares(load: str) -> None:
    result = CALL.invoke(app, ["validate", "live", "--profile", "cpu-calibrated-example", "--load", load])
    assert result.exit_code == 2
    assert "expected shares such as 0.3,0.6,0.85" in result.stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--profile", "h100-sxm-80gb"], "is not calibrated; run simserve calibrate"),
        (["--profile", "cpu-calibrated-example", "--device", "cuda"], "was calibrated on cpu, not cuda"),
    ],
)
def test_a_profile_of_something_else_is_refused(
    options: list[str], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch", reason="needs the calibrate extra")
    monkeypatch.setattr("simserve.cli.calibrate._pin", lambda device: None)
    result = CALL.invoke(app, ["validate", "live", *options])
    assert result.exit_code == 2
    assert words in result.stderr
