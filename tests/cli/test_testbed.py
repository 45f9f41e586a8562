"""``paceline testbed``: options, files read again, runs that are stopped or fail, and one real cluster."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.command_line import Answer, refused
from support.needs import needs_tensorflow
from support.programs import program
from support.signals import hearing
from support.waiting import PATIENCE_S, until
from syrupy.assertion import SnapshotAssertion

from calibrate.testbed.readings import Readings, read_run
from calibrate.testbed.setting import TestbedSetting
from simulator.base.errors import CalibrationError

Runner = Callable[..., Answer]
FINGERPRINT = {
    "kind": "fingerprint",
    "tensorflow": "2.21.0",
    "python": "3.11.7",
    "device": "/CPU:0",
    "device_kind": "CPU",
    "device_name": "Test CPU",
    "cores": 2,
}
SETTING: dict[str, Any] = {
    "mode": "async",
    "workers": 2,
    "servers": 1,
    "batch": 10,
    "steps": 2,
    "link": {"bandwidth_bytes_per_s": 50e6},
    "compute": {"mean_s": 0.1},
}


def header(repeats: int, **changes: Any) -> dict[str, Any]:
    arguments = TestbedSetting.model_validate(SETTING | changes).for_probe(repeats, 0, 60.0)
    return {"kind": "header", "schema_version": 1, "probe": "testbed", "started": "2026-01-01T00:00:00+0000", "arguments": arguments}


def step(repeat: int, worker: int, times: tuple[float, float, float, float], read: int, version: int) -> dict[str, Any]:
    start_s, pulled_s, computed_s, applied_s = times
    return {
        "kind": "update",
        "repeat": repeat,
        "worker": worker,
        "start_s": start_s,
        "pulled_s": pulled_s,
        "computed_s": computed_s,
        "applied_s": applied_s,
        "read_version": read,
        "version": version,
    }


def repeat_records(repeat: int, slower: float = 1.0) -> list[dict[str, Any]]:
    """Two workers, two steps each, in ``slower`` seconds; pull 0.1, compute 0.2, push 0.1, gap 0.2 of it."""
    steps = []
    for worker, reads in ((0, ((3, 4), (4, 6))), (1, ((3, 5), (5, 7)))):
        for start, (read, version) in zip((0.0, 0.6), reads, strict=True):
            times = tuple(slower * (start + part) for part in (0.0, 0.1, 0.3, 0.4))
            steps.append(step(repeat, worker, times, read, version))  # type: ignore[arg-type]
    used = [
        {"kind": "used", "repeat": repeat, "task": task, "sent_bytes": sent, "received_bytes": 0.0, "user_s": cpu, "system_s": cpu}
        for task, sent, cpu in (("ps 0", 4096.0, 0.2), ("worker 0", 1024.0, 0.1), ("worker 1", 1024.0, 0.3), ("chief 0", 10.0, 0.4))
    ]
    link = {"kind": "link", "repeat": repeat, "asked_bytes_per_s": 50e6, "bytes_per_s": 48e6}
    return [link, *steps, *used, {"kind": "repeat", "repeat": repeat, "clock_drift_s": 0.0}]


def lines_of(records: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


TWO = [header(2), FINGERPRINT, *repeat_records(0), *repeat_records(1, slower=2.0), {"kind": "end"}]


BAD = [
    ("--set 'compute.law.kind=weird'", ("compute.law", "'constant'")),
    ("--set compute.law.kind=gamma", ("compute.law.shape",)),
    ("--set 'compute.law={kind=\"gamma\", shape=-1}'", ("compute.law.shape: -1",)),
    ("--set compute.law.kind=constant --set compute.law.shape=2", ("compute.law.shape", '"constant"')),
    ("--set compute.mean=100", ("compute.mean: 100",)),
    ("--set 'compute.mean=0 ms'", ("compute.mean: '0 ms'",)),
    ("--set compute=real", ("'real'",)),
    ("--set 'link=400 Mbit/s'", ("'400 Mbit/s'", '"loopback"')),
    ("--set 'link.bandwidth=400 mbit/s'", ("link.bandwidth: '400 mbit/s'", '"400 Mbit/s"')),
    ("small.toml", ("small.toml", "link.bandwidth: '1 gbit/s'", '"1 Gbit/s"')),
    ("--set 'link.bandwidth=0 bit/s'", ("link.bandwidth: '0 bit/s'",)),
    ("--set link=loopback --set link.sharing=tcp", ("link.sharing", "'loopback'")),
    ("--set link.sharing=tpc", ("link.sharing: 'tpc'", "'fair'", "'tcp'")),
    ("--set link.buffer=20", ("link.buffer: 20",)),
    ("--set mode=rings", ("'rings'", "'async'", "'ring'")),
    ("--set mode=ring --set servers=1", ('"ring"',)),
    ("--set servers=0", ("setting: ", "0")),
    ("--set mode=mirrored --set 'link.bandwidth=1 Gbit/s'", ('"mirrored"',)),
    ("--set workers=0", ("setting: workers: 0",)),
    ("--set worker=3", ("setting: worker: ", "workers?")),
    ("--set workers", ("--set 'workers'",)),
    ("--set steps=1", ("setting: steps: 1",)),
    ("--set backup_workers=1", ("backup_workers (1)", '"sync"')),
    ("--set start_spread=5", ("start_spread: 5",)),
    ("--set 'start_spread=1 s' --set mode=sync", ("start_spread",)),
    ("--set model=nope", ("'nope'",)),
    ("--set model=ladder-2mb", ("'ladder-2mb'",)),
    ("--set model=model.py", ("FILE.py", "'model.py'")),
    ("--set model=cnn-cpu --set compute.kind=real", ("compute.kind",)),
    ("--set model=5", ("setting: model: ",)),
    ("--timeout 0", ("--timeout: 0.0",)),
    ("--timeout nan", ("--timeout",)),
    ("--repeats 0", ("--repeats",)),
    ("none.toml", ("none.toml",)),
    ("link.toml", ("link.toml", "link.bandwidth: '5'")),
    ("number.toml", ("number.toml: model: ",)),
    ("law.toml", ("law.toml", "compute.law.kind: 'normal'")),
    ("law.toml --set workers=0", ("law.toml: workers: 0",)),
    ("--set link=loopback --measurements link.toml", ("'link.toml'",)),
    ("--set link=loopback --python none/python", ("--python", "'none/python'")),
]
FILES = {
    "link.toml": '[link]\nbandwidth = "5"\n',
    "small.toml": '[link]\nbandwidth = "1 gbit/s"\n',
    "number.toml": "model = 5\n",
    "law.toml": 'compute = {mean = "1 ms", law = {kind = "normal", cv = 0.1}}\n',
}


@pytest.mark.parametrize(("options", "names"), BAD)
def test_bad_input_is_one_line_with_its_key(folder: Path, refusal: Callable[..., None], options: str, names: tuple[str, ...]) -> None:
    for name, text in FILES.items():
        (folder / name).write_text('mode = "async"\nworkers = 2\nservers = 1\n' + text)
    refusal(f"testbed run {options}", *names)


# --- links that cannot be had -----------------------------------------------------------


@pytest.fixture
def measured(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[TestbedSetting]:
    """Settings that would have been measured; each run gives the file of two repeats."""
    import calibrate.testbed.running as module

    asked: list[TestbedSetting] = []
    file = folder / "two.ndjson"
    file.write_text(lines_of(TWO))

    def pretend(setting: TestbedSetting, *_: object, **__: object) -> Readings:
        asked.append(setting)
        return read_run(file)

    monkeypatch.setattr(module, "measure_setting", pretend)
    return asked


@pytest.mark.filterwarnings("default::simulator.base.errors.PacelineWarning")
def test_without_iproute2_the_default_is_loopback_and_a_link_asked_for_is_refused(
    folder: Path, paceline: Runner, measured: list[TestbedSetting], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(folder))
    answer = paceline("testbed", "run")
    assert answer.code == 0
    assert answer.stderr.startswith("paceline: ")
    assert "iproute2" in answer.stderr
    assert [setting.link for setting in measured] == [None]
    refused(paceline("testbed", "run", "--set", "link.bandwidth=400 Mbit/s"), "setting: link: ", "iproute2")
    refused(paceline("testbed", "run", "--set", "link.sharing=tcp"), 'link = "loopback"')
    (folder / "s.toml").write_text('mode = "async"\nworkers = 2\nservers = 1\nlink = {bandwidth = "1 Gbit/s"}\n')
    refused(paceline("testbed", "run", "s.toml"), "s.toml: link: ")
    assert len(measured) == 1


@pytest.mark.filterwarnings("default::simulator.base.errors.PacelineWarning")
@pytest.mark.parametrize("failures", [1, 2])
def test_a_run_that_fails_is_made_once_more(paceline: Runner, folder: Path, monkeypatch: pytest.MonkeyPatch, failures: int) -> None:
    file, tries = folder / "two.ndjson", []
    file.write_text(lines_of(TWO))

    def run(*_: object, **__: object) -> Readings:
        tries.append(1)
        if len(tries) <= failures:
            raise CalibrationError("worker 1 ended with code 1: RecvFromRemoteAsync is cancelled")
        return read_run(file)

    monkeypatch.setattr("calibrate.testbed.running.measure_setting", run)
    answer = paceline("testbed", "run", "--set", "link=loopback")
    assert (answer.code, len(tries)) == (failures - 1, 2)
    assert answer.stderr.count("worker 1 ended with code 1") == failures


def test_a_congestion_control_that_the_machine_lacks(
    paceline: Runner, measured: list[TestbedSetting], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("calibrate.testbed.running.obstacle_to_shaped_links", lambda _: None)
    refused(paceline("testbed", "run", "--set", "link.congestion=dodo"), "link.congestion: 'dodo'")
    assert not measured


# --- what is shown ----------------------------------------------------------------------


def test_show_as_json_gives_what_the_file_says(folder: Path, paceline: Runner) -> None:
    (folder / "m.ndjson").write_text(lines_of(TWO))
    answer = paceline("testbed", "show", "m.ndjson", "--json")
    assert (answer.code, answer.stderr) == (0, "")
    (facts,) = json.loads(answer.stdout)
    assert [(one["updates"], one["seconds"], one["updates_per_s"], one["samples_per_s"]) for one in facts["repeats"]] == [
        (4, pytest.approx(1.0), pytest.approx(4.0), pytest.approx(40.0)),
        (4, pytest.approx(2.0), pytest.approx(2.0), pytest.approx(20.0)),
    ]
    # Student's t with one degree of freedom: 3 +- 6.314 x sqrt(2) x sqrt(1.5), cut at 0
    assert facts["updates_per_s"] == {"mean": pytest.approx(3.0), "low": 0.0, "high": pytest.approx(3.0 + 6.314 * 3**0.5)}
    assert facts["staleness"] == {"0": 2, "1": 6}
    assert [one["mean_staleness"] for one in facts["repeats"]] == [0.75, 0.75]
    parts = {part["name"]: part["mean_s"] for part in facts["parts"]}
    # the second repeat took twice as long; each worker has one gap a repeat
    assert parts == {name: pytest.approx(1.5 * value) for name, value in (("pull", 0.1), ("compute", 0.2), ("push", 0.1), ("gap", 0.2))}
    assert {job["job"]: (job["tasks"], job["sent_bytes"]) for job in facts["jobs"]} == {
        "worker": (2, 2048),
        "ps": (1, 4096),
        "chief": (1, 10),
    }
    assert {job["job"]: job["cpu_s_per_step"] for job in facts["jobs"]} == {
        "worker": pytest.approx(0.2),
        "ps": pytest.approx(0.1),
        "chief": pytest.approx(0.2),
    }
    assert [one["link_bytes_per_s"] for one in facts["repeats"]] == [48e6, 48e6]
    assert (facts["complete"], facts["failure"]) == (True, None)


def test_show_for_people(folder: Path, paceline: Runner, snapshot: SnapshotAssertion) -> None:
    (folder / "m.ndjson").write_text(lines_of(TWO))
    answer = paceline("testbed", "show", "m.ndjson", "m.ndjson")
    assert (answer.code, answer.stderr) == (0, "")
    rows = [" ".join(line.split()) for line in answer.stdout.splitlines()]
    for row in (
        "1 4 1.00 s 4 40 0.75",
        "2 4 2.00 s 2 20 0.75",
        "updates/s 3 0 13.9",
        "0 2 25% " + "█" * 10,
        "1 6 75% " + "█" * 30,
    ):
        assert row in rows, row
    assert max(map(len, answer.stdout.splitlines())) <= 80
    assert answer.stdout == snapshot


def test_where_workers_step_together_there_is_no_staleness_and_a_step_is_everybodys(folder: Path, paceline: Runner) -> None:
    steps = [step(0, worker, (0.0, 0.0, 0.1, 0.5), number, number + 1) for worker in (0, 1) for number in (0, 1)]
    used = {"kind": "used", "repeat": 0, "task": "worker 0", "sent_bytes": 1024, "received_bytes": 0, "user_s": 0.1, "system_s": 0}
    records = [
        header(1, mode="ring", servers=0, link=None),
        FINGERPRINT,
        *steps,
        used,
        {"kind": "repeat", "repeat": 0, "clock_drift_s": 0.0},
        {"kind": "end"},
    ]
    (folder / "ring.ndjson").write_text(lines_of(records))
    (facts,) = json.loads(paceline("testbed", "show", "ring.ndjson", "--json").stdout)
    (repeat,) = facts["repeats"]
    assert (repeat["updates_per_s"], repeat["samples_per_s"], repeat["mean_staleness"]) == (4.0, 80.0, None)
    assert (facts["updates_per_s"], facts["staleness"], facts["loopback_bytes"]) == (None, {}, 1024)
    told = paceline("testbed", "show", "ring.ndjson").stdout
    assert "all-reduce" in told
    assert "pull" not in told
    assert "staleness" not in told


def test_a_file_cut_in_half_shows_its_whole_repeats(folder: Path, paceline: Runner) -> None:
    whole = lines_of([header(2), FINGERPRINT, *repeat_records(0)])
    (folder / "cut.ndjson").write_text(whole + lines_of(repeat_records(1))[:300])
    answer = paceline("testbed", "show", "cut.ndjson")
    assert answer.code == 0
    assert "stopped early" in " ".join(answer.stdout.split())
    (folder / "failed.ndjson").write_text(whole + lines_of([{"kind": "error", "type": "RunFailedError", "message": "worker 1 died"}]))
    assert "worker 1 died" in paceline("testbed", "show", "failed.ndjson").stdout


@pytest.mark.parametrize(
    ("content", "names"),
    [
        (None, ("m.ndjson: ",)),
        ("", ("m.ndjson: ",)),
        (lines_of([header(1), FINGERPRINT]), ("m.ndjson: ",)),
        (lines_of([{**header(1), "probe": "step"}, FINGERPRINT]), ("m.ndjson: ",)),
        (lines_of(TWO).replace('"ps 0"', "5"), ("m.ndjson:8: task: 5",)),
    ],
    ids=["missing", "empty", "no repeat", "of a step", "no name"],
)
def test_files_that_cannot_be_shown(folder: Path, refusal: Callable[..., None], content: str | None, names: tuple[str, ...]) -> None:
    if content is not None:
        (folder / "m.ndjson").write_text(content)
    refusal("testbed show m.ndjson", *names)


# --- runs that end early ----------------------------------------------------------------


def fake_python(folder: Path, records: list[dict[str, Any]], then: str) -> str:
    """A Python that writes these records in place of a probe, and then does something else."""
    content = lines_of(records)
    return program(folder / "python", f"import sys, time\nopen(sys.argv[sys.argv.index('--out') + 1], 'w').write({content!r})\n{then}\n")


@pytest.mark.parametrize(
    ("records", "number", "says", "kept"),
    [
        (TWO[:-1], signal.SIGINT, "interrupted; 2 of 3 repeats ", 1),
        pytest.param(TWO[:-1], signal.SIGTERM, "ended by SIGTERM; 2 of 3 repeats ", 1, marks=pytest.mark.long),
        pytest.param(TWO[:2], signal.SIGINT, "interrupted; no repeat ", 0, marks=pytest.mark.long),
        (TWO[:2], signal.SIGTERM, "ended by SIGTERM; no repeat ", 0),
    ],
)
def test_stopped(folder: Path, records: list[dict[str, Any]], number: signal.Signals, says: str, kept: int) -> None:
    python = fake_python(
        folder, records, f"import os\nopen('half', 'w').write(str(os.getpid()))\nos.rename('half', 'pid')\ntime.sleep({PATIENCE_S})"
    )
    command = ("testbed", "run", "--set", "link=loopback", "--python", python, "--measurements", "m", "--repeats", "3")
    child = subprocess.Popen(
        hearing("-m", "paceline", *command), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    until((folder / "pid").exists, lambda: child.poll() is None)
    child.send_signal(number)
    stdout, stderr = child.communicate(timeout=PATIENCE_S)
    assert (child.returncode, stdout) == (128 + number, "")
    assert stderr.startswith(f"paceline: {says}")
    assert stderr.count("\n") == 1
    assert len(list((folder / "m").glob("*.ndjson"))) == kept
    assert not Path(f"/proc/{(folder / 'pid').read_text()}").exists()


def test_a_run_that_fails_keeps_its_whole_repeats(folder: Path, paceline: Runner) -> None:
    error = {"kind": "error", "type": "RunFailedError", "message": "worker 1 died before 'reported'; its last lines: none"}
    python = fake_python(folder, [*TWO[:-1], error], "sys.exit(3)")
    answer = paceline("testbed", "run", "--set", "link=loopback", "--python", python, "--measurements", "m", "--repeats", "3")
    files = sorted((folder / "m").glob("*.ndjson"), key=lambda file: file.stat().st_mtime_ns)
    assert (answer.code, answer.stdout) == (1, "")
    warned, first, last = answer.stderr.splitlines()
    assert "RunFailedError: worker 1 died before 'reported'" in warned
    assert first.startswith("paceline: 2 of 3 repeats ")
    assert first.endswith(f"`paceline testbed show m/{files[1].name}`")
    assert last.startswith("paceline: RunFailedError: worker 1 died before 'reported'")
    assert [len(read_run(file).runs) for file in files] == [2, 2]


# --- a real cluster ---------------------------------------------------------------------


@needs_tensorflow
@pytest.mark.usefixtures("isolated", "warm_probes")
def test_a_real_cluster_on_loopback(folder: Path, paceline: Runner) -> None:
    keys = ("mode=between-graph", "workers=2", "model=ladder-1mb", "steps=5", "link=loopback", "compute.mean=20 ms",
            "compute.law.kind=constant")  # fmt: skip
    answer = paceline("testbed", "run", *(word for key in keys for word in ("--set", key)), "--repeats", "2", "--json")
    assert answer.code == 0, answer
    facts = json.loads(answer.stdout)
    assert [repeat["updates"] for repeat in facts["repeats"]] == [10, 10]
    assert sum(facts["staleness"].values()) == 20
    # a step sleeps 20 ms, so two workers make no more than 100 updates a second
    assert all(0 < repeat["updates_per_s"] < 100 for repeat in facts["repeats"])
    compute = next(part for part in facts["parts"] if part["name"] == "compute")
    assert compute["p50_s"] >= 0.02
    # 10 steps pull and push 1 MiB each
    assert facts["loopback_bytes"] > 20 * 2**20
    (file,) = (folder / "measurements").glob("*.ndjson")
    assert facts["file"] == str(file.relative_to(folder))
    again = paceline("testbed", "show", str(file.relative_to(folder)), "--json")
    assert json.loads(again.stdout) == [facts]


@pytest.mark.long
@needs_tensorflow
@pytest.mark.usefixtures("isolated")
def test_a_real_cluster_leaves_nothing_in_the_temporary_folder(folder: Path, process: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """TensorFlow writes a file for each function of a ring that it traces."""
    (folder / "t").mkdir()
    monkeypatch.setenv("TMPDIR", str(folder / "t"))
    keys = ("mode=ring", "workers=2", "model=ladder-1mb", "steps=2", "link=loopback", "compute.mean=1 ms")
    answer = process("testbed", "run", *(word for key in keys for word in ("--set", key)), "--repeats", "1", "--json")
    assert (answer.code, answer.stderr) == (0, "")
    assert list((folder / "t").iterdir()) == []
    assert [file.suffix for file in (folder / "measurements").iterdir()] == [".ndjson"]
