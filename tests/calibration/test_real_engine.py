"""The engine's tokens are those of a plain model, whatever the scheduler does to a request on the way."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random

import pytest

torch = pytest.importorskip("torch", reason="needs the calibrate extra: pip install 'simserve[calibrate]'")

from reference import assert_greedy  # noqa: E402

from calibration.engine.config import ModelConfig  # noqa: E402
from calibration.engine.engine import Engine, StepOutput  # noqa: E402
from calibration.engine.runner import ModelRunner  # noqa: E402
from simserve.engine.config import SchedulerConfig  # noqa: E402
from simserve.engine.prefix import ENDLESS, Branch, extend  # noqa: E402
from simserve.engine.request import FINISHED, Request  # noqa: E402

MODEL = ModelConfig("tiny", 48, 2, 4, 2, 16, 96, 199)
CONFIG = SchedulerConfig(
    max_num_seqs=6,
    max_num_batched_tokens=48,
    max_model_len=96,
    num_gpu_blocks=64,
    block_size=4,
    async_scheduling=False,
)


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


class Traffic:
    """Random requests with their texts, driven through an engine to the end."""

    def __init__(self, runner: ModelRunner, config: SchedulerConfig, seed: int = 0) -> None:
        self.engine = Engine(runner, config)
        self.random = Random(seed)
        self.requests: list[Request] = []
        self.outputs: list[StepOutput] = []
        self._in_flight: list[StepOutput] = []

    def prompt(self, length: int) -> list[int]:
        return [self.random.randrange(self.engine.runner.model.vocab_size) for _ in range(length)]

    def send(self, prompt: Sequence[int], output_len: int, max_tokens: int = 0, priority: int = 0) -> Request:
        """A new request, not yet added."""
        index = len(self.requests)
        request = Request(index, index, len(prompt), output_len, max_tokens or output_len, priority)
        self.requests.append(request)
        return request

    def add(self, length: int, output_len: int, max_tokens: int = 0, priority: int = 0) -> Request:
        prompt = self.prompt(length)
        request = self.send(prompt, output_len, max_tokens, priority)
        self.engine.add(request, prompt)
        return request

    def step(self) -> None:
        output = self.engine.step()
        self.outputs.append(output)
        self._in_flight.append(output)
        depth = 2 if self.engine.scheduler.config.async_scheduling else 1
        if len(self._in_flight) == depth or output.plan.is_empty:
            self.engine.complete(self._in_flight.pop(0).plan)
        self.engine.block_table.check()
        assert self.engine.block_table.num_free == self.engine.scheduler.ledger.pool.num_unhashed

    def run(self) -> None:
        """Serve all, and compare every answer with the plain model's."""
        while self.engine.scheduler.has_requests:
            self.step()
        runner = self.engine.runner
        for request in self.requests:
            assert request.state is FINISHED
            text = self.engine.text(request)
            assert len(text) == request.num_prompt_tokens + request.output_len
            assert_greedy(runner.model, runner.weights, text, request.num_prompt_tokens)

    def count(self, counted: Callable[[StepOutput], int]) -> int:
        return sum(counted(output) for output in self.outputs)


def num_mixed(output: StepOutput) -> int:
    return bool(output.plan.num_decodes and output.plan.chunks)


def num_split(output: StepOutput) -> int:
    return sum(chunk.history > 0 and chunk.num_tokens > 1 for chunk in output.plan.chunks)


@pytest.fixture(scope="module")
def runner() -> ModelRunner:
    return ModelRunner(MODEL, CONFIG, dtype="fp32")


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("budget", [7, 48])
def test_mixed_batches_chunked_and_whole(runner: ModelRunner, budget: int, asynchronous: bool) -> None:
    config = replace(CONFIG, max_num_batched_tokens=budget, async_scheduling=asynchronous)
    traffic = Traffic(runner, config)
    for length in (1, 3, 4, 5, 17, 40):
        traffic.add(length, output_len=9)
        traffic.step()
    traffic.run()
    assert traffic.count(num_mixed) > 3
    assert (traffic.count(num_split) > 0) == (budget == 7)


