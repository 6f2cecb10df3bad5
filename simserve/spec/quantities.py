"""The one door for numbers with units: text such as `80GiB`, `3.35TB/s`, `10 min` or `$2.50` becomes an SI float, or is refused.

Every field of a scenario or a profile names its unit through one of the types at the end. quantiphy reads the number and its prefix; what
it may read is a whitelist, since `10 min` would be 10 milli-inches and `1 Gb/s` leaves open whether bits are meant.
"""

import math
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema
from pydantic_core import PydanticCustomError
from quantiphy import Quantity

Parsed = TypeVar("Parsed")

_DECIMAL = ("", "k", "M", "G", "T")
_BINARY = ("Ki", "Mi", "Gi", "Ti")

_SPELLINGS: dict[str, tuple[str, ...]] = {
    "s": ("s", "ms", "us", "µs", "ns", "min", "h"),
    "B": tuple(f"{prefix}B" for prefix in _DECIMAL + _BINARY),
    "B/s": tuple(f"{prefix}B/s" for prefix in _DECIMAL + _BINARY),
    "FLOP/s": tuple(f"{prefix}FLOP/s" for prefix in (*_DECIMAL, "P")),
    "%": ("%",),
    "$": ("$",),
}
"""Unit of a field -> the spellings accepted there. `%` is the unit of shares: 92 % and 0.92 are the same number."""

_FACTORS = {"min": 60.0, "h": 3600.0, "%": 0.01, "$": 1.0}
"""Units that are not an SI prefix on the field's unit."""

_NOUNS = {
    "s": "a time such as 500 ms, 2 s or 10 min",
    "B": "a number of bytes such as 14 GB or 80GiB",
    "B/s": "bytes per second such as 900 GB/s or 3.35TB/s",
    "FLOP/s": "FLOP/s such as 989 TFLOP/s",
    "%": "a share such as 0.92 or 92 %",
    "$": "an amount such as $2.50",
}

_NUMBER = r"[+-]?(?:\d[\d_]*(?:\.[\d_]*)?|\.\d[\d_]*)(?:[eE][+-]?\d+)?"
_TEXT = re.compile(rf"(\$?)\s*({_NUMBER})\s*(\S*)")


