"""How right Paceline is: the errors of README.md and docs/fidelity.md, from the rows in ``evidence/tables/``.

``python -m evidence.fidelity`` computes the tables of both again (errors by kind of comparison, and by number of devices) and writes
``scores.csv``, with a line for each group of rows. Lines whose figures are no rows in ``evidence/tables/`` stay as they are: their studies
print them.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from evidence.discrepancy import crps
from evidence.rows import rows_in
from simulator.base.files import EDITED, Output
from simulator.base.table import Column, Table

Row = Mapping[str, str]

FOLDER = Path(__file__).parent / "tables"
PAGE = Path(__file__).parents[1] / "docs" / "fidelity.md"
FRONT = PAGE.parents[1] / "README.md"

FROM_DIMENSIONS = "from dimensions"
_CUT = "hybrids-*.csv"
_COMPOSED = "vTrain, one node"
"""A group whose rows were composed of measured parts, not measured one by one: no average has them."""
PUBLISHED = ("published-sync-ps", "published-all-reduce", "published-async-ps")


class Kind(NamedTuple):
    """A kind of comparison: the first cell of its line in the page, its files, and which of their rows, by what the file says."""

    title: str
    files: str
    way: str = ""


KINDS = (
    Kind("Published trainings of 64,000 gradients: duration", "trainings.csv", "s"),
    Kind("The same: cost", "trainings.csv", "USD"),
    Kind("Real training of a small model to its end", "learning.csv"),
    Kind("Causes planted in real clusters: gain of removing one", "planted-causes.csv", "34"),
    Kind("Samples to a target at larger batches, from two batches", "batches.csv", "from two batches"),
    Kind("The same, from gradients of one run", "batches.csv", "from gradients"),
    Kind("Real TensorFlow clusters, settings drawn by a seed", "testbed-random-2611301421-18.csv"),
    Kind("The same, drawn on 26 November", "testbed-random-2611260355-12.csv"),
    Kind("The same, drawn on 22 November", "testbed-random-20261122-12.csv"),
    Kind("The same, a list chosen by a person (*headline*)", "testbed-headline.csv"),
    Kind("The same, another such list (*first*)", "testbed-first.csv"),
    Kind("Published synchronous parameter servers", "published-sync-ps.csv"),
    Kind("Published all-reduce", "published-all-reduce.csv"),
    Kind("Published asynchronous parameter servers", "published-async-ps.csv"),
    Kind("Published NCCL all-reduces alone", "published-nccl.csv"),
    Kind("Published mean staleness", "published-staleness.csv"),
    Kind("Moved to another device by a published pair", "published-moved-published-pair.csv"),
    Kind("Moved by two rooflines", "published-moved-two-rooflines.csv"),
    Kind("Moved from a processor by one roofline", "published-moved-one-roofline.csv"),
    Kind("Published cut models, from dimensions", _CUT, FROM_DIMENSIONS),
    Kind("Published cut models, constants fitted to one node of one table", _CUT, "constants fitted"),
    Kind("Published cut models, from the smallest row", _CUT, "from its smallest row"),
)

ON_FRONT = {
    "real TensorFlow clusters, settings drawn by a seed": "Real TensorFlow clusters, settings drawn by a seed",
    "published: synchronous parameter servers": "Published synchronous parameter servers",
    "published: all-reduce": "Published all-reduce",
    "published: asynchronous parameter servers": "Published asynchronous parameter servers",
    "published: models cut over up to 3,072 devices": "Published cut models, from dimensions",
}
"""Lines of the README by their first cell, and of the page; those of devices follow."""
DEVICES = ((2, 2), (3, 4), (5, 8), (9, 16), (17, 32), (33, 64), (65, 4096))
"""From and to how many devices a line of the second table is."""


class Score(NamedTuple):
    """Errors of some rows: predicted over measured, less one. The simpler rule is the one with the smallest median error."""

    rows: int
    median: float
    bias: float
    worst: float
    worst_row: str
    simpler: float | None
    rule: str
    inside: float | None
    width: float | None
    crps: float | None


_LEAST = 1e-6
"""Least end of an interval, as a share of its mean."""


def rows_of(files: str, way: str = "") -> list[Row]:
    """The rows of these files that took no part in a fit; where a way is given, only those, and none that was composed."""
    found: list[Row] = []
    for path in sorted(FOLDER.glob(files)):
        found += [_STUDIES[path.name](row) if path.name in _STUDIES else row for row in rows_in(path)]
    found = [row for row in found if row.get("fitted") == "0"]
    return [row for row in found if not way or (row["settings.way"] == way and not row["group"].startswith(_COMPOSED))]


def _training(row: Row) -> Row:
    held_out = row["group"] in ("open", "kept back")
    return {**row, "settings.way": row["unit"], "fitted": str(int(not held_out)), "baselines.linear": row["linear"],
            "repeats": row["runs"], "repeats_inside": row["inside"]}  # fmt: skip


def _batch(row: Row) -> Row:
    inside = float(row["low"]) <= float(row["published"]) <= float(row["high"])
    simpler = {f"baselines.{rule}": str((1.0 + float(row[rule])) * float(row["published"])) for rule in _RULES if row[rule]}
    return {**row, **simpler, "group": row["part"], "settings.way": row["way"], "fitted": "0", "measured": row["published"],
            "repeats": "1", "repeats_inside": str(int(inside))}  # fmt: skip


def _cause(row: Row) -> Row:
    planted = {} if row["planted"] == "nothing" else {"fitted": "0", "error": str(float(row["gain"]) / float(row["real"]) - 1.0)}
    return {**row, **planted, "name": f"seed {row['seed']}, case {row['case']}", "group": "planted", "settings.way": row["seed"],
            "measured": row["real"], "baselines.plain": row["plain_rule"], "repeats": "1", "repeats_inside": row["inside"]}  # fmt: skip


def _learned(row: Row) -> Row:
    return {**row, "name": row["setting"], "group": "learning", "fitted": "0", "measured": row["real_end_s"]}


_RULES = ("constant samples", "constant steps", "power")
_STUDIES = {"trainings.csv": _training, "batches.csv": _batch, "planted-causes.csv": _cause, "learning.csv": _learned}
"""How rows of studies are read as rows of a validation, by their file."""


def score_of(rows: Sequence[Row]) -> Score:
    """The errors of these rows."""
    errors = {row["name"]: float(row["error"]) for row in rows}
    values = [float(row["error"]) for row in rows]
    runs = [(int(row["repeats_inside"]), int(row["repeats"])) for row in rows if "repeats" in row]
    figures = "predicted", "low", "high", "measured"
    intervals = np.array([[float(row[name]) for name in figures] for row in rows if all(map(row.get, figures))]).reshape(-1, 4).T
    mean, *others = intervals
    distances = [np.log(np.maximum(other, _LEAST * mean) / mean) for other in (others[2], others[0], others[1])]
    widths = [(float(row["high"]) - float(row["low"])) / float(row["measured"]) for row in rows if "low" in row]
    names = [name for name in rows[0] if name.startswith("baselines.")]
    simpler = {
        name.removeprefix("baselines."): statistics.median(abs(float(row[name]) / float(row["measured"]) - 1.0) for row in given)
        for name in names
        if (given := [row for row in rows if row.get(name)])
    }
    rule = min(simpler, key=lambda name: simpler[name], default="")
    worst = max(errors, key=lambda name: abs(errors[name]))
    return Score(
        rows=len(rows),
        median=statistics.median(map(abs, values)),
        bias=statistics.median(values),
        worst=errors[worst],
        worst_row=worst,
        simpler=simpler.get(rule),
        rule=rule,
        inside=sum(inside for inside, _ in runs) / sum(each for _, each in runs) if runs else None,
        width=statistics.median(widths) if widths else None,
        crps=float(crps(*distances).mean()) if len(mean) else None,
    )


def groups() -> Iterator[tuple[str, str, str, Score]]:
    """The score of each group of rows, with its files and, where they hold several, the way."""
    asked = [(kind.files, "" if kind.files == _CUT else kind.way) for kind in KINDS]
    for files, way in dict.fromkeys([*asked, ("testbed-development.csv", "")]):
        rows = rows_of(files, way)
        for group in dict.fromkeys(row["group"] for row in rows):
            yield files, way, group, score_of([row for row in rows if row["group"] == group])


def scores() -> Table:
    """Every group as a line of a CSV file."""
    columns = tuple(Column(name) for name in ("files", "way", "group", *Score._fields))
    cells = tuple((*where, *(float(f"{cell:.4g}") if isinstance(cell, float) else cell for cell in score)) for *where, score in groups())
    return Table("Errors by group", columns, cells, "scores")


def lines() -> dict[str, str]:
    """Lines of the page's tables, by their first cell."""
    found = {kind.title: _of_kind(score_of(rows_of(kind.files, kind.way))) for kind in KINDS}
    published = [row for name in PUBLISHED for row in rows_of(f"{name}.csv")]
    cut = rows_of(_CUT, FROM_DIMENSIONS)
    for first, last in DEVICES:
        title = f"{first}" if first == last else f"{first} or more" if last == DEVICES[-1][1] else f"{first} to {last}"
        found[title] = " | ".join(_of_devices(rows, first, last) for rows in (published, cut))
    return _as_lines(found)


