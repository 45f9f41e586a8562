"""One of every kind of file that Paceline reads, and the commands that read it."""

from __future__ import annotations

import csv
import io
import json
import shlex
import shutil
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from support.command_line import SCENARIO
from support.damage import as_file
from support.kineto import nccl_sample
from support.measurements import FINGERPRINT, Truth, gamma_of, header, step_records, write_lines
from support.testbed import FAST, as_measured, setting

import simulator
from simulator.base.files import with_checksum
from torture.endings import command

HOME = Path(simulator.__file__).parent.parent
_PROFILES = HOME / "tests" / "calibrate" / "data" / "profiles"

JOB = """
[job]
dataset_size = 4000
epochs = 2
checkpoint = {every_steps = 100, size = "5 MB"}
faults = {worker_mtbf = "2 h", restart = "20 s", trace = [{at_s = 40.0, of = "worker", number = 1}]}
evaluation = {samples = 500}
"""
RING = SCENARIO.replace('kind = "parameter-server"\nmode = "async"', 'kind = "multi-worker-mirrored"\nbucket_size = "1 MiB"')
RICH = (
    SCENARIO.replace("workers = 2", "workers = 2\nservers = 2").replace(
        'inter_node = {bandwidth = "1 GB/s", latency = "20 us"}',
        """\
nodes = 4
price = {usd_per_node_hour = 1.5, date = "2026-01-01"}
background = {trace = [{at_s = 0.0, load = 0.2}, {at_s = 1.0, load = 0.0}]}
slow_nodes = {share = 0.25, factor = 1.5}
storage = {bandwidth = "1 GB/s"}
inter_node = {bandwidth = "10 Gbit/s", latency = "20 us"}""",
    )
    + JOB
)
LAYERED = """
[workload]
transformer = {layers = 2, hidden = 64, heads = 4, sequence = 32, vocabulary = 100, device = "a100-sxm4-40gb"}
batch_per_replica = 8

[cluster]
use = "dgx-a100-40gb"

[strategy]
kind = "hybrid"
pipeline = 2
tensor = 2
workers = 8

[training]
micro_batches = 4

[run]
steps = 4
replications = 2
"""
TF_CONFIG = {
    "cluster": {"chief": ["10.0.0.1:2222"], "worker": ["10.0.0.2:2222", "10.0.0.3:2222"], "ps": ["10.0.0.4:2222"]},
    "task": {"type": "worker", "index": 0},
}


PLAN = "plan scenario.toml --target-throughput 100samples/s --confidence 0.6 --workers 1..4 --jobs 1 --out out.ndjson"
SWEEP = "sweep scenario.toml --over run.seed=0,1,2 --jobs 1 --out out.ndjson"
REPORT = "report results.ndjson --no-simulate"
REPORT_OF_PLAN = "report planned.ndjson --no-simulate --plan planned.plan.json --out out.html"
VALIDATE = "validate scenario.toml --measured points.csv --yes --set run.replications=19"
FIT = "calibrate --from-measurements step.ndjson --name x --out out.toml"
FIT_INPUT = "calibrate-input --from-measurements batches.ndjson --name x --out out.toml"
FROM_TF_CONFIG = "calibrate --from-tf-config tf_config.json --name cnn-cpu --cluster ethernet-25g --batch 32 --out out.toml"


@dataclass(frozen=True)
class Kind:
    """A kind of file.

    Attributes
    ----------
    name
        For people.
    file
        Its name in the corpus; also of the folder that a command is given.
    commands
        What reads it; ``{}`` is its name.
    weight
        How often it is damaged, for once that a scenario is: some take a TensorFlow to read.
    parse, render
        From its text to tables and lists, and back; None where it has none.
    """

    name: str
    file: str
    commands: tuple[str, ...]
    weight: float = 1.0
    parse: Callable[[str], object] | None = None
    render: Callable[[object], str] | None = None


def _toml(value: object) -> str:
    assert isinstance(value, dict)
    return as_file(value)


def _lines(text: str) -> object:
    return [json.loads(line) for line in text.splitlines()]


def _of_lines(value: object) -> str:
    assert isinstance(value, list)
    return "".join(json.dumps(line) + "\n" for line in value)


def _cells(text: str) -> object:
    return list(csv.reader(io.StringIO(text)))


def _of_cells(value: object) -> str:
    assert isinstance(value, list)
    written = io.StringIO()
    csv.writer(written, lineterminator="\n").writerows(row if isinstance(row, list) else [row] for row in value)
    return written.getvalue()


_AS_TOML = {"parse": tomllib.loads, "render": _toml}
_AS_LINES = {"parse": _lines, "render": _of_lines}
_AS_JSON = {"parse": json.loads, "render": json.dumps}
_AS_CELLS = {"parse": _cells, "render": _of_cells}


