"""A file of another kind than the one that is wanted: one line says what it is, and which command takes it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from support.command_line import SCENARIO, Answer, refused

from paceline.planning.answer import read_plan
from simulator.base.errors import ResultsError
from simulator.base.files import kind_of_table, read_toml

MODELS = Path(__file__).parents[2] / "models"
MEASURED = next((Path(__file__).parents[1] / "calibrate" / "data").glob("*step*.ndjson"))
FILES = {
    "workload.toml": (MODELS / "workloads" / "cnn-cpu.toml").read_text(),
    "cluster.toml": (MODELS / "clusters" / "ethernet-10g.toml").read_text(),
    "device.toml": (MODELS / "devices" / "t4.toml").read_text(),
    "input.toml": (MODELS / "inputs" / "cached-cpu.toml").read_text(),
    "fault.toml": (MODELS / "faults" / "llama-3.toml").read_text(),
    "matrix.toml": (MODELS / "matrices" / "quick.toml").read_text(),
    "setting.toml": 'mode = "ring"\nworkers = 2\n',
    "s.toml": SCENARIO,
    "m.ndjson": MEASURED.read_text(),
    "r.ndjson": json.dumps({"schema_version": 1, "scenario_hash": "0", "scenario": {}}) + "\n",
    "p.plan.json": json.dumps({"schema_version": 1, "goal": {}, "feasible": True, "chosen": {}}),
    "page.html": "<!DOCTYPE html>\n<html></html>\n",
}

IS = {
    "workload.toml": ("is a workload;", "`paceline simulate ring --set workload.use=workload.toml`"),
    "cluster.toml": ("is a cluster;", "`paceline simulate ring --set cluster.use=cluster.toml`"),
    "device.toml": ("is a device;", "`paceline models show device.toml`"),
    "input.toml": ("is an input pipeline;", "--set input.use=input.toml`"),
    "fault.toml": ("is a file of faults;", "--set job.faults.use=fault.toml`"),
    "matrix.toml": ("is a matrix of testbed settings;", "`paceline validate --matrix matrix.toml`"),
    "setting.toml": ("is a setting of the testbed;", "`paceline testbed run setting.toml`"),
    "s.toml": ("is a scenario;", "`paceline simulate s.toml`"),
    "m.ndjson": ("is a file of measurements;", "`paceline calibrate --from-measurements m.ndjson`"),
    "r.ndjson": ("is a results file;", "`paceline report r.ndjson`"),
    "p.plan.json": ("is the answer of a plan;", "`paceline report RESULTS.ndjson --plan p.plan.json`"),
    "page.html": ("is an HTML page;", "open it in a browser"),
}
TAKES = {
    "simulate {}": "s.toml",
    "report {}": "r.ndjson",
    "calibrate --from-measurements {} --name x": "m.ndjson",
    "testbed run {}": "setting.toml",
    "validate --matrix {}": "matrix.toml",
}
CASES = [(command, file) for command, own in TAKES.items() for file in FILES if file != own]


@pytest.mark.parametrize(("command", "file"), CASES)
def test_a_file_of_another_kind_is_named_with_its_command(command: str, file: str, tmp_path: Path, paceline: Callable[..., Answer]) -> None:
    for name, content in FILES.items():
        (tmp_path / name).write_text(content)
    refused(paceline(*command.format(file).split()), file, *IS[file])


@pytest.mark.parametrize("file", [file for file in FILES if file != "p.plan.json"])
def test_what_is_no_answer_of_a_plan(file: str, folder: Path) -> None:
    (folder / file).write_text(FILES[file])
    with pytest.raises(ResultsError) as refusal:
        read_plan(Path(file))
    assert str(refusal.value).startswith(f"{file}: {IS[file][0]}")


@pytest.mark.parametrize("section", ["workload", "cluster", "input", "job.faults"])
def test_a_scenario_is_no_part_of_a_scenario(section: str, tmp_path: Path, paceline: Callable[..., Answer]) -> None:
    (tmp_path / "s.toml").write_text(SCENARIO)
    refused(paceline("simulate", "ring", "--set", f"{section}.use=s.toml"), f"{section}.use", "s.toml is a scenario; simulate it with")


@pytest.mark.parametrize("file", ["s.toml", "setting.toml"])
def test_what_no_scenario_names_is_not_shown_as_if_it_did(file: str, tmp_path: Path, paceline: Callable[..., Answer]) -> None:
    (tmp_path / file).write_text(FILES[file])
    refused(
        paceline("models", "show", file),
        f"{file}: must be a workload, a cluster, a device, an input pipeline or a file of faults, but {IS[file][0]}",
    )


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("workloads", "workload"),
        ("clusters", "cluster"),
        ("devices", "device"),
        ("inputs", "input"),
        ("faults", "fault"),
        ("scenarios", "scenario"),
        ("matrices", "matrix"),
    ],
)
def test_every_file_that_comes_along_is_what_it_is(folder: str, kind: str) -> None:
    assert {file.name: kind_of_table(read_toml(file)) for file in (MODELS / folder).glob("*.toml")} == {
        file.name: kind for file in (MODELS / folder).glob("*.toml")
    }
