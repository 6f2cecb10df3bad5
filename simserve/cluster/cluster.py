"""The fleet as the clients see it: a request goes in, and is served by one of the replicas or rejected."""

from collections.abc import Sequence

from simserve.cluster.prompts import Prompts
from simserve.cluster.router import Router
from simserve.engine.replica import Replica
from simserve.engine.request import Request

Arrival = tuple[int, int, int, int, int, int, int]
"""A request as it reaches the fleet: row, input_len, output_len, max_tokens, priority, prefix_group, prefix_len."""


class Cluster:
    """Identical replicas behind one router.

    `prompts` is None where no prompt shares anything with another; `rejected` lists the rows that were refused.
    """

    def __init__(
        self, replicas: Sequence[Replica], router: Router, prompts: Prompts | None, max_model_len: int
    ) -> None:
        self.replicas = replicas
        self.rejected: list[int] = []
        self._router = router
        self._prompts = prompts
        self._max_model_len = max_model_len
        self._env = replicas[0].env

    def submit(self, arrival: Arrival) -> bool:
        """A request reaches the fleet now; False if it is rejected.

        vLLM's front end refuses a prompt that leaves no room for a token (v1/engine/input_processor.py), and cuts
        `max_tokens` where the model's length ends the answer.
        """
        row, input_len, output_len, max_tokens, priority, group, prefix_len = arrival
        room = self._max_model_len - input_len
        if room <= 0:
            self.rejected.append(row)
            if self._prompts is not None:
                self._prompts.pass_over(row)
            return False
        if max_tokens > room:
            max_tokens = room
            output_len = min(output_len, room)
        request = Request(row, int(self._env.now), input_len, output_len, max_tokens, priority=priority)
        self._serve(request, row, group, prefix_len)
        return True

    def _serve(self, request: Request, row: int, group: int, prefix_len: int) -> None:
        """A request that was not rejected goes to a replica."""
        index = self._router.choose()
        if self._prompts is not None:
            self._prompts.place(request, row, index, group, prefix_len)
        self.replicas[index].receive(request)
