"""Which replica of a pool gets a request: a rule a file, and a line here.

The names are those of `simserve.spec.names.RouterName`.
"""

from collections.abc import Callable

import numpy as np

from simserve.cluster.routers.least_requests import LeastRequests
from simserve.cluster.routers.prefix_affinity import PrefixAffinity
from simserve.cluster.routers.random import Random
from simserve.cluster.routers.round_robin import RoundRobin
from simserve.cluster.routers.router import Router
from simserve.spec.names import RouterName

ROUTERS: dict[RouterName, Callable[[np.random.Generator], Router]] = {
    "round_robin": RoundRobin,
    "random": Random,
    "least_requests": LeastRequests,
    "prefix_affinity": PrefixAffinity,
}