def front() -> dict[str, str]:
    """Lines of the README's table, by their first cell."""
    published = [row for name in PUBLISHED for row in rows_of(f"{name}.csv")]
    kinds = {kind.title: kind for kind in KINDS}
    found = {title: _of_kind(score_of(rows_of(kinds[name].files, kinds[name].way))) for title, name in ON_FRONT.items()}
    for first, last in ((2, 8), *DEVICES[3:-1]):
        found[f"published, uncut: {first} to {last} devices"] = _of_kind(score_of(_on(published, first, last)))
    return _as_lines(found)


def _as_lines(cells: Mapping[str, str]) -> dict[str, str]:
    return {title: f"| {title} | {text} |" for title, text in cells.items()}


def _on(rows: Sequence[Row], first: int, last: int) -> list[Row]:
    return [row for row in rows if first <= float(row["settings.workers"]) <= last]


def _of_kind(score: Score) -> str:
    simpler = "none" if score.simpler is None else _size(score.simpler)
    return f"{score.rows} | {_size(score.median)} | {_signed(score.worst)} | {simpler} | {_inside(score)} | {_width(score)}"


def _of_devices(rows: Sequence[Row], first: int, last: int) -> str:
    of_them = _on(rows, first, last)
    score = score_of(of_them)
    sources = len({row["settings.table"] for row in of_them})
    return f"{score.rows} ({sources}) | {_size(score.median)} | {_signed(score.bias)} | {_inside(score)} | {_width(score)}"


