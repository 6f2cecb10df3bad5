"""What a step costs on the GPU and on the host, and what fits into the GPU's memory."""

from simserve.cost.build import FrontEnd, build_step_cost, cost_level, front_end
from simserve.cost.memory import MemoryLedger, memory_ledger
from simserve.cost.step import DecodeCost, Piece, StepCost, StepTime

__all__ = [
    "DecodeCost",
    "FrontEnd",
    "MemoryLedger",
    "Piece",
    "StepCost",
    "StepTime",
    "build_step_cost",
    "cost_level",
    "front_end",
    "memory_ledger",
]
