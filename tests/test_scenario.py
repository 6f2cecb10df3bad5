"""Scenarios: vLLM's defaults, bases and overrides, round trips, and what a newcomer reads when something is wrong."""

import json
import pickle
from contextlib import suppress
from itertools import pairwise

import jsonschema
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from simserve.spec import resources
from simserve.spec.engine import capture_sizes
from simserve.spec.errors import ScenarioError
from simserve.spec.load import load_scenario, parse_scenario
from simserve.spec.scenario import Scenario
from simserve.spec.schema import schema

TEXT = """\
name: test
model: llama-3.1-8b
workload:
  arrivals: {process: poisson, rate: 8}
  input: {distribution: lognormal, mean: 512, cv: 1.0, max: 8192}
  output: 128
  num_requests: 100
cluster:
  gpu: h100-sxm-80gb
slo: {ttft: 500 ms, tpot: 50 ms}
"""


def scenario(*overrides):
    return parse_scenario(TEXT, overrides)


def changed(old, new):
    assert old in TEXT
    return TEXT.replace(old, new)


# --- defaults -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gpu", "tokens", "seqs", "largest_graph"),
    [
        ("a100-sxm-80gb", 2048, 256, 512),
        ("l4-24gb", 2048, 256, 512),
        ("l40s-48gb", 2048, 256, 512),
        ("rtx-4090-24gb", 2048, 256, 512),
        ("h100-sxm-80gb", 8192, 1024, 512),
        ("h200-sxm-141gb", 8192, 1024, 512),
        ("rtx-pro-6000-96gb", 8192, 1024, 512),
        ("mi300x-192gb", 16384, 1024, 512),
        ("b200-sxm-180gb", 16384, 1024, 1024),
    ],
)
def test_engine_defaults_follow_the_gpu_as_in_vllm(gpu, tokens, seqs, largest_graph):
    engine = scenario(f"cluster.gpu={gpu}").engine
    assert (engine.max_num_batched_tokens, engine.max_num_seqs) == (tokens, seqs)
    assert engine.max_num_active_seqs == seqs
    assert engine.cuda_graph.capture_sizes[-1] == largest_graph
    assert engine.max_model_len == 131072


def test_the_other_defaults_are_those_of_vllm():
    engine = scenario().engine
    assert engine.block_size == 16
    assert engine.gpu_memory_utilization == 0.92
    assert engine.enable_prefix_caching
    assert engine.enable_chunked_prefill
    assert engine.async_scheduling
    assert engine.scheduler_reserve_full_isl
    assert (engine.scheduling_policy, engine.watermark, engine.long_prefill_token_threshold) == ("fcfs", 0.0, 0)
    assert engine.num_gpu_blocks is None
    assert engine.cuda_graph.mode == "full_and_piecewise"


def test_without_chunked_prefill_the_default_budget_holds_the_longest_prompt():
    engine = scenario("engine.enable_chunked_prefill=false", "engine.max_model_len=20000").engine
    assert engine.max_num_batched_tokens == 20000


def test_few_short_requests_lower_the_default_budget():
    engine = scenario("engine.max_num_seqs=4", "engine.max_model_len=100").engine
    assert engine.max_num_batched_tokens == 400


def test_a_small_budget_lowers_the_default_number_of_sequences():
    assert scenario("engine.max_num_batched_tokens=64").engine.max_num_seqs == 64


def test_graphs_reach_to_twice_the_sequences():
    assert scenario("engine.max_num_seqs=16").engine.cuda_graph.capture_sizes == (1, 2, 4, 8, 16, 24, 32)
    assert scenario("engine.enforce_eager=true").engine.cuda_graph.mode == "none"
    assert scenario("engine.enforce_eager=true").engine.cuda_graph.capture_sizes == ()


@pytest.mark.parametrize(
    ("seqs", "tokens", "sizes"),
    [
        (20, 8192, (1, 2, 4, 8, 16, 20, 24, 32, 40)),
        (20, 30, (1, 2, 4, 8, 16, 20, 24, 30)),
        (3, 8192, (1, 2, 3, 4)),
    ],
)
def test_graphs_hold_a_full_batch(seqs, tokens, sizes):
    engine = scenario(f"engine.max_num_seqs={seqs}", f"engine.max_num_batched_tokens={tokens}").engine
    assert engine.cuda_graph.capture_sizes == sizes


