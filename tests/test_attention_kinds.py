"""A kind of attention that simserve does not have, entered in its list: all that it needs stands in this file.

`Linear` is what Mamba and its like are to a simulator: a request is a state of constant size, and a decode costs the
same whatever it has seen. The class of its layers would stand in a file of spec/layers, the keys that a config.json has
for it in a file of spec/hugging_face/families.
"""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import simserve
from simserve.cost.build import build_step_cost, cost_level, modelled_step_cost
from simserve.cost.decode_attention import DecodeTime, FloorAndLine
from simserve.cost.device import Device
from simserve.cost.held import WHOLE, Held
from simserve.cost.kinds.kind import AttentionKind
from simserve.cost.kinds.registry import KINDS
from simserve.cost.kinds.window import HeldWindow
from simserve.cost.kv_pool import KvGroups, sent_bytes
from simserve.cost.layer_time import LayerTime
from simserve.cost.memory import memory_ledger
from simserve.cost.modelled import ModelledStepCost
from simserve.cost.operators import Kernel
from simserve.cost.sharding import Sharding
from simserve.cost.speculation import SpeculativeCost
from simserve.cost.tables import Tables
from simserve.engine.gpu.timeline import step_timeline
from simserve.simulation import simulate
from simserve.spec.layers.attention import GroupedAttention
from simserve.spec.load import parse_scenario
from simserve.spec.model import ModelSpec
from simserve.spec.scenario import Scenario
from simserve.spec.ticks import to_seconds, to_ticks

pytestmark = pytest.mark.plain_source  # the compiled build seals LayerTime: a kind is compiled with it


# -- the kind ----------------------------------------------------------------------------------------------------------


class LinearLayer(GroupedAttention):
    """Its layer in a model; projections as of attention over keys and values."""

    @property
    def kind(self) -> str:
        return "linear"

    @property
    def state_bytes(self) -> int:
        return self.num_heads * self.head_dim * self.head_dim * 4


class LinearWork(NamedTuple):
    """Of one layer: bytes of the state of a request, and FLOPs of a token."""

    state_bytes: float
    token_flops: float
    kind: str = "linear"


class LinearTime(LayerTime):
    """Decodes read and write their states, prompts take their FLOPs."""

    __slots__ = ("_token", "_work")

    def __init__(self, work: LinearWork, device: Device) -> None:
        read_and_written = to_ticks(2 * work.state_bytes / device.elementwise_bandwidth)
        super().__init__(DecodeTime(FloorAndLine(to_ticks(device.kernel_floor), read_and_written, 0), None))
        self._token = to_ticks(work.token_flops / device.peak_flops["bf16"])
        self._work = work

    @property
    def least(self) -> int:
        return min(self.floor, self._token)

    def mixed(self, chunks: Sequence[tuple[int, int]], num_decodes: int, context: int) -> int:
        return sum(kernel.ticks for kernel in self.kernels(chunks, num_decodes, context))

    def kernels(self, chunks: Sequence[tuple[int, int]], num_decodes: int, context: int) -> list[Kernel]:
        kernels = []
        if chunks:
            new = sum(new for new, _ in chunks)
            flops = new * self._work.token_flops
            kernels.append(Kernel("scan_linear", "attention_prefill", 0.0, flops, new * self._token, "compute"))
        if num_decodes:
            moved, ticks = 2 * num_decodes * self._work.state_bytes, self.decodes.ticks(num_decodes, context)
            kernels.append(Kernel("update_linear", "attention_decode", moved, 0.0, ticks, "memory"))
        return kernels


@dataclass(frozen=True)
class HeldState:
    """The state fills so many blocks, and is sent whole."""

    num_blocks: int

    def blocks(self, tokens: int, block_size: int, in_flight: int) -> int:
        return self.num_blocks

    def sent_blocks(self, tokens: int, block_size: int, cached_blocks: int) -> int:
        return self.num_blocks


