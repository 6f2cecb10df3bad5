"""A plain restatement of vLLM 0.32's V1 scheduler: the judge of simserve's fast one.

Written for reading, not for speed: every token is a value, every block an object, the free queue a list, and async
scheduling counts placeholders as vLLM does. One full-attention KV group, one sampled token a step, no speculative
decoding, LoRA or KV transfer. Each rule stands beside the place in vLLM it restates (files of `vllm/v1/core`):
`sched/scheduler.py`, `sched/async_scheduler.py`, `sched/utils.py`, `kv_cache_manager.py`, `block_pool.py`.
It imports nothing of simserve and reproduces the recorded traces of `tests/golden` in every field of every step.
"""

from collections import deque
from dataclasses import dataclass, field

Token = tuple[str, int]  # (stream, position): two streams never agree


@dataclass(eq=False)
class Block:
    ref_count: int = 0
    hash: int | None = None


@dataclass(eq=False)
class Request:
    id: str
    tokens: list[Token]  # the prompt, then the outputs as they arrive
    prompt_len: int
    output_len: int  # the true length: an EOS ends the output here if max_tokens is larger
    max_tokens: int
    priority: int
    arrival: float
    num_computed: int = 0
    num_placeholders: int = 0  # async: sampled but not yet delivered tokens
    num_preemptions: int = 0
    status: str = "waiting"  # waiting, preempted, running, finished
    finish_reason: str = ""
    blocks: list[Block] = field(default_factory=list)
    block_hashes: list[int] = field(default_factory=list)  # of all full blocks of `tokens`
    num_hashed: int = 0  # leading blocks of `blocks` that the pool knows by hash

    @property
    def rank(self) -> tuple[int, float]:
        return (self.priority, self.arrival)


