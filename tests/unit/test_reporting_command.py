"""``paceline report``: where it writes, what it prints, what it refuses to overwrite, and what it writes besides."""

from __future__ import annotations

import csv
import json
import random
from contextlib import suppress
from pathlib import Path

import pytest
import typer
from support.results import STRATEGIES, planned, plausible, scenario_of
from typer.testing import CliRunner

from paceline.cli.commands.reporting import _formats_of, report
from paceline.cli.ending import StoppedError
from paceline.cli.options import with_options
from paceline.planning.answer import Candidate, Plan, read_plan
from paceline.planning.goal import Goal
from paceline.reporting.report import source_of_files
from simulator.base.errors import InputError, ResultsError
from simulator.results.results import Result

pytestmark = pytest.mark.slow

app = typer.Typer()
app.command()(with_options(report))
run = CliRunner()


@pytest.fixture(autouse=True)
def _in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """What-ifs take no processes of their own."""
    monkeypatch.setattr("os.cpu_count", lambda: 1)


@pytest.fixture
def results(tmp_path: Path) -> Path:
    file = tmp_path / "results.ndjson"
    file.write_text("".join(plausible(scenario_of(STRATEGIES[0], workers)).to_json() + "\n" for workers in (1, 2)))
    return file


def written(file: Path, *results: Result) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(result.to_json() + "\n" for result in results))
    return file


def test_it_writes_beside_the_results(results: Path) -> None:
    done = run.invoke(app, [str(results)])
    assert done.exit_code == 0, done.output
    assert done.stdout == ""
    assert f"Wrote {results.with_suffix('.html')}" in done.stderr.replace("\n", "")


def test_json_is_data_on_stdout(results: Path, tmp_path: Path) -> None:
    out = tmp_path / "reports" / "mine.html"
    done = run.invoke(app, [str(results), "-o", str(out), "--json", "--no-simulate"])
    said = json.loads(done.stdout)
    assert said == {"report": str(out), "results": 2, "notes": [], "bytes": out.stat().st_size}