@given(st.integers(1, 2000))
def test_captured_sizes_ascend_in_steps_of_8_and_16(largest):
    sizes = capture_sizes(largest)
    assert sizes[0] == 1
    assert sizes[-1] <= largest < sizes[-1] + (8 if largest < 256 else 16)
    assert all(b - a <= (8 if a < 256 else 16) for a, b in pairwise(sizes))


def test_host_costs_are_the_gpus_except_what_is_stated():
    cost = scenario("cost.host.per_step=3 ms").cost
    gpu = scenario().cluster.gpu
    assert cost.host.per_step == 0.003
    assert cost.host.per_sequence == gpu.host.per_sequence


# --- round trips ----------------------------------------------------------------------------------------------------

numbers = st.floats(1e-3, 1e3)
tokens = st.integers(1, 10_000)
ordered = st.tuples(tokens, tokens).map(sorted)
lengths = st.one_of(
    tokens,
    tokens.map(lambda value: {"distribution": "constant", "value": value}),
    ordered.map(lambda pair: {"distribution": "uniform", "min": pair[0], "max": pair[1]}),
    st.fixed_dictionaries(
        {
            "distribution": st.just("lognormal"),
            "mean": st.floats(1, 1e3),
            "cv": numbers,
            "max": st.integers(1000, 10_000),
        }
    ),
    st.fixed_dictionaries({"distribution": st.just("normal"), "mean": st.floats(1, 1e3), "stddev": numbers}),
    st.fixed_dictionaries({"distribution": st.just("empirical"), "values": st.lists(tokens, min_size=1, max_size=5)}),
)
stages = st.lists(st.fixed_dictionaries({"rate": numbers, "duration": numbers}), min_size=1, max_size=3)
arrivals = st.one_of(
    st.fixed_dictionaries({"process": st.sampled_from(["poisson", "constant"]), "rate": numbers}),
    st.fixed_dictionaries({"process": st.just("gamma"), "rate": numbers, "cv": numbers, "normalize": st.booleans()}),
    st.fixed_dictionaries({"process": st.just("ramp"), "start_rate": numbers, "end_rate": numbers}),
    st.fixed_dictionaries({"process": st.just("piecewise"), "stages": stages}),
    st.fixed_dictionaries({"process": st.just("closed_loop"), "users": tokens, "think_time": numbers}),
    st.just({"process": "all_at_once"}),
)
workloads = st.fixed_dictionaries(
    {"arrivals": arrivals, "input": lengths, "output": lengths, "num_requests": tokens},
    optional={"max_tokens": lengths, "shared_prefix": st.just({"groups": 2, "length": 100})},
)
engines = st.fixed_dictionaries(
    {"max_model_len": st.integers(512, 4096)},
    optional={
        "max_num_seqs": st.integers(1, 512),
        "block_size": st.sampled_from([1, 16, 256]),
        "gpu_memory_utilization": st.floats(0.1, 1.0),
        "watermark": st.floats(0, 0.9),
        "num_gpu_blocks": st.integers(4097, 10**6),
        "enable_chunked_prefill": st.booleans(),
        "scheduling_policy": st.sampled_from(["fcfs", "priority"]),
    },
)
data = st.fixed_dictionaries(
    {
        "model": st.sampled_from(["llama-2-7b", "gpt-oss-20b", {"config": "qwen3-8b", "weight_dtype": "fp8"}]),
        "workload": workloads,
        "cluster": st.fixed_dictionaries(
            {"gpu": st.sampled_from(["l4-24gb", {"base": "mi300x-192gb", "hbm_bandwidth": "4 TB/s"}])},
            optional={"replicas": st.integers(1, 100), "price_per_gpu_hour": numbers},
        ),
        "engine": engines,
    },
    optional={
        "cost": st.sampled_from([{"constant_step": "10 ms"}, {"host": {"per_step": "2 ms"}}]),
        "slo": st.fixed_dictionaries({"ttft": numbers.map("{} s".format)}),
        "run": st.just({"warmup": "10 s"}),
        "seed": tokens,
    },
)


