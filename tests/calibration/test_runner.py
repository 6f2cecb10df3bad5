"""The model runner by itself: which models it takes, what its times are, and the example of calibration/README.md."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs the calibrate extra: pip install 'simserve[calibrate]'")

from calibration.engine.config import ModelConfig, model_config  # noqa: E402
from calibration.engine.engine import Engine  # noqa: E402
from calibration.engine.runner import ModelRunner  # noqa: E402
from simserve.engine.config import SchedulerConfig  # noqa: E402
from simserve.engine.request import Request  # noqa: E402
from simserve.spec.catalogue import find_model  # noqa: E402
from simserve.spec.errors import ScenarioError  # noqa: E402

MODEL = ModelConfig("tiny", 48, 2, 4, 2, 16, 96, 199)
CONFIG = SchedulerConfig(4, 32, 64, 40, block_size=4, async_scheduling=False)


@pytest.fixture
def runner() -> ModelRunner:
    torch.set_num_threads(1)
    return ModelRunner(MODEL, CONFIG, dtype="fp32")


@pytest.mark.parametrize("name", ["tiny-llama", "llama-3.1-8b", "llama-3.2-1b"])
def test_models_of_the_catalogue(name: str, tmp_path: Path) -> None:
    model = model_config(name)
    assert model.num_parameters == find_model(name).num_parameters
    assert replace(model_config(model.as_hf_config() | {"max_position_embeddings": 8}), name=name) == model


@pytest.mark.parametrize("name", ["mixtral-8x7b", "deepseek-v3", "qwen3-8b", "qwen2.5-7b", "gpt-oss-20b"])
def test_other_architectures_are_refused(name: str) -> None:
    with pytest.raises(ScenarioError, match="not in the engine yet"):
        model_config(name)


def test_weights_have_as_many_elements_as_the_model_has_parameters(runner: ModelRunner) -> None:
    weights = runner.weights
    tensors = [weights.embedding, weights.norm, weights.lm_head]
    for layer in weights.layers:
        tensors += [layer.attention_norm, layer.qkv, layer.output, layer.mlp_norm, layer.gate_up, layer.down]
    assert sum(tensor.numel() for tensor in tensors) == MODEL.num_parameters
    again = ModelRunner(MODEL, CONFIG, dtype="fp32").weights
    assert torch.equal(weights.layers[1].down, again.layers[1].down)
    assert not torch.equal(weights.lm_head, ModelRunner(MODEL, CONFIG, dtype="fp32", seed=1).weights.lm_head)


def test_a_model_without_work_has_the_same_layers() -> None:
    idle = model_config("llama-3.1-8b").without_work()
    assert idle.num_layers == 32
    assert idle.num_parameters < 2e6


@pytest.mark.parametrize("dtype", ["fp32", "bf16", "fp16"])
def test_the_parts_of_a_step_add_up(dtype: str) -> None:
    runner = ModelRunner(MODEL, CONFIG, dtype=dtype)
    output = runner.run(runner.synthetic_batch([9, 30], [(12, 8)]))
    assert len(output.tokens) == 3
    assert output.times.total == pytest.approx(sum(output.times[:-1]))
    engine = Engine(runner)
    engine.add(Request(0, 0, 5, 3, 3), [1, 2, 3, 4, 5])
    times = engine.step().times
    assert min(times) >= 0
    assert times.device > 0
    assert times.schedule > 0
    assert sum(times[:-1]) <= times.total * 1.0001


def test_an_engine_agrees_with_its_runner(runner: ModelRunner) -> None:
    assert Engine(runner, replace(CONFIG, max_num_batched_tokens=8)).scheduler.config.max_num_batched_tokens == 8
    for other in ({"num_gpu_blocks": 41}, {"block_size": 8}, {"max_model_len": 65}):
        with pytest.raises(AssertionError):
            Engine(runner, replace(CONFIG, **other))
    with pytest.raises(AssertionError, match="length of the prompt"):
        Engine(runner).add(Request(0, 0, 5, 3, 3), [1, 2])


def test_warming_up_changes_no_token(runner: ModelRunner) -> None:
    engine = Engine(runner)
    engine.add(Request(0, 0, 5, 3, 3), [1, 2, 3, 4, 5])
    first = engine.step().tokens
    again = ModelRunner(MODEL, CONFIG, dtype="fp32", graph_sizes=(2,))
    again.warm_up()
    assert again.use_graphs
    engine = Engine(again)
    engine.add(Request(0, 0, 5, 3, 3), [1, 2, 3, 4, 5])
    assert list(engine.step().tokens.values()) == list(first.values())


def test_an_empty_plan_takes_no_time(runner: ModelRunner) -> None:
    engine = Engine(runner)
    output = engine.execute(engine.scheduler.schedule())
    assert output.tokens == {}
    assert output.times.total == 0


def test_the_example_of_the_readme_runs(capsys: pytest.CaptureFixture[str]) -> None:
    text = Path(__file__).parents[2].joinpath("calibration", "README.md").read_text(encoding="utf-8")
    example = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    assert example is not None
    exec(compile(example[1], "README.md", "exec"), {})
    times, answer = capsys.readouterr().out.splitlines()
    assert times.startswith("StepTimes(")
    assert answer.startswith("[3, 1, 4, 1, 5, ")
