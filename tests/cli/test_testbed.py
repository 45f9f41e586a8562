"""``paceline testbed``: options, files read again, runs that are stopped or fail, and one real cluster."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.command_line import Answer, contents, refused

from calibrate.probing import PROBES
from calibrate.testbed.model import of_workload
from calibrate.testbed.readings import Readings, read_run
from calibrate.testbed.setting import TestbedSetting, TestbedVariable
from paceline.cli.testbed_options import Asked, compute_of, setting_of
from simulator.errors import InputError

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


# --- options ----------------------------------------------------------------------------


def no_function(target: str, batch: int) -> tuple[TestbedVariable, ...]:
    raise AssertionError((target, batch))


def test_the_default_setting() -> None:
    setting = setting_of(Asked(), None, no_function)
    assert (setting.mode, setting.workers, setting.servers, setting.model) == ("async", 4, 1, "ladder-1mb")
    assert setting.link is not None
    assert (setting.link.bandwidth_bytes_per_s, setting.link.sharing, setting.link.buffer_s) == (50e6, "fair", 0.02)
    assert (setting.compute.kind, setting.compute.law.kind, setting.compute.mean_s) == ("emulated", "exponential", 0.1)


def test_every_option_arrives() -> None:
    asked = Asked(
        mode="sync",
        workers=5,
        servers=2,
        backup_workers=1,
        link="1 Gbit/s",
        sharing="tcp",
        buffer="5 ms",
        congestion="reno",
        model="ladder-4mb/16",
        compute="gamma(16) 80 ms",
        batch=8,
        by_layer=True,
        steps=7,
        warm_up=2,
        threads=3,
    )
    got = setting_of(asked, None, no_function).model_dump()
    assert got["link"] == {"bandwidth_bytes_per_s": 125e6, "sharing": "tcp", "congestion": "reno", "buffer_s": 0.005}
    assert got["compute"] == {"kind": "emulated", "mean_s": 0.08, "law": {"kind": "gamma", "shape": 16.0}}
    assert len(got["variables"]) == 16
    plain = {
        name: getattr(asked, name) for name in ("mode", "workers", "servers", "backup_workers", "batch", "steps", "warm_up", "threads")
    }
    assert {name: got[name] for name in plain} == plain
    assert got["overlap"] is True
    assert setting_of(Asked(start_spread="200 ms"), None, no_function).start_spread_s == 0.2


@pytest.mark.parametrize(
    ("text", "law"),
    [
        ("exponential 100 ms", {"kind": "exponential"}),
        ("constant 100 ms", {"kind": "constant"}),
        ("lognormal(0.3) 100 ms", {"kind": "lognormal", "sigma": 0.3}),
        (" gamma (2.5)  0.1 s ", {"kind": "gamma", "shape": 2.5}),
    ],
)
def test_laws(text: str, law: dict[str, Any]) -> None:
    assert compute_of(text) == {"kind": "emulated", "mean_s": pytest.approx(0.1), "law": law}


def test_ways_without_servers_or_links() -> None:
    ring = setting_of(Asked(mode="ring"), None, no_function)
    assert ring.servers == 0
    assert ring.link is not None
    mirrored = setting_of(Asked(mode="mirrored", workers=2), None, no_function)
    assert (mirrored.servers, mirrored.link) == (0, None)
    assert setting_of(Asked(link="loopback"), None, no_function).link is None


def test_options_override_the_file(folder: Path) -> None:
    file = folder / "setting.toml"
    file.write_text(
        'mode = "between-graph"\nworkers = 2\nservers = 2\nmodel = "ladder-4mb"\nstart_spread = "1 s"\n'
        '[link]\nbandwidth = "1 Gbit/s"\nbuffer = "5 ms"\n[compute]\nmean = "7 ms"\n'
    )
    plain = setting_of(Asked(), file, no_function)
    assert plain.link is not None
    assert (plain.workers, plain.servers, plain.compute.mean_s, plain.link.buffer_s) == (2, 2, 0.007, 0.005)
    asked = Asked(workers=3, buffer="9 ms", compute="exponential 1 ms", start_spread="2 s", model="ladder-1mb")
    changed = setting_of(asked, file, no_function)
    assert changed.link is not None
    assert (changed.workers, changed.servers, changed.start_spread_s) == (3, 2, 2.0)
    assert (changed.link.bandwidth_bytes_per_s, changed.link.buffer_s) == (125e6, pytest.approx(0.009))
    assert (changed.compute.law.kind, changed.compute.mean_s) == ("exponential", 0.001)
    assert changed.parameter_bytes == 2**20
    assert setting_of(Asked(link="loopback"), file, no_function).link is None
    faster = setting_of(Asked(link="2 Gbit/s"), file, no_function).link
    assert faster is not None
    assert (faster.bandwidth_bytes_per_s, faster.buffer_s) == (250e6, 0.005)


def test_a_workload_is_trained_as_a_twin_with_its_own_law() -> None:
    from simulator.catalog import entries
    from simulator.loading import load_workload

    workload = load_workload(entries("workloads")["cnn-cpu"])
    setting = setting_of(Asked(model="cnn-cpu", batch=16), None, no_function)
    assert [variable.name for variable in setting.variables] == [
        variable.name for variable in sorted(workload.variables, key=lambda variable: variable.creation_index)
    ]
    assert setting.parameter_bytes == workload.parameter_bytes
    assert setting.compute.mean_s == pytest.approx(workload.compute_s(16))
    assert setting.compute.law.mean() == pytest.approx(1.0)
    own = setting_of(Asked(model="cnn-cpu", compute="constant 5 ms"), None, no_function)
    assert (own.compute.law.kind, own.compute.mean_s) == ("constant", 0.005)


def test_a_function_is_described_once_all_else_is_sound() -> None:
    asked: list[tuple[str, int]] = []
    variable = TestbedVariable(name="kernel", shape=(3, 4), ready=1.0)

    def describe(target: str, batch: int) -> tuple[TestbedVariable, ...]:
        asked.append((target, batch))
        return (variable,)

    with pytest.raises(InputError, match="ring"):
        setting_of(Asked(model="m.py:build", mode="ring", workers=1), None, describe)
    assert not asked
    setting = setting_of(Asked(model="m.py:build", batch=8), None, describe)
    assert asked == [("m.py:build", 8)]
    assert (setting.variables, setting.compute.kind) == ((variable,), "real")
    assert setting_of(Asked(model="m.py:build", compute="constant 5 ms"), None, describe).compute.kind == "emulated"


@pytest.mark.parametrize(("jitter", "cv"), [('kind = "shifted-exponential", tail = 0.5', 0.5 / 1.5), ('kind = "normal", cv = 0.2', 0.2)])
def test_laws_that_the_device_does_not_draw_from_become_quantiles(folder: Path, jitter: str, cv: float) -> None:
    (folder / "w.toml").write_text(
        f'name = "w"\nforward = {{base = "1 ms", per_sample = "0 s"}}\nbackward = {{base = "2 ms", per_sample = "0 s"}}\n'
        f"jitter = {{{jitter}}}\n"
        '[[variables]]\nname = "table"\nsize = "4000 B"\nrows = 100\nsparse_bytes_per_sample = 80\ncreation_index = 0\nready = 1.0\n'
    )
    found = of_workload("w.toml", 10, "--model")
    values = found["compute"]["law"]["values"]
    mean = sum(values) / len(values)
    assert mean == pytest.approx(1.0)
    assert (sum((value - mean) ** 2 for value in values) / len(values)) ** 0.5 == pytest.approx(cv, rel=0.03)
    # 10 samples touch 800 bytes: 20 of 100 rows of 40
    assert found["variables"] == [{"name": "table", "shape": (100, 10), "ready": 1.0, "rows": 20}]


BAD = [
    ("--compute 'weird 100 ms'", ("--compute 'weird 100 ms': must be a law and its mean, such as 'exponential 100 ms'",)),
    ("--compute 'gamma 100 ms'", ("--compute 'gamma 100 ms': gamma takes its shape in brackets",)),
    ("--compute 'gamma(x) 100 ms'", ("shape of gamma must be a number",)),
    ("--compute 'constant(2) 100 ms'", ("constant takes nothing in brackets",)),
    ("--compute 'gamma(-1) 100 ms'", ("--compute (compute.law.shape): -1.0 must be above 0",)),
    ("--compute 'constant 100'", ("--compute: '100' must be a time with its unit",)),
    ("--compute 'constant 0 ms'", ("--compute (compute.mean_s): 0.0 must be above 0",)),
    ("--link 400", ("--link: '400' must be a bandwidth with its unit", "or loopback")),
    ("--link '400 mbit/s'", ("--link: '400 mbit/s' must be", 'did you mean "400 Mbit/s"?')),
    ("--setting small.toml", ("small.toml: link.bandwidth: '1 gbit/s' must be", 'did you mean "1 Gbit/s"?')),
    ("--link '0 bit/s'", ("--link (link.bandwidth_bytes_per_s): 0.0 must be above 0",)),
    ("--link loopback --sharing tcp", ("--sharing: belong to a shaped link, and there is none",)),
    ("--sharing tpc", ("--sharing (link.sharing): 'tpc' must be 'fair' or 'tcp'",)),
    ("--buffer 20", ("--buffer: '20' must be a time with its unit",)),
    ("--mode rings", ("--mode (mode): 'rings' must be 'async'", "did you mean 'ring'?")),
    ("--mode ring --servers 1", ('testbed run: mode = "ring" takes no servers; it has 1',)),
    ("--mode async --servers 0", ("takes at least one server; it has 0",)),
    ("--mode mirrored --link '1 Gbit/s'", ('mode = "mirrored" is one process on one host; it has no link',)),
    ("--workers 0", ("--workers (workers): 0 must be at least 1",)),
    ("--steps 1", ("--steps (steps): 1 must be at least 2",)),
    ("--backup-workers 1", ('backup_workers (1) need mode = "sync"',)),
    ("--start-spread 5", ("--start-spread: '5' must be a time with its unit",)),
    ("--start-spread '1 s' --mode sync", ("start_spread is of asynchronous workers",)),
    ("--model nope", ("--model: there is no workload named 'nope'",)),
    ("--model ladder-2mb", ("--model: 'ladder-2mb' is no model of the ladder",)),
    ("--model model.py", ("a model that can be built (FILE.py:FUNCTION or the ladder), not 'model.py'",)),
    ("--model cnn-cpu --compute real", ("compute.kind = real needs a model that can be built",)),
    ("--timeout 0", ("--timeout 0: must be above 0 seconds",)),
    ("--timeout nan", ("--timeout nan: must be above 0 seconds",)),
    ("--repeats 0", ("--repeats", "0")),
    ("--setting none.toml", ("none.toml: there is no such file",)),
    ("--setting link.toml", ("link.toml: link.bandwidth: '5' must be a bandwidth",)),
    ("--setting number.toml", ("number.toml: model: must be text in quotes",)),
    ("--setting law.toml", ("law.toml: compute.law.kind: 'normal' is no law of the emulated device",)),
    ("--link loopback --measurements link.toml", ("--measurements 'link.toml/", "link.toml is a file, not a folder")),
    ("--link loopback --python none/python", ("--python 'none/python' cannot be run",)),
]
FILES = {
    "link.toml": '[link]\nbandwidth = "5"\n',
    "small.toml": '[link]\nbandwidth = "1 gbit/s"\n',
    "number.toml": "model = 5\n",
    "law.toml": 'compute = {mean = "1 ms", law = {kind = "normal", cv = 0.1}}\n',
}


@pytest.mark.parametrize(("options", "says"), BAD)
def test_bad_input_is_one_line_with_option_or_path(folder: Path, paceline: Runner, options: str, says: tuple[str, ...]) -> None:
    import shlex

    for name, text in FILES.items():
        (folder / name).write_text('mode = "async"\nworkers = 2\nservers = 1\n' + text)
    before = contents(folder)
    refused(paceline("testbed", "run", *shlex.split(options)), *says)
    assert contents(folder) == before


@pytest.mark.parametrize("command", ["run", "show"])
def test_help_teaches_with_an_example(paceline: Runner, command: str) -> None:
    answer = paceline("testbed", command, "--help")
    told = " ".join(answer.stdout.split())
    assert (answer.code, answer.stderr) == (0, "")
    assert f"Example: paceline testbed {command} " in told
    assert max(map(len, answer.stdout.splitlines())) <= 80
    if command == "run":
        assert all(f" {mode}: " in told for mode in ("async", "between-graph", "sync", "ring", "mirrored"))


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


def test_without_iproute2_the_default_is_loopback_and_a_link_asked_for_is_refused(
    folder: Path, paceline: Runner, measured: list[TestbedSetting], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(folder))
    answer = paceline("testbed", "run")
    assert answer.code == 0
    assert answer.stderr == (
        "paceline: links cannot be shaped: the program ip is missing; install iproute2. Running on loopback instead.\n"
    )
    assert [setting.link for setting in measured] == [None]
    refused(paceline("testbed", "run", "--link", "400 Mbit/s"), "--link: links cannot be shaped: the program ip is missing", "use loopback")
    refused(paceline("testbed", "run", "--sharing", "tcp"), "the program ip is missing")
    (folder / "s.toml").write_text('mode = "async"\nworkers = 2\nservers = 1\nlink = {bandwidth = "1 Gbit/s"}\n')
    refused(paceline("testbed", "run", "--setting", "s.toml"), "s.toml: link: links cannot be shaped")
    assert len(measured) == 1


def test_a_congestion_control_that_the_machine_lacks(
    paceline: Runner, measured: list[TestbedSetting], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("calibrate.testbed.running.obstacle_to_shaped_links", lambda _: None)
    refused(paceline("testbed", "run", "--congestion", "dodo"), "--congestion: 'dodo' is no congestion control of this machine; it has ")
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


def test_show_for_people(folder: Path, paceline: Runner) -> None:
    (folder / "m.ndjson").write_text(lines_of(TWO))
    answer = paceline("testbed", "show", "m.ndjson", "m.ndjson")
    assert (answer.code, answer.stderr) == (0, "")
    rows = [" ".join(line.split()) for line in answer.stdout.splitlines()]
    for row in (
        "async 2 x 1 PS, 400 Mbit/s fair, ladder-4mb, constant 100 ms",
        "links: asked 400 Mbit/s, plain sockets moved 384 Mbit/s (96.0%)",
        "1 4 1.00 4 40 0.75",
        "2 4 2.00 2 20 0.75",
        "mean 3 30 0.75",
        "0 2 25.0% " + "█" * 10,
        "1 6 75.0% " + "█" * 30,
        "ps 1 4 KiB 400 ms 100 ms",
        "raw measurements: m.ndjson",
    ):
        assert row in rows, row
    assert "All files" in rows
    assert max(map(len, answer.stdout.splitlines())) <= 80


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
    assert "measure with --repeats 2 or more" in told


def test_a_file_cut_in_half_shows_its_whole_repeats(folder: Path, paceline: Runner) -> None:
    whole = lines_of([header(2), FINGERPRINT, *repeat_records(0)])
    (folder / "cut.ndjson").write_text(whole + lines_of(repeat_records(1))[:300])
    answer = paceline("testbed", "show", "cut.ndjson")
    assert answer.code == 0
    assert "the run was stopped before its end; only whole repeats are shown" in " ".join(answer.stdout.split())
    (folder / "failed.ndjson").write_text(whole + lines_of([{"kind": "error", "type": "RunFailedError", "message": "worker 1 died"}]))
    assert "the run failed after these repeats: worker 1 died" in paceline("testbed", "show", "failed.ndjson").stdout


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "m.ndjson: cannot be read"),
        ("", "m.ndjson: holds no measurements"),
        (lines_of([header(1), FINGERPRINT]), "m.ndjson: holds no whole repeat"),
        (lines_of([{**header(1), "probe": "step"}, FINGERPRINT]), "m.ndjson: holds measurements of a step, not of a testbed run"),
        (lines_of(TWO).replace('"ps 0"', "5"), "m.ndjson:8: task: 5 must"),
    ],
)
def test_files_that_cannot_be_shown(folder: Path, paceline: Runner, content: str | None, says: str) -> None:
    if content is not None:
        (folder / "m.ndjson").write_text(content)
    refused(paceline("testbed", "show", "m.ndjson"), says)


# --- runs that end early ----------------------------------------------------------------


def fake_python(folder: Path, records: list[dict[str, Any]], then: str) -> str:
    """A Python that writes these records in place of a probe, and then does something else."""
    content = lines_of(records)
    file = folder / "python"
    file.write_text(f"#!{sys.executable}\nimport sys, time\nopen(sys.argv[sys.argv.index('--out') + 1], 'w').write({content!r})\n{then}\n")
    file.chmod(0o755)
    return str(file)


@pytest.mark.parametrize(
    ("records", "number", "says", "kept"),
    [
        (TWO[:-1], signal.SIGINT, "interrupted; 2 of 3 repeats had come to their end; read them with `paceline testbed show m/", 1),
        (TWO[:-1], signal.SIGTERM, "ended by SIGTERM; 2 of 3 repeats had come to their end; read them with", 1),
        (TWO[:2], signal.SIGINT, "interrupted; no repeat had come to its end, so nothing is kept\n", 0),
        (TWO[:2], signal.SIGTERM, "ended by SIGTERM; no repeat had come to its end, so nothing is kept\n", 0),
    ],
)
def test_stopped(folder: Path, records: list[dict[str, Any]], number: signal.Signals, says: str, kept: int) -> None:
    python = fake_python(folder, records, "import os\nopen('half', 'w').write(str(os.getpid()))\nos.rename('half', 'pid')\ntime.sleep(60)")
    command = ("testbed", "run", "--link", "loopback", "--python", python, "--measurements", "m", "--repeats", "3")
    child = subprocess.Popen(
        [sys.executable, "-m", "paceline", *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    deadline = time.monotonic() + 60
    while not (folder / "pid").exists():
        assert child.poll() is None, child.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    child.send_signal(number)
    stdout, stderr = child.communicate(timeout=20)
    assert (child.returncode, stdout) == (128 + number, "")
    assert stderr.startswith(f"paceline: {says}")
    assert stderr.count("\n") == 1
    assert len(list((folder / "m").glob("*.ndjson"))) == kept
    assert not Path(f"/proc/{(folder / 'pid').read_text()}").exists()


def test_a_run_that_fails_keeps_its_whole_repeats(folder: Path, paceline: Runner) -> None:
    error = {"kind": "error", "type": "RunFailedError", "message": "worker 1 died before 'reported'; its last lines: none"}
    python = fake_python(folder, [*TWO[:-1], error], "sys.exit(3)")
    answer = paceline("testbed", "run", "--link", "loopback", "--python", python, "--measurements", "m", "--repeats", "3")
    (file,) = (folder / "m").glob("*.ndjson")
    assert (answer.code, answer.stdout) == (1, "")
    first, second = answer.stderr.splitlines()
    assert first == f"paceline: 2 of 3 repeats had come to their end; read them with `paceline testbed show m/{file.name}`"
    assert second.startswith("paceline: RunFailedError: worker 1 died before 'reported'")
    assert len(read_run(file).runs) == 2


# --- a real cluster ---------------------------------------------------------------------


def _isolation_obstacle() -> str:
    probe = "import sys; sys.path.insert(0, sys.argv[1]); import isolation; isolation.isolate()"
    answer = subprocess.run([sys.executable, "-c", probe, str(PROBES)], capture_output=True, text=True, check=False)
    return "" if answer.returncode == 0 else f"no network namespace of one's own here: {answer.stderr.strip().splitlines()[-1]}"


def test_a_real_cluster_on_loopback(folder: Path, process: Runner) -> None:
    pytest.importorskip("tensorflow", reason="TensorFlow is not installed", exc_type=ImportError)
    if obstacle := _isolation_obstacle():
        pytest.skip(obstacle)
    options = ("--mode", "between-graph", "--workers", "2", "--model", "ladder-1mb", "--steps", "5", "--repeats", "2")
    answer = process("testbed", "run", *options, "--link", "loopback", "--compute", "constant 20 ms", "--json")
    assert (answer.code, answer.stderr) == (0, "")
    facts = json.loads(answer.stdout)
    assert [one["updates"] for one in facts["repeats"]] == [10, 10]
    assert sum(facts["staleness"].values()) == 20
    # a step sleeps 20 ms, so two workers make no more than 100 updates a second
    assert all(1 < one["updates_per_s"] < 100 for one in facts["repeats"])
    compute = next(part for part in facts["parts"] if part["name"] == "compute")
    assert compute["p50_s"] >= 0.02
    # 10 steps pull and push 1 MiB each
    assert facts["loopback_bytes"] > 20 * 2**20
    (file,) = (folder / "measurements").glob("*.ndjson")
    assert facts["file"] == str(file.relative_to(folder))
    again = process("testbed", "show", str(file.relative_to(folder)), "--json")
    assert json.loads(again.stdout) == [facts]