@given(data)
def test_resolved_yaml_loads_again_to_an_equal_scenario(written):
    first = parse_scenario(yaml.safe_dump(written))
    again = parse_scenario(first.to_yaml())
    assert again == first
    assert again.to_yaml() == first.to_yaml()
    assert pickle.loads(pickle.dumps(first)) == first


SCHEMA = jsonschema.Draft202012Validator(schema())


@settings(max_examples=20)
@given(data)
def test_the_schema_describes_what_is_accepted(written):
    SCHEMA.validate(written)
    # JSON has no whole numbers as keys; editors check YAML by the same schema.
    resolved = json.loads(json.dumps(yaml.safe_load(parse_scenario(yaml.safe_dump(written)).to_yaml())))
    SCHEMA.validate(resolved)


def test_the_schema_refuses_unknown_keys():
    for path in (["workload"], ["workload", "arrivals"], ["cluster"], []):
        written = yaml.safe_load(TEXT)
        section = written
        for key in path:
            section = section[key]
        section["typo"] = 1
        with pytest.raises(jsonschema.ValidationError):
            SCHEMA.validate(written)


def test_a_scenario_differs_from_another_one():
    assert scenario() == scenario()
    assert scenario() != scenario("seed=1")
    assert scenario() != scenario("engine.block_size=32")


def test_a_scenario_cannot_be_changed():
    with pytest.raises(Exception, match="frozen"):
        scenario().seed = 3


# --- overrides and bases --------------------------------------------------------------------------------------------


def test_an_override_replaces_the_value_at_its_path():
    changed = scenario("workload.input={distribution: uniform, min: 100, max: 600}", "cluster.replicas=4", "seed=1e1")
    assert changed.workload.input.model_dump() == {"distribution": "uniform", "min": 100, "max": 600}
    assert (changed.cluster.replicas, changed.seed) == (4, 10)


def test_later_overrides_win():
    assert scenario("seed=1", "seed=2").seed == 2


def test_overrides_reach_into_a_model_and_a_gpu_that_are_named():
    changed = scenario("model.weight_dtype=fp8", "cluster.gpu.hbm_bandwidth=3 TB/s", "cluster.gpu.launch.kernel=0")
    assert (changed.model.name, changed.model.weight_dtype) == ("llama-3.1-8b", "fp8")
    assert (changed.cluster.gpu.name, changed.cluster.gpu.hbm_bandwidth) == ("h100-sxm-80gb", 3e12)
    assert changed.cluster.gpu.launch.kernel == 0
    assert changed.cluster.gpu.launch.graph == scenario().cluster.gpu.launch.graph


def test_overrides_reach_into_lists():
    text = changed("  num_requests", "  classes: [{name: a, share: 1}]\n  num_requests")
    assert parse_scenario(text, ["workload.classes.0.priority=7"]).workload.classes[0].priority == 7


def test_defaults_follow_a_later_override():
    on_a100 = scenario("cluster.gpu=a100-sxm-80gb")
    assert scenario().with_overrides(["cluster.gpu=a100-sxm-80gb"]) == on_a100
    assert on_a100.with_overrides(["cluster.gpu=h100-sxm-80gb"]) == scenario()
    assert scenario("engine.max_num_seqs=7").with_overrides(["seed=3"]).engine.max_num_seqs == 7


def test_null_takes_a_setting_back():
    by_time = scenario("workload.num_requests=null", "workload.duration=10 min")
    assert (by_time.workload.num_requests, by_time.workload.duration) == (None, 600.0)
    assert scenario("engine=null", "cost=null", "run=null", "workload.classes=null") == scenario()


def test_a_base_is_merged_key_by_key(tmp_path):
    (tmp_path / "base.yaml").write_text(TEXT)
    (tmp_path / "child.yaml").write_text(
        "base: base.yaml\nname: child\ncluster: {replicas: 3}\nengine: {block_size: 32}\n"
    )
    (tmp_path / "grandchild.yaml").write_text("base: child.yaml\nengine: {max_num_seqs: 9}\n")
    child = load_scenario(tmp_path / "grandchild.yaml")
    assert child == scenario("name=child", "cluster.replicas=3", "engine.block_size=32", "engine.max_num_seqs=9")