def parse_quantity(value: object, unit: str) -> float:
    """SI value of a number or of text with a unit of the field's kind.

    `unit` is one of `s B B/s FLOP/s % $`. A plain number is taken as SI (and, for `%`, as a fraction).

    Raises:
        ValueError: not a number, not finite, or a unit that is not in the whitelist of this kind.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"expected {_NOUNS[unit]}, got {value!r}")
    number = _parse_text(value, unit) if isinstance(value, str) else float(value)
    if not math.isfinite(number):
        raise ValueError(f"expected a finite number, got {value!r}")
    return number


def _parse_text(text: str, unit: str) -> float:
    match = _TEXT.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"expected {_NOUNS[unit]}, got {text!r}")
    dollar, number, spelling = match.groups()
    spelling = spelling or dollar
    number = number.replace("_", "")
    if not spelling:
        return float(number)
    if spelling not in _SPELLINGS[unit] or (dollar and spelling != "$"):
        raise ValueError(f"expected {_NOUNS[unit]}, got {text!r}: {_unit_remedy(spelling, unit)}")
    if spelling in _FACTORS:
        return _scaled(number, _FACTORS[spelling])
    return float(Quantity(f"{number} {spelling}", binary=True))


def _scaled(number: str, factor: float) -> float:
    """Product in decimal, so that 92 % is the float 0.92 itself."""
    return float(Decimal(number) * Decimal(str(factor)))


def _unit_remedy(spelling: str, unit: str) -> str:
    if spelling.rstrip("/s").endswith("b") and unit in {"B", "B/s"}:
        return "is b bits or bytes? Write B for bytes"
    by_case = {known.lower(): known for known in _SPELLINGS[unit]}
    near = by_case.get(spelling.lower()) or by_case.get(
        spelling.lower().replace("flops", "flop/s").replace("bps", "b/s")
    )
    known = ", ".join(name for name in _SPELLINGS[unit] if name != "µs")
    return f"did you mean {near}?" if near else f"its unit must be one of {known}"


def format_quantity(value: float, unit: str) -> str:
    """Shortest readable text that `parse_quantity` reads back as the very same float."""
    if unit == "$":
        return f"${_plain(Decimal(repr(value)))}" if value >= 0 else f"{_plain(Decimal(repr(value)))} $"
    if unit == "%":
        return repr(value)
    if unit == "B" and value >= 2**20 and value % 2**20 == 0:
        return _binary(value)
    return _prefixed(Decimal(repr(value)), unit)


def _binary(value: float) -> str:
    for power, prefix in ((40, "Ti"), (30, "Gi"), (20, "Mi")):
        count = Decimal(int(value)) / Decimal(2**power)
        if (
            value >= 2**power
            and len(text := _plain(count)) <= 8
            and float(Quantity(f"{text} {prefix}B", binary=True)) == value
        ):
            return f"{text} {prefix}B"
    return _prefixed(Decimal(repr(value)), "B")


def _prefixed(value: Decimal, unit: str) -> str:
    small = (("m", -3), ("u", -6), ("n", -9)) if unit == "s" else ()
    large = (("T", 12), ("G", 9), ("M", 6), ("k", 3)) if unit != "s" else ()
    for prefix, exponent in (*large, ("", 0), *small):
        if abs(value) >= Decimal(1).scaleb(exponent):
            return f"{_plain(value.scaleb(-exponent))} {prefix}{unit}"
    return f"{value} {unit}"


def _plain(value: Decimal) -> str:
    """Decimal digits without an exponent where that stays short."""
    text = f"{value.normalize():f}"
    return text if len(text) <= 20 else str(value)


def parse_count(value: object) -> int:
    """Whole number; `1e3` counts as one, a flag or text does not.

    Raises:
        ValueError: not a whole number.
    """
    if isinstance(value, str) and re.fullmatch(_NUMBER, value.strip()):
        value = float(value.replace("_", ""))
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value != int(value):
        raise ValueError(f"expected a whole number, got {value!r}")
    return int(value)


def parse_number(value: object) -> float:
    """Finite plain number without a unit.

    Raises:
        ValueError: not a number, not finite, or followed by a unit.
    """
    if isinstance(value, str) and re.fullmatch(_NUMBER, value.strip()):
        value = float(value.replace("_", ""))
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"expected a plain number, got {value!r}")
    return float(value)


def _refusing(parse: Callable[[Any], Parsed]) -> Callable[[Any], Parsed]:
    """The parser, its ValueError turned into the message of the field without pydantic's prefix."""

    def validate(value: object) -> Parsed:
        try:
            return parse(value)
        except ValueError as error:
            raise PydanticCustomError("quantity", "{reason}", {"reason": str(error)}) from None

    return validate


def _quantity(unit: str) -> tuple[BeforeValidator, PlainSerializer, WithJsonSchema]:
    return (
        BeforeValidator(_refusing(lambda value: parse_quantity(value, unit))),
        PlainSerializer(lambda value: format_quantity(value, unit), return_type=str, when_used="json"),
        WithJsonSchema({"anyOf": [{"type": "number"}, {"type": "string"}], "description": _NOUNS[unit]}),
    )


Seconds = Annotated[float, *_quantity("s"), Field(ge=0)]
Bytes = Annotated[float, *_quantity("B"), Field(ge=0)]
BytesPerSecond = Annotated[float, *_quantity("B/s"), Field(gt=0)]
FlopsPerSecond = Annotated[float, *_quantity("FLOP/s"), Field(gt=0)]
Dollars = Annotated[float, *_quantity("$"), Field(ge=0)]
Share = Annotated[float, *_quantity("%"), Field(ge=0, le=1)]
"""Fraction between 0 and 1; `92 %` is 0.92."""
Number = Annotated[float, BeforeValidator(_refusing(parse_number))]
PositiveNumber = Annotated[float, BeforeValidator(_refusing(parse_number)), Field(gt=0)]
Integer = Annotated[int, BeforeValidator(_refusing(parse_count))]
Count = Annotated[int, BeforeValidator(_refusing(parse_count)), Field(ge=0)]
PositiveCount = Annotated[int, BeforeValidator(_refusing(parse_count)), Field(ge=1)]