class Linear:
    """The entry of the list."""

    name = "linear"

    def work(self, attention: LinearLayer, model: ModelSpec, sharding: Sharding) -> LinearWork:
        return LinearWork(attention.state_bytes / sharding.ranks, 1e6 / sharding.ranks)

    def time(self, work: LinearWork, device: Device) -> LayerTime:
        return LinearTime(work, device)

    def held(self, attention: LinearLayer) -> Held:
        return HeldState(ceil(attention.state_bytes / (2 * attention.kv_elements * 16)))

    def unmeasured(self, attention: LinearLayer, model: ModelSpec, tables: Tables) -> str | None:
        return "linear attention"


# -- laws --------------------------------------------------------------------------------------------------------------

SCENARIO = """
model: {model}
workload:
  arrivals: {{process: poisson, rate: 20}}
  input: {{distribution: uniform, min: 10, max: 3000}}
  output: {{distribution: uniform, min: 1, max: 60}}
  num_requests: 12
cluster: {{gpu: h100-sxm-80gb}}
engine: {{max_model_len: 8192}}
"""
MODES = {
    "full graphs": (),
    "pieces": ("engine.cuda_graph.mode=piecewise",),
    "eager": ("engine.enforce_eager=true",),
    "waits": ("engine.enforce_eager=true", "engine.async_scheduling=false", "engine.host_sync=layer"),
}
batches = st.tuples(
    st.lists(st.tuples(st.integers(1, 2000), st.integers(0, 4000)), max_size=3),
    st.integers(0, 300),
    st.integers(1, 4000),
).filter(lambda batch: bool(batch[0]) or batch[1] > 0)


@pytest.fixture(autouse=True, scope="module")
def _entered() -> Iterator[None]:
    kind: AttentionKind = Linear()
    KINDS[kind.name] = kind
    yield
    del KINDS[kind.name]


def scenario(num_linear: int, *overrides: str, model: str = "gpt-oss-20b") -> Scenario:
    """Of gpt-oss-20b 12 of 24 layers look back on 128 tokens; some of the others are linear here."""
    asked = parse_scenario(SCENARIO.format(model=model), overrides)
    layers = []
    for layer in asked.model.each_layer():
        attention = layer.attention
        if attention is not None and attention.kind == "full" and num_linear:
            attention, num_linear = LinearLayer(**attention.model_dump()), num_linear - 1
        layers.append(layer.model_copy(update={"attention": attention}))
    return asked.model_copy(update={"model": asked.model.with_layers(layers)})


def linear_of(model: ModelSpec) -> LinearLayer:
    return next(each for each in model.attentions if isinstance(each, LinearLayer))


@pytest.mark.parametrize("mode", MODES)
@settings(max_examples=25)
@given(batch=batches)
def test_a_step_of_three_kinds_spelled_out_ends_on_the_same_tick(mode: str, batch: Any) -> None:
    asked = scenario(6, *MODES[mode])
    chunks, decodes, context = batch
    step = chunks, decodes, decodes * context, decodes + len(chunks)
    cost = build_step_cost(asked)
    assert isinstance(cost, ModelledStepCost)
    assert sorted(cost.forward.layers) == [6, 6, 12]
    assert step_timeline(asked, *step).time == to_seconds(cost.step(*step).latency)
    assert sum(kernel.ticks for launch in cost.launches(*step) for kernel in launch.kernels) == cost.step(*step).gpu


@pytest.mark.parametrize("mode", MODES)
def test_runs_of_decodes_end_where_stepping_does(mode: str) -> None:
    runs, steps, kernels = (
        simulate(scenario(6, *MODES[mode], f"run.resolution={each}")).requests for each in ("runs", "steps", "kernels")
    )
    for column in runs:
        assert np.array_equal(runs[column], steps[column], equal_nan=True), column
        assert np.array_equal(runs[column], kernels[column], equal_nan=True), column


def test_layers_with_a_state_do_not_mind_the_context() -> None:
    """A token more in 24 decodes is read by the layers that look back on all, six or twelve of them."""
    costs = [modelled_step_cost(scenario(linear, "cost.level=datasheet")) for linear in (0, 6, 12)]
    slopes = [cost.decode(24).pieces[-1].gpu_slope for cost in costs]
    assert slopes[0] == 2 * slopes[1] > 0
    assert slopes[2] == 0


