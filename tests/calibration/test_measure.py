"""Measuring a tiny model: samples are appended, resumed and never mixed up. Nothing here asserts how long it takes."""

from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs the calibrate extra: pip install 'simserve[calibrate]'")
pytest.importorskip("scipy")

from calibration import calibrate as calibration  # noqa: E402
from calibration.calibrate import Request, calibrate, scheduler_config  # noqa: E402
from calibration.engine.config import ModelConfig  # noqa: E402
from calibration.engine.runner import ModelRunner  # noqa: E402
from calibration.measure import host_times, measure  # noqa: E402
from calibration.points import CUDA_LIMITS, Limits, points  # noqa: E402
from calibration.samples import SampleFile  # noqa: E402
from simserve.cost import build_step_cost, cost_level  # noqa: E402
from simserve.spec import resources  # noqa: E402
from simserve.spec.errors import ScenarioError  # noqa: E402
from simserve.spec.gpus import read_gpu  # noqa: E402
from simserve.spec.load import load_scenario  # noqa: E402

QUICKSTART = resources.folder("scenarios") / "quickstart-cpu.yaml"
MODEL = ModelConfig("tiny", 48, 2, 4, 2, 16, 96, 199)
LIMITS = Limits(6, 32, 64, 512)


@pytest.fixture(scope="module")
def runner() -> ModelRunner:
    torch.set_num_threads(1)
    return ModelRunner(MODEL, scheduler_config(LIMITS), dtype="fp32")


@pytest.mark.parametrize("limits", [LIMITS, CUDA_LIMITS])
def test_points_fit_the_cache_and_are_the_same_again(limits: Limits) -> None:
    found = points(limits)
    assert found == points(limits)
    assert {point.kind for point in found if point.held_out} == {"decode", "prefill", "mixed"}
    config = scheduler_config(limits)
    for point in found:
        ends = [*point.decodes, *(new + history for new, history in point.chunks)]
        assert len(point.decodes) <= limits.max_num_seqs
        assert point.tokens <= limits.max_num_batched_tokens
        assert max(ends) <= config.max_model_len
        assert sum(-(-end // config.block_size) for end in ends) < config.num_gpu_blocks


def test_an_interrupted_measurement_goes_on(runner: ModelRunner, tmp_path: Path) -> None:
    grid = points(LIMITS, quick=True)[:6]
    file = SampleFile(tmp_path / "samples.csv", "tiny")
    seen: list[float] = []

    def stop(done: float) -> None:
        seen.append(done)
        if len(seen) == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measure(runner, grid, 2, file, stop)
    begun = SampleFile(file.path, "tiny").resume()
    assert len(begun) == 4
    measured = measure(runner, grid, 2, file, seen.append)
    assert measured.samples[:4] == begun
    assert {(each.number, each.place) for each in measured.samples} == {(i, j) for i in range(2) for j in range(6)}
    assert len(seen) == len(measured.samples) == 12
    assert seen[-1] == 1
    assert all(0 < each.device <= each.total for each in measured.samples)


def test_samples_of_something_else_are_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "samples.csv"
    SampleFile(path, "tiny").resume()
    with pytest.raises(ScenarioError, match=r"samples of: tiny, not of large; remove it, or choose another -o"):
        SampleFile(path, "large").resume()


def test_host_times_are_positive_at_every_count(runner: ModelRunner) -> None:
    found = host_times(runner, (1, 4), steps=4)
    assert [each.num_seqs for each in found] == [1, 4]
    assert all(each.host > 0 and each.device > 0 and each.graph_device is None for each in found)


def test_a_calibration_becomes_a_profile_that_a_scenario_uses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "limits_of", lambda request: LIMITS)
    monkeypatch.setattr(calibration, "model_config", lambda name: MODEL)
    folder = tmp_path / "mine"
    done = calibrate(Request(folder, dtype="fp32", quick=True, passes=2, bound=10.0), lambda done: None)
    spec = read_gpu(folder).calibrated
    assert spec is not None
    assert (spec.model, spec.weight_dtype, spec.form) == ("tiny", "fp32", done.fitted.fit.form)
    assert spec.domain.tokens <= 32
    assert not list(folder.glob("*.partial"))
    changes = [f"cluster.gpu={folder}", "engine.num_gpu_blocks=2050"]
    with pytest.raises(ScenarioError, match="was calibrated for tiny in fp32"):
        build_step_cost(load_scenario(QUICKSTART, changes))
    other = load_scenario(QUICKSTART, [*changes, "cost.level=auto"])
    assert cost_level(other) == "datasheet"


@pytest.mark.parametrize(("floor", "is_said"), [(0.051, True), (0.049, False)])
def test_a_noisy_machine_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, floor: float, *, is_said: bool
) -> None:
    fit = calibration.fit_steps
    monkeypatch.setattr(calibration, "limits_of", lambda request: LIMITS)
    monkeypatch.setattr(calibration, "model_config", lambda name: MODEL)
    monkeypatch.setattr(calibration, "fit_steps", lambda steps: fit(steps)._replace(noise_floor=floor))
    said: list[str] = []
    request = Request(tmp_path / "mine", dtype="fp32", quick=True, passes=2, bound=10.0)
    calibrate(request, lambda done: None, said.append)
    assert any("the machine was noisy" in words for words in said) == is_said


def test_what_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="--dtype int3"):
        calibrate(Request(tmp_path, dtype="int3"), lambda done: None)
    if not torch.cuda.is_available():
        with pytest.raises(ScenarioError, match="torch finds no CUDA device here"):
            calibrate(Request(tmp_path, device="cuda"), lambda done: None)
