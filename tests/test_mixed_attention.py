"""Attention measured inside a model: read as it is, found between its points, and sensible for other heads."""

import csv
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from simserve.cost.attention import AttentionTime, layer_of
from simserve.cost.attention_tables import AttentionHeads
from simserve.cost.device import Device
from simserve.cost.grid import read_table
from simserve.cost.mixed_attention import Axis, InModelAttention, Shares, attention_time
from simserve.cost.tables import tables_of
from simserve.spec import resources
from simserve.spec.gpus import find_gpu
from simserve.spec.ticks import to_seconds

CARD = find_gpu("rtx-pro-6000-96gb")
TABLES = tables_of(CARD)
MODEL = Device.of(CARD, TABLES, cold=True)
LLAMA = AttentionHeads(32, 8, "bf16")
INSIDE = attention_time(layer_of(LLAMA), MODEL)

lengths = st.integers(1, 40_000)
chunks_of_a_step = st.lists(st.tuples(st.integers(1, 4096), st.integers(0, 20_000)), max_size=4)
counts = st.integers(1, 300)


def test_measured_batches_are_read_as_they_are() -> None:
    """But for the few that take less than a smaller batch did, or than their decodes alone."""
    table = read_table(resources.folder("hardware_profiles") / CARD.name / "mixed_attention.csv").sub("bf16", "32", "8")
    errors, apart = [], []
    for (decodes, context, chunk), row in table.rows.items():
        n, new = int(decodes), int(chunk)
        for history, seconds in zip(table.sizes, row, strict=True):
            if seconds > 0:
                ticks = INSIDE.mixed([(new, int(history))] if new else [], n, n * int(context))
                is_level = new and n and ticks == INSIDE.decode(n, n * int(context))
                (apart if is_level else errors).append(to_seconds(ticks) / seconds - 1)
    assert len(errors) + len(apart) == 3426
    assert np.median(np.abs(errors)) < 1e-3
    assert np.percentile(np.abs(errors), 95) < 0.02
    assert min(apart) > 0, "with a chunk decodes take no less than without"


def test_batches_that_the_table_does_not_hold() -> None:
    """Histories and contexts between those of the table (LLMServingSim's profiler in vLLM 0.19, MIT)."""
    text = (Path(__file__).parent / "data/held_out_mixed_attention.csv").read_text(encoding="utf-8")
    errors = []
    for row in csv.DictReader(text.splitlines()):
        new, history, n, context = (int(row[name]) for name in ("chunk", "history", "decodes", "context"))
        ticks = INSIDE.mixed([(new, history)] if new else [], n, n * context)
        errors.append(abs(to_seconds(ticks) / (1e-6 * float(row["time_us"])) - 1))
    assert len(errors) == 40
    assert np.median(errors) < 0.02
    assert np.percentile(errors, 90) < 0.05


@given(counts, lengths)
def test_decodes_never_take_less_for_more_context(decodes: int, length: int) -> None:
    assert INSIDE.decode(decodes, decodes * length) <= INSIDE.decode(decodes, decodes * (length + 1))
    assert INSIDE.decode(decodes, decodes * length) <= INSIDE.decode(decodes + 1, (decodes + 1) * length)


@given(chunks_of_a_step, st.integers(0, 300), lengths)
def test_no_batch_takes_less_than_the_least(chunks: list[tuple[int, int]], decodes: int, length: int) -> None:
    """The bound by which launches of a step are left out."""
    if chunks or decodes:
        assert INSIDE.mixed(chunks, decodes, decodes * length) >= INSIDE.least
    assert INSIDE.prefill(chunks) == INSIDE.mixed(chunks, 0, 0)


@given(st.integers(1, 2048), st.integers(0, 9000), st.integers(1, 60), lengths)
def test_half_the_heads_are_half_the_decodes(new: int, history: int, decodes: int, length: int) -> None:
    """With half the KV heads a batch is what measured ones of half its decodes are of their modelled time."""
    half = AttentionHeads(16, 4, "bf16")
    measured, modelled = attention_time(layer_of(half), MODEL), AttentionTime(layer_of(half), MODEL)
    batch = [(new, history)], 2 * decodes, 2 * decodes * length
    whole = [(new, history)], decodes, decodes * length
    share = INSIDE.mixed(*whole) / AttentionTime(layer_of(LLAMA), MODEL).mixed(*whole)
    assume(INSIDE.mixed(*whole) > INSIDE.decode(*whole[1:]) and measured.mixed(*batch) > measured.decode(*batch[1:]))
    assert measured.mixed(*batch) == pytest.approx(modelled.mixed(*batch) * share, rel=1e-4)


@given(chunks_of_a_step, st.integers(0, 300), lengths, st.sampled_from(["tokens", "history", "context", "chunk"]))
def test_more_work_takes_no_less(chunks: list[tuple[int, int]], decodes: int, length: int, more: str) -> None:
    """But for 3 %, where the share of a batch falls while its modelled time is level."""
    assume(chunks or decodes)
    context = decodes * length
    larger = {
        "tokens": ([(new + 1, history) for new, history in chunks], decodes, context),
        "history": ([(new, history + 7) for new, history in chunks], decodes, context),
        "context": (chunks, decodes, context + 13 * bool(decodes)),
        "chunk": ([*chunks, (5, 0)], decodes, context),
    }[more]
    assert INSIDE.mixed(*larger) >= 0.97 * INSIDE.mixed(chunks, decodes, context)


def test_kernels_timed_in_a_loop_are_left_alone() -> None:
    """A device that is not `cold` asks for the time of the loop, and other formats of KV were not measured."""
    assert not isinstance(attention_time(layer_of(LLAMA), Device.of(CARD, TABLES)), InModelAttention)
    assert not isinstance(attention_time(layer_of(LLAMA._replace(kv_dtype="fp8")), MODEL), InModelAttention)
    assert isinstance(INSIDE, InModelAttention)


@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=5, unique=True).map(sorted), st.floats(0, 20_000))
def test_shares_lie_between_their_neighbours(values: list[int], at: float) -> None:
    shares = Shares([Axis(values)], lambda value: 1.0 + value / 10_000, lambda _: 1.0)
    found = shares.at(at)
    below = [value for value in values if value <= at] or values[:1]
    above = [value for value in values if value >= at] or values[-1:]
    assert 1 + below[-1] / 10_000 - 1e-9 <= found <= 1 + above[0] / 10_000 + 1e-9