def kinds() -> Iterator[Kind]:
    """Every kind of file, in a fixed order."""
    reading = (
        "simulate {}", "simulate {} --program", "simulate {} --json", "simulate {} --assumptions", "simulate {} --trace out.json",
        "memory {}", "sweep {} --over run.seed=0,1 --jobs 1 --out out.ndjson", PLAN.replace("scenario.toml", "{}"),
    )  # fmt: skip
    for name in ("scenario", "ring", "rich", "layered"):
        yield Kind(f"scenario ({name})", f"{name}.toml", reading, 1.0 if name == "scenario" else 2.0, **_AS_TOML)
    using = "simulate scenario.toml --set"
    yield Kind("workload", "workload.toml", (f"{using} workload.use={{}}", "models show {}"), 2.0, **_AS_TOML)
    yield Kind("cluster", "cluster.toml", (f"{using} cluster.use={{}}", "models show {} --json"), 2.0, **_AS_TOML)
    of_device = ("'cluster.device=lab gpu'", "models show lab-gpu")
    on_device = (f"{using} {of_device[0]}", f"memory scenario.toml --set {of_device[0]}", of_device[1])
    yield Kind("device", "models/devices/lab-gpu.toml", on_device, **_AS_TOML)
    yield Kind("input", "input.toml", (f"{using} input.use={{}}", "models show {}"), **_AS_TOML)
    yield Kind("background trace", "traffic.csv", (f"{using} cluster.background.trace={{}}",), **_AS_CELLS)
    yield Kind("faults", "faults.toml", ("simulate rich.toml --set job.faults.use={}", "models show {}"), **_AS_TOML)
    yield Kind(
        "nodes to be had",
        "nodes.csv",
        ("simulate rich.toml --set job.faults.preemption.replacement=20s --set job.faults.preemption.available={}",),
        **_AS_CELLS,
    )
    yield Kind(
        "nodes to be had (SkyPilot)",
        "nodes.json",
        ("simulate rich.toml --set job.faults.preemption.replacement=20s --set job.faults.preemption.available={}",),
        **_AS_JSON,
    )
    diagnosing = "why scenario.toml --run 1=one.csv --run 2={} --jobs 1 --set run.replications=2"
    yield Kind("recorded steps", "steps.ndjson", ("watch scenario.toml {} --once", diagnosing), **_AS_LINES)
    yield Kind("table of steps", "steps.csv", ("watch scenario.toml {} --once", diagnosing), **_AS_CELLS)
    yield Kind("matrix", "matrix.toml", ("validate --matrix {} --list",), **_AS_TOML)
    predicting = "testbed predict platform.json setting.toml --replications 19"
    yield Kind("testbed setting", "setting.toml", (predicting,), **_AS_TOML)
    yield Kind("testbed parameters", "platform.json", (predicting,), **_AS_JSON)
    fitting = ("testbed show {}", "testbed fit {} --out out.json")
    yield Kind("testbed measurements", "testbed.ndjson", fitting, 2.0, **_AS_LINES)
    yield Kind("step measurements", "step.ndjson", (FIT,), 2.0, **_AS_LINES)
    yield Kind("input measurements", "batches.ndjson", (FIT_INPUT,), **_AS_LINES)
    going_on = SWEEP.replace("out.ndjson", "results.ndjson")
    yield Kind("results", "results.ndjson", (f"{REPORT} --out out.html", going_on), 3.0, **_AS_LINES)
    yield Kind("plan", "planned.plan.json", (REPORT_OF_PLAN,), **_AS_JSON)
    comparing = (f"{VALIDATE} --out out.html", f"{REPORT} --measured points.csv --out out.html")
    yield Kind("measured throughputs", "points.csv", comparing, 2.0, **_AS_CELLS)
    yield Kind("TF_CONFIG", "tf_config.json", (FROM_TF_CONFIG,), **_AS_JSON)
    profile = "calibrate --from-profile profile@32 --variables variables.json --name x --out out.toml"
    yield Kind("variables", "variables.json", (profile,), 0.1, **_AS_JSON)
    [trace] = (_PROFILES / "loop-32").rglob("*.xplane.pb")
    yield Kind("profile (XPlane)", f"profile/{trace.relative_to(_PROFILES / 'loop-32')}", (profile,), 0.3)
    traced = "calibrate --from-profile trace.json@32 --name x --out out.toml --force"
    yield Kind("trace (Kineto)", "trace.json", (traced, diagnosing.replace("2={}", "16={}")), **_AS_JSON)


