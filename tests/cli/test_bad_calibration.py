"""Bad input to ``paceline calibrate``: one line and the right code, and what was measured is kept."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.command_line import Answer, contents, refused
from support.measurements import Truth, gamma_of, link_records, step_records
from support.needs import needs_tensorflow

from calibrate import fit_link, fit_workload
from calibrate.measurements import MeasurementsError
from calibrate.testbed.platform import PRIORS
from simulator.base.errors import CalibrationError

Runner = Callable[..., Answer]
MODEL = """\
def raises():
    raise ValueError("no data\\nin sight")

def number():
    return 3
"""


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("calibrate none.py:build --name x", ("none.py: there is no such file",)),
        ("calibrate model.py --name x", ("'model.py' must be a file and a function in it, such as",)),
        ("calibrate model.py:2x --name x", ("'model.py:2x' must be a file and a function",)),
        ("calibrate --name x", ("either MODEL.py:FUNCTION or --step",)),
        ("calibrate model.py:number", ("Missing option '--name'",)),
        ("calibrate model.py:number --name ../x", ("--name '../x' must be letters",)),
        ("calibrate model.py:number --name x --batch 16,many", ("--batch '16,many': must be whole numbers",)),
        ("calibrate model.py:number --name x --batch 16", ("--batch 16: must name at least two",)),
        ("calibrate model.py:number --name x --batch 0,16", ("--batch 0: must be at least 1",)),
        ("calibrate model.py:number --name x --steps 1", ("--steps 1: must be at least 5",)),
        ("calibrate model.py:number --name x --precision int8", ("--precision 'int8' must be 'float32' or 'mixed_float16'",)),
        ("calibrate model.py:number --name x --python none/python", ("--python 'none/python' cannot be run",)),
        ("calibrate model.py:number --name x --out model.py/x.toml", ("'model.py/x.toml': cannot be written", "model.py is a file")),
        ("calibrate model.py:number --name x --from-measurements a.ndjson", ("MODEL.py:FUNCTION: says nothing with --from-measurements",)),
        ("calibrate --name x --from-measurements a.ndjson --batch 32", ("--batch: says nothing with --from-measurements",)),
        ("calibrate --name x --from-tf-config env --steps 9", ("--steps: goes with MODEL.py:FUNCTION or --step",)),
        ("calibrate --name x --from-measurements a.ndjson --at-once 2", ("--at-once: says nothing with --from-measurements",)),
        ("calibrate --name x --from-measurements a.ndjson", ("a.ndjson: cannot be read: No such file",)),
        ("calibrate model.py:number --name x --at-once 0", ("--at-once",)),
        ("calibrate model.py:number --name x --launches 3", ("--launches: goes with --at-once",)),
        ("calibrate --name x --noise-scale digit-mlp", ("--name: there is no workload named 'x'",)),
        ("calibrate --name cnn-cpu --noise-scale digit-mlp", ("--noise-scale 'digit-mlp' is none; did you mean digits-mlp?",)),
        ("calibrate --name cnn-cpu --noise-scale none.py:build", ("--noise-scale: none.py: there is no such file",)),
        ("calibrate --name cnn-cpu --noise-scale digits-mlp --epochs 0", ("--epochs: 0.0 must be a number above 0",)),
        ("calibrate --name cnn-cpu --noise-scale digits-mlp --runs 2", ("--runs: goes with MODEL.py:FUNCTION or --step",)),
        ("calibrate model.py:number --name x --epochs 5", ("--epochs: goes with --noise-scale",)),
        ("calibrate --name x --from-profile logs@3 --noise-scale digits-mlp", ("--noise-scale: says nothing with --from-profile",)),
        ("calibrate-link --name x --serve a:1 --peer b:1", ("--serve and --peer are two halves",)),
        ("calibrate-link", ("--name is missing",)),
        ("calibrate-link --name x --peer nowhere", ("--peer 'nowhere': must be HOST:PORT",)),
        ("calibrate-link --name x --sizes 1,x", ("--sizes '1,x': must be whole numbers", "such as 1024,65536")),
        ("calibrate-link --name x --out model.py", ("--out 'model.py': is there already and is no cluster file",)),
        ("calibrate-server", ("Missing option '--name'",)),
        ("calibrate-server --name x", ("--cluster: there is no models/clusters/x.toml", "calibrate-link --name x", '"ethernet-10g"')),
        ("calibrate-server --name ../x --cluster ethernet-10g", ("--name '../x' must be letters",)),
        ("calibrate-server --name x --cluster ethernet-11g", ("--cluster: there is no cluster named 'ethernet-11g'; did you mean",)),
        ("calibrate-server --name x --cluster none.toml", ("--cluster: no file 'none.toml'",)),
        ("calibrate-server --name x --cluster ethernet-10g --peer nowhere", ("--peer 'nowhere': must be HOST:PORT",)),
        ("calibrate-server --name x --cluster ethernet-10g --tensors 4", ("--tensors must name at least two different numbers",)),
        ("calibrate-server --name x --cluster ethernet-10g --tensors 1,x", ("--tensors '1,x': must be whole numbers", "such as 1,16,64")),
        ("calibrate-server --name x --cluster ethernet-10g --sizes 256", ("--sizes must name at least two different sizes",)),
        ("calibrate-server --name x --cluster ethernet-10g --sizes 256,1022", ("--sizes", "each a multiple of 4")),
        ("calibrate-server --name x --cluster ethernet-10g --sizes 4,1073741824", ("--tensors, --sizes: 64 variables",)),
        ("calibrate-server --name x --cluster ethernet-10g --out model.py", ("--out 'model.py': is there already and is no cluster file",)),
        ("calibrate-server --name x --cluster ethernet-10g --timeout 0", ("--timeout: 0.0 must be a number of seconds above 0",)),
        ("calibrate-server --name x --cluster ethernet-10g --python none/python", ("--python 'none/python' cannot be run",)),
        ("calibrate model.py:number --name x --out model.py", ("--out 'model.py': is there already and is no workload file",)),
    ],
)
def test_what_needs_no_tensorflow_to_be_refused(folder: Path, paceline: Runner, command: str, says: tuple[str, ...]) -> None:
    (folder / "model.py").write_text(MODEL)
    before = contents(folder)
    refused(paceline(*command.split()), *says)
    assert contents(folder) == before


@needs_tensorflow
@pytest.mark.usefixtures("warm_probes")
@pytest.mark.parametrize(
    ("function", "code", "says"),
    [
        ("nothing", 2, ("model.py", "nothing")),
        ("raises", 1, ("ValueError at ", "model.py:2: ", "no data in sight", "nothing had been measured")),
        ("number", 1, ("must return a Keras model or (model, loss, input_spec), not int", "nothing had been measured")),
    ],
)
def test_a_function_that_gives_no_model(folder: Path, paceline: Runner, function: str, code: int, says: tuple[str, ...]) -> None:
    (folder / "model.py").write_text(MODEL)
    before = contents(folder)
    refused(paceline("calibrate", f"model.py:{function}", "--name", "x", "--device", "CPU"), *says, code=code)
    assert contents(folder) == before


def test_nan_in_measurements(tmp_path: Path) -> None:
    rows = step_records(Truth(rounds=3), gamma_of(0.1))
    rows[5]["seconds"] = float("nan")
    file = tmp_path / "measured.ndjson"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(CalibrationError) as refusal:
        fit_workload(file, "x")
    assert str(refusal.value) == f"{file}:6: seconds: nan must be a finite number; delete the line, or measure again"
    assert refusal.value.exit_code == 2


DAMAGES: list[tuple[bytes, str]] = [
    (b"", "holds no measurements"),
    (b'{"kind": "step"}\n', "m.ndjson:1: batch is missing"),
    (b"\x00\xff\n", "m.ndjson:1: is no JSON"),
    (b'{"kind": "end"}\n', "m.ndjson:1: must be a header"),
]
_SETTING = {"mode": "ring", "workers": 2, "model": "ladder-4mb"}
_DEVICE = {"tensorflow": "2", "python": "3", "device": "", "device_kind": "CPU", "device_name": ""}
HEADERS: list[tuple[dict[str, Any], str]] = [
    ({"link": {}}, "arguments.link: must have bits_per_s and buffer_ms, which are numbers, sharing and congestion"),
    ({"link": {"bits_per_s": "1", "buffer_ms": 1, "sharing": "fair", "congestion": "cubic"}}, "arguments.link: must have bits_per_s and"),
    (
        {"link": {"bits_per_s": 0, "buffer_ms": 1, "sharing": "fair", "congestion": "cubic"}},
        "arguments: link.bandwidth_bytes_per_s: 0.0 must be",
    ),
    ({"workers": 0}, "arguments: workers: 0 must be at least 1"),
]


@pytest.mark.parametrize(("content", "says"), DAMAGES)
@pytest.mark.parametrize("command", ["calibrate --name x --from-measurements m.ndjson", "testbed show m.ndjson"])
def test_a_damaged_file_is_bad_input(folder: Path, paceline: Runner, command: str, content: bytes, says: str) -> None:
    (folder / "m.ndjson").write_bytes(content)
    before = contents(folder)
    refused(paceline(*command.split()), says, code=2)
    assert contents(folder) == before


@pytest.mark.filterwarnings("default::simulator.base.errors.PacelineWarning")
def test_a_damaged_file_leaves_the_testbed_nothing_to_fit(folder: Path, paceline: Runner) -> None:
    (folder / "m.ndjson").write_bytes(b"broken\n")
    answer = paceline("testbed", "fit", "m.ndjson", "-o", "machine.json")
    assert answer.code == 2
    assert "m.ndjson:1: is no JSON" in answer.stderr
    assert not (folder / "machine.json").exists()


@pytest.mark.filterwarnings("default::simulator.base.errors.PacelineWarning")
@pytest.mark.parametrize(("arguments", "says"), HEADERS)
@pytest.mark.parametrize("command", ["testbed fit m.ndjson -o machine.json", "testbed show m.ndjson"])
def test_a_header_that_is_no_setting_says_what_of_it(
    folder: Path, paceline: Runner, command: str, arguments: dict[str, Any], says: str
) -> None:
    header = {"kind": "header", "schema_version": 1, "probe": "testbed", "started": "", "arguments": {**_SETTING, **arguments}}
    (folder / "m.ndjson").write_text(json.dumps(header) + "\n")
    answer = paceline(*command.split())
    assert answer.code == 2
    assert f"m.ndjson:1: {says}" in answer.stderr
    assert answer.stderr.endswith("was it written by another version?\n") or "fit" in command
    assert "Traceback" not in answer.stderr


_UPDATE = {"kind": "update", "repeat": 0, "worker": 0, "start_s": 0, "pulled_s": 1, "computed_s": 2, "applied_s": 3, "read_version": 0}
_END = {"kind": "repeat", "repeat": 0, "clock_drift_s": 0}
REPEATS: list[tuple[list[dict[str, Any]], str]] = [
    ([_END], "m.ndjson: repeat 0: holds no step; delete its lines, or measure again"),
    ([{**_UPDATE, "version": 1}, _END, _END], "m.ndjson: repeat 0: ends 2 times; keep one of its records"),
    ([{**_UPDATE, "version": 1, "applied_s": 0}, _END], "m.ndjson: repeat 0: its last step ends 0 s after it began, which must be above 0"),
    ([{**_UPDATE, "version": 0}, _END], "m.ndjson: repeat 0: its steps have not updated the model, by their versions; measure again"),
    ([{"kind": "fingerprint", **_DEVICE, "cores": "many"}], "m.ndjson:2: cores: 'many' must be a whole number; delete the line"),
    ([{"kind": "note", "pulled_dense": 5}], "m.ndjson:2: pulled_dense: 5 must be a list; delete the line"),
]


@pytest.mark.parametrize(("records", "says"), REPEATS)
def test_a_repeat_that_cannot_have_been_says_which(folder: Path, paceline: Runner, records: list[dict[str, Any]], says: str) -> None:
    header = {"kind": "header", "schema_version": 1, "probe": "testbed", "started": "", "arguments": _SETTING}
    (folder / "m.ndjson").write_text("".join(json.dumps(one) + "\n" for one in [header, *records]))
    refused(paceline("testbed", "show", "m.ndjson"), says)


def test_a_machine_that_is_none_says_what_of_it(folder: Path, paceline: Runner) -> None:
    (folder / "machine.json").write_text('{"schema_version": 99}')
    refused(paceline("testbed", "predict", "machine.json"), "machine.json: was written by another version of Paceline")
    (folder / "machine.json").write_text("[]")
    refused(paceline("testbed", "predict", "machine.json"), "machine.json: must be ")
    parameters = {name: {"value": value, "low": low, "high": high} for name, (value, low, high) in PRIORS.items()}
    parameters["noise"]["value"] = 1e99
    (folder / "machine.json").write_text(json.dumps({"schema_version": 3, "name": "lab", "cores": 2, "parameters": parameters}))
    refused(paceline("testbed", "predict", "machine.json"), "machine.json: parameters.noise (1e+99) must be at least 0 and at most 5;")


def test_a_file_of_another_kind_is_bad_input(folder: Path, paceline: Runner) -> None:
    (folder / "links.ndjson").write_text("".join(json.dumps(row) + "\n" for row in link_records(1e-4, 1e9)))
    refused(paceline("calibrate", "--name", "x", "--from-measurements", "links.ndjson"), "of links, not of a training step", code=2)
    with pytest.raises(MeasurementsError, match="of a training step, not of links"):
        fit_link(step_file(folder, Truth()), "x")


def step_file(folder: Path, truth: Truth, factor: float = 1.0, name: str = "m.ndjson") -> Path:
    rows = step_records(truth, gamma_of(0.05))
    rows = [{**row, "seconds": factor * row["seconds"]} if row["kind"] == "step" else row for row in rows]
    (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder / name


def test_measurements_are_fitted_again(folder: Path, paceline: Runner) -> None:
    step_file(folder, Truth())
    answer = paceline("calibrate", "--name", "again", "--from-measurements", "m.ndjson")
    assert answer.code == 0, answer
    assert (folder / "models" / "workloads" / "again.toml").is_file()
    assert "raw measurements in m.ndjson" in answer.stderr
    assert "next: paceline simulate ring --set workload.use=again, or make a scenario of your own with it: " in answer.stderr
    assert answer.stderr.rstrip().endswith("paceline init --workload again")
    assert paceline("simulate", "ring", "--set", "workload.use=again", "--set", "run.steps=5").code == 0
    elsewhere = paceline("calibrate", "--name", "other", "--from-measurements", "m.ndjson", "--out", "my file.toml")
    assert "--set workload.use='my file.toml'" in elsewhere.stderr


def test_one_run_does_not_count_twice(folder: Path, paceline: Runner) -> None:
    """As two it would make intervals narrower."""
    step_file(folder, Truth(), name="one.ndjson")
    (folder / "copy.ndjson").write_bytes((folder / "one.ndjson").read_bytes())
    before = contents(folder)
    for other, says in (("copy.ndjson", "copy.ndjson: the same measurements as one.ndjson, "), ("one.ndjson", "one.ndjson: given twice, ")):
        files = ("--from-measurements", "one.ndjson", "--from-measurements", other)
        refused(paceline("calibrate", "--name", "x", *files), f"{says}which would count one run as two", code=2)
    assert contents(folder) == before


def _cut_short(lines: list[str]) -> list[str]:
    return [line for line in lines if json.loads(line)["kind"] in ("header", "fingerprint", "step", "split")]


STORED_FAULTS: list[tuple[Callable[[list[str]], list[str]], tuple[str, ...]]] = [
    (_cut_short, ("m.ndjson: holds no variables: the file was cut short",)),
    (lambda lines: lines[:60], ("m.ndjson: batch 16 has no step split", "the file was cut short")),
    (lambda lines: lines[:1], ("m.ndjson: holds no timed steps: the file was cut short",)),
    (lambda lines: lines[:1] + lines[2:], ("m.ndjson: has no fingerprint of the device: the file was cut short",)),
    (lambda lines: lines * 2, ("m.ndjson: has 2 headers: it is several files in one",)),
    (
        lambda lines: [line for line in lines if json.loads(line).get("batch", 16) == 16],
        ("m.ndjson: holds steps of 1 batch size(s); a fit needs at least 2", "measure again with several, such as --batch 16,32,64"),
    ),
    (
        lambda lines: [line.replace('"created": 1', '"created": 0').replace('"index": 1, "name"', '"index": 0, "name"') for line in lines],
        ("m.ndjson: gives no valid workload (variables must carry each creation_index",),
    ),
]


@pytest.mark.parametrize(("damage", "says"), STORED_FAULTS)
def test_a_stored_file_that_cannot_be_fitted_is_bad_input(
    folder: Path, paceline: Runner, damage: Callable[[list[str]], list[str]], says: tuple[str, ...]
) -> None:
    file = step_file(folder, Truth())
    file.write_text("".join(damage(file.read_text().splitlines(keepends=True))))
    before = contents(folder)
    refused(paceline("calibrate", "--name", "x", "--from-measurements", "m.ndjson"), *says, code=2)
    assert contents(folder) == before


def test_what_was_measured_just_now_and_is_too_little_is_no_bad_input(tmp_path: Path) -> None:
    with pytest.raises(CalibrationError) as refusal:
        fit_workload(step_file(tmp_path, Truth(batches=(16,))), "x")
    assert refusal.value.exit_code == 1


def test_a_disturbed_run_is_refused_and_nothing_written(folder: Path, paceline: Runner) -> None:
    step_file(folder, Truth(), name="one.ndjson")
    step_file(folder, Truth(), 1.75, name="two.ndjson")
    files = ("--from-measurements", "one.ndjson", "--from-measurements", "two.ndjson")
    before = contents(folder)
    refused(paceline("calibrate", "--name", "x", *files), "steps of two.ndjson took 1.75 times as long", "--accept-disturbed", code=1)
    assert contents(folder) == before
    accepted = paceline("calibrate", "--name", "x", *files, "--accept-disturbed")
    assert accepted.code == 0, accepted
    assert "WARNING: the runs are at different levels" in " ".join(accepted.stderr.split())
    assert "two.ndjson took 1.75 times" in (folder / "models" / "workloads" / "x.toml").read_text()
