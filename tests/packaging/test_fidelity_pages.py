"""What is said of errors: the tables of the page and every file of rows that it rests on."""

from __future__ import annotations

import csv
import re
import statistics
from pathlib import Path

import pytest

from calibrate.validation.comparison import Compared
from calibrate.validation.validation import scores_of
from evidence.fidelity import FOLDER, FRONT, KINDS, PAGE, Row, front, lines, rows_of, score_of, scores, updated
from simulator.spec.figures import Estimate

EVIDENCE = FOLDER.parent / "README.md"
ROWS = sorted(path.name for path in FOLDER.glob("*.csv"))


def lines_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def compared(row: Row) -> Compared:
    each = [float(word) for word in row.get("measured_each", "").split()] or [float(row["measured"])]
    return Compared(
        name=row["name"],
        group="all",
        fitted=False,
        unit=row["unit"],
        measured=tuple(each),
        predicted=Estimate(mean=float(row["predicted"]), low=float(row["low"]), high=float(row["high"])),
        baselines={name.removeprefix("baselines."): float(text) for name, text in row.items() if name.startswith("baselines.") and text},
    )


def test_every_file_is_linked_once_and_every_link_leads_to_a_file():
    linked = re.findall(r"\]\(tables/([^)]+)\)", EVIDENCE.read_text(encoding="utf-8"))
    assert len(ROWS) > 30
    assert sorted(linked) == ROWS


@pytest.mark.parametrize("name", ROWS)
def test_rows_are_as_long_as_their_head(name):
    with (FOLDER / name).open(encoding="utf-8", newline="") as file:
        head, *rows = csv.reader(file)
    assert rows
    assert {len(row) for row in rows} == {len(head)}


def test_the_page_and_the_scores_follow_from_the_rows():
    for path, made in ((PAGE, lines()), (FRONT, front())):
        page = path.read_text(encoding="utf-8")
        assert all(page.count(f"\n{line}\n") == 1 for line in made.values()), "python -m evidence.fidelity"
        assert updated(page, made) == page
    assert (FOLDER / "scores.csv").read_bytes().decode() == scores().to_csv()


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.files.startswith(("published", "hybrids"))], ids=lambda kind: kind.title)
def test_scores_are_those_of_a_validation(kind):
    rows = rows_of(kind.files, kind.way)
    ours, its = score_of(rows), scores_of([compared(row) for row in rows], "all")[-1]
    assert ours.rows == its.settings
    assert (ours.median, ours.bias, ours.worst) == pytest.approx((its.median_absolute_error, its.median_error, its.worst_error), rel=1e-4)
    assert (ours.inside, ours.width) == pytest.approx((its.inside, its.median_relative_width), rel=1e-4)
    if ours.simpler is not None:
        assert ours.simpler == pytest.approx(min(its.baselines.values()), rel=1e-4)


@pytest.mark.parametrize(("file", "names"), [("published", "published-*.csv"), ("hybrid", "hybrids-*.csv")])
def test_rows_are_those_that_discrepancies_are_estimated_from(file, names):
    """Each is in the tables as it is in models/validated, to the digits there."""
    held = {(row["name"], row["group"]): row for path in FOLDER.glob(names) for row in lines_of(path) if "predicted" in row}
    validated = lines_of(FOLDER.parents[1] / "models" / "validated" / f"{file}.csv")
    assert len(validated) > 250
    for line in validated:
        row = held[line["name"], line["group"]]
        measured = [float(word) for word in (row.get("measured_each") or row["measured"]).split()]
        assert float(row["predicted"]) == pytest.approx(float(line["predicted"]), rel=1e-5), line["name"]
        assert measured == pytest.approx([float(word) for word in line["measured"].split()], rel=1e-5), line["name"]


def percent(values: list[float]) -> str:
    return f"{statistics.median(values):.0%}"


