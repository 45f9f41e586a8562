"""Results files and report files: every fault is one line, and nothing half is left behind."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.pages import write_report
from support.results import STRATEGIES, plausible, scenario_of

from paceline.sweeping import read_results
from simulator.base.errors import InputError, ResultsError
from simulator.base.files import without_checksum

LINE = plausible(scenario_of(STRATEGIES[0], 2)).to_json()
OTHER = plausible(scenario_of(STRATEGIES[0], 4)).to_json()


def test_results_come_back_as_written(tmp_path: Path) -> None:
    file = tmp_path / "results.ndjson"
    file.write_text(f"{LINE}\n\n{OTHER}")
    read = read_results(file)
    assert [result.to_json() for result in read.results] == [LINE, OTHER]
    assert read.notes == ()


def test_a_line_cut_off_at_the_end_is_left_out_and_told(tmp_path: Path) -> None:
    file = tmp_path / "results.ndjson"
    file.write_text(f"{LINE}\n{OTHER[:700]}")
    read = read_results(file)
    assert len(read.results) == 1
    (note,) = read.notes
    assert "line 2" in note


def _with(**changes: object) -> str:
    return json.dumps({**json.loads(without_checksum(LINE.encode())), **changes})


def _without(key: str) -> str:
    return json.dumps({name: value for name, value in json.loads(LINE).items() if name not in (key, "checksum")})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "has no result"),
        ("\n\n", "has no result"),
        (LINE[:500], "has no complete result"),
        ("hello\n", ":1: must be JSON"),
        (f"{LINE}\n[1, 2]\n{LINE}\n", ":2: must be a result"),
        ("hello\n{}\n", ":1: must be JSON"),
        (
            f"\0\n{LINE.replace('steps', 'stepz', 1)}\n",
            ":1: must be JSON.*`paceline sweep`",
        ),
        ("[1, 2]\n", r":1: must be a result .*\[1, 2\]"),
        ("{}\n", ":1: scenario_hash is missing"),
        (_without("bottleneck") + "\n", ":1: bottleneck is missing"),
        (_with(schema_version=2) + "\n", ":1: schema_version 2 .* 1"),
        (_with(novelty=1) + "\n", ":1: novelty "),
        (_with(replicas="many") + "\n", ":1: replicas: 'many'"),
        (LINE.replace('"monte_carlo_error":', '"monte_carlo_error":NaN,"x":') + "\n", ":1: .*checksum"),
        (
            without_checksum(LINE.encode()).decode().replace('"events":', '"x":NaN,"events":') + "\n",
            ":1: must be JSON.*no other result",
        ),
        (_with(replicas=0) + "\n", ":1: replicas: 0 must be at least 1"),
        (_with(speedup={"mean": 0, "low": 0, "high": 0}) + "\n", ":1: speedup.mean: 0 must be above zero"),
        (_with(throughput_samples_per_s={"mean": 2, "low": 3, "high": 1}) + "\n", r":1: throughput_samples_per_s: low \(3\)"),
        ("[" * 100_000 + "\n", ":1: must be JSON"),
    ],
)
def test_bad_files_are_refused_with_file_and_line(tmp_path: Path, content: str, message: str) -> None:
    file = tmp_path / "results.ndjson"
    file.write_text(content)
    with pytest.raises(ResultsError, match=message) as raised:
        read_results(file)
    assert str(raised.value).startswith(str(file))
    assert "\n" not in str(raised.value)
    assert raised.value.exit_code == 2


def test_bytes_that_are_no_text_are_left_out_of_results_and_else_refused(tmp_path: Path) -> None:
    file = tmp_path / "results.ndjson"
    file.write_bytes(b"\xff\xfe\x00\n" + LINE.encode())
    (note,) = read_results(file).notes
    assert note.startswith(f"{file}:1: must be JSON")
    assert "UTF-8" in note
    file.write_bytes(b"\xff\xfe\x00\n")
    with pytest.raises(ResultsError, match=":1: must be JSON"):
        read_results(file)


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match="no such file"):
        read_results(tmp_path / "none.ndjson")
    with pytest.raises(ResultsError, match="Is a directory"):
        read_results(tmp_path)


def test_a_report_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    results = read_results(_file(tmp_path)).results
    out = tmp_path / "new" / "report.html"
    assert write_report(results, out) == out
    assert out.read_text().startswith("<!DOCTYPE html>")
    assert [path.name for path in out.parent.iterdir()] == ["report.html"]


def test_paths_that_cannot_be_written_are_refused(tmp_path: Path) -> None:
    file = _file(tmp_path)
    results = read_results(file).results
    for out, message in (
        (tmp_path, "is a folder"),
        (file / "report.html", "cannot be written"),
        (tmp_path / ("x" * 300), "cannot be written"),
    ):
        with pytest.raises(InputError, match=message) as raised:
            write_report(results, out)
        assert "\n" not in str(raised.value)
    assert [path.name for path in tmp_path.iterdir()] == ["results.ndjson"]


def test_a_device_is_written_to_and_not_replaced() -> None:
    write_report(read_results_of_line(), Path("/dev/null"))
    assert Path("/dev/null").is_char_device()


def read_results_of_line() -> list[object]:
    from simulator.results.results import Result

    return [Result.model_validate_json(LINE)]


def _file(folder: Path) -> Path:
    file = folder / "results.ndjson"
    file.write_text(LINE + "\n")
    return file
