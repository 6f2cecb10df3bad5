"""What a step of speculative decoding costs: the model verifies drafts, then a drafter proposes the next ones.

As vLLM 0.32 runs it (v1/worker/gpu/spec_decode): the drafter first passes over all tokens of the step, prompts
included, to write its own KV and to propose the first draft, then once for each further draft over one token a request.
A draft model of its own reads one token more of each request. lm_head and sampler of the model run on every verified
token. N-grams are looked up on the CPU once the tokens are known.

What is not known when a step begins, how many drafts are rejected in it, does not change its time here: the drafter's
later passes read as much KV as if all were right.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simserve.cost.breakdown import busy_time
from simserve.cost.drafted import Batch, Chunk
from simserve.cost.extrapolation import extrapolated_steps
from simserve.cost.forward import Forward
from simserve.cost.launch import GraphMode
from simserve.cost.layer_time import LayerTime
from simserve.cost.modelled import ModelledStepCost
from simserve.cost.operators import Kernel
from simserve.cost.passes import PassCost, PassTime, kernels_of_pass
from simserve.cost.step import DecodeCost, StepTime
from simserve.cost.unevenness import Unevenness
from simserve.cost.verification import BatchAttention, VerificationGraphs
from simserve.spec.ticks import TICKS_PER_SECOND, to_seconds


class DrafterCost:
    """Time in which a drafter proposes drafts for all requests of a step.

    `reads_sampled`: it is a model of its own, which reads the token just sampled beside those of the step. `graphs`:
    None where it runs without.
    """

    def __init__(
        self, forward: Forward, num_drafts: int, graphs: VerificationGraphs | None, *, reads_sampled: bool
    ) -> None:
        self._pass = PassCost(forward, whole_graphs=True)
        self._attention = BatchAttention(forward)
        self._num_drafts = num_drafts
        self._graphs = graphs
        self._reads_sampled = reads_sampled

    def time(self, batch: Batch, step: tuple[GraphMode, int]) -> PassTime:
        """All passes after a step in this graph mode over so many rows."""
        seen, (mode, rows) = self._first_pass(batch, step)
        time = self._pass.time(mode, rows, batch.num_requests, self._attention(seen))
        for context in self._contexts(seen):
            mode, rows = self._next_pass(batch.num_requests)
            attention = self._attention.decodes(batch.num_requests, context)
            time = time.then(self._pass.time(mode, rows, batch.num_requests, attention))
        return time

    def kernels(self, batch: Batch, step: tuple[GraphMode, int]) -> Iterator[Kernel]:
        """The same as kernels, named as the drafter's."""
        seen, (_, rows) = self._first_pass(batch, step)
        passes = [kernels_of_pass(self._pass.forward, rows, batch.num_requests, partial(_verified_kernels, seen))]
        _, rows = self._next_pass(batch.num_requests)
        passes += [
            kernels_of_pass(
                self._pass.forward, rows, batch.num_requests, partial(_decode_kernels, batch.num_requests, context)
            )
            for context in self._contexts(seen)
        ]
        for kernel in chain.from_iterable(passes):
            yield kernel._replace(name=f"draft_{kernel.name}", group="drafts")

    def _first_pass(self, batch: Batch, step: tuple[GraphMode, int]) -> tuple[Batch, tuple[GraphMode, int]]:
        """The tokens that the drafter reads after a step, with graph mode and rows."""
        seen = batch.one_more_each() if self._reads_sampled else batch
        without = self._graphs is None or self._reads_sampled
        return seen, (GraphMode.NONE, seen.tokens) if without else step

    def _next_pass(self, num_requests: int) -> tuple[GraphMode, int]:
        return (GraphMode.NONE, num_requests) if self._graphs is None else self._graphs.of_drafts(num_requests)

    def _contexts(self, seen: Batch) -> list[int]:
        """Tokens of KV that the drafter reads for each further draft."""
        return [seen.all_context + draft * seen.num_requests for draft in range(1, self._num_drafts)]


def _verified_kernels(batch: Batch, time: LayerTime) -> list[Kernel]:
    return time.verified_kernels(batch)


def _decode_kernels(num_decodes: int, context: int, time: LayerTime) -> list[Kernel]:
    return time.kernels((), num_decodes, context)


