"""`simserve models`, and models in scenarios as users name them: what is read, said, left out or refused."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from simserve.cli import app
from simserve.cost.memory import memory_ledger
from simserve.report.summary import summarize
from simserve.report.table import benchmark_table
from simserve.simulation import simulate
from simserve.spec.catalogue import find_model, resolve_model
from simserve.spec.errors import ScenarioError
from simserve.spec.load import parse_scenario
from simserve.spec.model import ModelSpec

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 512,
    "intermediate_size": 1408,
    "num_hidden_layers": 8,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "vocab_size": 32000,
    "max_position_embeddings": 4096,
    "torch_dtype": "bfloat16",
}


def call(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["models", *arguments])


def written(folder: Path, config: dict[str, Any], name: str = "config.json") -> str:
    path = folder / name
    path.write_text(json.dumps(config))
    return str(path)


def facts(*arguments: str) -> dict[str, Any]:
    done = call(*arguments, "--json")
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_file_a_folder_a_name_and_an_id_are_models(tmp_path: Path) -> None:
    path = written(tmp_path, LLAMA)
    assert facts(path) == facts(str(tmp_path))
    assert facts("qwen3-8b") == facts("Qwen/Qwen3-8B") == facts("Qwen3-8B")
    assert facts("deepseek-v3")["layers"] == {"latent + dense": 3, "latent + mixture": 58}
    assert "56,369,664 (0.06 B)" in call(path).stdout


def test_facts_are_those_that_are_promised(tmp_path: Path) -> None:
    found = facts("gpt-oss-120b")
    assert found["num_parameters"] == 116829156672
    assert found["windows"] == [{"window": 128, "bytes_per_token": 36864, "layers": 18}]
    assert (found["kv_bytes_per_token"], found["kv_dtype"], found["max_model_len"]) == (36864, "bf16", 131072)
    assert found["simulated"] is True
    assert facts("qwen3-next-80b-a3b")["simulated"] == "gated delta-net layers are not simulated yet"
    assert facts("qwen3-next-80b-a3b")["state_bytes_per_sequence"] > 0


def test_a_folder_of_files_is_a_table_in_which_a_refusal_is_a_row(tmp_path: Path) -> None:
    written(tmp_path, LLAMA, "good_config.json")
    written(tmp_path, LLAMA | {"num_foo_heads": 3}, "odd_config.json")
    rows = json.loads(call(str(tmp_path), "--json").stdout)
    assert [row["name"] for row in rows] == ["good", "odd_config"]
    assert "num_foo_heads" in rows[1]["refused"]
    assert "refused: " in call(str(tmp_path)).stdout


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"model_type": "bert", "architectures": ["BertModel"]}, "is an encoder: it has no KV cache"),
        ({"model_type": "xlm-roberta", "architectures": ["XLMRobertaModel"]}, "is an encoder"),
        ({"model_type": "flux", "architectures": None, "_class_name": "FluxPipeline"}, "is a diffusion model"),
        ({"model_type": "t5", "architectures": None}, "is an encoder with a decoder"),
        ({"model_type": "llama9", "architectures": None}, "no family is known by model_type 'llama9'"),
        ({"model_type": None, "architectures": None}, "neither model_type nor architectures says"),
        ({"num_local_experts": 8}, "num_local_experts: 8: not known for the family llama"),
        ({"hidden_size": None}, "hidden_size: expected a positive whole number, got null"),
        ({"num_attention_heads": "8"}, "num_attention_heads: expected a positive whole number, got '8'"),
    ],
)
def test_a_refusal_is_one_reason_and_code_2(tmp_path: Path, changes: dict[str, Any], reason: str) -> None:
    for arguments in ((), ("--json",)):
        done = call(written(tmp_path, LLAMA | changes), *arguments)
        assert done.exit_code == 2
        assert done.stdout == ""
        assert reason in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1


def test_every_model_of_the_catalogue_is_listed_with_whether_it_runs() -> None:
    rows = json.loads(call("--json").stdout)
    assert len(rows) >= 150
    assert all(row["simulated"] is True or "not simulated" in row["simulated"] for row in rows)
    assert sum(row["simulated"] is True for row in rows) >= 90


WORDS = st.sampled_from(
    ["num", "n", "moe", "attn", "attention", "swa", "expert", "layer", "head", "kv", "mlp", "sparse"]
)
SIZES = st.sampled_from(
    ["layers", "heads", "experts", "size", "dim", "rank", "types", "pattern", "top_k", "freq", "width"]
)


@settings(max_examples=200, deadline=None)
@given(
    words=st.lists(WORDS, min_size=1, max_size=3),
    size=SIZES,
    value=st.sampled_from([1, 7, [1, 2], "x", {"a": 1}, True]),
)
def test_a_key_that_names_sizes_is_never_taken_in_silence(words: list[str], size: str, value: object) -> None:
    """models.md: an unread key means "a Llama"."""
    key = "_".join([*words, size])
    if key in LLAMA:
        return
    found = read_or_said(LLAMA | {key: value})
    assert key in found if isinstance(found, str) else found != read_or_said(LLAMA)


def read_or_said(config: dict[str, Any]) -> ModelSpec | str:
    """The model of a configuration, or the error that it ends in."""
    try:
        return ModelSpec.model_validate(resolve_model({"config": config}))
    except ScenarioError as error:
        return str(error)


@settings(max_examples=200, deadline=None)
@given(
    name=st.sampled_from(
        ["llama-3.1-8b", "deepseek-v3", "gpt-oss-20b", "gemma-4-26b-a4b", "hunyuan-a13b", "qwen3-next-80b-a3b"]
    ),
    data=st.data(),
)
def test_whatever_stands_in_a_key_is_read_or_ends_in_one_clear_error(name: str, data: st.DataObject) -> None:
    from simserve.spec import resources

    path = resources.find("models", f"{name}.json")
    assert path is not None
    config = json.loads(path.read_text(encoding="utf-8"))
    key = data.draw(st.sampled_from([key for key in config if not key.startswith("_")]))
    config[key] = data.draw(st.sampled_from([[], [1], "words", None, -1, 0, 1.5, 1e308, 10**30, {}, {"a": [1]}, True]))
    found = read_or_said(config)
    assert len(found.splitlines()) == 1 if isinstance(found, str) else found.num_parameters > 0


SCENARIO = """
model: {model}
workload: {{arrivals: {{process: poisson, rate: 1}}, input: 300, output: 20, num_requests: 5}}
cluster: {{gpu: h200-sxm-141gb, tensor_parallel: {ranks}}}
engine: {{max_model_len: {length}}}
"""


def scenario(model: object, ranks: int = 1, length: int = 4096) -> Any:
    text = yaml.safe_dump(model, default_flow_style=True).strip().removesuffix("...").strip()
    return parse_scenario(SCENARIO.format(model=text, ranks=ranks, length=length))


def test_the_users_own_word_stands_beside_every_number() -> None:
    config = {key: value for key, value in LLAMA.items() if key not in {"architectures", "model_type"}}
    model = {"config": config | {"my_switch": 3}, "assume": "llama", "ignore": ["my_switch"], "name": "mine"}
    summary = summarize(simulate(scenario(model)))
    assert "mine: read as llama on the user's word (assume: llama)" in summary["notes"]
    assert "left out of mine: my_switch of its configuration, on the user's word" in summary["notes"]
    words = " ".join(benchmark_table(summary).split())
    assert "Note: mine: read as llama on the user's word (assume: llama)" in words
    with pytest.raises(ScenarioError, match="assume: no family 'lama'; did you mean 'llama'"):
        scenario(model | {"assume": "lama"})


def test_a_key_that_the_file_lacks_is_stated_beside_it() -> None:
    lacking = {key: value for key, value in LLAMA.items() if key != "vocab_size"}
    with pytest.raises(ScenarioError, match=r"vocab_size: .*which the file lacks; state it in the file, or beside"):
        scenario({"config": lacking})
    assert resolve_model({"config": lacking, "vocab_size": 32000}) == resolve_model({"config": LLAMA})
    assert scenario({"config": LLAMA, "num_hidden_layers": 2}).model.num_layers == 2


def test_a_hugging_face_id_is_a_model() -> None:
    assert scenario("Qwen/Qwen3-8B").model == find_model("qwen3-8b")


def test_a_model_that_is_not_simulated_is_refused_by_its_reason() -> None:
    with pytest.raises(ScenarioError, match=r"model: qwen3-next-80b-a3b: gated delta-net layers are not simulated yet"):
        scenario("qwen3-next-80b-a3b", 4)


def test_a_size_in_the_name_that_is_not_the_models_is_a_warning(tmp_path: Path) -> None:
    """It would have caught ERNIE-4.5-300B read as 47.9 B dense."""
    folder = tmp_path / "Some-300B"
    folder.mkdir()
    written(folder, LLAMA)
    (warning,) = facts(str(folder))["warnings"]
    assert "says 300 B" in warning


@pytest.mark.parametrize(
    "name",
    ["mimo-v2-flash", "gemma-4-31b", "ernie-4.5-300b-a47b", "step-3.7-flash", "hunyuan-a13b", "llama-4-scout-17b-16e"],
)
def test_models_that_were_read_wrong_run_end_to_end(name: str) -> None:
    summary = summarize(simulate(scenario(name, 8)))
    assert summary["completed"] == 5
    assert 0 < summary["mean_tpot_ms"] < 100


def test_mimo_has_the_concurrency_of_nine_full_layers() -> None:
    """models.md: 85.6x at 32k and at 262k was read; about 51x and 22x are right (4 H200)."""
    found = [memory_ledger(scenario("mimo-v2-flash", 4, length)).max_concurrency for length in (32768, 262144)]
    assert found[0] == pytest.approx(51, rel=0.06)
    assert found[1] == pytest.approx(22, rel=0.06)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"rope_scaling": {"type": "linear", "factor": 1e308}}, "factor: expected a factor from .* to 1024"),
        ({"rope_scaling": {"type": "linear", "factor": -2}}, "factor: expected a factor"),
        ({"add_cross_attention": True}, "add_cross_attention: true is attention to an encoder"),
        ({"pruned_heads": {"0": [1]}}, "pruned_heads: .* takes heads out"),
    ],
)
def test_what_is_understood_for_one_value_is_refused_for_others(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ScenarioError, match=reason):
        resolve_model({"config": LLAMA | changes})


@pytest.mark.parametrize("verb", ["memory", "step", "capacity", "sweep"])
def test_what_is_said_of_a_model_stands_below_every_answer(verb: str, tmp_path: Path) -> None:
    """Not below a run alone: `assume` is repeated in every result."""
    config = {key: value for key, value in LLAMA.items() if key not in {"architectures", "model_type"}}
    content = yaml.safe_load(SCENARIO.format(model="x", ranks=1, length=4096))
    content |= {"model": {"config": config, "assume": "llama", "name": "mine"}, "slo": {"ttft": "1 s"}}
    file = tmp_path / "s.yaml"
    file.write_text(yaml.safe_dump(content))
    more = {
        "step": ["--decodes", "4", "--context", "100"],
        "capacity": ["--seeds", "1", "--workers", "1", "workload.num_requests=300", "slo.ttft=100 ms"],
        "sweep": ["workload.arrivals.rate=1,2", "-o", str(tmp_path / "out"), "--workers", "1"],
    }
    done = CliRunner().invoke(app, [verb, str(file), *more.get(verb, [])])
    assert done.exit_code == 0, done.output
    assert "Note: mine: read as llama on the user's word (assume: llama)" in done.stdout


def test_an_unknown_model_does_not_list_them_all() -> None:
    said = call("zzz").stderr
    assert "`simserve models` lists them" in said
    assert len(said) < 1200
