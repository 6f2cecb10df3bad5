"""The fit, on the samples of the profile that comes with simserve and on steps whose times are known."""

import random
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("scipy", reason="needs the calibrate extra: pip install 'simserve[calibrate]'")

from calibration.fit import BOUND, LONG, Fit, Fitted, Step, check, errors_of, fit_steps, steps_of
from calibration.points import CPU_LIMITS, points
from calibration.samples import Sample, read_samples
from simserve.cost.calibrated import CalibratedStepCost
from simserve.spec import resources
from simserve.spec.calibrated import CalibratedSpec, Coefficients
from simserve.spec.errors import ScenarioError
from simserve.spec.gpus import find_gpu
from simserve.spec.ticks import to_ticks

NAME = "cpu-calibrated-example"


@pytest.fixture(scope="module")
def samples() -> list[Sample]:
    return read_samples(resources.folder("hardware_profiles") / NAME / "samples.csv")


@pytest.fixture(scope="module")
def fitted(samples: list[Sample]) -> Fitted:
    return fit_steps(steps_of(samples))


@pytest.fixture(scope="module")
def spec() -> CalibratedSpec:
    spec = find_gpu(NAME).calibrated
    assert spec is not None
    return spec


def test_the_samples_give_the_profile_again(fitted: Fitted, spec: CalibratedSpec) -> None:
    assert fitted.fit.form == spec.form
    assert fitted.fit.tokens == pytest.approx(spec.tokens, rel=1e-3)
    found, kept = fitted.fit.coefficients.model_dump(), spec.coefficients.model_dump()
    assert found == pytest.approx(kept, rel=1e-3, abs=1e-12)
    assert fitted.errors.mape == pytest.approx(spec.quality.held_out.mape, abs=1e-4)
    assert fitted.noise_floor == pytest.approx(spec.quality.noise_floor, abs=1e-4)


def test_held_out_steps_are_within_the_bounds(fitted: Fitted) -> None:
    assert fitted.errors.mape < 0.031
    assert fitted.errors.p95 < 0.07
    assert abs(fitted.errors.bias) < 0.02
    assert fitted.errors.mape == min(errors.mape for errors in fitted.candidates.values())
    assert fitted.candidates.keys() == {"linear", "linear_chunks", "roofline", "knots"}
    check(fitted)


def test_the_samples_are_the_points_of_the_grid(samples: list[Sample]) -> None:
    grid = points(CPU_LIMITS)
    assert {sample.place for sample in samples} == set(range(len(grid)))
    assert all(sample.point == grid[sample.place] for sample in samples)


def test_simulator_and_fit_agree_on_every_step(samples: list[Sample], fitted: Fitted, spec: CalibratedSpec) -> None:
    bare = spec.model_copy(update={"host": spec.host.model_copy(update={"per_step": 0.0, "per_sequence": 0.0})})
    cost = CalibratedStepCost(bare)
    predicted = fitted.fit.predict(steps_of(samples))
    grid = {sample.place: sample.point for sample in samples}
    for seconds, (_, point) in zip(predicted, sorted(grid.items()), strict=True):
        ticks = cost.ticks(point.chunks, len(point.decodes), sum(point.decodes), 0)[2]
        assert ticks == pytest.approx(to_ticks(float(seconds)), rel=1e-3)


@pytest.fixture
def known() -> list[Step]:
    """Steps whose times follow a formula exactly."""
    generator = random.Random(1)
    each = [400e-6, 3e-6, 300e-9, 1e-3, 500e-6, 5e-6]
    steps = []
    for index in range(120):
        rows = generator.randint(1, 500)
        features = {name: generator.uniform(0, 1e-3 / value) for name, value in zip(LONG, each, strict=True)}
        seconds = 0.01 + 200e-6 * rows
        seconds += sum(value * features[name] for name, value in zip(LONG, each, strict=True))
        steps.append(Step("mixed", index % 3 == 0, rows, False, features, seconds, (seconds, seconds)))
    return steps


def test_known_times_are_found(known: list[Step]) -> None:
    fitted = fit_steps(known)
    assert fitted.errors.mape < 1e-6
    assert fitted.noise_floor == 0
    assert fitted.fit.coefficients.per_chunk_pair == pytest.approx(300e-9, rel=1e-6)
    low, *_, high = sorted(fitted.fit.tokens)
    assert fitted.fit.tokens[high] - fitted.fit.tokens[low] == pytest.approx(200e-6 * (high - low), rel=1e-6)


def test_a_graph_has_a_curve_of_its_own(known: list[Step]) -> None:
    graphs = [step._replace(rows=8 * (step.rows // 60 + 1), graph=True, seconds=0.0) for step in known]
    names = ["per_decode", "per_context_token"]
    values = Coefficients(per_decode=400e-6, per_context_token=3e-6)
    truth = Fit("", {1: 1.0, 2: 1.0}, {1: 0.001, 100: 0.002}, values)
    graphs = [step._replace(features=step.features | dict.fromkeys(set(LONG) - {*names}, 0.0)) for step in graphs]
    times = truth.predict(graphs)
    graphs = [step._replace(seconds=float(time)) for step, time in zip(graphs, times, strict=True)]
    fitted = fit_steps(known + graphs)
    assert errors_of(fitted.fit, graphs).mape < 1e-3
    assert max(fitted.fit.graph_tokens.values()) < 0.0021 < min(fitted.fit.tokens.values())


@pytest.mark.parametrize(
    ("halves", "words"), [((1.0, 1.5), "the machine is noisy"), ((1.0, 1.0), "the machine is quiet")]
)
def test_a_fit_beyond_its_bound_fails_and_says_what_to_do(
    known: list[Step], halves: tuple[float, float], words: str
) -> None:
    generator = random.Random(2)
    wild = [step._replace(seconds=step.seconds * generator.choice([0.5, 2]), halves=halves) for step in known]
    fitted = fit_steps(wild)
    assert fitted.errors.mape > BOUND
    with pytest.raises(ScenarioError, match=rf"held-out steps are .* more than 8%; {words}.*(again|--max-tokens)"):
        check(fitted)
    check(fitted, bound=2.0)


def test_one_wild_sample_is_outvoted(samples: list[Sample], fitted: Fitted) -> None:
    spoilt = [sample._replace(device=sample.device * (10 if sample.number == 0 else 1)) for sample in samples[:1]]
    again = fit_steps(steps_of(spoilt + samples[1:]))
    assert again.errors.mape == pytest.approx(fitted.errors.mape, abs=0.005)


def test_times_never_fall_with_more_work(fitted: Fitted) -> None:
    times = [time for _, time in sorted(fitted.fit.tokens.items())]
    assert np.all(np.diff(times) >= 0)
    assert all(value >= 0 for value in fitted.fit.coefficients.model_dump().values())


def test_a_line_that_was_cut_off_is_dropped(samples: list[Sample], tmp_path: Path) -> None:
    text = (resources.folder("hardware_profiles") / NAME / "samples.csv").read_text()
    path = tmp_path / "samples.csv"
    path.write_text(text[: text.rindex(",")])
    assert read_samples(path) == samples[:-1]
