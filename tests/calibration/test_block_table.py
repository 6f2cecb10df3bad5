"""Block numbers against a cache of symbols: what a step reads where the table says is what had been written."""

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from workloads import random_workload

from calibration.engine.block_table import NULL_BLOCK, BlockTable
from simserve.engine.plan import StepPlan
from simserve.engine.policies.vllm_v1 import VllmV1
from simserve.engine.request import Request
from simserve.validation.recording import Json, SchedulerWorkload, parse_workload
from simserve.validation.replay import Replay

GOLDEN = Path(__file__).parents[1] / "golden"
Text = list[int]
"""One number per token, which stands for it and for all tokens before it."""


class SymbolicEngine(Replay):
    """A replay whose steps write symbols into a cache and read them back, where the block table says."""

    def __init__(self, workload: SchedulerWorkload) -> None:
        super().__init__(workload)
        config = self.scheduler.config
        self.table = BlockTable(config.num_gpu_blocks, config.block_size, config.max_num_seqs, config.max_model_len)
        self.scheduler = VllmV1(config, observer=self.table)
        self.texts = texts(workload)
        self.cache: dict[tuple[int, int], int] = {}
        self.num_recomputed = 0

    def _record_plan(self, plan: StepPlan, record: Json) -> None:
        super()._record_plan(plan, record)
        spans = {}
        by_id = {str(request.id): request for request in self.scheduler.ledger.running}
        for name, num_tokens in record["scheduled"].items():
            computed = record["num_computed"][name]
            self.table.grow(by_id[name], -(-computed // self.table.block_size))
            spans[by_id[name]] = (self.table.num_valid(by_id[name], computed - num_tokens), computed)
            self.num_recomputed += computed - num_tokens - spans[by_id[name]][0]
        for request, (start, end) in spans.items():
            for position in range(start, end):
                self.cache[self.place(request, position)] = self.texts[str(request.id)][position]
        for request, (start, end) in spans.items():
            read = [self.cache.get(self.place(request, position)) for position in range(end)]
            assert read == self.texts[str(request.id)][:end]
            self.table.computed(request, start, end)
        self.table.check()
        assert self.table.num_free == self.scheduler.ledger.pool.num_unhashed

    def place(self, request: Request, position: int) -> tuple[int, int]:
        index, offset = divmod(position, self.table.block_size)
        number = int(self.table.row(request)[index])
        assert number != NULL_BLOCK
        return number, offset


def texts(workload: SchedulerWorkload) -> dict[str, Text]:
    """What every request will have said in the end; equal beginnings have equal numbers."""
    known: dict[tuple[int, object], int] = {}
    spoken: dict[str, Text] = {}
    for spec in workload.requests:
        text: Text = []
        if spec.parent is not None:
            text = list(spoken[spec.parent])
        elif spec.prefix_group is not None:
            text = chain(known, [], (("group", spec.prefix_group, i) for i in range(spec.prefix_len)))
        own = spec.prompt_len + (spec.max_tokens or spec.output_len) + 2
        text = chain(known, text, ((spec.id, i) for i in range(len(text), own)))
        spoken[spec.id] = text[: spec.prompt_len + spec.output_len]
        spoken[f"{spec.id} and beyond"] = text
    return {spec.id: spoken[f"{spec.id} and beyond"] for spec in workload.requests}


def chain(known: dict[tuple[int, object], int], text: Text, tokens: Iterator[object]) -> Text:
    text = list(text)
    for token in tokens:
        before = text[-1] if text else -1
        text.append(known.setdefault((before, token), len(known)))
    return text


def run_both(workload: SchedulerWorkload) -> SymbolicEngine:
    """The observed replay, checked in every step, takes the very steps of one that nobody observes."""
    observed, alone = SymbolicEngine(workload), Replay(workload)
    while not alone.is_over:
        assert observed.step() == alone.step()
    assert observed.is_over
    return observed


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.in.json")), ids=lambda path: path.name.removesuffix(".in.json"))
def test_recorded_workloads_read_what_they_wrote(path: Path) -> None:
    run_both(parse_workload(json.loads(path.read_text())))


@pytest.mark.parametrize("seed", range(20))
def test_random_workloads_read_what_they_wrote(seed: int) -> None:
    for index in range(15):
        run_both(parse_workload(random_workload(Random(f"{seed} {index}"))))


def test_cached_blocks_that_were_never_computed_are_computed_by_who_hits_them() -> None:
    """`long` gets its third chunk and loses it within the same step to `short`, which matters more and came later."""
    config = {
        "max_num_seqs": 2,
        "max_model_len": 26,
        "block_size": 2,
        "num_gpu_blocks": 14,
        "long_prefill_token_threshold": 8,
        "policy": "priority",
    }
    requests = [
        {"id": "long", "arrival_step": 0, "prompt_len": 24, "output_len": 2, "priority": 1},
        {"id": "filler", "arrival_step": 0, "prompt_len": 1, "output_len": 1, "priority": 1},
        {"id": "short", "arrival_step": 1, "prompt_len": 2, "output_len": 3, "priority": 0},
    ]
    engine = run_both(parse_workload({"name": "stale", "config": config, "requests": requests}))
    assert engine.num_recomputed == 6
