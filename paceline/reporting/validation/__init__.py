"""How good predictions are, for people: one page and one Markdown section for every kind of validation."""

from __future__ import annotations

from paceline.reporting.validation.content import Table, Validation
from paceline.reporting.validation.markdown import place_section, section
from paceline.reporting.validation.page import render_validation, write_validation

__all__ = ["Table", "Validation", "place_section", "render_validation", "section", "write_validation"]
