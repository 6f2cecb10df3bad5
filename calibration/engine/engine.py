"""The engine: requests in, tokens out, step by step as the scheduler of `simserve.engine` decides.

    engine = Engine(ModelRunner(model, scheduler_config))
    engine.add(request, prompt)
    output = engine.step()
    finished = engine.complete(output.plan)

With asynchronous scheduling `complete(plan)` comes after the next `step()`, as the simulator's replica has it. When a
request ends is the scheduler's affair and depends on lengths alone, so that tokens never change a plan.
"""

from collections.abc import Sequence
from typing import NamedTuple

from calibration.engine.batch import Span, build_batch
from calibration.engine.block_table import BlockTable
from calibration.engine.runner import ModelRunner, StepTimes
from simserve.engine.config import SchedulerConfig
from simserve.engine.plan import StepPlan
from simserve.engine.policies.vllm_v1 import VllmV1
from simserve.engine.request import Request
from simserve.validation.observation import num_computed_tokens, scheduled_tokens


class StepOutput(NamedTuple):
    """A step: its plan, the tokens that requests got, the rows of the graph that ran it (0: none), the times."""

    plan: StepPlan
    tokens: dict[Request, int]
    graph: int
    times: StepTimes


class Row(NamedTuple):
    """A request's part of a step: tokens `[start, end)` of its text are computed."""

    request: Request
    start: int
    end: int


class Engine:
    """A scheduler whose steps are executed by a model runner.

    Several engines may use one runner, one after the other. `config` is the runner's own unless another is given, which
    must agree with it on blocks and lengths.
    """

    def __init__(self, runner: ModelRunner, config: SchedulerConfig | None = None) -> None:
        config = config or runner.scheduler_config
        own = runner.scheduler_config
        assert (config.num_gpu_blocks, config.block_size) == (own.num_gpu_blocks, own.block_size)
        assert config.max_model_len <= own.max_model_len
        self.runner = runner
        seats = max(config.max_num_seqs, config.max_num_active_seqs or 0)
        self.block_table = BlockTable(config.num_gpu_blocks, config.block_size, seats, config.max_model_len)
        self.scheduler = VllmV1(config, observer=self.block_table)
        self._texts: dict[Request, list[int]] = {}

    def add(self, request: Request, prompt: Sequence[int]) -> None:
        """A request arrives with the tokens of its prompt; what its path shares with others must be the same tokens."""
        assert len(prompt) == request.num_prompt_tokens, "the scheduler was told another length of the prompt"
        self._texts[request] = list(prompt)
        self.scheduler.add(request)

    def text(self, request: Request) -> list[int]:
        """Prompt and answer so far, the answer no longer than the request's `output_len`."""
        return self._texts[request][: request.num_prompt_tokens + request.output_len]

    def forget(self, request: Request) -> None:
        """Drop the text of a finished request."""
        del self._texts[request]

    def step(self) -> StepOutput:
        """Decide a step and execute it."""
        timer, began = self.runner.timer, self.runner.timer()
        plan = self.scheduler.schedule()
        schedule = timer() - began
        output = self.execute(plan)
        times = output.times
        return output._replace(times=times._replace(schedule=schedule, total=times.total + schedule))

    def execute(self, plan: StepPlan) -> StepOutput:
        """Execute a plan that `schedule()` has just made; nothing else may have been decided since."""
        if plan.is_empty:
            return StepOutput(plan, {}, 0, StepTimes(*[0.0] * 6))
        timer, began = self.runner.timer, self.runner.timer()
        rows = self._rows(plan)
        batch = build_batch([self._span(row) for row in rows], self.scheduler.config.block_size)
        built = timer()
        output = self.runner.run(batch)
        ran = timer()
        tokens = self._hand_over(rows, output.tokens)
        done, times = timer(), output.times
        times = times._replace(prepare=times.prepare + built - began, update=done - ran, total=done - began)
        return StepOutput(plan, tokens, output.graph, times)

    def complete(self, plan: StepPlan) -> Sequence[Request]:
        """Let the scheduler take in the tokens of a plan; returns the requests that finished."""
        return self.scheduler.complete(plan)

    def _rows(self, plan: StepPlan) -> list[Row]:
        """Every scheduled request, those with one token first."""
        table, size = self.block_table, self.scheduler.config.block_size
        decodes: list[Row] = []
        chunks: list[Row] = []
        for request, num_tokens in scheduled_tokens(self.scheduler, plan).items():
            end = num_computed_tokens(self.scheduler, request)
            table.grow(request, -(-end // size))
            row = Row(request, table.num_valid(request, end - num_tokens), end)
            (chunks if row.end - row.start > 1 else decodes).append(row)
        return decodes + chunks

    def _span(self, row: Row) -> Span:
        text = self._texts[row.request]
        return Span(text[row.start : row.end], row.start, self.block_table.row(row.request))

    def _hand_over(self, rows: list[Row], sampled: list[int]) -> dict[Request, int]:
        """Tokens of those whose known text is computed; what the others sampled is of no use."""
        tokens = {}
        for (request, start, end), token in zip(rows, sampled, strict=True):
            self.block_table.computed(request, start, end)
            text = self._texts[request]
            if end == len(text):
                text.append(token)
                tokens[request] = token
        return tokens