def prepare(folder: Path) -> None:
    """Write the corpus: what can be written by Paceline's own commands is.

    Raises
    ------
    AssertionError
        A command that must do, does not.
    """
    folder.mkdir(parents=True)
    for name, text in (("scenario", SCENARIO), ("ring", RING), ("rich", RICH), ("layered", LAYERED)):
        (folder / f"{name}.toml").write_text(text)
    models = HOME / "models"
    for source, name in (("matrices/quick", "matrix"), ("inputs/waiting-cpu", "input")):
        shutil.copy(models / f"{source}.toml", folder / f"{name}.toml")
    shutil.copy(models / "clusters" / "ethernet-25g.toml", folder / "cluster.toml")
    (folder / "models" / "devices").mkdir(parents=True)
    device = (models / "devices" / "t4.toml").read_text()
    name = tomllib.loads(device)["name"]
    aliases = tomllib.loads(device).get("aliases", [])
    for each in (name, *aliases):
        device = device.replace(json.dumps(each), json.dumps("lab gpu" if each == name else f"lab {each}"))
    (folder / "models" / "devices" / "lab-gpu.toml").write_text(device)
    (folder / "traffic.csv").write_text("at_s,load,flows\n0.0,0.2,0\n0.5,0.0,2\n2.0,0.4,1\n")
    (folder / "setting.toml").write_text('mode = "async"\nworkers = 2\nservers = 1\nmodel = "ladder-1mb"\ncompute = {mean = "20 ms"}\n'
                                         'link = {bandwidth = "400 Mbit/s"}\nsteps = 20\n')  # fmt: skip
    as_measured(folder, setting("async", 1, FAST))
    next(folder.glob("*-testbed-1.ndjson")).rename(folder / "testbed.ndjson")
    write_lines(folder / "step.ndjson", step_records(Truth(rounds=4, steps_a_round=3), gamma_of(0.1)))
    write_lines(folder / "batches.ndjson", list(_batches()))
    for name in ("testbed", "step", "batches"):  # as probes write them
        file = folder / f"{name}.ndjson"
        file.write_text("".join(f"{with_checksum(line)}\n" for line in file.read_text().splitlines()))
    shutil.copy(models / "faults" / "rsc-1.toml", folder / "faults.toml")
    (folder / "nodes.csv").write_text("at_s,nodes\n0,4\n20000,3\n21000,4\n90000,0\n")
    (folder / "nodes.json").write_text(json.dumps({"metadata": {"gap_seconds": 600}, "data": [4, 4, 3, 4] * 10}))
    steps_s = [0.4] + [0.007 + 1e-4 * (step % 5) for step in range(39)]
    (folder / "one.csv").write_text("step_time_s\n" + "".join(f"{value / 2}\n" for value in steps_s))
    (folder / "steps.csv").write_text(
        "step,step_time_s,cpu_s\n" + "".join(f"{step},{value},0.015\n" for step, value in enumerate(steps_s, 1))
    )
    write_lines(folder / "steps.ndjson", list(_steps(steps_s)))
    (folder / "points.csv").write_text("workers,throughput\n1,2100\n1,2150\n2,4000\n2,4100\n")
    (folder / "tf_config.json").write_text(json.dumps(TF_CONFIG))
    shutil.copytree(_PROFILES / "loop-32", folder / "profile")
    shutil.copy(_PROFILES / "variables.json", folder)
    nccl_sample(steps=3).write(folder / "trace.json")
    (folder / "platform.json").write_bytes((models / "measured" / "faults-machine.json").read_bytes())
    for words in (SWEEP.replace("out.", "results."), PLAN.replace("out.", "planned."), FIT.replace("out.toml", "workload.toml")):
        ended, _ = command(shlex.split(words), folder)
        assert ended.code == 0, ended
    missing = [kind.file for kind in kinds() if not (folder / kind.file).exists()]
    assert not missing, missing


def _steps(steps_s: list[float]) -> Iterator[dict[str, object]]:
    """A training as the Keras callback records it."""
    machine = {"hostname": "lab", "cores": 2, "cpu": "a processor", "devices": [], "model": "tiny", "parameters": 250_250}
    yield {"kind": "header", "format": "paceline-steps", "schema_version": 1, "workers": 2, "batch": 32, "worker": 0, **machine}
    end_s = 0.0
    for step, value in enumerate(steps_s, 1):
        end_s += value
        yield {"kind": "step", "step": step, "end_s": end_s, "duration_s": value, "between_s": 0.0, "cpu_s": value / 2}
    yield {"kind": "end", "end_s": end_s}


def _batches() -> Iterator[dict[str, object]]:
    """Measurements of an input pipeline."""
    yield header("input")
    yield FINGERPRINT
    stages = [{"name": "Batch", "batch_size": 32}, {"name": "ParallelMap", "num_parallel_calls": 2}, {"name": "Range"}]
    known = {"takes": ["batch", "num_parallel_calls"], "stages": stages, "batch": 32, "batched": True, "epoch_batches": -1}
    yield {"kind": "pipeline", **known, "shuffle_samples": 0, "prefetch": None, "calls": [2], "cached": False, "cores": 8}
    for turn in range(3):
        for batch in (8, 32):
            for calls in (1, 2):
                seconds = [max(1e-3, 4e-4 * batch / calls) * (1.0 + 0.01 * ((turn + step) % 5)) for step in range(12)]
                where = {"batch": batch, "calls": calls, "round": turn, "epoch": "first"}
                yield {"kind": "batches", **where, "seconds": seconds, "cpu_s": 5e-4 * batch, "read_bytes": 5e3 * batch}
    yield {"kind": "end"}
