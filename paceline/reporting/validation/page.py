"""The page of a validation: one HTML file that opens offline, in the manner of the scaling report."""

from __future__ import annotations

from pathlib import Path

from markupsafe import Markup
from plotly.offline import get_plotlyjs

from calibrate.validation.validation import Score, Validation
from paceline.reporting.axes import what_scripts_need
from paceline.reporting.figures import plain
from paceline.reporting.render import environment
from paceline.reporting.validation.content import scores_table, summaries, tables_of
from paceline.reporting.validation.figures import FARTHEST, curves_of, errors, errors_height, overlay, scatter
from simulator.base.outputs import Output, marked_kind
from simulator.base.text import NONE, clean, format_share, written

__all__ = ["VALIDATION_PAGE", "render_validation", "write_validation"]

_GENERATOR = '<meta name="generator" content="Paceline validate">'
VALIDATION_PAGE = marked_kind("validation page", _GENERATOR)
"""Pages that a new one may replace."""


def write_validation(validation: Validation, out: Path, *, force: bool = False) -> Path:
    """Write the page; one that is there is replaced, with ``force`` also another file.

    Raises
    ------
    InputError
        ``out`` cannot be written, or is something else.
    """
    return Output(out, VALIDATION_PAGE, force=force).write(render_validation(validation))


def render_validation(validation: Validation) -> str:
    """The page as text: the same for the same validation, byte for byte."""
    curves = curves_of(validation)
    drawn = {"scatter": scatter(validation), "errors": errors(validation)} if validation.rows else {}
    if curves:
        drawn["overlay"] = overlay(curves)
    return (
        environment()
        .get_template("validation.html")
        .render(
            validation=validation,
            summaries=summaries(validation),
            titles=_titles(validation) if validation.rows else {},
            tables=tables_of(validation),
            headlines=[(what, _figures_of(score)) for what, score in validation.headlines],
            groups=[{"index": index, "name": clean(name)} for index, name in enumerate(validation.groups)],
            curves=[{"index": curve.index, "name": clean(curve.name)} for curve in curves],
            beyond=format_share(FARTHEST) if any(row.error > FARTHEST for row in validation.rows) else "",
            errors_px=errors_height(len(validation.rows)),
            needed=what_scripts_need(),
            figures={name: plain(figure) for name, figure in drawn.items()},
            # plotly's script is no user's text, and holds no closing script tag
            plotly=Markup(get_plotlyjs()),  # noqa: S704
            generator=Markup(_GENERATOR),  # noqa: S704
        )
    )


def _titles(validation: Validation) -> dict[str, str]:
    """What is seen in each figure, of the settings that took no part in a fit where there are any."""
    rows = [row for row in validation.rows if not row.fitted] or validation.rows
    runs, inside = sum(len(row.measured) for row in rows), sum(row.inside for row in rows)
    near = sum(1 / _NEAR <= row.predicted.mean / row.mean <= _NEAR for row in rows)
    errors = [row.error for row in rows]
    return {
        "overlay": f"{inside:,} of {runs:,} runs lie in the 90% interval",
        "scatter": f"{near:,} of {len(rows):,} settings are predicted within 10%",
        "errors": f"Errors go from {written(min(errors), 'error')} to {written(max(errors), 'error')}",
    }


_NEAR = 1.1
"""The ratio that the dotted lines mark."""


def _figures_of(score: Score) -> dict[str, str]:
    """What the cards of a headline show, by the name of the measure."""
    table = scores_table(Validation("", "", (), (score,)))
    return dict.fromkeys(("noise floor",), NONE) | dict(zip((column.name for column in table.columns), next(table.texts()), strict=True))