class BlockPool:
    """Blocks, the free queue and the map from hash to blocks (block_pool.py)."""

    def __init__(self, num_blocks: int, block_size: int, caching: bool) -> None:
        self.block_size = block_size
        self.caching = caching
        self.free_queue = deque(Block() for _ in range(num_blocks - 1))  # block 0 is the null block
        self.cached: dict[int, list[Block]] = {}  # copies of one hash, the oldest first
        self.chains: dict[tuple[int | None, tuple[Token, ...]], int] = {}  # interned hashes: (hash before, own tokens)

    def update_hashes(self, request: Request) -> None:
        """A block's hash covers all tokens before it too."""
        size, hashes = self.block_size, request.block_hashes
        for i in range(len(hashes), len(request.tokens) // size):
            key = (hashes[-1] if hashes else None, tuple(request.tokens[i * size : (i + 1) * size]))
            hashes.append(self.chains.setdefault(key, len(self.chains)))

    def lookup(self, request: Request) -> list[Block]:
        """Find the longest cached run of full blocks that leaves the last token to compute."""
        hits: list[Block] = []
        if self.caching:
            for h in request.block_hashes[: (len(request.tokens) - 1) // self.block_size]:
                if h not in self.cached:
                    break
                hits.append(self.cached[h][0])
        return hits

    def touch(self, block: Block) -> None:
        if block.ref_count == 0:
            self.free_queue.remove(block)
        block.ref_count += 1

    def allocate(self) -> Block:
        block = self.free_queue.popleft()
        if block.hash is not None:  # evict
            copies = self.cached[block.hash]
            copies.remove(block)
            if not copies:
                del self.cached[block.hash]
            block.hash = None
        block.ref_count = 1
        return block

    def cache(self, request: Request, num_tokens: int) -> None:
        """Make the request's full blocks up to `num_tokens` known; a second copy of a hash stays beside the first."""
        if not self.caching:
            return
        for i in range(request.num_hashed, num_tokens // self.block_size):
            request.blocks[i].hash = request.block_hashes[i]
            self.cached.setdefault(request.block_hashes[i], []).append(request.blocks[i])
            request.num_hashed = i + 1

    def free(self, request: Request) -> None:
        """Release tail first: unhashed blocks to the front of the queue, hashed ones to the back."""
        for block in reversed(request.blocks):
            block.ref_count -= 1
            if block.ref_count == 0 and block.hash is None:
                self.free_queue.appendleft(block)
            elif block.ref_count == 0:
                self.free_queue.append(block)
        request.blocks, request.num_hashed = [], 0


@dataclass(eq=False)
class Plan:
    """What one call of schedule() decided."""

    step: int
    scheduled: dict[Request, int] = field(default_factory=dict)
    new: list[Request] = field(default_factory=list)
    resumed: list[Request] = field(default_factory=list)
    preempted: list[Request] = field(default_factory=list)
    hit_tokens: dict[Request, int] = field(default_factory=dict)
    sampling: set[Request] = field(default_factory=set)  # those that will yield a token


class Scheduler:
    """vLLM's Scheduler and AsyncScheduler."""

    def __init__(self, config: dict) -> None:
        self.config = config
        size, num_blocks = config["block_size"], config["num_gpu_blocks"]
        self.pool = BlockPool(num_blocks, size, config["enable_prefix_caching"])
        self.max_model_len = config["max_model_len"]
        self.max_active = config["max_num_active_seqs"] or config["max_num_seqs"]
        self.is_priority = config["policy"] == "priority"
        self.watermark_blocks = int(config["watermark"] * num_blocks)
        self.running: list[Request] = []  # in order of admission; never sorted, under priority either
        self.waiting: list[Request] = []
        self.unannounced = False  # a finish that no schedule() has announced yet

    def has_live(self) -> bool:
        return bool(self.running or self.waiting)

    def add(self, request: Request) -> None:
        self.pool.update_hashes(request)
        self.waiting.append(request)
        self.order_waiting()

    def order_waiting(self) -> None:
        if self.is_priority:
            self.waiting.sort(key=lambda r: (*r.rank, r.id))

    def schedule(self, step: int) -> Plan:
        plan = Plan(step)
        self.unannounced = False
        self.budget = self.config["max_num_batched_tokens"]  # one budget for prefill and decode
        alone = len(self.running) + len(self.waiting) == 1
        self.threshold = 0 if alone else self.config["long_prefill_token_threshold"]
        self.schedule_running(plan)
        if not plan.preempted:  # nobody is admitted in a step that preempted
            self.schedule_waiting(plan)
        for request, num_tokens in plan.scheduled.items():
            request.num_computed += num_tokens
            if request.num_computed == len(request.tokens) + request.num_placeholders:
                plan.sampling.add(request)
                request.num_placeholders += self.config["async_scheduling"]
        return plan

    def schedule_running(self, plan: Plan) -> None:
        index = 0
        while index < len(self.running) and self.budget > 0:
            request = self.running[index]
            num_tokens = self.tokens_wanted(request)
            if num_tokens == 0:  # skipped, the walk goes on
                index += 1
                continue
            while not self.fits(request, num_tokens) and request.status == "running":
                victim = max(self.running, key=lambda r: r.rank) if self.is_priority else self.running[-1]
                if self.running.index(victim) < index:
                    index -= 1
                self.budget += plan.scheduled.pop(victim, 0)  # a victim may have been scheduled in this very step
                self.preempt(victim)
                plan.preempted.append(victim)
            if request.status != "running":  # its own victim: the walk stops
                break
            self.allocate(request, num_tokens)
            plan.scheduled[request] = num_tokens
            self.budget -= num_tokens
            index += 1

    def tokens_wanted(self, request: Request) -> int:
        if (
            request.num_placeholders > 0  # async: the token in flight is known to be the last
            and request.num_computed + 2 - request.num_placeholders >= request.prompt_len + request.max_tokens
        ):
            return 0
        wanted = len(request.tokens) + request.num_placeholders - request.num_computed
        wanted = min(wanted, self.threshold or wanted, self.budget)
        return min(wanted, self.max_model_len - 1 - request.num_computed)

    def fits(self, request: Request, num_tokens: int) -> bool:
        """A running request needs blocks for this step's tokens only."""
        needed = self.blocks_of(request.num_computed + num_tokens) - len(request.blocks)
        return needed <= len(self.pool.free_queue)

    def blocks_of(self, num_tokens: int) -> int:
        return -(-num_tokens // self.pool.block_size)

    def allocate(self, request: Request, num_tokens: int) -> None:
        """Take blocks and hash the full ones at once, before the model has run; a token in flight has no hash yet."""
        total = request.num_computed + num_tokens
        while len(request.blocks) < self.blocks_of(total):
            request.blocks.append(self.pool.allocate())
        self.pool.cache(request, min(total, len(request.tokens)))

    def preempt(self, request: Request) -> None:
        """Recompute later: blocks go, outputs stay; the token in flight will still be delivered."""
        self.running.remove(request)
        self.pool.free(request)
        request.status = "preempted"
        request.num_computed = request.num_placeholders = 0
        request.num_preemptions += 1
        self.waiting.insert(0, request)
        self.order_waiting()

    def schedule_waiting(self, plan: Plan) -> None:
        """Admit from the head only: whatever stops the head stops the queue."""
        while self.waiting and self.budget > 0 and len(self.running) < self.max_active:
            request = self.waiting[0]
            hits = self.pool.lookup(request)
            hit_tokens = len(hits) * self.pool.block_size
            num_tokens = len(request.tokens) - hit_tokens  # outputs before a preemption included
            num_tokens = min(num_tokens, self.threshold or num_tokens)
            if num_tokens > self.budget and not self.config["enable_chunked_prefill"]:
                break
            num_tokens = min(num_tokens, self.budget)
            if not self.admissible(request, hits, hit_tokens + num_tokens):
                break
            self.waiting.pop(0)
            for block in hits:
                self.pool.touch(block)
            request.blocks, request.num_hashed, request.num_computed = list(hits), len(hits), hit_tokens
            self.allocate(request, num_tokens)
            (plan.new if request.status == "waiting" else plan.resumed).append(request)
            request.status = "running"
            self.running.append(request)
            plan.scheduled[request] = num_tokens
            plan.hit_tokens[request] = hit_tokens
            self.budget -= num_tokens

    def admissible(self, request: Request, hits: list[Block], num_tokens: int) -> bool:
        """Blocks for this step's tokens or, reserving, the whole prompt; free hits count, for they leave the queue."""
        if self.config["scheduler_reserve_full_isl"]:
            num_tokens = min(len(request.tokens), self.max_model_len)
        needed = self.blocks_of(num_tokens) - len(hits) + sum(block.ref_count == 0 for block in hits)
        watermark = self.watermark_blocks if self.running else 0  # those admitted in this step count as running
        return needed + watermark <= len(self.pool.free_queue)

    def abort(self, request: Request) -> bool:
        """Free a request whose client has left (finish_requests); its token in flight will find it finished."""
        if request.status == "finished":
            return False
        (self.running if request.status == "running" else self.waiting).remove(request)
        request.status = "finished"
        self.pool.free(request)
        self.unannounced = True
        return True

    def complete(self, plan: Plan) -> tuple[list[Request], list[Request]]:
        """Deliver the plan's tokens; give the requests that got one and those that finished."""
        got_token = [r for r in plan.scheduled if r in plan.sampling and r.status != "finished"]  # after an EOS: wasted
        for request in got_token:
            self.deliver(request)
        return got_token, [r for r in got_token if r.status == "finished"]

    def deliver(self, request: Request) -> None:
        num_outputs = len(request.tokens) - request.prompt_len + 1
        request.tokens.append((f"out/{request.id}", num_outputs - 1))
        self.pool.update_hashes(request)
        if request.num_placeholders:  # async; a preempted request has none left
            request.num_placeholders -= 1
            self.pool.cache(request, request.num_computed - request.num_placeholders)
        if num_outputs == request.output_len < request.max_tokens:
            request.finish_reason = "stop"
        elif num_outputs == request.max_tokens or len(request.tokens) >= self.max_model_len:
            request.finish_reason = "length"
        if request.finish_reason:
            (self.waiting if request.status == "preempted" else self.running).remove(request)
            request.status = "finished"
            self.pool.free(request)
            self.unannounced = True
