"""Every page that a command writes: no message in the console, no figure without marks, no value that a program wrote by mistake."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from support.once import once
from support.pages import FIGURES, Page

SHORT = "--set run.replications=3 --set run.steps=12 --set run.warmup_steps=2"
SPOILT = re.compile(r"\b(NaN|undefined|null|Infinity|None)\b|\[object ")

SWEPT = "sweep {} --over {} --out results.ndjson --jobs 1 " + SHORT
PLANNED = "plan {} --report page.html --jobs 1 --yes " + SHORT
PAGES = {
    "sweep": [SWEPT.format("ring", "strategy.workers=1,2,4"), "report results.ndjson -o page.html"],
    "servers": [SWEPT.format("async-ps", "strategy.workers=2,4 --over strategy.servers=1,2"), "report results.ndjson -o page.html"],
    "one result": [SWEPT.format("ssp", "strategy.workers=4"), "report results.ndjson -o page.html"],
    "whole jobs": [SWEPT.format("ring", "strategy.workers=1,2,4") + " --samples 1e6", "report results.ndjson -o page.html"],
    "plan": [PLANNED.format("ring --target-throughput 5000 --workers 1..4 --price 0.40/h --confidence 0.5")],
    "plan of layouts": [PLANNED.format("fsdp --samples 1e7 --deadline 96h --workers 8 --confidence 0.5")],
}  # fmt: skip


@pytest.mark.parametrize(
    "kind", [its if its in ("sweep", "plan of layouts") else pytest.param(its, marks=pytest.mark.long) for its in PAGES]
)
def test_a_page_draws_all_that_it_has(page: Page, tmp_path_factory: pytest.TempPathFactory, kind: str) -> None:
    def make(folder: Path) -> None:
        for command in PAGES[kind]:
            done = subprocess.run(
                [sys.executable, "-m", "paceline", *shlex.split(command)], cwd=folder, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stderr

    page.open(once(tmp_path_factory, f"page of {kind}", make) / "page.html", 1280, 900)
    page.unfold()
    assert page.complaints() == []
    assert [figure["id"] for figure in page.run(FIGURES) if not figure["marks"] == figure["expected"] > 0] == []
    shown = str(page.run("return document.querySelector('main').innerText"))
    assert not (spoilt := SPOILT.search(shown)), shown[max(spoilt.start() - 80, 0) : spoilt.end() + 80]