def _inside(score: Score) -> str:
    return "" if score.inside is None else f"{score.inside:.0%}"


def _width(score: Score) -> str:
    return "" if score.width is None else f"{score.width:.0%}"


def _size(value: float) -> str:
    return "<0.1%" if value < 5e-4 else f"{value:.1%}" if value < 0.0995 else f"{value:.0%}"


def _signed(value: float) -> str:
    return f"{value:+.1%}".replace("-", "−") if abs(value) < 0.0995 else f"{value:+.0%}".replace("-", "−")


def updated(page: str, made: Mapping[str, str]) -> str:
    """A page with each line that is computed from rows as they are; what follows these cells, such as a link, stays."""
    found = []
    for line in page.splitlines():
        title = line.split("|")[1].strip() if line.startswith("| ") else ""
        if title in made:
            cells = made[title].count("|")
            line = made[title] + "|".join(["", *line.split("|")[cells:]]).removeprefix("|")
        found.append(line)
    return "\n".join(found) + "\n"


def main() -> None:
    """Write both pages and the scores again."""
    for path, made in ((PAGE, lines()), (FRONT, front())):
        Output(path, EDITED._replace(ending=".md"), force=True).write(updated(path.read_text(encoding="utf-8"), made))
    Output(FOLDER / "scores.csv", EDITED._replace(ending=".csv"), force=True).write(scores().to_csv())


if __name__ == "__main__":
    main()
