"""Launches: every operator of a step is counted, and what handing one over takes is a number of the profile."""

from itertools import pairwise
from pathlib import Path

import pytest
import yaml

torch = pytest.importorskip("torch", reason="needs the calibrate extra: pip install 'simserve[calibrate]'")
pytest.importorskip("scipy")

from calibration import calibrate as calibration  # noqa: E402
from calibration.calibrate import Request, calibrate, scheduler_config  # noqa: E402
from calibration.engine.config import ModelConfig  # noqa: E402
from calibration.engine.runner import ModelRunner  # noqa: E402
from calibration.launches import Launches, measure_launches, num_operators  # noqa: E402
from calibration.points import Limits  # noqa: E402
from calibration.profile import launch_section, write_profile  # noqa: E402
from simserve.cost.build import build_forward, launch_ticks  # noqa: E402
from simserve.spec.calibrated import CalibratedSpec  # noqa: E402
from simserve.spec.catalogue import find_model  # noqa: E402
from simserve.spec.gpus import find_gpu, read_gpu  # noqa: E402
from simserve.spec.ticks import to_ticks  # noqa: E402

LIMITS = Limits(6, 32, 64, 512)
TRITON_KERNELS_OF_A_LAYER = 4
"""Two norms, rotation with the write to the cache, attention."""


def runner_of(layers: int, backend: str = "torch") -> ModelRunner:
    torch.set_num_threads(1)
    model = ModelConfig("tiny", 48, layers, 4, 2, 64, 96, 199)
    return ModelRunner(model.without_work(), scheduler_config(LIMITS), dtype="fp32", backend=backend)


def test_each_layer_has_the_same_operators() -> None:
    counts = []
    for layers in (1, 2, 3, 4):
        runner = runner_of(layers)
        counts.append(num_operators(runner, runner.synthetic_batch([9])))
    assert len({more - less for less, more in pairwise(counts)}) == 1
    per_layer = counts[1] - counts[0]
    assert 4 < counts[0] - per_layer < 10, "embedding, last norm, rows, lm_head, argmax"
    assert per_layer > 10


def test_views_and_room_for_a_tensor_are_no_launches() -> None:
    runner = runner_of(1)
    before = num_operators(runner, runner.synthetic_batch([9]))
    decoder = runner._decoder
    runner._decoder = lambda batch, cache: (torch.empty(3).view(3, 1)[1:], decoder(batch, cache))[1]
    assert num_operators(runner, runner.synthetic_batch([9])) == before
    runner._decoder = lambda batch, cache: (torch.ones(3) + 1, decoder(batch, cache))[1]
    assert num_operators(runner, runner.synthetic_batch([9])) == before + 2


def test_triton_kernels_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels are launched for nothing here, where there is no GPU to launch them on."""
    jit = pytest.importorskip("triton.runtime.jit")
    launched: list[str] = []
    monkeypatch.setattr(jit.JITFunction, "run", lambda kernel, *_, **__: launched.append(kernel.fn.__name__))
    monkeypatch.setattr("calibration.engine.kernels.decode.architecture_of", lambda device: "sm_90")
    monkeypatch.setattr("calibration.engine.kernels.launch.num_processors", lambda device: 8)
    counts = []
    for layers in (1, 2):
        runner = runner_of(layers, "triton")
        launched.clear()
        counts.append(num_operators(runner, runner.synthetic_batch([9])))
        assert len(launched) == TRITON_KERNELS_OF_A_LAYER * layers + 1
    linear_layers_and_gate = 6
    assert counts[1] - counts[0] == TRITON_KERNELS_OF_A_LAYER + linear_layers_and_gate
    monkeypatch.undo()
    assert jit.JITFunction.run.__name__ == "run"


def test_a_cpu_launches_nothing_but_dispatches() -> None:
    found = measure_launches(runner_of(2))
    assert found.graph is None
    assert found.operators == num_operators(runner_of(2), runner_of(2).synthetic_batch([16]))
    assert found.kernel > 0
    assert found.eager > 0


def test_what_was_measured_is_in_the_profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "limits_of", lambda request: LIMITS)
    monkeypatch.setattr(calibration, "model_config", lambda name: ModelConfig("tiny", 48, 2, 4, 2, 64, 96, 199))
    monkeypatch.setattr(calibration, "measure_launches", lambda idle: Launches(2e-6, 9e-6, None, 50))
    calibrate(Request(tmp_path / "mine", dtype="fp32", quick=True, passes=2, bound=10.0), lambda done: None)
    gpu = read_gpu(tmp_path / "mine")
    assert (gpu.launch.kernel, gpu.launch.eager, gpu.launch.graph) == pytest.approx((2e-6, 9e-6, 450e-6))
    assert gpu.sources["launch"].startswith("measured: ")
    assert gpu.calibrated is not None
    assert gpu.calibrated.overheads.zero_work_operators == 50
    assert gpu.host.per_step == gpu.calibrated.host.per_step > 0


def test_launches_of_a_calibrated_gpu_outweigh_those_of_its_base(tmp_path: Path) -> None:
    """Where other models are simulated on it, their kernels are launched as was measured."""
    spec = find_gpu("cpu-calibrated-example").calibrated
    assert spec is not None
    launches = Launches(5e-6, 31e-6, 14e-6, 200)
    path = write_profile(tmp_path, section_of(spec), launches, runner_of(1), "h200-sxm-141gb")
    gpu, base = read_gpu(path), find_gpu("h200-sxm-141gb")
    assert (gpu.launch.kernel, gpu.launch.graph, gpu.launch.eager) == pytest.approx((5e-6, 14e-6, 31e-6))
    assert gpu.efficiency == base.efficiency
    assert gpu.sources["efficiency"] == base.sources["efficiency"]
    forward = build_forward(find_model("llama-3.2-1b"), gpu, 1, eager=True)
    assert forward.launch == launch_ticks(gpu.launch, eager=True)
    assert to_ticks(31e-6) in forward.launch


def section_of(spec: CalibratedSpec) -> dict[str, object]:
    found: dict[str, object] = yaml.safe_load(yaml.safe_dump(spec.model_dump(mode="json")))
    return found


def test_without_graphs_a_replay_is_the_eager_step() -> None:
    section, words = launch_section(Launches(1e-6, 10e-6, None, 7))
    assert section == {"kernel": "1 us", "graph": "70 us", "eager": "10 us", "autotuned": None}
    assert "no graphs here" in words
    section, words = launch_section(Launches(1e-6, 10e-6, 20e-6, 7))
    assert section["graph"] == "20 us"
    assert "its 7 operators" in words