def test_the_worst_kinds_follow_from_the_rows():
    page = PAGE.read_text(encoding="utf-8")

    def errors(name: str, table: str, series: str = "") -> list[tuple[Row, float]]:
        rows = [row for row in rows_of(f"published-{name}.csv") if row["settings.table"] in table.split()]
        return [(row, float(row["error"])) for row in rows if series in row["settings.series"]]

    pollux = errors("all-reduce", "pollux_osdi21")
    for nodes in (12, 16):
        of_them = [(row, error) for row, error in pollux if float(row["settings.nodes"]) == nodes]
        full, single = ([error for row, error in of_them if float(row["settings.workers"]) == each * nodes] for each in (4, 1))
        assert f"{nodes} nodes: {percent(full)}" in page
        assert percent([abs(error) for error in single]) in page
        assert abs(statistics.median(single)) < 0.05
    between = [error for row, error in errors("all-reduce", "dlperf_2020", "tensorflow") if float(row["settings.nodes"]) > 1]
    assert f"{len(between)} rows: {percent(between)} too fast" in page
    clicks = errors("async-ps", "paddle_fleetx paddle_perf")
    many = [error for row, error in clicks if 17 <= float(row["settings.workers"]) <= 32]
    assert f"{percent(many)} in the median, at worst {1 + max(many):.1f} times too fast" in page
    servers = [error for _, error in errors("async-ps", "cmdare transient_tf")]
    assert f"{statistics.median(map(abs, servers)):.1%} off in the median ({len(servers)} rows), up to {-min(servers):.0%} too slow" in page


def test_what_is_said_of_scale_and_of_cut_models_follows_from_the_rows():
    page = PAGE.read_text(encoding="utf-8")
    published = [row for name in ("sync-ps", "all-reduce", "async-ps") for row in rows_of(f"published-{name}.csv")]
    for first, last in ((17, 32), (33, 64)):
        few = [row for row in published if first <= float(row["settings.workers"]) <= last and "mwms" not in row["settings.series"]]
        bias = statistics.median(float(row["error"]) for row in few)
        assert re.search(rf"{bias:.1%}( in the median)? at {first} to {last}", page)
    of_one = sum(row["settings.table"] == "pollux_osdi21" for row in few)
    assert f"where {of_one} of {len(few)} rows are of one source" in page
    beyond = [row for row in published if float(row["measured"]) > 1.03 * float(row["baselines.linear"])]
    assert (len(published), len(beyond)) == (888, 8), "docs/intervals.md"

    def errors(name: str) -> list[float]:
        return [float(row["error"]) for row in rows_of(f"hybrids-{name}.csv")]

    one_node, fitted, several = map(errors, ("vtrain-one-node-from-dimensions", "vtrain-one-node-constants-fitted",
                                             "vtrain-several-nodes-from-dimensions"))  # fmt: skip
    slow, of_fitted = f"{-statistics.median(one_node):.0%} too slow", f"{statistics.median(fitted):.1%}".replace("-", "−")
    many = f"One node, {len(one_node):,} rows: {slow} in the median, {of_fitted} with fitted"
    assert many in page
    assert f"Several nodes: up to {max(several):.0%}" in page
    h100 = [float(row["error"]) for row in rows_of("hybrids-torchtitan.csv", "from dimensions")]
    assert f"H100 from dimensions: {100 * min(h100):.0f} to {max(h100):.0%} too fast" in page
    large = (PAGE.parent / "large-models.md").read_text(encoding="utf-8")
    for way in ("from dimensions", "from its smallest row"):
        score = score_of(rows_of("hybrids-*.csv", way))
        assert f"{score.median:.1%}" in large
        assert f"{score.width:.0%} wide" in large


def test_planted_causes_are_counted():
    for seed in ("33", "34"):
        rows = [row for row in lines_of(FOLDER / "planted-causes.csv") if row["seed"] == seed]
        planted = [row for row in rows if row["planted"] != "nothing"]
        named, inside = (sum(int(row[column]) for row in planted) for column in ("right", "inside"))
        none = sum(int(row["right"]) for row in rows if row["planted"] == "nothing")
        counted = f"| seed {seed} | {named} of {len(planted)} | {none} of {len(rows) - len(planted)} | {inside} of {len(planted)} |"
        assert counted in EVIDENCE.read_text(encoding="utf-8")
        assert named + none >= 0.9 * len(rows)
