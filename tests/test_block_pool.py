"""The block pool by itself: counts and stretches against a list of blocks and their hashes, in any order of events."""

from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

import oracle
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from shared_texts import Text, parent_of, prompts_of, random_text, texts, workload_of

from simserve.cluster.prompts import Prompts
from simserve.engine.block_pool import BlockPool
from simserve.engine.config import SchedulerConfig
from simserve.engine.policies.vllm_v1 import VllmV1
from simserve.engine.prefix import Branch, Piece, Run
from simserve.engine.request import FINISHED, PREFILLING, WAITING, Request
from simserve.validation.observation import num_cached_blocks
from simserve.workload.columns import Rows

MAX_MODEL_LEN = 10_000


class Pair:
    """One request as the pool sees it, and as a list of tokens and blocks."""

    def __init__(self, fast: Request, plain: oracle.Request) -> None:
        self.row = int(fast.id)
        self.fast = fast
        self.plain = plain

    @property
    def is_full(self) -> bool:
        """Whether all known tokens are computed, so that the model gives the next one."""
        return self.fast.num_computed_tokens == self.fast.num_tokens


class Observer:
    """Keeps the set of cached blocks from what the pool tells, each by its run and index."""

    def __init__(self) -> None:
        self.cached: set[tuple[Run, int]] = set()

    def hit(self, request: Request, pieces: Sequence[Piece]) -> None:
        assert all((run, index) in self.cached for run, start, end in pieces for index in range(start, end))

    def entered(self, request: Request, run: Run, start: int, end: int) -> None:
        found = {(run, index) for index in range(start, end)}
        assert not found & self.cached
        self.cached |= found

    def released(self, request: Request, num_cached_blocks: int) -> None:
        assert request.num_blocks == 0

    def evicted(self, run: Run, start: int, end: int) -> None:
        gone = {(run, index) for index in range(start, end)}
        assert gone <= self.cached
        self.cached -= gone


