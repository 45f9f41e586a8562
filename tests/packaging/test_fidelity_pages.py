"""The pages of errors: linked to every row, and with scores that follow from the rows."""

from __future__ import annotations

import csv
import html
import re
import statistics
from collections.abc import Sequence
from pathlib import Path

import pytest

from calibrate.validation.comparison import Compared
from calibrate.validation.validation import Score, Validation, scores_of
from evidence.published.hybrid_prediction import is_composed
from paceline.reporting.validation.content import scores_table
from simulator.spec.figures import Estimate

DOCS = Path(__file__).resolve().parents[2] / "docs"
FOLDER = DOCS / "fidelity"
PAGES = sorted(DOCS.glob("fidelity*.md"))
THROUGHPUT = ("sync PS", "all-reduce", "async PS")

Lines = list[dict[str, str]]


def lines_of(path: Path) -> Lines:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def links_of(page: Path) -> list[str]:
    return re.findall(r"\]\((fidelity/[^)#]+\.csv)\)", page.read_text(encoding="utf-8"))


def compared(line: dict[str, str]) -> Compared:
    each = [float(word) for word in line.get("measured_each", "").split()] or [float(line["measured"])]
    stale = line.get("staleness_measured")
    return Compared(
        name=line["name"],
        group=line["group"],
        fitted=line["fitted"] == "1",
        unit=line["unit"],
        measured=tuple(each),
        predicted=Estimate(mean=float(line["predicted"]), low=float(line["low"]), high=float(line["high"])),
        staleness_measured=(float(stale),) if stale else (),
        staleness_predicted=float(line["staleness_predicted"]) if line.get("staleness_predicted") else None,
        staleness_distance=float(line["staleness_distance"]) if line.get("staleness_distance") else None,
        baselines={name.removeprefix("baselines."): float(text) for name, text in line.items() if name.startswith("baselines.") and text},
        settings={name: line[f"settings.{name}"] for name in ("way", "table")} | {"nodes": float(line["settings.nodes"])}
        if "settings.way" in line
        else {},
        note=line.get("note", ""),
    )


def rows_of(key: str) -> list[Compared]:
    """Every row whose file a page's section of this key links to."""
    return [compared(line) for path in sorted(FOLDER.glob(f"{key}*.csv")) for line in lines_of(path) if "predicted" in line]


