"""Sweeps: grids of scenarios, simulated in parallel here or on a cluster, written as a journal."""

from __future__ import annotations

from paceline.sweeping.axes import Axis, axes_of
from paceline.sweeping.grid import Grid, grid, several_clusters
from paceline.sweeping.journal import Journal
from paceline.sweeping.outcome import Sweep
from paceline.sweeping.resuming import sweep
from paceline.sweeping.running import Backend, Outcome, Runner

__all__ = ["Axis", "Backend", "Grid", "Journal", "Outcome", "Runner", "Sweep", "axes_of", "grid", "several_clusters", "sweep"]