def test_another_process_or_distribution_replaces_the_whole(tmp_path):
    (tmp_path / "base.yaml").write_text(TEXT)
    child = tmp_path / "child.yaml"
    change = {"arrivals": {"process": "closed_loop", "users": 4}, "input": {"distribution": "constant", "value": 9}}
    child.write_text(yaml.safe_dump({"base": "base.yaml", "workload": change}))
    workload = load_scenario(child).workload
    assert workload.arrivals.model_dump() == {"process": "closed_loop", "users": 4, "think_time": 0.0}
    assert workload.input.model_dump() == {"distribution": "constant", "value": 9}
    child.write_text("base: base.yaml\nworkload: {arrivals: {rate: 4}}\n")
    assert load_scenario(child) == scenario("workload.arrivals.rate=4")


def test_a_base_that_leads_back_to_itself_is_refused(tmp_path):
    (tmp_path / "a.yaml").write_text("base: b.yaml\n")
    (tmp_path / "b.yaml").write_text("base: a.yaml\n")
    with pytest.raises(ScenarioError, match="is its own base"):
        load_scenario(tmp_path / "a.yaml")


def test_files_are_sought_from_the_scenario_that_names_them(tmp_path):
    folder = tmp_path / "deep"
    folder.mkdir()
    (folder / "rows.csv").write_text("arrival,input_len,output_len\n0,1,1\n")
    (folder / "lengths.txt").write_text("1\n2\n")
    (folder / "config.json").write_text((resources.folder("models") / "tiny-llama.json").read_text())
    (folder / "base.yaml").write_text(
        "model: ./config.json\nworkload: {trace: {file: rows.csv, format: csv}}\ncluster: {gpu: l4-24gb}\n"
    )
    (tmp_path / "child.yaml").write_text("base: deep/base.yaml\nseed: 1\n")
    loaded = load_scenario(tmp_path / "child.yaml")
    assert loaded.workload.trace.path == folder / "rows.csv"
    assert loaded.model.name == "deep"
    assert parse_scenario(loaded.to_yaml()) == loaded


def test_a_gpu_of_ones_own(tmp_path):
    (tmp_path / "mine.yaml").write_text("base: l4-24gb\nname: mine\nmemory: 48 GiB\n")
    loaded = parse_scenario(changed("gpu: h100-sxm-80gb", f"gpu: {tmp_path / 'mine.yaml'}"))
    assert (loaded.cluster.gpu.name, loaded.cluster.gpu.memory) == ("mine", 48 * 2**30)


def test_an_inline_model():
    config = json.loads((resources.folder("models") / "tiny-llama.json").read_text())
    loaded = parse_scenario(changed("model: llama-3.1-8b", f"model: {{name: mine, config: {json.dumps(config)}}}"))
    assert (loaded.model.name, loaded.model.num_layers) == ("mine", 8)


# --- YAML -----------------------------------------------------------------------------------------------------------


def test_numbers_are_read_as_yaml_1_2_has_them():
    loaded = scenario("cost.constant_step=1e-6", "name=off", "description='on'")
    assert loaded.cost.constant_step == 1e-6
    assert loaded.name == "off"


def test_anchors_and_merge_keys_work():
    text = changed("  num_requests", "  max_tokens: &long {distribution: constant, value: 9}\n  num_requests")
    text = text.replace("name: test", "name: test\ncost: {<<: {level: datasheet}, constant_step: 1 ms}")
    merged = parse_scenario(text)
    assert (merged.cost.level, merged.cost.constant_step) == ("datasheet", 0.001)
    assert merged.workload.max_tokens.value == 9


# --- what is refused ------------------------------------------------------------------------------------------------