def test_a_report_is_replaced_and_another_file_is_not(results: Path, tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    out.write_text("<p>mine</p>")
    refused = run.invoke(app, [str(results), "-o", str(out), "--no-simulate"])
    assert isinstance(refused.exception, InputError)
    assert "`force=True`" in str(refused.exception)
    assert out.read_text() == "<p>mine</p>"
    assert run.invoke(app, [str(results), "-o", str(out), "--force", "--no-simulate"]).exit_code == 0
    assert run.invoke(app, [str(results), "-o", str(out), "--no-simulate"]).exit_code == 0


def test_the_results_are_never_overwritten(results: Path) -> None:
    before = results.read_text()
    refused = run.invoke(app, [str(results), "-o", str(results), "--force"])
    assert isinstance(refused.exception, InputError)
    assert results.read_text() == before


def test_a_cut_off_file_is_told_on_stderr(results: Path) -> None:
    results.write_text(results.read_text()[:-500])
    done = run.invoke(app, [str(results), "--no-simulate"])
    assert "ends in the middle of line 2" in done.stderr
    assert "ends in the middle of line 2" in results.with_suffix(".html").read_text()


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    refused = run.invoke(app, [str(tmp_path / "none.ndjson")])
    assert isinstance(refused.exception, ResultsError)
    assert "\n" not in str(refused.exception)


def test_timeline_and_what_ifs_are_there_unless_left_out(results: Path, tmp_path: Path) -> None:
    done = run.invoke(app, [str(results), "--json", "--jobs", "1", "--tables", str(tmp_path / "with")])
    assert done.exit_code == 0, done.output
    assert {Path(file).stem for file in json.loads(done.stdout)["tables"]} >= {"results", "timeline", "sensitivity"}
    page = results.with_suffix(".html").read_text()
    assert 'id="figure-timeline"' in page
    assert 'id="figure-sensitivity"' in page
    done = run.invoke(app, [str(results), "--json", "--no-simulate", "--tables", str(tmp_path / "without")])
    assert not {Path(file).stem for file in json.loads(done.stdout)["tables"]} & {"timeline", "sensitivity"}
    page = results.with_suffix(".html").read_text()
    assert 'id="figure-timeline"' not in page
    assert 'id="figure-sensitivity"' not in page


def test_what_cannot_be_simulated_again_is_noted(results: Path) -> None:
    """An answer whose what-ifs would take minutes."""
    one = plausible(scenario_of(STRATEGIES[2], 8)).model_copy(update={"events": 10**9})
    written(results, one)
    done = run.invoke(app, [str(results), "--json"])
    assert done.exit_code == 0, done.output
    (note,) = json.loads(done.stdout)["notes"]
    assert "no what-ifs" in note
    assert note in done.stderr
    page = results.with_suffix(".html").read_text()
    assert note in page
    assert 'id="figure-timeline"' in page


@pytest.mark.parametrize(
    ("during", "kept", "note"),
    [
        ("simulated.timeline_of", (), "there is no timeline"),
        ("simulated.changes_of", ("timeline",), "There are no what-ifs"),
    ],
)
def test_ctrl_c_ends_the_simulating_and_the_page_is_written(
    during: str, kept: tuple[str, ...], note: str, results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(f"paceline.reporting.{during}", interrupted)
    done = run.invoke(app, [str(results), "--tables", str(tmp_path / "tables")])
    assert isinstance(done.exception, StoppedError)
    assert str(done.exception).endswith(f": {results.with_suffix('.html')}")
    assert note in done.stderr
    page = results.with_suffix(".html").read_text()
    assert note in page
    assert tuple(name for name in ("timeline", "sensitivity") if f'id="figure-{name}"' in page) == kept
    assert list((tmp_path / "tables").glob("*.csv")) == []


def test_files_are_compared_and_keep_what_they_share(tmp_path: Path) -> None:
    shared, other = (plausible(scenario_of(STRATEGIES[0], workers)) for workers in (2, 4))
    old, new = written(tmp_path / "old.ndjson", shared), written(tmp_path / "new.ndjson", shared, other)
    done = run.invoke(app, [str(old), str(new), "--no-simulate", "--json"])
    said = json.loads(done.stdout)
    assert (said["report"], said["results"], said["notes"]) == (str(tmp_path / "old-new.html"), 3, [])
    page = (tmp_path / "old-new.html").read_text()
    assert '"labels":["old","new"]' in page.replace(" ", "")


def test_of_a_scenario_that_is_there_twice_the_last_counts(tmp_path: Path) -> None:
    early, other = (plausible(scenario_of(STRATEGIES[0], workers)) for workers in (2, 4))
    late = early.model_copy(update={"monte_carlo_error": 1.25})
    file = written(tmp_path / "r.ndjson", early, other, late)
    done = run.invoke(app, [str(file), "--no-simulate", "--json", "--tables", str(tmp_path)])
    said = json.loads(done.stdout)
    assert (said["results"], len(said["notes"])) == (2, 1)
    rows = list(csv.DictReader((tmp_path / "results.csv").open(newline="")))
    assert [float(row["monte_carlo_error_samples_per_s"]) for row in rows] == [1.25, other.monte_carlo_error]
    assert said["notes"][0] in file.with_suffix(".html").read_text()


def test_labels_are_as_long_as_it_takes_to_tell_files_apart(tmp_path: Path) -> None:
    def labels(*files: str) -> list[str] | None:
        return source_of_files([written(tmp_path / file, plausible(scenario_of(STRATEGIES[0], 2))) for file in files]).labels

    assert labels("a.ndjson") is None
    assert labels("a.ndjson", "b.ndjson") == ["a", "b"]
    assert labels("x/a.ndjson", "y/a.ndjson") == ["x/a", "y/a"]
    assert labels("x/r/a.ndjson", "y/r/a.ndjson", "b.ndjson") == ["x/r/a", "y/r/a", "b"]
    assert labels("a.ndjson", "a.json") == ["a.ndjson", "a.json"]
    two = [plausible(scenario_of(STRATEGIES[0], workers)) for workers in (2, 4)]
    assert source_of_files([written(tmp_path / "a", *two), written(tmp_path / "b", *two[:1])]).labels == ["a", "a", "b"]


def test_what_is_wrong_with_one_of_several_files_is_told_with_its_name(tmp_path: Path) -> None:
    one, two = (plausible(scenario_of(STRATEGIES[0], workers)) for workers in (2, 4))
    whole, cut = written(tmp_path / "whole.ndjson", one), written(tmp_path / "cut.ndjson", one, two)
    cut.write_text(cut.read_text()[:-500])
    done = run.invoke(app, [str(whole), str(cut), "--no-simulate", "--json"])
    (note,) = json.loads(done.stdout)["notes"]
    assert note.startswith(f"{cut}: ")


def test_measured_points_stand_beside_predictions_and_the_rest_is_told(results: Path, tmp_path: Path) -> None:
    points = tmp_path / "points.csv"
    points.write_text("workers,throughput\n2,1000\n7,3000\n")
    done = run.invoke(app, [str(results), "--no-simulate", "--measured", str(points), "--tables", str(tmp_path / "tables")])
    assert done.exit_code == 0, done.output
    assert f"{points}:3: 7 workers: " in done.stderr
    rows = (tmp_path / "tables" / "measured.csv").read_text().splitlines()
    assert [row.split(",")[0] for row in rows] == ["setting", "2 workers", "7 workers"]


def test_a_plan_begins_the_report(results: Path, tmp_path: Path) -> None:
    result = plausible(scenario_of(STRATEGIES[0], 2))
    chosen = Candidate(
        name="the ring that was chosen", what="ring", others=(), scaling="weak",
        result=result, usd_per_hour=None, usd_per_million_samples=None, time_s=None,
        cost_usd=None, confidence=0.95, reached_by=19, meets=True, nodes=2, devices_per_node=1, placement="a device on each node",
    )  # fmt: skip
    plan = Plan(
        goal=Goal(target_throughput_samples_per_s=10.0), feasible=True, chosen=chosen, why="It is the cheapest.", runners_up=(),
        pareto=(chosen,), candidates=(chosen,), considered=1, discarded=0, simulated=1,
    )  # fmt: skip
    file = tmp_path / "plan.json"
    file.write_text(plan.to_json())
    done = run.invoke(app, [str(results), "--no-simulate", "--plan", str(file)])
    assert done.exit_code == 0, done.output
    assert "the ring that was chosen" in results.with_suffix(".html").read_text()
    others = written(tmp_path / "others.ndjson", plausible(scenario_of(STRATEGIES[0], 4)))
    astray = run.invoke(app, [str(others), "--no-simulate", "--plan", str(file)])
    assert isinstance(astray.exception, ResultsError)
    assert result.scenario_hash in str(astray.exception)
    refused = run.invoke(app, [str(results), "--plan", str(file), "-o", str(file)])
    assert isinstance(refused.exception, InputError)
    assert file.read_text() == plan.to_json()
    file.write_text(plan.to_json().replace("the ring that was chosen", "another ring"))
    changed = run.invoke(app, [str(results), "--no-simulate", "--plan", str(file)])
    assert isinstance(changed.exception, ResultsError)
    assert f"{file}: " in str(changed.exception)


def test_no_flipped_bit_gives_another_plan(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    plan = planned([plausible(scenario_of(STRATEGIES[0], 2))], "the ring")
    whole = plan.to_json().encode() + b"\n"
    for bit in (*random.Random(1).sample(range(8 * len(whole)), 500), *range(8 * len(whole) - 8 * 40, 8 * len(whole))):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        file.write_bytes(flipped)
        with suppress(ResultsError):
            assert read_plan(file) == plan


def test_what_a_plan_only_tried_is_not_drawn(tmp_path: Path) -> None:
    results = [plausible(scenario_of(STRATEGIES[0], workers)) for workers in (2, 4)]
    tried = plausible(scenario_of(STRATEGIES[0], 2, cluster={"inter_node": {"bandwidth_bytes_per_s": 2e9, "latency_s": 5e-5}}))
    file = tmp_path / "plan.json"
    file.write_text(planned(results, "the ring").to_json())
    done = run.invoke(app, [str(written(tmp_path / "r.ndjson", *results, tried)), "--no-simulate", "--plan", str(file), "--json"])
    said = json.loads(done.stdout)
    assert (said["results"], said["notes"]) == (2, [])
    page = (tmp_path / "r.html").read_text()
    assert "Network bandwidth" not in page.partition('id="controls"')[2].partition("</section>")[0]


def test_it_opens_the_page_it_wrote(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda url: opened.append(url) or True)
    assert run.invoke(app, [str(results), "--no-simulate", "--open"]).exit_code == 0
    assert opened == [results.with_suffix(".html").as_uri()]
    monkeypatch.setattr("webbrowser.open", lambda _: False)
    done = run.invoke(app, [str(results), "--no-simulate", "--open"])
    assert done.exit_code == 0
    assert "No browser found" in done.stderr


def test_formats_are_read_in_any_order() -> None:
    assert _formats_of("svg, PNG", Path("figures")) == ["png", "svg"]
    assert _formats_of("svg", Path("figures")) == ["svg"]
