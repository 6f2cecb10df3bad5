"""The network between replicas: transfers that share its links max-min fairly, as a fluid in whole ticks.

A transfer crosses some links, each with so many bytes per second. Nobody can get more without taking it from somebody
who has no more than he; ends are timed again whenever a transfer comes or goes. Rates are whole parts of `PARTS` of a
byte per second and work is counted in such parts times ticks, so that nothing depends on the order of sums: a transfer
that is alone takes exactly `ceil(bytes / bandwidth)` ticks, and up to 16 that share a link get exactly equal shares.
"""

from collections.abc import Callable, Sequence
from typing import Final

from simpy import Environment, Event
from simpy.events import NORMAL

from simserve.engine.instant import Due
from simserve.spec.ticks import TICKS_PER_SECOND

PARTS: Final = 720_720
"""Parts of a byte per second in which rates are counted: the least common multiple of 1 to 16."""


class Transfer:
    """Bytes under way. `rate` is in parts of a byte per second, `left` in such parts times ticks."""

    __slots__ = ("left", "links", "rate", "then")

    def __init__(self, num_bytes: int, links: Sequence[int], then: Callable[[], None]) -> None:
        self.left = num_bytes * PARTS * TICKS_PER_SECOND
        self.links = links
        self.rate = 0
        self.then = then


class Network:
    """Links of `bandwidths` bytes per second each; None for one that nobody has to wait for."""

    def __init__(self, env: Environment, bandwidths: Sequence[float | None] = ()) -> None:
        self._env = env
        self._capacities: list[int | None] = []
        for bandwidth in bandwidths:
            self.add(bandwidth)
        self._transfers: dict[Transfer, None] = {}
        """In the order in which they began."""
        self._since = 0
        self._next: Event | None = None

    def add(self, bandwidth: float | None) -> int:
        """One link more; returns its number."""
        self._capacities.append(None if bandwidth is None else max(1, round(bandwidth * PARTS)))
        return len(self._capacities) - 1

    def start(self, num_bytes: int, links: Sequence[int], then: Callable[[], None]) -> None:
        """Bytes begin to cross these links now; `then` is called when the last one has arrived."""
        limits = [link for link in links if self._capacities[link] is not None]
        transfer = Transfer(num_bytes if limits else 0, limits, then)
        self._advance()
        self._transfers[transfer] = None
        self._share()

    @property
    def rates(self) -> list[float]:
        """Bytes per second of the transfers under way, in the order in which they began."""
        return [transfer.rate / PARTS for transfer in self._transfers]

    def _advance(self) -> None:
        """Account for the time since the rates were set."""
        now = int(self._env.now)
        passed, self._since = now - self._since, now
        for transfer in self._transfers:
            transfer.left -= transfer.rate * passed

    def _share(self) -> None:
        """Set the rates anew, and be called when the next transfer ends."""
        transfers = list(self._transfers)
        rates = max_min_rates([one.links for one in transfers], self._capacities)
        wait = -1
        for transfer, rate in zip(transfers, rates, strict=True):
            transfer.rate = rate
            ticks = -(-transfer.left // rate) if transfer.left > 0 else 0
            wait = ticks if wait < 0 else min(wait, ticks)
        self._next = None
        if wait >= 0:
            self._next = Due(self._env, int(self._env.now) + wait, NORMAL)
            assert self._next.callbacks is not None
            self._next.callbacks.append(self._arrive)

    def _arrive(self, event: Event) -> None:
        """Whoever has nothing left has arrived, in the order in which they began."""
        if event is not self._next:
            return  # timed anew since
        self._advance()
        arrived = [transfer for transfer in self._transfers if transfer.left <= 0]
        for transfer in arrived:
            del self._transfers[transfer]
        self._share()
        for transfer in arrived:
            transfer.then()


def max_min_rates(flows: Sequence[Sequence[int]], capacities: Sequence[int | None]) -> list[int]:
    """Max-min fair rates of flows over the links that each crosses, by progressive filling: the link that gives its
    flows least is full first, and what they leave elsewhere is shared by the others.

    Rates are rounded down to whole numbers. A flow that crosses no link of a capacity has rate 1: it has nothing to
    wait for. Source: Bertsekas and Gallager, Data Networks, 2nd edition, section 6.5.2.
    """
    left = {link: capacity for link, capacity in enumerate(capacities) if capacity is not None}
    crossing: dict[int, list[int]] = {}
    for flow, links in enumerate(flows):
        for link in links:
            if link in left:
                crossing.setdefault(link, []).append(flow)
    rates = [0] * len(flows)
    while crossing:
        full = min(crossing, key=lambda link: (left[link] // len(crossing[link]), link))
        rate = left[full] // len(crossing[full])
        for flow in crossing[full][:]:
            rates[flow] = rate
            for link in flows[flow]:
                if link in left:
                    left[link] -= rate
                    crossing[link].remove(flow)
        crossing = {link: others for link, others in crossing.items() if others}
    return [rate or 1 for rate in rates]