class SpeculativeCost:
    """A `StepCost` whose steps verify drafts: the first `num_decodes` of the `chunks` that it is asked for are
    verifications, of a request's last token and its drafts.

    It remembers what its steps were made of, as the step log does not tell. `lookup`: seconds for each token of text in
    which a match is looked for. What verifications of unequal context take beyond equal ones is left out.
    """

    uneven: Unevenness | None = None

    def __init__(
        self,
        target: ModelledStepCost,
        graphs: VerificationGraphs,
        drafter: DrafterCost | None,
        lookup: float = 0.0,
    ) -> None:
        self._host = host = target.host
        self.update = host.after
        self._plain = target
        self._target = PassCost(target.forward)
        self._attention = BatchAttention(target.forward)
        self._graphs = graphs
        self._drafter = drafter
        self._lookup = lookup * TICKS_PER_SECOND
        self._forget()

    def _forget(self) -> None:
        self._body_rows: Counter[int] = Counter()
        self._head_rows: Counter[int] = Counter()
        self._others: defaultdict[str, int] = defaultdict(int)

    def for_one_run(self) -> "SpeculativeCost":
        """The same cost, which has not been asked for any step."""
        fresh = copy(self)
        fresh._forget()
        return fresh

    def decode(self, num_decodes: int) -> DecodeCost:
        """Cost of a step of `num_decodes` decodes without drafts, in an engine that proposes none."""
        return self._plain.decode(num_decodes)

    def step(self, chunks: Sequence[Chunk], num_decodes: int, context: int, num_sampled: int) -> StepTime:
        """Cost of any step; see `ticks`."""
        return StepTime(*self.ticks(chunks, num_decodes, context, num_sampled))

    def ticks(
        self,
        chunks: Sequence[Chunk],
        num_decodes: int,
        context: int,  # noqa: ARG002 (in the chunks)
        num_sampled: int,  # noqa: ARG002 (every verified token, and one of each prompt)
    ) -> tuple[int, int, int, int]:
        """`StepCost.ticks` of a step whose first `num_decodes` chunks are verifications."""
        batch = Batch.of(chunks[:num_decodes], chunks[num_decodes:])
        mode, rows = self._graphs.of_step(batch)
        attention = self._attention(batch)
        sampled = batch.queries + len(batch.prompts)
        time = self._target.time(mode, rows, sampled, attention)
        self._note(batch, rows, sampled, attention)
        if self._drafter is not None:
            drafts = self._drafter.time(batch, (mode, rows))
            self._others["drafts"] += drafts.gpu
            time = time.then(drafts)
        cpu, gpu, end = time.after(self._host.before + self._host.per_sequence * batch.num_requests)
        lookup = round(self._lookup * batch.all_context)
        return cpu + lookup + self._host.after, gpu, end + lookup, 0 if mode is GraphMode.NONE else rows

    def verifications(self, num_decodes: int, context: int) -> list[Chunk]:
        """Chunks of a step in which so many requests verify all their drafts, alike, after `context` tokens of KV in
        all.
        """
        each, more = divmod(max(context - num_decodes, 0), max(num_decodes, 1))
        return [(self._graphs.query_len, each + (request < more)) for request in range(num_decodes)]

    def kernels(self, chunks: Sequence[Chunk], num_decodes: int) -> Iterator[Kernel]:
        """Kernels of a step, those of the drafter last; their ticks are its GPU time."""
        batch = Batch.of(chunks[:num_decodes], chunks[num_decodes:])
        step = self._graphs.of_step(batch)
        sampled = batch.queries + len(batch.prompts)
        attention = partial(_verified_kernels, batch)
        yield from kernels_of_pass(self._plain.forward, step[1], sampled, attention)
        if self._drafter is not None:
            yield from self._drafter.kernels(batch, step)

    def graph_of(self, chunks: Sequence[Chunk], num_decodes: int) -> tuple[GraphMode, int]:
        """Graph mode in which a step verifies, and the tokens that its matrix products run on."""
        return self._graphs.of_step(Batch.of(chunks[:num_decodes], chunks[num_decodes:]))

    def _note(self, batch: Batch, rows: int, sampled: int, attention: tuple[int, ...]) -> None:
        self._body_rows[rows] += 1
        self._head_rows[sampled] += 1
        whole = self._attention.all_layers(attention)
        alone = self._attention.all_layers(self._attention(batch._replace(prompts=()))) if batch.prompts else whole
        verified = min(alone, whole)
        self._others["attention_decode"] += verified
        self._others["attention_prefill"] += whole - verified

    def breakdown(self, steps: Mapping[str, NDArray[Any]]) -> dict[str, float]:
        """Seconds of each group of operators over all steps so far, `drafts` being all of the drafter's; `host` is the
        time of the log in which the GPU waited for it.
        """
        ticks = defaultdict(int, self._others)
        forward = self._plain.forward
        rows, times = _counted(self._body_rows)
        for operator, each in forward.body_ticks(rows).items():
            ticks[operator.group] += forward.operators[operator] * int(each @ times)
        rows, times = _counted(self._head_rows)
        for operator, each in forward.head_ticks(rows).items():
            ticks[operator.group] += int(each @ times)
        busy = busy_time(steps, slice(0, len(steps["steps"])))
        host = max(0.0, busy - float(steps["gpu_time"].sum()))
        return {group: to_seconds(each) for group, each in ticks.items()} | {"host": host}

    def extrapolated_steps(self, steps: Mapping[str, NDArray[Any]]) -> int:
        """Steps of a log in which the model lies beyond what was measured."""
        tokens = steps["prefill_tokens"] + steps["draft_tokens"]
        return extrapolated_steps(self._plain.forward, {**steps, "prefill_tokens": tokens})


def _counted(counter: Counter[int]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Row counts, and how many steps had each."""
    return np.array(list(counter), dtype=np.int64), np.array(list(counter.values()), dtype=np.int64)
