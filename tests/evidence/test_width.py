"""Promised widths beside those obtained: the page follows from the rows, and what is narrowed is narrower."""

from __future__ import annotations

import csv
import re
import statistics
from pathlib import Path

import numpy as np
import pytest

from evidence.width import held, narrowed
from simulator import load_scenario
from simulator.resolve.drawing import drawn_quantities
from simulator.resolve.measured_defaults import COMPUTE, HOSTS
from simulator.resolve.resolve import resolve
from simulator.results.next_measurement import spreads_of

ROOT = Path(__file__).resolve().parents[2]


def rows_of(name: str) -> list[dict[str, str]]:
    with (ROOT / "evidence" / "tables" / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("command", ["calibrate", "calibrate-link", "calibrate-server", "all"])
def test_the_page_says_what_the_rows_say(command: str) -> None:
    rows = [row for row in rows_of("width.csv") if command in ("all", row["command"].split()[1])]
    errors = [float(row["error"]) for row in rows]
    page = (ROOT / "docs" / "intervals.md").read_text(encoding="utf-8")
    line = re.search(rf"^\| `?{command}`? \| (\d+) \|.*$", page, re.MULTILINE)
    assert line is not None
    cells = [cell.strip().replace("−", "-") for cell in line[0].strip("|").split("|")]
    assert int(cells[1]) == len(rows)
    median, size, worst = (float(cell.rstrip("%")) / 100 for cell in cells[4:7])
    assert median == pytest.approx(statistics.median(errors), abs=0.006)
    assert size == pytest.approx(statistics.median(map(abs, errors)), abs=0.006)
    assert worst == pytest.approx(max(errors, key=abs), abs=0.006)
    assert int(cells[7]) == sum(abs(error) <= 0.1 for error in errors)


def test_what_is_narrowed_is_so_much_narrower_and_the_rest_is_as_it_was() -> None:
    scenario = resolve(load_scenario("sync-ps"))
    before = spreads_of(drawn_quantities(scenario))
    left = {COMPUTE: 0.5, HOSTS[0]: 0.25}
    after = spreads_of(drawn_quantities(narrowed(scenario, left, np.random.default_rng(1))))
    assert after[HOSTS[0]] == pytest.approx(0.25 * before[HOSTS[0]], rel=1e-6)
    assert after[COMPUTE] == pytest.approx(0.5 * before[COMPUTE], rel=0.1)
    assert after[HOSTS[1]] == before[HOSTS[1]]


def test_what_is_held_does_not_vary() -> None:
    scenario = resolve(load_scenario("sync-ps"))
    assert HOSTS[1] in drawn_quantities(scenario)
    assert HOSTS[1] not in drawn_quantities(held(scenario, HOSTS[1]))
