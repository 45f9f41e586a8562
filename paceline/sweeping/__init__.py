"""Sweeps: grids of scenarios, simulated in parallel on this machine or a cluster, and their results files."""

from __future__ import annotations

from paceline.sweeping.grid import Axis, Grid, axes_of, grid, several_clusters
from paceline.sweeping.journal import Journal
from paceline.sweeping.results_file import Outcome, ResultsFile, outcomes_in, read_results
from paceline.sweeping.simulating import Backend, Runner, Simulate, Simulations, Sweep, sweep

__all__ = [
    "Axis", "Backend", "Grid", "Journal", "Outcome", "ResultsFile", "Runner", "Simulate", "Simulations", "Sweep",
    "axes_of", "grid", "outcomes_in", "read_results", "several_clusters", "sweep",
]  # fmt: skip