class PoolMachine(RuleBasedStateMachine):
    """Requests come, are admitted in any order, compute, answer, are preempted and finish, as blocks allow."""

    @initialize(
        specs=st.lists(texts, min_size=6, max_size=12),
        block_size=st.integers(1, 3),
        num_blocks=st.integers(5, 14),
        caching=st.sampled_from([True, True, True, False]),
        observed=st.booleans(),
    )
    def begin(self, specs: list[Text], block_size: int, num_blocks: int, caching: bool, observed: bool) -> None:
        self.size = block_size
        self.specs = specs
        config = SchedulerConfig(64, 10_000, MAX_MODEL_LEN, num_blocks + 1, block_size, caching)
        self.observer = Observer() if observed else None
        self.scheduler = VllmV1(config, self.observer)
        self.pool = self.scheduler.ledger.pool
        self.plain = oracle.BlockPool(num_blocks + 1, block_size, caching)
        self.tokens = list(prompts_of(specs))
        workload = workload_of(specs, self.tokens)
        self.rows = Rows(workload)
        self.prompts = Prompts(workload, block_size, MAX_MODEL_LEN) if caching else None
        self.to_come = list(range(len(specs)))
        self.waiting: list[Pair] = []
        self.running: list[Pair] = []
        self.done: set[int] = set()
        self.hash_of: dict[tuple[Branch, int], int] = {}
        for choice in range(3):
            self.arrive(choice)

    # -- what happens --------------------------------------------------------------------------------------------------

    @rule(choice=st.integers(0, 7))
    def arrive(self, choice: int) -> None:
        ready = [row for row in self.to_come if self.may_come(row)]
        if not ready:
            return
        row = ready[choice % len(ready)]
        self.to_come.remove(row)
        spec, prompt = self.specs[row], self.tokens[row]
        fast = Request(row, row, len(prompt), spec.output, spec.output)
        if self.prompts is not None:
            self.prompts.place(fast, row, self.prompts.chain(self.rows.arrival(row)), 0)
        self.scheduler.add(fast)
        plain = oracle.Request(str(row), list(prompt), len(prompt), spec.output, spec.output, 0, row)
        self.plain.update_hashes(plain)
        self.waiting.append(Pair(fast, plain))

    def may_come(self, row: int) -> bool:
        parent = parent_of(self.specs, row)
        if parent is None:
            return True
        return parent in self.done if self.specs[row].waits else parent not in self.to_come

    @precondition(lambda self: self.waiting)
    @rule(choice=st.integers(0, 7), num_tokens=st.integers(1, 12))
    def admit(self, choice: int, num_tokens: int) -> None:
        pair = self.waiting[choice % len(self.waiting)]
        hit, blocks = self.pool.lookup(pair.fast), self.plain.lookup(pair.plain)
        num_hit = len(blocks) * self.size
        num_tokens = min(num_tokens, pair.fast.num_tokens - num_hit)
        needed = -(-(num_hit + num_tokens) // self.size) - len(blocks)
        if needed > self.pool.num_free - hit.num_free:
            return
        self.waiting.remove(pair)
        self.running.append(pair)
        self.scheduler.ledger.waiting.remove(pair.fast)
        self.scheduler.ledger.running[pair.fast] = None
        if hit.pieces:
            self.pool.touch(pair.fast, hit)
        pair.fast.num_blocks, pair.fast.num_computed_tokens, pair.fast.state = len(blocks), num_hit, PREFILLING
        for block in blocks:
            self.plain.touch(block)
        pair.plain.blocks, pair.plain.num_hashed = blocks, len(blocks)
        self.compute(pair, num_tokens)

    @precondition(lambda self: self.running)
    @rule(choice=st.integers(0, 7), num_tokens=st.integers(1, 12), times=st.integers(1, 9))
    def go_on(self, choice: int, num_tokens: int, times: int) -> None:
        pair = self.running[choice % len(self.running)]
        for _ in range(times):
            if pair.is_full and pair.fast.num_tokens == len(self.tokens[pair.row]) + self.specs[pair.row].output - 1:
                self.finish(pair)
                return
            self.step(pair, num_tokens)

    def step(self, pair: Pair, num_tokens: int) -> None:
        """A chunk of what is known, or the next token."""
        fast, plain = pair.fast, pair.plain
        if pair.is_full:
            fast.num_tokens += 1
            plain.tokens.append((f"own/{plain.id}", len(plain.tokens)))
            self.plain.update_hashes(plain)
        num_tokens = min(num_tokens, fast.num_tokens - fast.num_computed_tokens)
        if -(-(fast.num_computed_tokens + num_tokens) // self.size) - fast.num_blocks <= self.pool.num_free:
            self.compute(pair, num_tokens)

    def compute(self, pair: Pair, num_tokens: int) -> None:
        """Blocks for some more tokens, and hashes for those that they fill."""
        fast, plain = pair.fast, pair.plain
        fast.num_computed_tokens += num_tokens
        needed = -(-fast.num_computed_tokens // self.size) - fast.num_blocks
        self.pool.take(needed)
        fast.num_blocks += needed
        fast.num_hashed_blocks = fast.num_computed_tokens // self.size
        self.pool.enter_shared(fast, fast.num_hashed_blocks)
        plain.blocks += [self.plain.allocate() for _ in range(needed)]
        self.plain.cache(plain, fast.num_computed_tokens)

    @precondition(lambda self: self.running)
    @rule(choice=st.integers(0, 7))
    def preempt(self, choice: int) -> None:
        pair = self.running.pop(choice % len(self.running))
        self.release(pair, may_return=True)
        pair.fast.num_computed_tokens, pair.fast.state = 0, WAITING
        self.waiting.append(pair)
        self.scheduler.ledger.waiting.append(pair.fast)

    def finish(self, pair: Pair) -> None:
        self.running.remove(pair)
        self.release(pair, may_return=False)
        pair.fast.state = FINISHED
        if pair.fast.branch is not None:
            pair.fast.branch.owner = None
        self.done.add(pair.row)

    def release(self, pair: Pair, may_return: bool) -> None:
        del self.scheduler.ledger.running[pair.fast]
        self.pool.release(pair.fast, may_return=may_return)
        self.plain.free(pair.plain)

    # -- what must be --------------------------------------------------------------------------------------------------

    @invariant()
    def counts_agree(self) -> None:
        if not hasattr(self, "pool"):
            return
        self.pool.check()
        queue = list(self.plain.free_queue)
        unhashed = [block.hash is None for block in queue]
        assert self.pool.num_free == len(queue)
        assert self.pool.num_unhashed == sum(unhashed)
        assert unhashed == sorted(unhashed, reverse=True), "a block without a hash waits behind one with"
        assert self.pool.usage == pytest.approx(1 - len(queue) / self.pool.num_blocks)
        assert num_cached_blocks(self.scheduler) == len(self.plain.cached)

    @invariant()
    def blocks_would_be_evicted_in_the_same_order(self) -> None:
        if not hasattr(self, "pool"):
            return
        hashes = [block.hash for block in self.plain.free_queue if block.hash is not None]
        places = list(in_order_of_eviction(self.pool))
        assert len(places) == len(hashes)
        for place, block_hash in zip(places, hashes, strict=True):
            if place is not None:
                assert self.hash_of.setdefault(place, block_hash) == block_hash

    @invariant()
    def the_observer_knows_what_is_cached(self) -> None:
        observer = getattr(self, "observer", None)
        if observer is None or not self.pool.enable_prefix_caching:
            return
        blocks = {*self.plain.free_queue, *(block for pair in self.running for block in pair.plain.blocks)}
        later = sum(pair.fast.num_hashed_blocks - pair.fast.num_entered_blocks for pair in self.running)
        assert len(observer.cached) == sum(block.hash is not None for block in blocks) - later

    @invariant()
    def everyone_who_waits_would_hit_the_same(self) -> None:
        for pair in getattr(self, "waiting", ()):
            hit, blocks = self.pool.lookup(pair.fast), self.plain.lookup(pair.plain)
            assert hit.num_blocks == len(blocks) == sum(end - start for _, start, end in hit.pieces)
            assert hit.num_free == sum(block.ref_count == 0 for block in blocks)


def in_order_of_eviction(pool: BlockPool) -> Iterator[tuple[Branch, int] | None]:
    """The cached blocks that nobody holds, first the one to be evicted next; None for one that nobody can look for."""
    for entry in pool.entries():
        for start, end in reversed(entry.parts):
            for index in reversed(range(start, end)):
                yield None if entry.run is None else (entry.run.branch, index)


TestPool: Any = PoolMachine.TestCase
TestPool.settings = settings(max_examples=80, stateful_step_count=60)


@pytest.mark.parametrize("seed", range(8))
def test_long_lives(seed: int) -> None:
    """The same machine, driven by chance: hundreds of events, where stretches of text come to lie in pieces."""
    random = Random(seed)
    for _ in range(40):
        live(random)


@pytest.mark.slow
def test_many_long_lives() -> None:
    random = Random(0)
    for _ in range(10_000):
        live(random)


def live(random: Random) -> None:
    machine = PoolMachine()
    specs = [random_text(random) for _ in range(random.randint(6, 20))]
    machine.begin(specs=specs, block_size=random.randint(1, 3), num_blocks=random.randint(5, 14), caching=True,
                  observed=random.random() < 0.5)  # fmt: skip
    for _ in range(200):
        rule, choice, num_tokens = random.random(), random.randint(0, 7), random.randint(1, 12)
        if rule < 0.15:
            machine.arrive(choice=choice)
        elif rule < 0.5 and machine.waiting:
            machine.admit(choice=choice, num_tokens=num_tokens)
        elif rule < 0.9 and machine.running:
            machine.go_on(choice=choice, num_tokens=num_tokens, times=random.randint(1, 9))
        elif machine.running:
            machine.preempt(choice=choice)
        machine.counts_agree()
        machine.blocks_would_be_evicted_in_the_same_order()
        machine.everyone_who_waits_would_hit_the_same()
        machine.the_observer_knows_what_is_cached()