def test_a_request_holds_its_state_once() -> None:
    model = scenario(6).model
    blocks = KINDS["linear"].held(linear_of(model)).blocks(1, 16, 0)
    assert blocks == ceil(64 * 64 * 64 * 4 / (16 * 2 * 8 * 64 * 2))
    groups = KvGroups.of(model, 1, 16)
    held = {held: count for held, _, count in groups.groups}
    assert (groups.layers, held) == (6, {WHOLE: 1, HeldWindow(128): 2, HeldState(blocks): 1})
    short, long = (groups.request_blocks(tokens, 16, in_flight=0) for tokens in (1600, 3200))
    assert long - short == 100
    assert short == 100 + 2 * (8 + 1) + blocks
    concurrency = [memory_ledger(scenario(linear)).max_concurrency for linear in (0, 6)]
    assert concurrency[1] > 1.3 * concurrency[0]


def test_a_state_is_sent_whole() -> None:
    """Of 1,600 tokens, which the other replica has from before, the window and the state are new to it."""
    block = 16 * 2 * 8 * 64 * 2
    model = scenario(6).model
    blocks = KINDS["linear"].held(linear_of(model)).blocks(1, 16, 0)
    assert sent_bytes([model], 1, 16, 1600, cached_blocks=100) == block * 6 * blocks
    assert sent_bytes([model], 1, 16, 1600, cached_blocks=0) == block * (6 * 100 + 12 * 8 + 6 * blocks)


def test_drafts_are_verified_in_it() -> None:
    drafts = "engine.speculative={method: ngram, num_speculative_tokens: 3, acceptance: 0.5}"
    cost = build_step_cost(scenario(6, drafts))
    assert isinstance(cost, SpeculativeCost)
    chunks = [(4, 900)] * 8 + [(512, 0)]
    kernels = list(cost.kernels(chunks, 8))
    assert {"update_linear", "scan_linear"} < {kernel.name for kernel in kernels}
    assert sum(kernel.ticks for kernel in kernels) == cost.step(chunks, 8, 0, 0).gpu


def test_nobody_measured_it() -> None:
    assert cost_level(scenario(0, model="llama-3.1-8b")) == "kernels"
    assert cost_level(scenario(6, model="llama-3.1-8b")) == "datasheet"


@pytest.mark.parametrize("model", ["llama-3.1-8b", "gpt-oss-20b"])
def test_a_model_without_it_is_as_ever(model: str) -> None:
    with_the_kind, without = scenario(0, model=model), parse_scenario(SCENARIO.format(model=model))
    costs = modelled_step_cost(with_the_kind), modelled_step_cost(without)
    step = [(700, 20), (3, 800)], 50, 50 * 900, 52
    assert costs[0].step(*step) == costs[1].step(*step)
    assert costs[0].decode(50) == costs[1].decode(50)
    assert memory_ledger(with_the_kind) == memory_ledger(without)


# -- its room ----------------------------------------------------------------------------------------------------------

PACKAGE = Path(simserve.__file__).parent


def test_a_kind_is_known_in_its_file_in_the_list_and_in_that_of_its_layers() -> None:
    """And in the list of what a run can use, and where configurations are read. Everybody else goes over the list."""
    assert files_that_know("chunked") == {
        "cost/kinds/chunked.py",
        "cost/kinds/registry.py",
        "spec/layers/attention.py",
        "spec/layers/kinds.py",
        "spec/hugging_face/parts.py",
    }


def files_that_know(kind: str) -> set[str]:
    """Files about models and their costs that import the file of a kind, or say its name by itself."""
    known = set()
    for path in [*(PACKAGE / "cost").rglob("*.py"), *(PACKAGE / "spec").rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            says = isinstance(node, ast.Constant) and node.value == kind
            imports = isinstance(node, ast.ImportFrom) and node.module == f"simserve.cost.kinds.{kind}"
            if says or imports:
                known.add(path.relative_to(PACKAGE).as_posix())
    return known
