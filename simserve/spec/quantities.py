"""The one door for numbers with units: text such as `80GiB`, `3.35TB/s`, `10 min` or `$2.50` becomes an SI float.

Every field of a scenario or a profile names its unit through one of the types at the end. quantiphy reads number and
prefix; what it may read is a whitelist, since to it `10 min` is ten milli-inches and `1 m` a thousandth of nothing.
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
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40}

_SPELLINGS: dict[str, tuple[str, ...]] = {
    "s": ("s", "ms", "us", "µs", "ns", "min", "h"),
    "B": tuple(f"{prefix}B" for prefix in (*_DECIMAL, *_BINARY)),
    "B/s": tuple(f"{prefix}B/s" for prefix in (*_DECIMAL, *_BINARY)),
    "FLOP/s": tuple(f"{prefix}FLOP/s" for prefix in (*_DECIMAL, "P")),
    "%": ("%",),
    "$": ("$",),
}
"""Unit of a field -> the spellings accepted there. `%` is the unit of shares: 92 % and 0.92 are the same number."""

_FACTORS = {"min": "60", "h": "3600", "%": "0.01", "$": "1"}
"""Units that are not an SI prefix on the field's unit, and what they multiply by."""

_NOUNS = {
    "s": "a time such as 500 ms, 2 s or 10 min",
    "B": "a number of bytes such as 14 GB or 80GiB",
    "B/s": "bytes per second such as 900 GB/s or 3.35TB/s",
    "FLOP/s": "FLOP/s such as 989 TFLOP/s",
    "%": "a share such as 0.92 or 92 %",
    "$": "an amount such as $2.50",
}

_NUMBER = r"[+-]?(?:\d[\d_]*(?:\.[\d_]*)?|\.\d[\d_]*)(?:[eE][+-]?\d+)?"
_TEXT = re.compile(rf"(\$?)\s*({_NUMBER})\s*(.*)")


def shown(value: object) -> str:
    """A value as YAML writes it, for messages."""
    return (
        {None: "null", True: "true", False: "false"}[value] if value is None or isinstance(value, bool) else repr(value)
    )


def parse_quantity(value: object, unit: str) -> float:
    """SI value of a number, or of text with a unit of the field's kind.

    `unit` is one of `s B B/s FLOP/s % $`. A plain number is taken as SI (and, for `%`, as a fraction).

    Raises:
        ValueError: not a number, not finite, or a unit outside the whitelist of this kind.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"expected {_NOUNS[unit]}, got {shown(value)}")
    number = _parse_text(value, unit) if isinstance(value, str) else float(value)
    if not math.isfinite(number):
        raise ValueError(f"expected a finite number, got {shown(value)}")
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
        # In decimal, so that 92 % is the float 0.92 itself.
        return float(Decimal(number) * Decimal(_FACTORS[spelling]))
    # Without an exponent: of `1e3 GB` quantiphy makes a thousand things called GB.
    return float(Quantity(f"{Decimal(number):f} {spelling}", binary=True))


def _unit_remedy(spelling: str, unit: str) -> str:
    if unit in {"B", "B/s"} and re.fullmatch(r"[kKMGT]?i?b(it)?s?(/s|ps)?", spelling):
        return "is b bits or bytes? Write B for bytes"
    by_case = {known.lower(): known for known in _SPELLINGS[unit]}
    lower = re.sub(r"flops?$", "flop/s", spelling.lower()).replace("bps", "b/s").replace(" ", "")
    known = ", ".join(name for name in _SPELLINGS[unit] if name != "µs")
    return f"did you mean {by_case[lower]}?" if lower in by_case else f"its unit must be one of {known}"


def format_quantity(value: float, unit: str) -> str:
    """Short readable text that `parse_quantity` reads back as the very same float."""
    exact = Decimal(repr(float(value)))
    if unit == "$":
        return f"{_digits(exact)} $"
    if unit == "%":
        return _digits(exact)
    decimal = _decimal_text(exact, unit)
    return min(decimal, _binary_text(value), key=len) if unit == "B" and value >= 2**10 else decimal


def _decimal_text(value: Decimal, unit: str) -> str:
    prefixes = (("", 0), ("m", -3), ("u", -6), ("n", -9)) if unit == "s" else (("T", 12), ("G", 9), ("M", 6), ("k", 3))
    for prefix, exponent in prefixes:
        if abs(value) >= Decimal(1).scaleb(exponent):
            return f"{_digits(value.scaleb(-exponent))} {prefix}{unit}"
    return f"{_digits(value)} {unit}"


def _binary_text(value: float) -> str:
    prefix, power = max((item for item in _BINARY.items() if value >= 2 ** item[1]), key=lambda item: item[1])
    rounded = Decimal(f"{value / 2**power:.3f}")
    text = f"{_digits(rounded)} {prefix}B"
    return text if parse_quantity(text, "B") == value else f"{value!r} B"


def _digits(value: Decimal) -> str:
    """Decimal digits, without an exponent where that stays short."""
    text = f"{value.normalize():f}"
    return text if len(text) <= 20 else str(value.normalize())


def parse_number(value: object) -> float:
    """Finite plain number.

    Raises:
        ValueError: not a number, not finite, or followed by a unit.
    """
    if isinstance(value, str) and re.fullmatch(_NUMBER, value.strip()):
        value = float(value.replace("_", ""))
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"expected a plain number, got {shown(value)}")
    return float(value)


def parse_count(value: object) -> int:
    """Whole number; `1e3` is one, a flag or other text is not.

    Raises:
        ValueError: not a whole number.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    try:
        number = parse_number(value)
    except ValueError:
        number = math.nan
    if not number.is_integer():
        raise ValueError(f"expected a whole number, got {shown(value)}")
    return int(number)


