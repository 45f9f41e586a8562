"""What others send over links, from the command line: traces from CSV files, and sweeps of a load."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from support.command_line import SCENARIO, Answer

from simulator import load_scenario

TRACE = "at_s,load,flows\n0,0.5,0\n0.002,0.25,1\n0.004,0,0\n"
POINTS = "[{at='0s',load=0.5},{at='2ms',load=0.25,flows=1},{at='4ms'}]"
FROM_FILE = SCENARIO.replace('name = "lab"', 'name = "lab"\nbackground = {trace = "trace.csv", repeat = "6 ms"}')
SETTING = "cluster.background={trace='trace.csv'}"


def found(answer: Answer) -> dict[str, object]:
    """All that a simulation says."""
    assert (answer.code, answer.stderr) == (0, "")
    return {key: value for key, value in json.loads(answer.stdout).items() if key != "checksum"}


def test_a_trace_of_a_file_is_that_of_a_list(folder: Path, paceline: Callable[..., Answer], monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "trace.csv").write_text(TRACE)
    (folder / "f.toml").write_text(FROM_FILE)
    read = found(paceline("simulate", "f.toml", "--json"))
    setting = f"cluster.background={{trace={POINTS},repeat='6ms'}}"
    assert found(paceline("simulate", "s.toml", "--set", setting, "--json")) == read
    assert found(paceline("simulate", "s.toml", "--json")) != read
    (folder / "elsewhere").mkdir()
    monkeypatch.chdir(folder / "elsewhere")
    assert found(paceline("simulate", "../f.toml", "--json")) == read  # beside the scenario


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("\ufeffat_s,load,flows\r\n0,0.5,0\r\n0.002,0.25,1\r\n0.004,0,0\r\n", True),
        ("flows, at_s, load\n0,0,0.5\n1,2e-3,0.25\n0,4e-3,0\n", True),
        ("at_s,load\n0,0.5\n0.002,0.25\n0.004,0\n", False),
    ],
    ids=["as spreadsheets write it", "columns in another order", "without flows"],
)
def test_how_a_table_may_be_written(text: str, same: bool, folder: Path) -> None:
    (folder / "trace.csv").write_text(text, newline="")
    (folder / "f.toml").write_text(FROM_FILE)
    background = load_scenario(folder / "f.toml").cluster.background
    assert background is not None
    assert [(point.at_s, point.load, point.flows) for point in background.trace] == [(0, 0.5, 0), (0.002, 0.25, int(same)), (0.004, 0, 0)]


@pytest.mark.parametrize(
    ("content", "names"),
    [
        ("", ("'trace.csv'", "at_s")),
        ("at_s,load\n", ("'trace.csv'", "0 s")),
        ("time,load\n0,0.1\n", ("'trace.csv'", "at_s")),
        ("at_s,load\n0,0.1\n1,many\n", ("'trace.csv'", "'many'")),
        ("at_s,flows\n0\n", ("'trace.csv'", "''")),
        ("at_s,load\n0,0.1,3\n", ("'trace.csv'",)),
        ("at_s,load\n0,0.1\n1,1.5\n", ("cluster.background.trace.1.load: 1.5",)),
        ("at_s,load\n0,nan\n", ("cluster.background.trace.0.load",)),
        ("at_s,flows\n0,1.5\n", ("cluster.background.trace.0.flows: 1.5",)),
        ("at_s,load\n1,0.5\n", ("cluster.background", "0 s", "1 s")),
        ("at_s,load\n0,0.1\n0,0.2\n", ("cluster.background", "0 s")),
        (b"\xff\xfe\x00at_s\n", ("'trace.csv'", "UTF-8")),
        ("at_s,load\n" + "".join(f"{at},0\n" for at in range(100_001)), ("'trace.csv'", "100,000")),
    ],
    ids=lambda value: repr(value[:30]) if isinstance(value, str | bytes) else "",
)
def test_what_is_no_trace_is_one_line(content: str | bytes, names: tuple[str, ...], folder: Path, refusal: Callable[..., None]) -> None:
    (folder / "trace.csv").write_bytes(content if isinstance(content, bytes) else content.encode())
    refusal(("simulate", "s.toml", "--set", SETTING), "paceline: s.toml: cluster.background", *names)


def test_a_load_is_swept(folder: Path, paceline: Callable[..., Answer]) -> None:
    """From none on: the first is the scenario without neighbours."""
    answer = paceline("sweep", "s.toml", "--over", "cluster.background.load=0,0.2,0.5", "--out", "r.ndjson")
    assert answer.code == 0, answer.stderr
    rows = [json.loads(line) for line in (folder / "r.ndjson").read_text().splitlines()]
    results = [row.get("result", row) for row in rows]
    results = [result for result in results if "throughput_samples_per_s" in result]
    assert [result["scenario"]["cluster"].get("background", {}).get("load", 0.0) for result in results] == [0, 0.2, 0.5]
    rates = [result["throughput_samples_per_s"]["mean"] for result in results]
    alone = found(paceline("simulate", "s.toml", "--json"))
    assert rates[0] == alone["throughput_samples_per_s"]["mean"]  # type: ignore[index]
    assert rates[0] > 1.02 * rates[1] > 1.02**2 * rates[2]
