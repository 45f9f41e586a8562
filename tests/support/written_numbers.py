"""Numbers as they are written: read back with their rounding, and one text for one number on a page."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from simulator.base.text import format_number, written

if TYPE_CHECKING:
    from support.pages import Page

AMOUNT = r"[+−±]?\$?\d[\d,]*(?:\.\d+)?(?:e[+-]\d+)?(?:%|[kMGT]\b)?(?: (?:h|min|s|ms|µs|ns)\b)?"
_SIZES = {"h": 3600.0, "min": 60.0, "s": 1.0, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9, "%": 0.01, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}


def read(text: str) -> tuple[float, float]:
    """A number as it is written, in SI units and US dollars, and half of its last digit: zeros before the point count from the third on."""
    match = re.fullmatch(r"([+−±]?)\$?([\d,]+(?:\.\d+)?)(?:e([+-]\d+))?(%|[kMGT])?(?: (\w+))?", text.strip())
    assert match is not None, text
    sign, digits, power, suffix, unit = match.groups()
    size = _SIZES.get(suffix or "", 1.0) * _SIZES.get(unit or "", 1.0) * 10.0 ** int(power or 0)
    plain = digits.replace(",", "")
    _, _, after = plain.partition(".")
    last = -len(after)
    if not after:
        zeros = len(plain) - len(plain.rstrip("0"))
        last = min(zeros, max(len(plain) - 3, 0))
    return (-1 if sign == "−" else 1) * float(plain) * size, 0.5 * 10.0**last * size


def rounds_to(text: str, value: float) -> bool:
    """Whether a value is written so; also where it is said to be less."""
    if text.startswith("<"):
        return 0 < abs(value) < read(text[1:])[0] * (1 + 1e-9)
    shown, half = read(text)
    return abs(value - shown) <= half * (1 + 1e-6) + 1e-12 * abs(value)


def closes(product: str, *factors: str) -> bool:
    """Whether numbers as they are written may be factors and product of each other."""
    low = high = 1.0
    for value, half in map(read, factors):
        low, high = low * (value - half), high * (value + half)
    value, half = read(product)
    return low - half - 1e-9 <= value <= high + half + 1e-9


_TEXTS = r"""
const plain = text => String(text).replace(/<br>/g, '\n').replace(/<[^>]+>/g, ''), drawn = [];
document.querySelectorAll('.plot').forEach(plot => {
  drawn.push(plot.getAttribute('aria-label'));
  plot.data.forEach(trace => drawn.push(...[trace.hovertext, trace.text].flat(2).filter(text => text).map(plain)));
  drawn.push(...(plot.layout.annotations || []).map(each => plain(each.text)));
});
const said = [...document.querySelectorAll('main :is(p, dt, dd, h2, h3, td, th, li:not(:has(p)), summary)')].map(each => each.innerText);
const data = JSON.parse(document.getElementById('points').textContent);
return {texts: [...new Set([...drawn, ...said])], columns: data.columns, settings: data.keys.flatMap(key => key.texts)};
"""
_FIGURES = re.compile(r"throughput_|job_(time|cost|samples_per_s)|usd_per_|step_mean_s|scaling_efficiency|goodput")
_UNITS = {"usd": "$", "hourly": "$", "seconds": "s", "number": "samples/s", "throughput": "samples/s", "share": "%"}
"""Of each kind of figure."""
_NUMBER = r"\d+(?:,\d{3})*(?:\.\d+)?"
_QUANTITY = re.compile(
    rf"(?P<usd>\$)?(?<![\d.,])(?P<number>{_NUMBER})(?P<thousands>k)?"
    rf"(?:\s(?P<time>h|min|s|ms|µs|ns)\b|(?P<share>%)|(?=(?: to {_NUMBER})? samples/s)(?P<rate>))?"
)


def misrounded(page: Page, *pictures: str) -> list[str]:
    """Texts, of a page and of pictures beside it, whose number is a figure of a result with other digits than it has elsewhere."""
    held = page.run(_TEXTS)
    figures: dict[str, list[tuple[float, str]]] = {unit: [] for unit in _UNITS.values()}
    for name, column in held["columns"].items():
        if _FIGURES.match(name) and column["kind"] in _UNITS:
            known = [abs(value) for value in column["values"] if value]
            figures[_UNITS[column["kind"]]] += [(value, written(value, column["kind"])) for value in known]
    found = []
    for text in (*held["texts"], *pictures):
        for quantity in _QUANTITY.finditer(text):
            unit, shown = _read(quantity)
            # nought, a goal such as 1 h, and what intervals are of
            if not unit or not quantity["number"].strip("0.,") or len(quantity["number"]) < 2 or shown in (*held["settings"], "90%"):
                continue
            value, half = read(shown)
            close = [(figure, own) for figure, own in figures[unit] if abs(figure - value) <= half * (1 + 1e-9)]
            near = {own for _, own in close}
            # an answer has throughputs with three digits
            if near and shown not in near and shown not in {format_number(figure) for figure, _ in close}:
                around = text[max(quantity.start() - 60, 0) : quantity.end() + 30]
                found.append(f"{shown}, elsewhere {' or '.join(sorted(near))}: {around!r}")
    return found


def _read(quantity: re.Match[str]) -> tuple[str, str]:
    """Unit and text of a number; no unit where it may be one of anything."""
    number = quantity["number"]
    if quantity["usd"]:
        return "$", f"${number}"
    if (time := quantity["time"]) is not None:
        return "s", f"{number} {time}"
    if quantity["share"]:
        return "%", f"{number}%"
    thousands = quantity["thousands"] or ""
    return "samples/s" if quantity["rate"] is not None or thousands or "," in number else "", number + thousands
