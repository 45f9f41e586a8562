"""Paceline as a library: what a script or a notebook calls.

Each function returns a frozen object with ``to_frame()`` (pandas) and a table of its own
in notebooks, and raises :class:`simulator.errors.PacelineError` with one sentence where it
cannot do what it is asked.
"""

from __future__ import annotations

from paceline.face.calibrating import calibrate
from paceline.face.planning import plan
from paceline.face.reporting import Report, report
from paceline.face.scenarios import load
from paceline.face.simulating import compare, simulate
from paceline.face.sweeping import sweep

__all__ = ["Report", "calibrate", "compare", "load", "plan", "report", "simulate", "sweep"]
