"""What the page is made of: its HTML, and scripts and styles that it has in common with the report."""

from __future__ import annotations

from functools import lru_cache

from plotly.offline import get_plotlyjs

from paceline.reporting.axes import what_scripts_need
from paceline.reporting.figures import KIND_LABELS
from paceline.reporting.render import PART_OF_KIND, SCRIPTS, environment
from paceline.serving.question import MOST_BYTES, MOST_PLAN_S, MOST_WORKERS, Served
from simulator.base.catalog import entries
from simulator.base.text import format_rough_seconds
from simulator.strategies.catalogue import SHORT_NAMES

_SHARED = ("format.js", "axes.js", "plots.js", "traces.js")
"""Of the report's scripts, what draws a figure."""


def page_html(served: Served) -> str:
    """The page: a frame, which the first answer fills."""
    begins = {
        "text": served.text,
        "name": served.name,
        "most_workers": MOST_WORKERS,
        "most_bytes": MOST_BYTES,
        "needed": what_scripts_need(),
        "kinds": [(kind, PART_OF_KIND[kind], label) for kind, label in KIND_LABELS.items()],
    }
    return (
        environment()
        .get_template("live.html")
        .render(
            begins=begins,
            strategies=list(SHORT_NAMES),
            clusters=list(entries("clusters")),
            name=served.name,
            most=MOST_WORKERS,
            plan_most=format_rough_seconds(MOST_PLAN_S),
        )
    )


@lru_cache(maxsize=1)
def script() -> str:
    """The page's script: its own, and the report's as a function that is called for each report that is shown."""
    return environment().get_template("live.js").render(shared=_SHARED, scripts=SCRIPTS)


@lru_cache(maxsize=1)
def style() -> str:
    """The report's styles, and what the page has beside it."""
    made = environment()
    return "".join(made.get_template(name).render() for name in ("report.css", "page.css", "live.css"))


@lru_cache(maxsize=1)
def plotly_script() -> str:
    """Plotly."""
    return str(get_plotlyjs())