@pytest.mark.parametrize("tied", [False, True])
def test_heads_of_every_kind(tied: bool) -> None:
    for num_heads, num_kv_heads in ((4, 4), (4, 1)):
        model = replace(MODEL, num_heads=num_heads, num_kv_heads=num_kv_heads, tie_word_embeddings=tied)
        traffic = Traffic(ModelRunner(model, CONFIG, dtype="fp32", seed=num_kv_heads), CONFIG)
        traffic.add(11, output_len=6)
        traffic.add(2, output_len=4)
        traffic.run()


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("policy", ["fcfs", "priority"])
@pytest.mark.parametrize("caching", [False, True], ids=["uncached", "cached"])
def test_preempted_requests_go_on_where_they_were(caching: bool, policy: str, asynchronous: bool) -> None:
    config = replace(
        CONFIG,
        num_gpu_blocks=26,
        enable_prefix_caching=caching,
        scheduling_policy=policy,
        async_scheduling=asynchronous,
        scheduler_reserve_full_isl=False,
    )
    traffic = Traffic(ModelRunner(MODEL, config, dtype="fp32"), config)
    for index in range(7):
        traffic.add(10 + index, output_len=30, max_tokens=30 + index % 2, priority=6 - index)
    traffic.run()
    assert traffic.engine.scheduler.ledger.num_preemptions > 2


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("length", [7, 16, 21])
def test_a_shared_prefix_is_hit(runner: ModelRunner, length: int, asynchronous: bool) -> None:
    traffic = Traffic(runner, replace(CONFIG, async_scheduling=asynchronous))
    group, prefix = Branch(), traffic.prompt(length)
    for own in (1, 6, 0, 9):
        prompt = prefix + traffic.prompt(own)
        request = traffic.send(prompt, output_len=5)
        request.path = extend(((group, ENDLESS),), length, CONFIG.block_size, request.own_branch())
        traffic.engine.add(request, prompt)
        if own == 6:  # the first two are admitted together: the second hits what the first writes in that very step
            traffic.step()
            assert request.num_cached_tokens == length // 4 * 4
    traffic.run()


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
def test_a_chat_hits_what_it_said(runner: ModelRunner, asynchronous: bool) -> None:
    traffic = Traffic(runner, replace(CONFIG, async_scheduling=asynchronous))
    said, path = [], ()
    for new in (9, 3, 4, 1):
        prompt = said + traffic.prompt(new)
        request = traffic.send(prompt, output_len=8)
        request.path = extend(path, len(said), CONFIG.block_size, request.own_branch())
        request.is_awaited = True
        traffic.engine.add(request, prompt)
        traffic.add(12, output_len=3)
        while request.state is not FINISHED:
            traffic.step()
        assert request.num_cached_tokens == max(len(said) - 1, 0) // 4 * 4
        said, path = traffic.engine.text(request), request.path
    traffic.run()


@pytest.mark.parametrize("sizes", [(1, 2, 4, 8), (3,)], ids=str)
def test_batches_padded_to_graphs(sizes: tuple[int, ...]) -> None:
    padded = ModelRunner(MODEL, CONFIG, dtype="fp32", graph_sizes=sizes)
    traffic = Traffic(padded, CONFIG)
    for length in (1, 8, 19, 5, 30):
        traffic.add(length, output_len=4 + length)
    traffic.run()
    used = {(output.plan.num_decodes, output.graph) for output in traffic.outputs if not output.plan.chunks}
    assert (
        used == {(1, 1), (2, 2), (3, 4), (4, 4), (5, 8)} if len(sizes) > 1 else {(1, 3), (2, 3), (3, 3), (4, 0), (5, 0)}
    )
    padded.use_graphs = False
    again = Traffic(padded, CONFIG)
    again.add(8, output_len=4)
    again.run()
    assert again.count(lambda output: output.graph) == 0
