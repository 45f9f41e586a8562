"""The scaling report: from results to one HTML file that opens offline."""

from __future__ import annotations

from paceline.reporting.render import write_report

__all__ = ["write_report"]