def printed_scores(page: str, key: str) -> dict[str, dict[str, str]]:
    """Cells of the table of scores in a page, by group and measure."""
    text = (DOCS / page).read_text(encoding="utf-8")
    text = text[text.index(f"<!-- begin paceline validate: {key} -->") :]
    text = text[text.index("### Scores") :].partition("\n### ")[0] or text[text.index("### Scores") + 3 :].partition("\n### ")[0]
    grid = [[html.unescape(cell.strip()) for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("|")]
    if grid[0][0] == "measure":
        grid = [list(column) for column in zip(*grid, strict=True)]
        del grid[1:1]
        heads, groups = grid[0], grid[1:]
        keep = [place for place, head in enumerate(heads) if not head.startswith("---")]
    else:
        heads, groups = grid[0], grid[2:]
        keep = list(range(len(heads)))
    return {group[0]: {heads[place]: group[place] for place in keep[1:]} for group in groups}


def differences(printed: dict[str, dict[str, str]], scores: Sequence[Score]) -> list[str]:
    table = scores_table(Validation("", "", (), tuple(scores)))
    found = []
    for texts in table.texts():
        cells = dict(zip((column.title for column in table.columns), texts, strict=True))
        for measure, text in printed[cells["group"]].items():
            if measure != "worst setting" and cells.get(measure, "–") != text and not nearly(cells[measure], text):
                found.append(f"{cells['group']}, {measure}: {text} printed, {cells.get(measure)} by the rows")
    return found


def nearly(one: str, other: str) -> bool:
    """Whether two texts are numbers of so many digits that files do not hold the last one."""
    numbers = [re.sub("[%+,]", "", text).replace("−", "-") for text in (one, other)]
    return len(one) > 10 and float(numbers[0]) == pytest.approx(float(numbers[1]), rel=1e-7)


def test_every_file_is_linked_once_and_every_link_leads_to_a_file():
    linked = [link for page in PAGES for link in links_of(page)]
    assert len(linked) == len(set(linked)) > 20
    assert {Path(link).name for link in linked} == {path.name for path in FOLDER.iterdir()}


@pytest.mark.parametrize("page", [page for page in PAGES if links_of(page)], ids=lambda page: page.name)
def test_files_hold_as_many_rows_as_the_page_says(page):
    said = re.findall(r"\((fidelity/[^)]+\.csv)\), ([\d,]+) row", page.read_text(encoding="utf-8"))
    assert len(said) == len(links_of(page))
    for link, count in said:
        with (DOCS / link).open(encoding="utf-8", newline="") as file:
            head, *rows = csv.reader(file)
        assert len(rows) == int(count.replace(",", "")), link
        assert {len(row) for row in rows} == {len(head)}, link


def test_scores_on_published_tables_follow_from_the_rows():
    rows = rows_of("published")
    printed = printed_scores("fidelity-published.md", "published")
    apart = [score for group in dict.fromkeys(row.group for row in rows) for score in scores_of(row for row in rows if row.group == group)]
    whole = scores_of((row for row in rows if row.group in THROUGHPUT), "throughput")[-1]
    assert {score.group for score in (*apart, whole)} == set(printed)
    assert differences(printed, (*apart, whole)) == []


def test_scores_of_models_that_are_cut_follow_from_the_rows():
    rows = rows_of("hybrids")
    printed = printed_scores("fidelity-hybrid.md", "hybrids")
    scores = [score for group in dict.fromkeys(row.group for row in rows) for score in scores_of(row for row in rows if row.group == group)]
    scores += [
        scores_of((row for row in rows if row.settings["way"] == way and not is_composed(row)), f"all, {way}")[-1]
        for way in dict.fromkeys(row.settings["way"] for row in rows)
    ]
    assert {score.group for score in scores} == set(printed)
    assert differences(printed, scores) == []


@pytest.mark.parametrize(
    ("page", "name"),
    [
        ("fidelity-real-clusters.md", "random-20261122-12"),
        ("fidelity-real-clusters.md", "random-2611260355-12"),
        ("fidelity-earlier-lists.md", "headline"),
        ("fidelity-earlier-lists.md", "first"),
        ("fidelity-earlier-lists.md", "development"),
    ],
)
def test_scores_of_real_runs_follow_from_the_rows(page, name):
    """To the digits that the rows have: two or three."""
    lines = lines_of(FOLDER / f"testbed-{name}.csv")
    printed = printed_scores(page, f"testbed-{name}")
    for group, cells in printed.items():
        its = [line for line in lines if line["fitted"] == "0" and group in ("all", line["group"])]
        score = scores_of([compared(line) for line in its], group)[-1]
        assert cells["settings"] == str(len(its))
        errors = [float(line["error"]) for line in its]
        assert max(errors, key=abs) == pytest.approx(number(cells["worst error"]), rel=0.05, abs=6e-4)
        assert statistics.median(map(abs, errors)) == pytest.approx(number(cells["median size of error"]), rel=0.05, abs=6e-4)
        assert statistics.median(errors) == pytest.approx(number(cells["median error (bias)"]), rel=0.05, abs=6e-4)
        inside = sum(int(line["repeats_inside"]) for line in its) / sum(int(line["repeats"]) for line in its)
        assert inside == pytest.approx(number(cells["inside 90% interval"]), abs=6e-3)
        assert score.median_relative_width == pytest.approx(number(cells["interval width"]), rel=0.08)


def number(text: str) -> float:
    return round(float(re.sub("[%+]", "", text).replace("−", "-")) / 100, 6)


@pytest.mark.parametrize(("file", "key"), [("published", "published"), ("hybrid", "hybrids")])
def test_rows_are_those_that_discrepancies_are_estimated_from(file, key):
    """Each stands in the files as it stands in models/validated, to the digits there."""
    held = {(row.name, row.group): row for row in rows_of(key)}
    lines = lines_of(DOCS.parent / "models" / "validated" / f"{file}.csv")
    assert len(lines) > 500
    for line in lines:
        row = held[line["name"], line["group"]]
        assert row.predicted.mean == pytest.approx(float(line["predicted"]), rel=1e-5), row.name
        assert row.measured == pytest.approx([float(word) for word in line["measured"].split()], rel=1e-5), row.name


CLUSTERS, EARLIER, PUBLISHED, HYBRID = (f"fidelity-{name}.md" for name in ("real-clusters", "earlier-lists", "published", "hybrid"))


@pytest.mark.parametrize(
    ("begins", "page", "key", "group"),
    [
        ("real TensorFlow clusters, settings drawn by a seed", CLUSTERS, "testbed-random-2611260355-12", "all"),
        ("the same, an earlier drawn list", CLUSTERS, "testbed-random-20261122-12", "all"),
        ("real clusters, a list that a person chose before the runs (*headline*)", EARLIER, "testbed-headline", "all"),
        ("another such list (*first*)", EARLIER, "testbed-first", "all"),
        ("published: synchronous parameter servers", PUBLISHED, "published", "sync PS"),
        ("published: all-reduce", PUBLISHED, "published", "all-reduce"),
        ("published: asynchronous parameter servers", PUBLISHED, "published", "async PS"),
        ("published: all-reduces alone (NCCL)", PUBLISHED, "published", "NCCL"),
        ("published: mean staleness", PUBLISHED, "published", "staleness"),
        ("published, moved to another device: by a pair", PUBLISHED, "published", "moved, published pair"),
        ("the same by two rooflines", PUBLISHED, "published", "moved, two rooflines"),
        ("the same by one roofline, from a processor", PUBLISHED, "published", "moved, one roofline"),
        ("published models that are cut, from dimensions", HYBRID, "hybrids", "all, from dimensions"),
        ("the same with constants fitted to one node of one table", HYBRID, "hybrids", "all, constants fitted"),
        ("the same from the smallest row", HYBRID, "hybrids", "all, from its smallest row"),
    ],
)
def test_the_overview_says_what_the_pages_say(begins, page, key, group):
    cells = printed_scores(page, key)[group]
    line = next(line for line in (DOCS / "fidelity.md").read_text().splitlines() if line.startswith(f"| {begins} |"))
    simpler = [cells[rule] for rule in RULES if cells.get(rule, "–") != "–"]
    best = min(simpler, key=lambda text: float(text.strip("<%")), default="none")
    want = [cells["settings"], cells["median size of error"], cells["worst error"], best, cells["inside 90% interval"]]
    assert [cell.strip() for cell in line.split("|")[2:7]] == want


RULES = ("max-min", "alpha-beta", "linear", "bandwidth", "peak", "n - 1", "roofline")


def test_what_is_said_of_servers_on_gpus_follows_from_the_rows():
    rows = [line for line in lines_of(FOLDER / "published-async-ps.csv") if line["settings.table"] in ("cmdare", "transient_tf")]
    errors = [float(line["predicted"]) / float(line["measured"]) - 1 for line in rows if line["fitted"] != "1"]
    assert len(errors) == 51
    middle, slowest, fastest = f"{statistics.median(map(abs, errors)):.1%}", f"{-min(errors):.0%}", f"{max(errors):.0%}"
    for page, shares in ((PUBLISHED, (middle, slowest, fastest)), ("fidelity.md", (middle, slowest))):
        assert any(set(shares) <= set(re.findall(r"[\d.]+%", line)) for line in (DOCS / page).read_text().splitlines()), page


def test_tables_by_hand_say_what_the_scores_say():
    printed = printed_scores(CLUSTERS, "testbed-random-20261122-12")
    page = (DOCS / CLUSTERS).read_text()
    for group, name in (
        ("PS, fair links", "parameter servers, fair links"),
        ("ring, fair links", "rings over gRPC, fair links"),
        ("TCP's own sharing", "TCP's own sharing"),
        ("shared cores", "real compute on shared cores"),
        ("layer by layer", "layer by layer"),
    ):
        its = {measure: text.strip("+−") for measure, text in printed[group].items()}
        line = next(line for line in page.splitlines() if line.startswith(f"| {name} ({its['settings']}) |"))
        cells = [cell.strip() for cell in line.split("|")[3:-1]]
        assert cells[0].partition(":")[0] == f"{its['median size of error']} / {its['worst error']}"
        assert cells[1] == f"{its['max-min']} / {its['max-min, worst']}"
        assert cells[3] == its["inside 90% interval"]
    printed = printed_scores(HYBRID, "hybrids")
    page = (DOCS / HYBRID).read_text()
    for source, name in (
        ("vTrain, several nodes", "vTrain, 64 and 512 A100"),
        ("Megatron-LM", "Megatron-LM, to 3,072 V100 and A100"),
        ("llm-foundry", "llm-foundry, fully sharded, 8 to 128 A100"),
    ):
        its, fitted = printed[f"{source}, from dimensions"], printed[f"{source}, constants fitted"]
        median = "median size of error"
        cells = (its["settings"], its[median], fitted[median], its["linear"], its["alpha-beta"], its["inside 90% interval"])
        assert f"| {name} | {' | '.join(cells)} |" in page
