"""Bad input to ``paceline calibrate``: one line and the right code, and what was measured is kept."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.command_line import Answer, contents, refused
from support.measurements import Truth, gamma_of, link_records, step_records
from support.needs import needs_tensorflow
from syrupy.assertion import SnapshotAssertion

from calibrate.fit.link import fit_link
from calibrate.fit.step import fit_workload
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
    ("command", "names"),
    [
        ("calibrate none.py:build --name x", ("none.py",)),
        ("calibrate model.py --name x", ("'model.py'",)),
        ("calibrate --name x", ("MODEL.py", "--step")),
        ("calibrate model.py:number", ("'--name'",)),
        ("calibrate model.py:number --name ../x", ("--name '../x'",)),
        ("calibrate model.py:number --name x --batch 16,many", ("--batch '16,many'",)),
        ("calibrate model.py:number --name x --batch 16", ("--batch 16",)),
        ("calibrate model.py:number --name x --batch 0,16", ("--batch 0",)),
        ("calibrate model.py:number --name x --steps 1", ("--steps 1",)),
        ("calibrate model.py:number --name x --precision int8", ("--precision 'int8'", "'float32'", "'mixed_float16'")),
        ("calibrate model.py:number --name x --python none/python", ("--python 'none/python'",)),
        ("calibrate model.py:number --name x --out model.py/x.toml", ("'model.py/x.toml'",)),
        ("calibrate model.py:number --name x --from-measurements a.ndjson", ("MODEL.py", "--from-measurements")),
        ("calibrate --name x --from-measurements a.ndjson --batch 32", ("--batch", "--from-measurements")),
        ("calibrate --name x --from-tf-config env --steps 9", ("--steps", "MODEL.py")),
        ("calibrate --name x --from-measurements a.ndjson", ("a.ndjson",)),
        ("calibrate model.py:number --name x --at-once 0", ("--at-once",)),
        ("calibrate model.py:number --name x --launches 3", ("--launches", "--at-once")),
        ("calibrate --name x --noise-scale digit-mlp", ("--name", "'x'")),
        ("calibrate --name cnn-cpu --noise-scale digit-mlp", ("--noise-scale 'digit-mlp'",)),
        ("calibrate --name cnn-cpu --noise-scale none.py:build", ("--noise-scale", "none.py")),
        ("calibrate --name cnn-cpu --noise-scale digits-mlp --epochs 0", ("--epochs: 0.0",)),
        ("calibrate --name cnn-cpu --noise-scale digits-mlp --runs 2", ("--runs", "MODEL.py", "--step")),
        ("calibrate model.py:number --name x --epochs 5", ("--epochs", "--noise-scale")),
        ("calibrate --name x --from-profile logs@3 --noise-scale digits-mlp", ("--noise-scale", "--from-profile")),
        ("calibrate-link --name x --serve a:1 --peer b:1", ("--serve", "--peer")),
        ("calibrate-link", ("--name",)),
        ("calibrate-link --name x --peer nowhere", ("--peer 'nowhere'",)),
        ("calibrate-link --name x --sizes 1,x", ("--sizes '1,x'", "1024,65536")),
        ("calibrate-link --name x --out model.py", ("--out 'model.py'",)),
        ("calibrate-server", ("'--name'",)),
        ("calibrate-server --name x", ("--cluster", "models/clusters/x.toml", "--name")),
        ("calibrate-server --name x --cluster ethernet-11g", ("--cluster", "'ethernet-11g'")),
        ("calibrate-server --name x --cluster ethernet-10g --peer nowhere", ("--peer 'nowhere'",)),
        ("calibrate-server --name x --cluster ethernet-10g --tensors 4", ("--tensors",)),
        ("calibrate-server --name x --cluster ethernet-10g --tensors 1,x", ("--tensors '1,x'", "1,16,64")),
        ("calibrate-server --name x --cluster ethernet-10g --sizes 256", ("--sizes",)),
        ("calibrate-server --name x --cluster ethernet-10g --sizes 256,1022", ("--sizes",)),
        ("calibrate-server --name x --cluster ethernet-10g --sizes 4,1073741824", ("--tensors", "--sizes: 64")),
        ("calibrate-server --name x --cluster ethernet-10g --out model.py", ("--out 'model.py'",)),
        ("calibrate-server --name x --cluster ethernet-10g --timeout 0", ("--timeout: 0.0",)),
        ("calibrate model.py:number --name x --out model.py", ("--out 'model.py'",)),
        ("calibrate-link --name x --from none.txt", ("none.txt", "there is no such file")),
        ("calibrate-link --name x --from model.py", ("model.py", "nccl-tests", "iperf3")),
        ("calibrate-link --name x --from model.py --peer a:1", ("--peer", "--from")),
        ("calibrate-link --name x --ranks 4", ("--ranks", "--from")),
    ],
)
def test_what_needs_no_tensorflow_to_be_refused(folder: Path, refusal: Callable[..., None], command: str, names: tuple[str, ...]) -> None:
    (folder / "model.py").write_text(MODEL)
    refusal(command, *names)


@needs_tensorflow
@pytest.mark.usefixtures("warm_probes")
@pytest.mark.parametrize(
    ("function", "code", "names"),
    [
        ("nothing", 2, ("model.py", "nothing")),
        ("raises", 1, ("ValueError at ", "model.py:2: ", "no data in sight", "nothing had been measured")),
        ("number", 1, ("not int", "nothing had been measured")),
    ],
)
def test_a_function_that_gives_no_model(folder: Path, paceline: Runner, function: str, code: int, names: tuple[str, ...]) -> None:
    (folder / "model.py").write_text(MODEL)
    before = contents(folder)
    refused(paceline("calibrate", f"model.py:{function}", "--name", "x", "--device", "CPU"), *names, code=code)
    assert contents(folder) == before


def test_nan_in_measurements(tmp_path: Path) -> None:
    rows = step_records(Truth(rounds=3), gamma_of(0.1))
    rows[5]["seconds"] = float("nan")
    file = tmp_path / "measured.ndjson"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(CalibrationError) as refusal:
        fit_workload(file, "x")
    assert str(refusal.value).startswith(f"{file}:6: seconds: nan ")
    assert refusal.value.exit_code == 2


DAMAGES: list[tuple[bytes, tuple[str, ...]]] = [
    (b"", ("m.ndjson: ",)),
    (b'{"kind": "step"}\n', ("m.ndjson:1", "batch")),
    (b"\x00\xff\n", ("m.ndjson:1",)),
    (b'{"kind": "end"}\n', ("m.ndjson:1",)),
]
_SETTING = {"mode": "ring", "workers": 2, "model": "ladder-4mb"}
_DEVICE = {"tensorflow": "2", "python": "3", "device": "", "device_kind": "CPU", "device_name": ""}
HEADERS: list[tuple[dict[str, Any], tuple[str, ...]]] = [
    ({"link": {}}, ("arguments.link", "bits_per_s", "buffer_ms")),
    ({"link": {"bits_per_s": "1", "buffer_ms": 1, "sharing": "fair", "congestion": "cubic"}}, ("arguments.link", "bits_per_s")),
    ({"link": {"bits_per_s": 0, "buffer_ms": 1, "sharing": "fair", "congestion": "cubic"}}, ("link.bandwidth_bytes_per_s: 0.0",)),
    ({"workers": 0}, ("arguments: workers: 0",)),
]


@pytest.mark.parametrize(("content", "names"), DAMAGES, ids=["empty", "incomplete", "binary", "headless"])
@pytest.mark.parametrize("command", ["calibrate --name x --from-measurements m.ndjson", "testbed show m.ndjson"])
def test_a_damaged_file_is_bad_input(
    folder: Path, refusal: Callable[..., None], command: str, content: bytes, names: tuple[str, ...]
) -> None:
    (folder / "m.ndjson").write_bytes(content)
    refusal(command, *names)


@pytest.mark.filterwarnings("default::simulator.base.errors.PacelineWarning")
def test_a_damaged_file_leaves_the_testbed_nothing_to_fit(folder: Path, paceline: Runner) -> None:
    (folder / "m.ndjson").write_bytes(b"broken\n")
    answer = paceline("testbed", "fit", "m.ndjson", "-o", "machine.json")
    assert answer.code == 2
    assert "m.ndjson:1: " in answer.stderr
    assert not (folder / "machine.json").exists()


@pytest.mark.filterwarnings("default::simulator.base.errors.PacelineWarning")
@pytest.mark.parametrize(("arguments", "names"), HEADERS, ids=["no link", "text for a number", "zero", "no workers"])
@pytest.mark.parametrize("command", ["testbed fit m.ndjson -o machine.json", "testbed show m.ndjson"])
def test_a_header_that_is_no_setting_says_what_of_it(
    folder: Path, paceline: Runner, snapshot: SnapshotAssertion, command: str, arguments: dict[str, Any], names: tuple[str, ...]
) -> None:
    header = {"kind": "header", "schema_version": 1, "probe": "testbed", "started": "", "arguments": {**_SETTING, **arguments}}
    (folder / "m.ndjson").write_text(json.dumps(header) + "\n")
    answer = paceline(*command.split())
    assert answer.code == 2
    assert all(name in answer.stderr for name in ("m.ndjson:1: ", *names))
    assert "Traceback" not in answer.stderr
    assert answer.stderr == snapshot


_UPDATE = {"kind": "update", "repeat": 0, "worker": 0, "start_s": 0, "pulled_s": 1, "computed_s": 2, "applied_s": 3, "read_version": 0}
_END = {"kind": "repeat", "repeat": 0, "clock_drift_s": 0}
REPEATS: list[tuple[list[dict[str, Any]], tuple[str, ...]]] = [
    ([_END], ("m.ndjson: repeat 0: ",)),
    ([{**_UPDATE, "version": 1}, _END, _END], ("m.ndjson: repeat 0: ", "2 times")),
    ([{**_UPDATE, "version": 1, "applied_s": 0}, _END], ("m.ndjson: repeat 0: ", "0 s")),
    ([{**_UPDATE, "version": 0}, _END], ("m.ndjson: repeat 0: ", "versions")),
    ([{"kind": "fingerprint", **_DEVICE, "cores": "many"}], ("m.ndjson:2", "'many'")),
    ([{"kind": "note", "pulled_dense": 5}], ("m.ndjson:2", "pulled_dense: 5")),
]


@pytest.mark.parametrize(("records", "names"), REPEATS, ids=["no step", "ends twice", "no time", "no update", "cores are text", "no list"])
def test_a_repeat_that_cannot_have_been_says_which(
    folder: Path, refusal: Callable[..., None], records: list[dict[str, Any]], names: tuple[str, ...]
) -> None:
    header = {"kind": "header", "schema_version": 1, "probe": "testbed", "started": "", "arguments": _SETTING}
    (folder / "m.ndjson").write_text("".join(json.dumps(record) + "\n" for record in [header, *records]))
    refusal("testbed show m.ndjson", *names)


def test_a_machine_that_is_none_says_what_of_it(folder: Path, refusal: Callable[..., None]) -> None:
    (folder / "machine.json").write_text('{"schema_version": 99}')
    refusal("testbed predict machine.json", "machine.json: ")
    (folder / "machine.json").write_text("[]")
    refusal("testbed predict machine.json", "machine.json: ")
    parameters = {name: {"value": value, "low": low, "high": high} for name, (value, low, high) in PRIORS.items()}
    parameters["noise"]["value"] = 1e99
    (folder / "machine.json").write_text(json.dumps({"schema_version": 4, "name": "lab", "cores": 2, "parameters": parameters}))
    refusal("testbed predict machine.json", "machine.json: parameters.noise (1e+99)")


def test_a_file_of_another_kind_is_bad_input(folder: Path, refusal: Callable[..., None]) -> None:
    (folder / "links.ndjson").write_text("".join(json.dumps(row) + "\n" for row in link_records(1e-4, 1e9)))
    refusal("calibrate --name x --from-measurements links.ndjson", "links.ndjson: ", "links", "step")
    with pytest.raises(MeasurementsError, match=r"step.*links"):
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
    assert "m.ndjson" in answer.stderr
    assert "paceline simulate ring --set workload.use=again" in answer.stderr
    assert answer.stderr.rstrip().endswith("paceline init --workload again")
    assert paceline("simulate", "ring", "--set", "workload.use=again", "--set", "run.steps=5").code == 0
    elsewhere = paceline("calibrate", "--name", "other", "--from-measurements", "m.ndjson", "--out", "my file.toml")
    assert "--set workload.use='my file.toml'" in elsewhere.stderr


def test_one_run_does_not_count_twice(folder: Path, refusal: Callable[..., None]) -> None:
    """As two it would make intervals narrower."""
    step_file(folder, Truth(), name="one.ndjson")
    (folder / "copy.ndjson").write_bytes((folder / "one.ndjson").read_bytes())
    for other in ("copy.ndjson", "one.ndjson"):
        refusal(f"calibrate --name x --from-measurements one.ndjson --from-measurements {other}", f"{other}: ", "one.ndjson")


def _cut_short(lines: list[str]) -> list[str]:
    return [line for line in lines if json.loads(line)["kind"] in ("header", "fingerprint", "step", "split")]


STORED_FAULTS: list[tuple[Callable[[list[str]], list[str]], tuple[str, ...]]] = [
    (_cut_short, ("m.ndjson",)),
    (lambda lines: lines[:60], ("m.ndjson: batch 16 ",)),
    (lambda lines: lines[:1], ("m.ndjson",)),
    (lambda lines: lines[:1] + lines[2:], ("m.ndjson",)),
    (lambda lines: lines * 2, ("m.ndjson: ", "2 headers")),
    (lambda lines: [line for line in lines if json.loads(line).get("batch", 16) == 16], ("m.ndjson", "--batch 16,32,64")),
    (
        lambda lines: [line.replace('"created": 1', '"created": 0').replace('"index": 1, "name"', '"index": 0, "name"') for line in lines],
        ("m.ndjson", "creation_index"),
    ),
]


@pytest.mark.parametrize(
    ("damage", "names"),
    STORED_FAULTS,
    ids=["no variables", "no split", "no steps", "no fingerprint", "two headers", "one batch size", "an index twice"],
)
def test_a_stored_file_that_cannot_be_fitted_is_bad_input(
    folder: Path, refusal: Callable[..., None], damage: Callable[[list[str]], list[str]], names: tuple[str, ...]
) -> None:
    file = step_file(folder, Truth())
    file.write_text("".join(damage(file.read_text().splitlines(keepends=True))))
    refusal("calibrate --name x --from-measurements m.ndjson", *names)


def test_what_was_measured_just_now_and_is_too_little_is_no_bad_input(tmp_path: Path) -> None:
    with pytest.raises(CalibrationError) as refusal:
        fit_workload(step_file(tmp_path, Truth(batches=(16,))), "x")
    assert refusal.value.exit_code == 1


def test_a_disturbed_run_is_refused_and_nothing_written(folder: Path, paceline: Runner) -> None:
    step_file(folder, Truth(), name="one.ndjson")
    step_file(folder, Truth(), 1.75, name="two.ndjson")
    files = ("--from-measurements", "one.ndjson", "--from-measurements", "two.ndjson")
    before = contents(folder)
    answer = paceline("calibrate", "--name", "x", *files)
    reason, command = answer.stderr.splitlines()
    refused(replace(answer, stderr=f"{reason}\n"), "two.ndjson", "1.75 times", code=1)
    assert command == f"  paceline calibrate --name x {' '.join(files)} --accept-disturbed"
    assert contents(folder) == before
    accepted = paceline("calibrate", "--name", "x", *files, "--accept-disturbed")
    assert accepted.code == 0, accepted
    assert "WARNING: " in accepted.stderr
    assert "two.ndjson took 1.75 times" in (folder / "models" / "workloads" / "x.toml").read_text()
