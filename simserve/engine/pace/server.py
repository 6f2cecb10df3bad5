"""What a pace serves: the side of a replica that it sees."""

from abc import ABC, abstractmethod

from simserve.engine.clock import Clock
from simserve.engine.plan import StepPlan
from simserve.engine.scheduler import Scheduler
from simserve.engine.step_log import StepLog


class Server(ABC):
    """A scheduler whose steps need time."""

    def __init__(self, env: Clock, scheduler: Scheduler) -> None:
        self.env = env
        self.scheduler = scheduler
        self.log = StepLog()

    @abstractmethod
    def part(self) -> None:
        """Before a step is decided: let those go whose clients have left; what they were given is written down. Any
        abort wakes the engine, so it is enough to look after a sleep.
        """

    @abstractmethod
    def complete(self, plan: StepPlan, known: int) -> None:
        """The tokens of a step are there, known at tick `known`, now or later."""
