"""``paceline quickstart`` from a workload that was fitted before: what it writes, prints and keeps."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.command_line import Answer

import calibrate
from calibrate.fit.writing import write_fitted
from simulator.catalogue.loading import load_workload
from simulator.spec.workload import Workload

WRITTEN = ["q.html", "q.ndjson", "q.workload.toml"]


@pytest.fixture(autouse=True)
def measured(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """No step is run: the workload is one that Paceline brings along; two numbers of workers."""
    asked: list[dict[str, Any]] = []
    fitted = load_workload(Path(calibrate.__file__).parent.parent / "models" / "workloads" / "cnn-cpu.toml")

    def calibrate_(model: str, *, out: Path, **options: Any) -> Workload:
        asked.append({"model": model, **options})
        its = fitted.model_copy(update={"provenance": {**fitted.provenance, "command": options["command"]}})
        write_fitted(its, out, force=options["force"])
        return its

    monkeypatch.setattr("paceline.api.calibrate", calibrate_)
    monkeypatch.setattr("paceline.cli.commands.reporting._WORKERS", [1, 4])
    return asked


@pytest.mark.long
def test_it_writes_a_workload_results_and_a_report(folder: Path, paceline: Callable[..., Answer], measured: list[dict[str, Any]]) -> None:
    answer = paceline("quickstart", "--out", "q.html", "--jobs", "1")
    assert answer.code == 0, answer.stderr
    (asked,) = measured
    assert asked["model"].endswith("keras/cnn.py:build")
    assert asked["accept_disturbed"]
    assert sorted(path.name for path in folder.glob("q.*")) == WRITTEN
    assert (folder / "q.html").read_text().startswith("<!DOCTYPE html>")
    results = [json.loads(line) for line in (folder / "q.ndjson").read_text().splitlines()]
    assert [one["scenario"]["strategy"]["workers"] for one in results] == [1, 4] * 3
    for strategy in ("Ring all-reduce", "Sync PS", "Async PS"):
        assert strategy in answer.stdout
    assert [line[:4] for line in answer.stderr.splitlines() if line[:3] in ("1/3", "2/3", "3/3")] == ["1/3 ", "2/3 ", "3/3 "]
    again = paceline("quickstart", "--out", "q.html", "--jobs", "1", "--json")
    assert [json.loads(line)["scenario_hash"] for line in again.stdout.splitlines()] == [one["scenario_hash"] for one in results]


@pytest.mark.parametrize(
    ("stops", "kept"), [("sweep", "q.workload.toml"), pytest.param("report", "paceline report q.ndjson", marks=pytest.mark.long)]
)
def test_what_is_done_is_kept_where_it_is_stopped_and_the_same_command_goes_on(
    folder: Path,
    paceline: Callable[..., Answer],
    monkeypatch: pytest.MonkeyPatch,
    measured: list[dict[str, Any]],
    stops: str,
    kept: str,
) -> None:
    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as stopping:
        stopping.setattr(f"paceline.api.{stops}", stopped)
        answer = paceline("quickstart", "--out", "q.html", "--jobs", "1")
    assert answer.code == 130
    assert kept in answer.stderr.splitlines()[-1]
    assert not (folder / "q.html").exists()
    again = paceline("quickstart", "--out", "q.html", "--jobs", "1")
    assert again.code == 0, again.stderr
    assert "q.workload.toml" in again.stderr.splitlines()[0]
    assert len(measured) == 1
    assert paceline("quickstart", "--out", "q.html", "--jobs", "1").code == 0
    assert len(measured) == 2  # a finished one begins anew