def complaint(text, *overrides):
    with pytest.raises(ScenarioError) as caught:
        parse_scenario(text, overrides, origin="s.yaml")
    return str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "complaints"),
    [
        ("rate: 8", "rat: 8", "s.yaml:4: workload.arrivals.rat: unknown key 'rat'; did you mean 'rate'?"),
        ("workload:", "workloads:", "s.yaml:3: workloads: unknown key 'workloads'; did you mean 'workload'?"),
        ("model: llama-3.1-8b\n", "", "s.yaml:1: model: is needed and not given"),
        ("llama-3.1-8b", "lama-3.1-8b", "s.yaml:2: model: unknown model 'lama-3.1-8b'; did you mean 'llama-3.1-8b'?"),
        ("h100-sxm-80gb", "h100-sxn", "s.yaml:9: cluster.gpu: unknown GPU 'h100-sxn'; did you mean 'h100-sxm-80gb'?"),
        (
            "h100-sxm-80gb",
            "h100",
            "s.yaml:9: cluster.gpu: h100 is h100-nvl-94gb, h100-pcie-80gb or h100-sxm-80gb; name one",
        ),
        ("poisson", "poison", "s.yaml:4: workload.arrivals: process: expected one of poisson, gamma, "),
        ("rate: 8", "rate: -8", "s.yaml:4: workload.arrivals.rate: must be greater than 0, got -8"),
        ("rate: 8", "rate: .nan", "s.yaml:4: workload.arrivals.rate: expected a plain number, got nan"),
        ("500 ms", "500 msec", "s.yaml:10: slo.ttft: expected a time such as 500 ms"),
        ("500 ms", ".inf", "s.yaml:10: slo.ttft: expected a finite number, got inf"),
        ("ttft: 500 ms", "ttft: 500", "s.yaml:10: slo.ttft: 500 of what? Write 500 ms or 500 s"),
        ("ttft: 500 ms", "ttft: '0.5'", "s.yaml:10: slo.ttft: 0.5 of what?"),
        ("num_requests: 100", "num_requests: 2.5", "s.yaml:7: workload.num_requests: expected a whole number, got 2.5"),
        (
            "num_requests: 100",
            "num_requests: true",
            "s.yaml:7: workload.num_requests: expected a whole number, got true",
        ),
        ("  num_requests: 100\n", "", "s.yaml:3: workload: needs num_requests or duration"),
        (
            "num_requests: 100",
            "num_requests: 100\n  duration: 10 min",
            "s.yaml:3: workload: num_requests and duration are both given",
        ),
        (
            "num_requests: 100",
            "num_requests: 100\n  num_requests: 200",
            "s.yaml:8: duplicate key 'num_requests', already given at s.yaml:7",
        ),
        ("  num_requests", "\tnum_requests", "s.yaml:7: not valid YAML: "),
        ("output: 128", "output: 0", "s.yaml:6: workload.output: must be at least 1, got 0"),
        ("cv: 1.0", "std: 1.0", "s.yaml:5: workload.input.std: unknown key 'std'; known: distribution, mean, cv"),
        ("max: 8192", "min: 9, max: 8", "s.yaml:5: workload.input: min 9 is larger than max 8"),
        ("name: test", "name: test\nmax_num_seqs: 8", "s.yaml:2: max_num_seqs: belongs under engine:"),
        (
            "name: test",
            "base: nowhere.yaml",
            "s.yaml:1: base: expected the path of another scenario, got 'nowhere.yaml'",
        ),
        (
            "slo: {ttft: 500 ms, tpot: 50 ms}",
            "slo: {}",
            "s.yaml:10: slo: needs at least one of ttft, tpot, itl and e2el",
        ),
        ("ttft: 500 ms", "percentile: 0.95", "s.yaml:10: slo.percentile: must be at least 1, got 0.95"),
        ("gpu: h100-sxm-80gb", "gpu: 8", "s.yaml:9: cluster.gpu: expected the name of a GPU"),
        (
            "gpu: h100-sxm-80gb",
            "gpu: {base: h100-sxm-80gb, hbm_bandwith: 3 TB/s}",
            "s.yaml:9: cluster.gpu.hbm_bandwith: unknown key 'hbm_bandwith'; did you mean 'hbm_bandwidth'?",
        ),
        (
            "model: llama-3.1-8b",
            "model: {hidden_size: 8, num_hidden_layers: 2}",
            "s.yaml:2: model: a Hugging Face configuration belongs under `config:`",
        ),
        ("model: llama-3.1-8b", "model: {config: llama-3.1-8b, weight_dtype: fp9}", "did you mean 'fp8'?"),
        (
            "  num_requests: 100",
            "  trace: {file: x.csv, format: csv}",
            "s.yaml:3: workload: the trace gives the lengths: remove input, output",
        ),
        ("{process: poisson, rate: 8}", "{process: gamma, rate: 8}", "state exactly one of burstiness and cv"),
        (
            "{process: poisson, rate: 8}",
            "{process: gamma, rate: 8, cv: 2, burstiness: 0.25}",
            "state exactly one of burstiness and cv",
        ),
        (
            "num_requests",
            "classes: [{name: a, share: 0.5}, {name: a, share: 0.6}]\n  num_requests",
            "classes need different names, got a, a; the shares of the classes add up to 1.1, not to 1",
        ),
        ("{process: poisson, rate: 8}", "{process: all_at_once}", None),
    ],
)
def test_each_complaint_names_line_key_and_remedy(old, new, complaints):
    text = changed(old, new)
    if complaints is None:
        parse_scenario(text)
    else:
        assert complaints in complaint(text)