def _refusing(parse: Callable[[Any], Parsed]) -> BeforeValidator:
    """Validator of a field whose complaint is the parser's own text."""

    def validate(value: object) -> Parsed:
        try:
            return parse(value)
        except ValueError as error:
            raise PydanticCustomError("quantity", "{reason}", {"reason": str(error)}) from None

    return BeforeValidator(validate)


def _quantity(unit: str) -> tuple[BeforeValidator, PlainSerializer, WithJsonSchema]:
    return (
        _refusing(lambda value: parse_quantity(value, unit)),
        PlainSerializer(lambda value: format_quantity(value, unit), return_type=str, when_used="json"),
        WithJsonSchema({"anyOf": [{"type": "number"}, {"type": "string"}], "description": _NOUNS[unit]}),
    )


def _with_unit(value: Any) -> Any:
    """The value, unless it is a number that does not say of what."""
    bare = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if bare or (isinstance(value, str) and _is_number(value)):
        number = f"{float(value):g}"
        raise ValueError(f"{number} of what? Write {number} ms or {number} s; to vLLM a bare number is milliseconds")
    return value


def _is_number(text: str) -> bool:
    return re.fullmatch(_NUMBER, text.strip()) is not None


# The bound comes first: what stands after it runs before it, so that it sees the parsed number.
Seconds = Annotated[float, Field(ge=0), *_quantity("s")]
PositiveSeconds = Annotated[float, Field(gt=0), *_quantity("s")]
_only_text = WithJsonSchema({"type": "string", "description": f"{_NOUNS['s']}, with its unit"})
Limit = Annotated[float, Field(gt=0), *_quantity("s")[:2], _refusing(_with_unit), _only_text]
"""Seconds that are written with their unit: where another tool takes milliseconds, a bare number is a trap."""
Bytes = Annotated[float, Field(ge=0), *_quantity("B")]
PositiveBytes = Annotated[float, Field(gt=0), *_quantity("B")]
BytesPerSecond = Annotated[float, Field(gt=0), *_quantity("B/s")]
FlopsPerSecond = Annotated[float, Field(gt=0), *_quantity("FLOP/s")]
Dollars = Annotated[float, Field(ge=0), *_quantity("$")]

_share = (_refusing(lambda value: parse_quantity(value, "%")), _quantity("%")[2])
Share = Annotated[float, Field(ge=0, le=1), *_share]
"""Fraction from 0 to 1; `92 %` is 0.92."""
PositiveShare = Annotated[float, Field(gt=0, le=1), *_share]

Number = Annotated[float, _refusing(parse_number)]
PositiveNumber = Annotated[float, Field(gt=0), _refusing(parse_number)]
Integer = Annotated[int, _refusing(parse_count)]
Count = Annotated[int, Field(ge=0), _refusing(parse_count)]
PositiveCount = Annotated[int, Field(ge=1), _refusing(parse_count)]
