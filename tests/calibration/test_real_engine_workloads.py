"""Random workloads of the scheduler, run by the real engine: chats, groups, priorities, EOS, pools that run out."""

from random import Random

import pytest

torch = pytest.importorskip("torch", reason="needs the calibrate extra: pip install 'simserve[calibrate]'")

from reference import answer, assert_greedy  # noqa: E402
from workloads import random_workload, squeezed_workload  # noqa: E402

from calibration.engine.config import ModelConfig  # noqa: E402
from calibration.engine.engine import Engine  # noqa: E402
from calibration.engine.runner import ModelRunner  # noqa: E402
from simserve.engine.plan import StepPlan  # noqa: E402
from simserve.engine.request import Request  # noqa: E402
from simserve.validation.recording import Json, SchedulerWorkload, parse_workload  # noqa: E402
from simserve.validation.replay import Replay  # noqa: E402

MODEL = ModelConfig("tiny", 32, 1, 2, 1, 16, 48, 97)


class RealEngine(Replay):
    """A replay whose plans are executed."""

    def __init__(self, workload: SchedulerWorkload) -> None:
        super().__init__(workload)
        self.runner = ModelRunner(MODEL, self.scheduler.config, dtype="fp32")
        self.engine = Engine(self.runner)
        self.scheduler = self.engine.scheduler
        self.prompts = self.write_prompts(workload)
        self.num_starved = 0

    def write_prompts(self, workload: SchedulerWorkload) -> dict[str, list[int]]:
        """Prompts that begin as the workload says; a parent's answer is known before, since it is the likeliest."""
        random = Random(0)
        prompts: dict[str, list[int]] = {}
        groups: dict[object, list[int]] = {}
        parents = {spec.parent for spec in workload.requests}
        for spec in workload.requests:
            head: list[int] = []
            if spec.parent is not None:
                head = prompts[f"{spec.parent} with its answer"]
            elif spec.prefix_group is not None:
                group = groups.setdefault(spec.prefix_group, [random.randrange(MODEL.vocab_size) for _ in range(200)])
                head = group[: spec.prefix_len]
            prompt = prompts[spec.id] = [*head, *(random.randrange(97) for _ in range(spec.prompt_len - len(head)))]
            if spec.id in parents:
                said = answer(MODEL, self.runner.weights, prompt, spec.output_len)
                prompts[f"{spec.id} with its answer"] = prompt + said
        return prompts

    def _arrive(self) -> list[Request]:
        arrived = super()._arrive()
        for request in arrived:
            self.engine._texts[request] = list(self.prompts[str(request.id)])
        return arrived

    def _record_plan(self, plan: StepPlan, record: Json) -> None:
        super()._record_plan(plan, record)
        self.engine.execute(plan)
        self.num_starved += len(plan.starved)


def run(workload: dict) -> RealEngine:
    replay = RealEngine(parse_workload(workload))
    while not replay.is_over:
        replay.step()
    for request in replay.requests:
        text = replay.engine.text(request) if request in replay.engine._texts else []
        if len(text) > request.num_prompt_tokens:
            assert_greedy(MODEL, replay.runner.weights, text, request.num_prompt_tokens)
    return replay


@pytest.mark.parametrize("seed", range(24))
def test_random_workloads_get_the_tokens_of_the_plain_model(seed: int) -> None:
    torch.set_num_threads(1)
    random = Random(seed)
    run(squeezed_workload(random, "squeezed") if seed % 4 == 0 else random_workload(random))


def test_starved_decodes_lose_nothing() -> None:
    """The first victim stands early in `running` and shifts those behind it: one of them gets nothing in that step."""
    config = {
        "max_num_seqs": 4,
        "max_num_batched_tokens": 66,
        "max_model_len": 64,
        "block_size": 1,
        "num_gpu_blocks": 65,
        "enable_chunked_prefill": False,
        "policy": "priority",
        "watermark": 0.05,
        "async_scheduling": True,
    }
    requests = [
        {"id": "r0", "arrival_step": 0, "prompt_len": 6, "output_len": 37, "priority": 0},
        {"id": "r1", "arrival_step": 0, "prompt_len": 1, "output_len": 28, "priority": 1},
        {"id": "r2", "arrival_step": 0, "prompt_len": 9, "output_len": 29, "priority": 1},
        {"id": "r3", "arrival_step": 3, "prompt_len": 8, "output_len": 25, "priority": 0},
    ]
    assert run({"name": "starved", "config": config, "requests": requests}).num_starved == 1
