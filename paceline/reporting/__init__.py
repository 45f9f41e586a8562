"""The scaling report: from results to one HTML file that opens offline."""

from __future__ import annotations

from paceline.reporting.reading import ResultsFile, read_results
from paceline.reporting.render import write_report

__all__ = ["ResultsFile", "read_results", "write_report"]
