"""The fleet as the clients see it: a request goes in, and is served by one of the replicas or rejected."""

from collections.abc import Sequence

from simserve.cluster.admission import QueueLimit, RateLimit, Refusal
from simserve.cluster.prompts import Prompts
from simserve.cluster.router import Router
from simserve.engine.replica import Replica
from simserve.engine.request import Request

Arrival = tuple[int, int, int, int, int, int, int]
"""A request as it reaches the fleet: row, input_len, output_len, max_tokens, priority, prefix_group, prefix_len."""


class Cluster:
    """Identical replicas behind one router.

    `prompts` is None where no prompt shares anything with another. `rejected` lists the requests that were refused,
    `refusals` why. `rate_limit` and `queue_limits` (one a replica), if set, refuse some; `placed`, set where clients
    may give up and send again, remembers where each attempt went.
    """

    def __init__(
        self, replicas: Sequence[Replica], router: Router, prompts: Prompts | None, max_model_len: int
    ) -> None:
        self.replicas = replicas
        self.rejected: list[int] = []
        self.refusals: list[Refusal] = []
        self.rate_limit: RateLimit | None = None
        self.queue_limits: Sequence[QueueLimit] = ()
        self.placed: dict[int, tuple[Replica, Request]] | None = None
        self._router = router
        self._prompts = prompts
        self._max_model_len = max_model_len
        self._env = replicas[0].env

    def submit(self, arrival: Arrival, attempt: int = -1) -> bool:
        """A request reaches the fleet now; False if it is rejected. `attempt` is the name of an attempt at it, where it
        may be sent again until `forget`.

        vLLM's front end refuses a prompt that leaves no room for a token (v1/engine/input_processor.py), and cuts
        `max_tokens` where the model's length ends the answer.
        """
        row, input_len, output_len, max_tokens, priority, group, prefix_len = arrival
        name = row if attempt < 0 else attempt
        room = self._max_model_len - input_len
        if room <= 0:
            return self._refuse(row, name, Refusal.TOO_LONG)
        if max_tokens > room:
            max_tokens = room
            output_len = min(output_len, room)
        now = int(self._env.now)
        if self.rate_limit is not None and not self.rate_limit.admits(input_len + max_tokens, now):
            return self._refuse(row, name, Refusal.RATE_LIMIT)
        request = Request(name, now, input_len, output_len, max_tokens, priority=priority)
        return self._serve(request, row, group, prefix_len)

    def _serve(self, request: Request, row: int, group: int, prefix_len: int) -> bool:
        """A request that may enter goes to a replica, if that lets it in."""
        index = self._router.choose()
        if self.queue_limits and not self.queue_limits[index].admits():
            return self._refuse(row, int(request.id), Refusal.QUEUE_FULL)
        if self._prompts is not None:
            self._prompts.place(request, row, index, group, prefix_len)
        self.replicas[index].receive(request)
        if self.queue_limits:
            self.queue_limits[index].entered(request)
        if self.placed is not None:
            self.placed[int(request.id)] = self.replicas[index], request
        return True

    def _refuse(self, row: int, name: int, why: Refusal) -> bool:
        self.rejected.append(name)
        self.refusals.append(why)
        if self._prompts is not None and self.placed is None:
            self._prompts.pass_over(row)
        return False

    def abandon(self, name: int) -> None:
        """The client of an attempt has hung up: whoever serves it lets go of it."""
        assert self.placed is not None
        if name in self.placed:
            replica, request = self.placed.pop(name)
            replica.abort(request)

    def forget(self, row: int) -> None:
        """A request of which there were attempts will not be sent again."""
        if self._prompts is not None:
            self._prompts.pass_over(row)