def test_all_problems_are_told_at_once():
    lines = complaint(TEXT, "seed=-1", "cluster.replicas=0", "workload.arrivals.rate=0").splitlines()
    assert len(lines) == 3
    assert all(line.startswith("override '") for line in lines)


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("cluster.autoscaling={}", "autoscaling"),
        ("cluster.data_parallel=2", "data parallelism inside one engine"),
    ],
)
def test_what_the_design_names_and_nothing_computes_yet_is_refused(override, words):
    said = complaint(TEXT, override)
    assert words in said
    assert "is not modelled yet" in said
    key = override.partition("=")[0]
    assert scenario(f"{key}=null") == scenario(), "null is no request for it"


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (
            ["engine.enable_chunked_prefill=false", "engine.max_num_batched_tokens=2048"],
            "raise it, lower max_model_len",
        ),
        (["engine.max_num_batched_tokens=100", "engine.max_num_seqs=101"], "100 is less than max_num_seqs 101"),
        (["engine.max_num_active_seqs=9", "engine.max_num_seqs=8"], "9 is more than max_num_seqs 8"),
        (["engine.max_model_len=131073"], "131073 is more than the 131072 positions of llama-3.1-8b"),
        (["engine.num_gpu_blocks=2000"], "state max_model_len: 31984 or less"),
        (["engine.block_size=17"], "expected one of 1, 2, 4, 8, 16, 32, 64, 128, 256, got 17"),
        (["engine.gpu_memory_utilization=92"], "must be at most 1, got 92"),
        (["engine.gpu_memory_utilization=0"], "must be greater than 0"),
        (["engine.watermark=1"], "must be less than 1"),
        (["engine.num_gpu_blocks=1"], "must be at least 2"),
        (["engine.enforce_eager=true", "engine.cuda_graph.mode=full"], "would be ignored under enforce_eager"),
        (["engine.cuda_graph={mode: none, capture_sizes: [1]}"], "would be ignored under mode none"),
        (["engine.cuda_graph.capture_sizes=[4, 2]"], "must ascend"),
        (["cluster.tensor_parallel=3"], "attention heads of llama-3.1-8b cannot be cut into 3 equal parts"),
        (["cluster.tensor_parallel=16"], "more than one node"),
        (["cost.constant_step=10 ms", "cost.host.per_step=3 ms"], "cost.host.per_step: would be ignored"),
        (
            ["workload.num_requests=null", "workload.duration=9 s", "workload.arrivals={process: all_at_once}"],
            "num_requests",
        ),
    ],
)
def test_impossible_combinations_are_refused(overrides, words):
    assert words in complaint(TEXT, *overrides)


def test_a_limit_that_just_fits_is_accepted():
    assert scenario("engine.num_gpu_blocks=2000", "engine.max_model_len=31984").engine.num_gpu_blocks == 2000
    assert scenario("engine.enable_chunked_prefill=false", "engine.max_num_batched_tokens=131072").engine


@pytest.mark.parametrize(
    "override", ["cluster.replicas", "=3", "a..b=3", ".a=1", "cluster.gpu.hbm_bandwidth=[1", "seed.x=3", "name.first=x"]
)
def test_a_malformed_override_names_itself(override):
    assert complaint(TEXT, override).startswith(f"override {override!r}: ")


