"""How good predictions are: one page, one Markdown section and one JSON for every kind of validation."""

from __future__ import annotations

from paceline.reporting.validation.content import as_data, place_section, section
from paceline.reporting.validation.page import ValidationFiles, render_validation, write_validation

__all__ = ["ValidationFiles", "as_data", "place_section", "render_validation", "section", "write_validation"]
