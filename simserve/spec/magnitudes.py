"""Quantities of a GPU that are of the size of a GPU: who forgets a unit, or writes a wrong one, is asked for it."""

import math
from typing import Annotated

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from simserve.spec.quantities import BytesPerSecond, FlopsPerSecond, PositiveBytes, Seconds, format_quantity


def likely(value: float, typical: float) -> float:
    """The number with the prefix that brings it nearest to `typical`: 3.35 and 3350 of bytes per second are 3.35e12."""
    return value * 1000.0 ** round(math.log(typical / value, 1000))


def _of(noun: str, unit: str, bounds: tuple[float, float], typical: float) -> AfterValidator:
    """Refuses what lies outside `bounds`, in words that name the likely unit."""
    least, most = bounds

    def validate(value: float) -> float:
        if value and not least <= value <= most:
            found, meant = (format_quantity(each, unit) for each in (value, float(f"{likely(value, typical):.6g}")))
            raise PydanticCustomError(
                "magnitude", "{found} is not {noun}; {meant}?", {"found": found, "noun": noun, "meant": meant}
            )
        return value

    return AfterValidator(validate)


# From one core of a CPU, which `simserve calibrate` may describe, to well above any accelerator that was announced.
GpuMemory = Annotated[PositiveBytes, _of("the memory of a GPU", "B", (64e6, 1e14), 80e9)]
HbmBandwidth = Annotated[BytesPerSecond, _of("a GPU", "B/s", (1e8, 1e15), 2e12)]
Peak = Annotated[FlopsPerSecond, _of("a GPU", "FLOP/s", (1e8, 5e17), 5e14)]
Bandwidth = Annotated[BytesPerSecond, _of("a link of a GPU", "B/s", (1e6, 1e15), 1e11)]
KernelTime = Annotated[Seconds, Field(ge=0), _of("the time of a kernel or a launch", "s", (0.0, 1.0), 10e-6)]
"""0 is a kernel, or a launch, that takes no time."""
