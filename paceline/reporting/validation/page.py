"""The page of a validation: one HTML file that opens offline, in the manner of the scaling report."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import jinja2
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from calibrate.validation.validation import Validation
from paceline.reporting.axes import marker_symbol
from paceline.reporting.figures import plain
from paceline.reporting.render import GENERATOR
from paceline.reporting.validation.content import in_words
from paceline.reporting.validation.facts import facts_of, rows_table, scores_table, share, summaries
from paceline.reporting.validation.figures import FARTHEST, errors, errors_height, scatter
from paceline.reporting.validation.overlay import curves_of, overlay
from simulator.files import write_whole
from simulator.text import clean, sentence

__all__ = ["render_validation", "write_validation"]


def write_validation(validation: Validation, out: Path) -> Path:
    """Write the page; a file that is there is replaced.

    Raises
    ------
    InputError
        ``out`` cannot be written.
    """
    return write_whole(out, render_validation(validation))


def render_validation(validation: Validation) -> str:
    """The page as text: the same for the same validation, byte for byte."""
    curves = curves_of(validation)
    drawn = {"scatter": scatter(validation), "errors": errors(validation)} if validation.rows else {}
    if curves:
        drawn["overlay"] = overlay(curves)
    return (
        _environment()
        .get_template("validation.html")
        .render(
            validation=validation,
            summaries=summaries(validation),
            scores=scores_table(validation),
            rows=rows_table(validation),
            tables=[in_words(table) for table in (*validation.tables, *validation.details)],
            headlines=[(what, facts_of(score)) for what, score in validation.headlines],
            groups=[{"index": index, "name": clean(name)} for index, name in enumerate(validation.groups)],
            curves=[{"index": curve.index, "name": clean(curve.name)} for curve in curves],
            beyond=share(FARTHEST) if any(row.error > FARTHEST for row in validation.rows) else "",
            errors_px=errors_height(len(validation.rows)),
            figures={name: plain(figure) for name, figure in drawn.items()},
            # plotly's script is no user's text, and holds no closing script tag
            plotly=Markup(get_plotlyjs()),  # noqa: S704
            generator=Markup(GENERATOR),  # noqa: S704
        )
    )


@lru_cache(maxsize=1)
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parents[1] / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(clean=clean, headed=lambda text: clean(text[:1].upper() + text[1:]), sentence=sentence, symbol=marker_symbol)
    return environment
