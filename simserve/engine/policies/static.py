"""The policy `static`: a batch is filled, runs until its longest answer ends, and only then makes room for the next.

So did FasterTransformer and Hugging Face's `generate`, and so does every server without continuous batching (Yu et al.,
"Orca", 2022). A batch begins when every seat has its request, when the pool would not hold one more to its end, or when
someone has waited for as long as the timer allows (Triton's `max_queue_delay`). Its prompts are computed first, without
padding; then all its rows decode. A row that is through stays: it goes through every matrix product like the others and
keeps its blocks, while attention passes over it (FasterTransformer, `finished` in masked multi-head attention). Tokens
are sent as they are made, but the last one of each answer when the batch ends, since nobody is answered before.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from simserve.engine.plan import StepPlan
from simserve.engine.policies.prefill_first import serve_decodes_alone, serve_prompts
from simserve.engine.policies.summed import SummedScheduler
from simserve.engine.request import WAITING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from simserve.engine.config import SchedulerConfig
    from simserve.engine.request import Request


class Static(SummedScheduler):
    """Batch after batch, of at most `max_num_seqs` rows. `on_wait` is told of each request that begins to wait, and
    calls `overdue` when it has waited long enough; without it nobody waits for a batch to be full.
    """

    def __init__(self, config: SchedulerConfig, on_wait: Callable[[Request], None] | None = None) -> None:
        super().__init__(replace(config, watermark=0.0))
        self.num_batches = 0
        self._on_wait = on_wait
        self._size = 0
        """Rows of the batch that runs."""
        self._overdue: dict[Request, None] = {}
        self._ended: dict[Request, int] = {}
        """Rows that are through, with the step of the token before their last."""
        self._gone: set[Request] = set()
        """Rows whose clients have left."""

    def add(self, request: Request) -> None:
        """A request arrives."""
        super().add(request)
        if self._on_wait is None:
            self._overdue[request] = None
        else:
            self._on_wait(request)

    def overdue(self, request: Request) -> None:
        """A request has waited long enough: if it still does, a batch need not be full to begin."""
        if request.state is WAITING:
            self._overdue[request] = None

    def abort(self, request: Request) -> None:
        """The client has left. A batch cannot be left: the row is computed to its end, for nobody."""
        if request.state is WAITING:
            self._overdue.pop(request, None)
            super().abort(request)
        elif request in self.ledger.running:
            self._gone.add(request)

    # -- batches -------------------------------------------------------------------------------------------------------

    def schedule(self) -> StepPlan:
        """Decide the next step."""
        ledger = self.books
        ledger.num_calls += 1
        plan = StepPlan(ledger.num_steps)
        if not ledger.running and ledger.anyone_waits:
            self._size = self._size_of_next_batch()
            self.num_batches += self._size > 0
        serve_prompts(ledger, plan, self._max_tokens, self.longest_chunk(), self._size)
        for request in plan.new:
            self._overdue.pop(request, None)
        serve_decodes_alone(ledger, plan)
        return self._keep_rows(ledger.end_step(plan))

    def _size_of_next_batch(self) -> int:
        """Rows of the batch that begins now; 0 if it goes on waiting for requests."""
        rows = num_blocks = 0
        for request in self.ledger.waiting:
            if rows == self._num_seats:
                break
            num_blocks += self.ledger.num_blocks_for(request.num_prompt_tokens + request.max_tokens)
            if num_blocks > self.ledger.pool.num_blocks and rows:
                return rows
            rows += 1
        return rows if rows == self._num_seats or self._overdue else 0

    def _keep_rows(self, plan: StepPlan) -> StepPlan:
        """Nobody finishes before the batch does."""
        if plan.num_decodes:
            plan.num_decodes += len(self._ended)
        for request in plan.finishing:
            self._end_row(plan, request)
        plan.finishing = ()
        if self._ended and len(self._ended) == self._size:
            self._end_batch(plan)
        return plan

    def _end_row(self, plan: StepPlan, request: Request) -> None:
        """A row is through: it keeps seat and blocks, and its last token waits for the batch to end."""
        if request.first_step == plan.index:
            self._ended[request] = request.first_step = -1
        else:
            steps = [step for waiting, step in plan.gaps if waiting is request]
            self._ended[request] = steps[0] if steps else plan.index - 1
            plan.gaps = tuple(gap for gap in plan.gaps if gap[0] is not request)
        self.books.drain(request)
        request.token_step = self._ended[request]

    def _end_batch(self, plan: StepPlan) -> None:
        for request, step in self._ended.items():
            if step < 0:
                request.first_step = plan.index
            elif step < plan.index - 1:
                plan.gaps += ((request, step),)
        plan.finishing = list(self.ledger.running)
        self._ended = {}

    def complete(self, plan: StepPlan) -> Sequence[Request]:
        """Take in the tokens of a plan; returns the requests that finished: all of the batch, or nobody."""
        finished = super().complete(plan)
        if self._gone and finished:
            finished = [request for request in finished if request not in self._gone]
            self._gone = set()
        return finished

    def steps_ahead(self, plan: StepPlan, enough: int = 1) -> int:
        """None from the first row on that is through: then steps are taken one by one."""
        return 0 if self._ended else super().steps_ahead(plan, enough)

    def repeat(self, num_steps: int) -> StepPlan:
        """Decide `num_steps` steps at once."""
        return self._keep_rows(super().repeat(num_steps))