def test_a_place_is_that_of_the_file_which_wrote_the_value(tmp_path):
    (tmp_path / "base.yaml").write_text(changed("rate: 8", "rate: 0"))
    (tmp_path / "child.yaml").write_text("base: base.yaml\nseed: -1\n")
    with pytest.raises(ScenarioError) as caught:
        load_scenario(tmp_path / "child.yaml")
    first, second = sorted(str(caught.value).splitlines())
    assert first.startswith(f"{tmp_path / 'base.yaml'}:4: workload.arrivals.rate: ")
    assert second.startswith(f"{tmp_path / 'child.yaml'}:2: seed: ")
    (tmp_path / "child.yaml").write_text("base: base.yaml\nworkload:\n  arrivals: {process: constant}\n")
    with pytest.raises(ScenarioError, match=r"child\.yaml:3: workload\.arrivals\.rate: is needed and not given"):
        load_scenario(tmp_path / "child.yaml")


@pytest.mark.parametrize(
    "text", ["", "- a\n", "hello", "3", "a: &x [*x]", "? [1]\n: 2\n", "{", "a: !!python/name:os.system"]
)
def test_what_is_no_scenario_at_all_is_refused(text):
    assert complaint(text).startswith("s.yaml")


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ScenarioError, match=r"nix\.yaml: cannot be read"):
        load_scenario(tmp_path / "nix.yaml")
    with pytest.raises(ScenarioError, match=r"workload\.trace\.file: no such file"):
        parse_scenario("model: llama-2-7b\ncluster: {gpu: l4-24gb}\nworkload: {trace: {file: nix.csv, format: csv}}\n")


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)
sections = st.sampled_from(["workload", "cluster", "engine", "model", "slo", "cost", "run", "seed", "base"])


@given(sections, anything)
def test_whatever_stands_in_a_section_nothing_but_a_scenario_error_comes_out(section, value):
    text = yaml.safe_dump({**yaml.safe_load(TEXT), section: value})
    with suppress(ScenarioError):
        assert isinstance(parse_scenario(text), Scenario)


@given(st.sampled_from(["weight_dtype", "config", "num_layers", "weight_bytes", "name"]), anything)
def test_nor_out_of_a_model_that_is_changed(key, value):
    text = yaml.safe_dump({**yaml.safe_load(TEXT), "model": {"config": "llama-2-7b", key: value}})
    with suppress(ScenarioError):
        assert isinstance(parse_scenario(text), Scenario)


@given(st.sampled_from(["base", "memory", "peak_flops", "efficiency", "interconnect", "host", "sources"]), anything)
def test_nor_out_of_a_gpu_that_is_changed(key, value):
    text = yaml.safe_dump({**yaml.safe_load(TEXT), "cluster": {"gpu": {"base": "l4-24gb", key: value}}})
    with suppress(ScenarioError):
        assert isinstance(parse_scenario(text), Scenario)


def test_a_model_that_0_1_wrote_out_loads_as_it_was():
    """Its resolved scenarios have a few numbers in place of layers."""
    sizes = {"hidden_size": 64, "num_layers": 4, "num_heads": 4, "num_kv_heads": 2, "head_dim": 16, "vocab_size": 100}
    mixture = {"num_experts": 8, "experts_per_token": 2, "moe_intermediate_size": 32, "num_dense_layers": 1}
    rest = {"intermediate_size": 96, "max_position_embeddings": 512, "kv_lora_rank": 0, "sliding_window": None}
    formats = {"weight_dtype": "mxfp4", "quantized": "experts", "num_window_layers": 0, "qk_norm": False}
    text = yaml.safe_dump({**yaml.safe_load(TEXT), "model": {"name": "old", **sizes, **mixture, **rest, **formats}})
    model = parse_scenario(text, ["engine.max_model_len=512"]).model
    assert [layer.count for layer in model.layers] == [1, 3]
    assert (model.expert_dtype, model.dense_dtypes) == ("mxfp4", ("bf16",))
    with pytest.raises(ScenarioError, match=r"model.quantized: expected one of linear, experts, got 'all'"):
        parse_scenario(text.replace("quantized: experts", "quantized: all"))
