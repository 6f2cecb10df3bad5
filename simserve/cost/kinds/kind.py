"""What a kind of attention is: its name, what a layer of it costs, and how a request is held in memory there."""

from typing import Any, Protocol

from simserve.cost.device import Device
from simserve.cost.held import Held
from simserve.cost.layer_time import LayerTime
from simserve.cost.sharding import Sharding
from simserve.cost.tables import Tables
from simserve.spec.model import ModelSpec


class LayerWork(Protocol):
    """Work of one layer on one GPU. Layers whose work is equal are costed once: it is hashable."""

    @property
    def kind(self) -> str:
        """Name of its kind."""
        ...


class AttentionKind(Protocol):
    """One kind, for any model and GPU. Its kernels are named by its `LayerTime`. `attention` is the layer's own, of the
    kind's class in `simserve.spec.layers`.
    """

    @property
    def name(self) -> str:
        """Its name, as `attention.kind` says it."""
        ...

    def work(self, attention: Any, model: ModelSpec, sharding: Sharding) -> LayerWork:
        """What a layer of it has to do on one GPU of `sharding`."""
        ...

    def time(self, work: Any, device: Device) -> LayerTime:
        """Time of its own `work` on a device."""
        ...

    def held(self, attention: Any) -> Held:
        """How a layer of it holds a request in KV blocks."""
        ...

    def unmeasured(self, attention: Any, model: ModelSpec, tables: Tables) -> str | None:
        """What tables lack of it, in words; None where it was measured."""
        ...
