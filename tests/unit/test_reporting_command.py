"""``paceline report``: where it writes, what it prints, what it refuses to overwrite."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from paceline.cli.report import report
from simulator.errors import InputError, ResultsError
from tests.browser.samples import STRATEGIES, plausible, scenario_of

app = typer.Typer()
app.command()(report)
run = CliRunner()


@pytest.fixture
def results(tmp_path: Path) -> Path:
    file = tmp_path / "results.ndjson"
    file.write_text("".join(plausible(scenario_of(STRATEGIES[0], workers)).to_json() + "\n" for workers in (1, 2)))
    return file


def test_it_writes_beside_the_results(results: Path) -> None:
    done = run.invoke(app, [str(results)])
    assert done.exit_code == 0, done.output
    assert done.stdout == ""
    assert f"Wrote {results.with_suffix('.html')}" in done.stderr.replace("\n", "")
    assert results.with_suffix(".html").stat().st_size > 4_000_000


def test_json_is_data_on_stdout(results: Path, tmp_path: Path) -> None:
    out = tmp_path / "reports" / "mine.html"
    done = run.invoke(app, [str(results), "-o", str(out), "--json"])
    said = json.loads(done.stdout)
    assert said == {"report": str(out), "results": 2, "notes": [], "bytes": out.stat().st_size}


def test_a_report_is_replaced_and_another_file_is_not(results: Path, tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    out.write_text("<p>mine</p>")
    refused = run.invoke(app, [str(results), "-o", str(out)])
    assert isinstance(refused.exception, InputError)
    assert "--force" in str(refused.exception)
    assert out.read_text() == "<p>mine</p>"
    assert run.invoke(app, [str(results), "-o", str(out), "--force"]).exit_code == 0
    assert run.invoke(app, [str(results), "-o", str(out)]).exit_code == 0


def test_the_results_are_never_overwritten(results: Path) -> None:
    before = results.read_text()
    refused = run.invoke(app, [str(results), "-o", str(results), "--force"])
    assert isinstance(refused.exception, InputError)
    assert results.read_text() == before


def test_a_cut_off_file_is_told_on_stderr(results: Path) -> None:
    results.write_text(results.read_text()[:-500])
    done = run.invoke(app, [str(results)])
    assert "ends in the middle of line 2" in done.stderr
    assert "ends in the middle of line 2" in results.with_suffix(".html").read_text()


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    refused = run.invoke(app, [str(tmp_path / "none.ndjson")])
    assert isinstance(refused.exception, ResultsError)
    assert "\n" not in str(refused.exception)
