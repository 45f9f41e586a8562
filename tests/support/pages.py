"""Writes the page of a report from results alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from paceline.reporting.content import content_of
from paceline.reporting.render import REPORT, render
from simulator.base.files import Output
from simulator.results.results import Result


def write_report(results: Sequence[Result], out: Path, **said: Any) -> Path:
    """Write the report of some results; ``said`` as for :func:`paceline.reporting.content.content_of`."""
    return Output(out, REPORT).write(render(content_of(results, **said)))
