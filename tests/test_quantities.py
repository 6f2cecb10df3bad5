"""Numbers with units: what is written is read back exactly, and what is ambiguous is refused."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simserve.spec.quantities import format_quantity, parse_count, parse_number, parse_quantity

UNITS = ("s", "B", "B/s", "FLOP/s", "%", "$")
numbers = st.floats(min_value=0, allow_nan=False, allow_infinity=False)


@given(numbers, st.sampled_from(UNITS))
def test_a_formatted_quantity_is_parsed_back_bit_for_bit(value, unit):
    assert parse_quantity(format_quantity(value, unit), unit) == value


@given(st.integers(0, 2**53), st.sampled_from(["B", "s"]))
def test_whole_numbers_survive_too(value, unit):
    assert parse_quantity(format_quantity(value, unit), unit) == value


@given(numbers, st.sampled_from(UNITS))
def test_a_plain_number_is_si(value, unit):
    assert parse_quantity(value, unit) == value
    assert parse_quantity(repr(value), unit) == value


@given(st.integers(1, 10**6))
def test_prefixes_agree_with_each_other(count):
    assert parse_quantity(f"{count} ms", "s") == parse_quantity(f"{count}000 us", "s") == count / 1000
    assert parse_quantity(f"{count} min", "s") == 60 * count
    assert parse_quantity(f"{count} KiB", "B") == 1024 * count
    assert parse_quantity(f"{count} kB", "B") == 1000 * count
    assert parse_quantity(f"{count} %", "%") == count / 100


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        ("80GiB", "B", 80 * 2**30),
        ("80 GB", "B", 80e9),
        ("14 GB", "B", 14e9),
        ("3.35TB/s", "B/s", 3.35e12),
        ("900 GiB/s", "B/s", 900 * 2**30),
        ("989.4 TFLOP/s", "FLOP/s", 989.4e12),
        ("1 PFLOP/s", "FLOP/s", 1e15),
        ("10 min", "s", 600.0),
        ("2h", "s", 7200.0),
        ("500 ms", "s", 0.5),
        ("6.08 us", "s", 6.08e-6),
        ("6.08 µs", "s", 6.08e-6),
        ("1e-6", "s", 1e-6),
        ("1_000 ns", "s", 1e-6),
        ("1e3 GB", "B", 1e12),
        ("92 %", "%", 0.92),
        ("$2.50", "$", 2.5),
        ("2.50 $", "$", 2.5),
    ],
)
def test_the_spellings_of_the_documentation(text, unit, value):
    assert parse_quantity(text, unit) == value


@pytest.mark.parametrize(
    ("text", "unit", "remedy"),
    [
        ("80 Gb", "B", "bits or bytes"),
        ("900 Gbps", "B/s", "bits or bytes"),
        ("900 GBps", "B/s", "did you mean GB/s?"),
        ("80 gib", "B", "did you mean GiB?"),
        ("989 TFLOPS", "FLOP/s", "did you mean TFLOP/s?"),
        ("3 TB /s", "B/s", "did you mean TB/s?"),
        ("3 TB", "B/s", "its unit must be one of B/s"),
        ("5 m", "s", "its unit must be one of s, ms"),
        ("500 msec", "s", "500 ms"),
        ("1:30", "s", "10 min"),
        ("$3 s", "s", "a time"),
        ("fast", "s", "a time"),
        ("", "s", "a time"),
        ("1,000 s", "s", "its unit"),
    ],
)
def test_other_units_are_refused_with_a_remedy(text, unit, remedy):
    with pytest.raises(ValueError, match=remedy.replace("?", r"\?")):
        parse_quantity(text, unit)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, "nan", "inf", "1e999", True, None, [1], {"s": 1}])
@pytest.mark.parametrize("unit", UNITS)
def test_what_is_no_finite_number_is_refused(value, unit):
    with pytest.raises(ValueError, match="expected"):
        parse_quantity(value, unit)


@given(st.integers(-(2**70), 2**70))
def test_counts_are_exact(value):
    assert parse_count(value) == value


@pytest.mark.parametrize(("value", "count"), [(3.0, 3), ("1e3", 1000), ("12", 12), (1e6, 10**6)])
def test_a_whole_number_may_be_written_as_a_float(value, count):
    assert parse_count(value) == count


@pytest.mark.parametrize("value", [2.5, True, None, "many", "8k", math.nan, math.inf, [1]])
def test_other_counts_are_refused(value):
    with pytest.raises(ValueError, match="expected a whole number"):
        parse_count(value)


@pytest.mark.parametrize("value", ["8/s", True, None, "nan", math.inf, "8 s"])
def test_plain_numbers_have_no_unit(value):
    with pytest.raises(ValueError, match="expected a plain number"):
        parse_number(value)
