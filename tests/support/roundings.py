"""One text for one number: every number in a page that a figure of its results would round to is written as that figure is."""

from __future__ import annotations

import re

from simulator.base.text import written
from support.pages import Page

__all__ = ["misrounded"]

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
_SECONDS = {"h": 3600.0, "min": 60.0, "s": 1.0, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}
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
            unit, scale, shown = _read(quantity)
            # nought, a goal such as 1 h, and what intervals are of
            if not unit or not quantity["number"].strip("0.,") or len(quantity["number"]) < 2 or shown in (*held["settings"], "90%"):
                continue
            value, half = float(quantity["number"].replace(",", "")) * scale, _half(quantity["number"], unit) * scale
            near = {own for figure, own in figures[unit] if abs(figure - value) <= half * (1 + 1e-9)}
            if near and shown not in near:
                around = text[max(quantity.start() - 60, 0) : quantity.end() + 30]
                found.append(f"{shown}, elsewhere {' or '.join(sorted(near))}: {around!r}")
    return found


def _read(quantity: re.Match[str]) -> tuple[str, float, str]:
    """Unit, size of it in SI, and the text; no unit where it may be a number of anything."""
    number, thousands = quantity["number"], quantity["thousands"] or ""
    if quantity["usd"]:
        return "$", 1.0, f"${number}"
    if (time := quantity["time"]) is not None:
        return "s", _SECONDS[time], f"{number} {time}"
    if quantity["share"]:
        return "%", 0.01, f"{number}%"
    if quantity["rate"] is not None or thousands or "," in number:
        return "samples/s", 1e3 if thousands else 1.0, number + thousands
    return "", 1.0, number


def _half(number: str, unit: str) -> float:
    """Half of what the last digit counts; of a whole number zeros after the third digit may be rounded."""
    digits = number.replace(",", "")
    if "." in digits:
        return 0.5 * 10.0 ** -len(digits.partition(".")[2])
    zeros = len(digits) - len(digits.rstrip("0"))
    return 0.5 if unit == "%" else 0.5 * 10.0 ** min(zeros, max(len(digits) - 3, 0))
