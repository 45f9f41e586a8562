"""Quantities at the border: no prefix but those that are meant, and a suggestion that can be typed."""

from __future__ import annotations

import contextlib
import math
import re
import warnings

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.examples import examples

from simulator.base.errors import ReadingWarning, UnitError
from simulator.base.units import Dimension, as_thousands, parse_quantity

PREFIXES = {"": 1, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
PREFIXES |= {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50}
WORDS = {"kilo": 1e3, "mega": 1e6, "giga": 1e9, "tera": 1e12, "peta": 1e15}
WORDS |= {"kibi": 2**10, "mebi": 2**20, "gibi": 2**30, "tebi": 2**40, "pebi": 2**50}
BYTES = {"B": 1.0, "byte": 1.0, "bytes": 1.0, "b": 0.125, "bit": 0.125, "bits": 0.125}

LETTERS = st.text("kKmMgGtTpPunfiEZdBbyteisaol", max_size=5)
AMOUNTS = st.builds(
    str.__add__,
    st.one_of(st.sampled_from([*PREFIXES, *WORDS]), LETTERS),
    st.sampled_from([*BYTES, "Byte", "BYTES", "Bit", "bps", "Bps", "BPS"]),
)
TIMES = st.sampled_from(["", "/s", "/S", "/ms", "/Ms", "/min", "/m", " per s", " per second", "ps", "/h", " / s"])
NUMBERS = st.sampled_from(["1", "10", "2.5", "1e3", ".5", "-3"])
SPACES = st.sampled_from(["", " "])
DIMENSIONS: st.SearchStrategy[Dimension] = st.sampled_from(("information", "rate"))


@examples(100)
@given(NUMBERS, SPACES, AMOUNTS, TIMES, DIMENSIONS)
@example("10", " ", "mbit", "/s", "rate")
@example("64", " ", "mb", "", "information")
@example("100", " ", "pb", "", "information")
def test_what_is_accepted_has_a_prefix_of_the_list(number: str, space: str, amount: str, time: str, dimension: Dimension) -> None:
    text = number + space + amount + time
    with contextlib.suppress(UnitError):
        value = parse_quantity(text, dimension)
        unit = re.fullmatch(rf"({'|'.join([*PREFIXES, *WORDS])})({'|'.join(BYTES)})(ps)?", amount + ("ps" if time == "ps" else ""))
        assert unit is not None, text
        scale = (PREFIXES | WORDS)[unit[1]] * BYTES[unit[2]]
        per_s = {"/ms": 1e3, "/min": 1 / 60, "/h": 1 / 3600}.get(time, 1.0)
        assert value == pytest.approx(float(number) * scale * per_s, rel=1e-12), text


@examples(100)
@given(NUMBERS, SPACES, AMOUNTS, TIMES, st.sampled_from(("time", "information", "rate")))
@example("10", "", "GBPS", "", "rate")
@example("10", "", "gb", "/S", "rate")
@example("1", " ", "m", "", "time")
@example("10", " ", "Ms", "", "time")
@example("9", " ", "MEGABYTE", " per s", "rate")
def test_every_suggestion_can_be_typed(number: str, space: str, amount: str, time: str, dimension: Dimension) -> None:
    text = number + space + amount + time
    try:
        parse_quantity(text, dimension)
    except UnitError as error:
        for suggestion in re.findall(r'"([^"]+)"', str(error).partition("did you mean")[2]):
            assert suggestion != text
            assert math.isfinite(parse_quantity(suggestion, dimension)), (text, suggestion)


@pytest.mark.parametrize(
    ("text", "dimension", "meant"),
    [
        ("10 mbit/s", "rate", ["10 Mbit/s"]),
        ("10 gbit/s", "rate", ["10 Gbit/s"]),
        ("10 GBIT/S", "rate", ["10 Gbit/s"]),
        ("10 gbit per second", "rate", ["10 Gbit per second"]),
        ("10 Gbit", "rate", ["10 Gbit/s"]),
        ("10 mb/s", "rate", ["10 Mbit/s", "10 MB/s"]),
        ("25 GBps", "rate", ["25 GB/s"]),
        ("25 gbps", "rate", ["25 Gbps"]),
        ("25 GBPS", "rate", ["25 Gbps", "25 GB/s"]),
        ("25 mB/min", "rate", ["25 MB/min"]),
        ("10 Gbit/Ms", "rate", ["10 Gbit/ms"]),
        ("64 mb", "information", ["64 MB"]),
        ("64mB", "information", ["64MB"]),
        ("100 pb", "information", ["100 PB"]),
        ("1 kib", "information", ["1 KiB"]),
        ("1 kiB", "information", ["1 KiB"]),
        ("1 GIB", "information", ["1 GiB"]),
        ("3 Bytes", "information", ["3 bytes"]),
        ("3 MegaBytes", "information", ["3 megabytes"]),
        ("3 megab", "information", ["3 MB"]),
        ("10 Ms", "time", ["10 ms"]),
        ("10 S", "time", ["10 s"]),
        ("2 Days", "time", ["2 days"]),
        ("1 m", "time", ["1 min", "1 ms"]),
        ("0.5 kw", "power", ["0.5 kW"]),
        ("500 mW", "power", ["500 MW"]),
    ],
)
def test_the_likely_unit_is_suggested(text: str, dimension: Dimension, meant: list[str]) -> None:
    with pytest.raises(UnitError, match="did you mean") as refused:
        parse_quantity(text, dimension)
    assert re.findall(r'"([^"]+)"', str(refused.value).partition("did you mean")[2]) == meant


@pytest.mark.parametrize("text", ["5 nB", "5 ubit", "5 EB", "5 fbyte", "5 daB"])
def test_a_prefix_that_nothing_is_near_to_names_those_there_are(text: str) -> None:
    with pytest.raises(UnitError, match="prefixes are k, K, M, G, T, P and Ki, Mi, Gi, Ti, Pi"):
        parse_quantity(text, "information")


@pytest.mark.parametrize("text", ["5 Ms", "5 Gs", "5 Kis", "5 mmin", "5 kh", "5 ud", "5 megasecond"])
def test_times_have_prefixes_of_parts_of_a_second_only(text: str) -> None:
    with pytest.raises(UnitError):
        parse_quantity(text, "time")


def test_times_keep_theirs() -> None:
    times = {"s": 1.0, "sec": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9, "ps": 1e-12, "fs": 1e-15, "milliseconds": 1e-3}
    times |= {"min": 60.0, "minutes": 60.0, "h": 3600.0, "hours": 3600.0, "d": 86400.0, "day": 86400.0}
    for unit, seconds in times.items():
        assert parse_quantity(f"2 {unit}", "time") == pytest.approx(2 * seconds, rel=1e-12)


@pytest.mark.parametrize("text", ["1,5 ms", "1.000,5 ms", "1_000 ms", "1 000 ms", "1\u202f000 ms", "1'000 ms", "1.000.000 ms"])
def test_separators_are_named(text: str) -> None:
    with pytest.raises(UnitError, match="thousands"):
        parse_quantity(text, "time")


@pytest.mark.parametrize("text", ["1e-400 s", "0.1e-400 s", "-1e-999 s"])
def test_what_is_too_small_is_no_nothing(text: str) -> None:
    with pytest.raises(UnitError, match=r" 0$"):
        parse_quantity(text, "time")


@pytest.mark.parametrize(("text", "seconds"), [("007 s", 7.0), ("010 ms", 0.01), ("0050.5us", 50.5e-6), ("+08 h", 28800.0)])
def test_zeros_in_front_change_nothing(text: str, seconds: float) -> None:
    assert parse_quantity(text, "time") == pytest.approx(seconds, rel=1e-15)


@pytest.mark.parametrize("text", ["0 s", "0.000 s", "0e5 s"])
def test_nothing_is_nothing(text: str) -> None:
    assert parse_quantity(text, "time") == 0


@pytest.mark.parametrize("space", ["\u00a0", "\u2009", "\u202f", "\u2007"])
def test_a_space_that_holds_number_and_unit_together_is_a_space(space: str) -> None:
    assert parse_quantity(f"10{space}Gbit/s", "rate") == 1.25e9


@pytest.mark.parametrize("text", ["\u0661\u0660 ms", "\uff11\uff10 ms", "1/2 ms", "20%", "3 s/GB", "ms 3", "\u22123 ms"])
def test_other_numbers_are_refused(text: str) -> None:
    with pytest.raises(UnitError, match=re.escape(text)):
        parse_quantity(text, "time")


@pytest.mark.parametrize(
    ("text", "dimension", "value", "said"),
    [
        ("10.000 Mbit/s", "rate", 1.25e6, "'10.000 Mbit/s' .* 10 Mbit/s.* 10000 Mbit/s"),
        ("1.500 GB", "information", 1.5e9, "'1.500 GB' .* 1.5 GB.* 1500 GB"),
        ("250.000 us", "time", 250e-6, "'250.000 us' .* 250 us.* 250000 us"),
        ("1.25 ms", "time", 1.25e-3, ""),
        ("1.125 ms", "time", 1.125e-3, ""),
        ("0.500 ms", "time", 0.5e-3, ""),
        ("1000.500 ms", "time", 1.0005, ""),
        ("1.0000 s", "time", 1.0, ""),
    ],
)
def test_thousands_are_told_from_decimals_by_a_word(text: str, dimension: Dimension, value: float, said: str) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert parse_quantity(text, dimension) == pytest.approx(value, rel=1e-12)
    assert [its.category for its in caught] == ([ReadingWarning] if said else [])
    assert not said or re.match(said, str(caught[0].message))


@given(st.integers(1, 999), st.integers(0, 999))
def test_thousands_are_what_the_point_would_separate(before: int, after: int) -> None:
    assert as_thousands(f"{before}.{after:03} USD") == str(1000 * before + after)
