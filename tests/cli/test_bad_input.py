"""Bad input through the real command line: one line that says what is wrong and where, exit 2, nothing written."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from support.command_line import SCENARIO, Answer, contents, refused
from syrupy.assertion import SnapshotAssertion

Content = str | bytes


@dataclass(frozen=True)
class Bad:
    """One mistake: what is typed, the keys and values that the one line must name, and the files that differ from the valid ones."""

    name: str
    command: str
    names: tuple[str, ...]
    files: Mapping[str, Content] = field(default_factory=dict)


def edited(old: str, new: str) -> dict[str, Content]:
    """The valid scenario with one thing changed."""
    assert SCENARIO.count(old) == 1, old
    return {"s.toml": SCENARIO.replace(old, new)}


SIM = "simulate s.toml"
LATENCY = 'latency = "20 us"'
LAB = 'name = "lab"'
USED = '[cluster]\nname = "lab"'
CLUSTER = 'name = "c"\ninter_node = {bandwidth = "1 GB/s"}\n'
WORKLOAD = SCENARIO.split("[cluster]")[0].replace("[workload]\n", "").replace("batch_per_replica = 10\n", "")

KEYS = [
    Bad("wrong", SIM, ("s.toml: strategy.wrokers: ", "workers?"), edited("workers = 2", "wrokers = 2")),
    Bad("wrong-deep", SIM, ("cluster.inter_node.latncy",), edited(LATENCY, 'latncy = "20 us"')),
    Bad("wrong-in-list", SIM, ("workload.variables.1.zzz",), edited('"1 kB"', '"1 kB", zzz = 3')),
    Bad("wrong-section", SIM, ("s.toml: runs: ", "run?"), edited("[run]", "[runs]")),
    Bad("named-as-a-kind", SIM, ("strategy.single",), edited("workers = 2", "single = 2")),
    Bad("with-line-break", SIM, (r"strategy.'wor\nkers'",), edited("workers = 2", '"wor\\nkers" = 2')),
    Bad("with-escape", SIM, (r"strategy.'\x1b[31mred'",), edited("workers = 2", '"\\u001b[31mred" = 2')),
    Bad("of-10000-letters", SIM, ("strategy.'kkkkk",), edited("workers = 2", "k" * 10_000 + " = 2")),
    Bad("both-names", SIM, ("cluster.inter_node", "latency_s"), edited(LATENCY, f"{LATENCY}, latency_s = 2e-5")),
    Bad("missing", SIM, ("s.toml", "workload.backward"), edited('backward = {base = "2 ms", per_sample = "200 us"}\n', "")),
    Bad("missing-kind", SIM, ("s.toml", "strategy.kind"), edited('kind = "parameter-server"\n', "")),
    Bad("missing-section", SIM, ("s.toml: strategy: ",), {"s.toml": SCENARIO.split("[strategy]")[0]}),
]
VALUES = [
    Bad("negative-bandwidth", SIM, ("cluster.inter_node.bandwidth: '-1 GB/s'",), edited('"1 GB/s"', '"-1 GB/s"')),
    Bad("negative-latency", SIM, ("cluster.inter_node.latency_s: -1e-06",), edited(LATENCY, "latency_s = -1e-6")),
    Bad("zero-workers", SIM, ("strategy.workers: 0",), edited("workers = 2", "workers = 0")),
    Bad("workers-as-text", SIM, ("strategy.workers: '2'",), edited("workers = 2", 'workers = "2"')),
    Bad("workers-true", SIM, ("strategy.workers",), edited("workers = 2", "workers = true")),
    Bad("workers-as-date", SIM, ("strategy.workers",), edited("workers = 2", "workers = 2024-01-01")),
    Bad("400-digits", SIM, ("strategy.workers: 9999", "100000"), edited("workers = 2", "workers = " + "9" * 400)),
    Bad("5000-digits", SIM, ("s.toml", "4300"), edited("workers = 2", "workers = " + "9" * 5000)),
    Bad("unknown-unit", SIM, ("inter_node.bandwidth: '1 parsec'", '"25 Gbit/s"'), edited('"1 GB/s"', '"1 parsec"')),
    Bad("wrong-dimension", SIM, ("inter_node.bandwidth: '1 GB'",), edited('"1 GB/s"', '"1 GB"')),
    Bad("unit-alone", SIM, ("inter_node.latency: 'us'",), edited('"20 us"', '"us"')),
    Bad("decimal-comma", SIM, ("inter_node.latency: '1,5 ms'",), edited('"20 us"', '"1,5 ms"')),
    Bad("sum-to-work-out", SIM, ("inter_node.latency: '9**9**9 s'",), edited('"20 us"', '"9**9**9 s"')),
    Bad("bare-number", SIM, ("inter_node.latency: 20", '"20 us"'), edited('"20 us"', "20")),
    Bad("text-under-full-name", SIM, ("latency_s: '20 us'",), edited(LATENCY, 'latency_s = "20 us"')),
    Bad("endless-time", SIM, ("workload.forward.base: 'inf s'",), edited('"1 ms"', '"inf s"')),
    Bad("nan", SIM, ("workload.jitter.sigma",), edited("sigma = 0.1", "sigma = nan")),
    Bad("inf", SIM, ("inter_node.latency_s",), edited(LATENCY, "latency_s = inf")),
    Bad("unknown-kind", SIM, ("strategy.kind: 'ring'", "'multi-worker-mirrored'"), edited('"parameter-server"', '"ring"')),
    Bad("kind-as-list", SIM, ("strategy.kind", "'single'"), edited('"parameter-server"', "[1]")),
    Bad("unknown-mode", SIM, ("strategy.mode: 'hogwild'", "'sync'", "'async'"), edited('mode = "async"', 'mode = "hogwild"')),
    Bad("10000-letters", SIM, ("strategy.mode: 'mmmm", "'async'"), edited('"async"', f'"{"m" * 10_000}"')),
    Bad("unknown-law", SIM, ("workload.jitter.kind: 'weibull'",), edited('"lognormal", sigma', '"weibull", sigma')),
    Bad("list-for-table", SIM, ("cluster.inter_node",), edited('{bandwidth = "1 GB/s", latency = "20 us"}', "[1]")),
    Bad("table-for-text", SIM, ("cluster.name",), edited('"lab"', "{a = 1}")),
    Bad("truth-as-text", SIM + " --set run.drain='yes'", ("run.drain: 'yes'",)),
    Bad("no-variables", SIM + " --set workload.variables=[]", ("workload.variables",)),
    Bad("ready-over-one", SIM, ("workload.variables.1.ready: 1.5",), edited("ready = 1.0", "ready = 1.5")),
    Bad("speed-zero", SIM, ("cluster.node_speed.1: 0",), edited(LAB, f"{LAB}\nnode_speed = [1, 0]")),
    Bad("seed-below-zero", SIM, ("run.seed: -1",), edited("steps = 4", "steps = 4\nseed = -1")),
    Bad("one-replication", SIM, ("run.replications: 1",), edited("replications = 2", "replications = 1")),
    Bad("newer-version", SIM, ("s.toml", "schema_version: 2"), {"s.toml": "schema_version = 2\n" + SCENARIO}),
]
UNITS = [
    Bad("milli-bits", SIM, ("s.toml: cluster.inter_node.bandwidth: '10 mbit/s'", '"10 Mbit/s"'), edited('"1 GB/s"', '"10 mbit/s"')),
    Bad("milli-bytes", SIM, ("s.toml", "workload.variables.0.size: '1 mb'", '"1 MB"'), edited('"1 MB"', '"1 mb"')),
    Bad("pico-bytes", SIM, ("variables.0.size: '100 pb'", '"100 PB"'), edited('"1 MB"', '"100 pb"')),
    Bad("nano-bytes", SIM, ("'1 nB'",), edited('"1 MB"', '"1 nB"')),
    Bad("mega-seconds", SIM, ("forward.base: '1 Ms'", '"1 ms"'), edited('base = "1 ms"', 'base = "1 Ms"')),
    Bad("set", SIM + " --set cluster.inter_node.bandwidth=10mbit/s", ("s.toml", "cluster.inter_node.bandwidth: '10mbit/s'", "Mbit/s")),
    Bad("over", "sweep s.toml --over cluster.inter_node.bandwidth=1GB/s,10mbit/s --out r", ("inter_node.bandwidth: '10mbit/s'", "Mbit/s")),
    Bad(
        "cluster",
        SIM,
        ("paceline: c.toml: ", "inter_node.bandwidth: '10 mbit/s'", '"10 Mbit/s"'),
        {**edited(USED, '[cluster]\nuse = "c.toml"'), "c.toml": CLUSTER.replace("1 GB/s", "10 mbit/s")},
    ),
    Bad(
        "matrix",
        "validate --matrix m.toml",
        ("m.toml", "link.bandwidth: '10 mbit/s'", '"10 Mbit/s"'),
        {
            "m.toml": '[[fit]]\nmode = "async"\nworkers = 2\nlink = {bandwidth = "10 mbit/s"}\n',
        },
    ),
    Bad("deadline", "plan s.toml --samples 1e6 --deadline 12H", ("--deadline '12H'", '"12h"')),
]
RULES = [
    Bad("both-batches", SIM, ("s.toml", "batch_per_replica (10)", "global_batch (20)"), edited("= 10", "= 10\nglobal_batch = 20")),
    Bad("no-batch", SIM, ("batch_per_replica",), edited("batch_per_replica = 10\n", "")),
    Bad("indivisible-batch", SIM, ("workload.global_batch (21)",), edited("batch_per_replica = 10", "global_batch = 21")),
    Bad("warm-up-too-long", SIM, ("warmup_steps (4)",), edited("steps = 4", "steps = 4\nwarmup_steps = 4")),
    Bad("servers-over-variables", SIM, ("strategy.servers (3)",), edited("workers = 2", "workers = 2\nservers = 3")),
    Bad("too-few-nodes", SIM, ("cluster.nodes (2)",), edited(LAB, f"{LAB}\nnodes = 2")),
    Bad("speeds-over-nodes", SIM, ("node_speed",), edited(LAB, f"{LAB}\nnodes = 3\nnode_speed = [1, 1, 1, 1]")),
    Bad("over-one-node", SIM + " --set strategy={kind='mirrored',replicas=4}", ("strategy.replicas (4)",)),
    Bad("creation-index-twice", SIM, ("creation_index",), edited("creation_index = 1", "creation_index = 0")),
    Bad("ready-out-of-order", SIM, ("'kernel'", "0.5", "'bias'"), edited("ready = 1.0", "ready = 0.1")),
    Bad("staggered-alone", SIM, ('"staggered"', "start_spread"), edited("steps = 4", 'steps = 4\nstart = "staggered"')),
    Bad("spread-alone", SIM, ('"staggered"', "start_spread"), edited("steps = 4", 'steps = 4\nstart_spread = "1 s"')),
]
FILES = [
    Bad("missing", "simulate none.toml", ("none.toml",)),
    Bad("folder", "simulate sub", ("sub: ",), {"sub/x": ""}),
    Bad("binary", SIM, ("s.toml", "UTF-8", "128"), {"s.toml": bytes(range(256))}),
    Bad("utf-16", SIM, ("s.toml", "UTF-8"), {"s.toml": SCENARIO.encode("utf-16")}),
    Bad("no-toml", SIM, ("s.toml",), {"s.toml": "workload: {name: plain}\n"}),
    Bad("json", SIM, ("s.toml",), {"s.toml": '{"workload": {}}'}),
    Bad("key-twice", SIM, ("s.toml",), edited("workers = 2", "workers = 2\nworkers = 3")),
    Bad("cut-in-half", SIM, ("s.toml",), {"s.toml": SCENARIO[:250]}),
    Bad("empty", SIM, ("s.toml",), {"s.toml": ""}),
    Bad("deep", SIM, ("s.toml",), {"s.toml": "a = " + "[" * 3000 + "]" * 3000}),
    Bad("in-a-file", "simulate s.toml/x.toml", ("s.toml/x.toml",)),
    Bad("long-path", "simulate " + "a" * 5000, ("aaaa ... aaaa",)),
    Bad("use-unknown", SIM, ("s.toml", "cluster.use", "'ethernet-52g'"), edited(USED, '[cluster]\nuse = "ethernet-52g"')),
    Bad("use-far-off", SIM, ("cluster.use", "'zzzzzzz'"), edited(USED, '[cluster]\nuse = "zzzzzzz"')),
    Bad("use-number", SIM, ("cluster.use: 3",), edited(USED, "[cluster]\nuse = 3")),
    Bad("use-missing", SIM, ("cluster.use", "'none.toml'"), edited(USED, '[cluster]\nuse = "none.toml"')),
    Bad("use-zero-byte", SIM, ("cluster.use", r"'a\x00b.toml'"), edited(USED, '[cluster]\nuse = "a\\u0000b.toml"')),
    Bad("vanishing", SIM, ("s.toml: 1e-400",), edited(LAB, f"{LAB}\nprice = {{usd_per_node_hour = 1e-400}}")),
    Bad("use-long-path", SIM, ("cluster.use", "aaa.toml'"), edited(USED, f'[cluster]\nuse = "{"a" * 5000}.toml"')),
    Bad("use-broken", SIM, ("c.toml",), {**edited(USED, '[cluster]\nuse = "c.toml"'), "c.toml": "name = \n"}),
    Bad(
        "use-invalid",
        SIM,
        ("paceline: c.toml: nodes: 0",),
        {**edited(USED, '[cluster]\nuse = "c.toml"'), "c.toml": "nodes = 0\n" + CLUSTER},
    ),
    Bad("use-other-kind", SIM, ("cluster.use: 'w.toml'",), {**edited(USED, '[cluster]\nuse = "w.toml"'), "w.toml": WORKLOAD}),
    Bad(
        "use-with-precision",
        SIM + " --set workload={use='w.toml',batch_per_replica=1,precision='mixed_float16'}",
        ("workload.precision: 'w.toml'", "'mixed_float16'"),
        {"w.toml": WORKLOAD},
    ),
]
SWEEP = "sweep s.toml --over strategy.workers=1,2"
SIZES = [",".join(map(str, range(start, start + 101))) for start in (0, 2)]
TYPED = [
    Bad("assumptions-in-json", SIM + " --json --assumptions", ("--assumptions", "--json")),
    Bad("set-without-equals", SIM + " --set strategy.workers", ("--set 'strategy.workers'",)),
    Bad("set-without-key", SIM + " --set =3", ("--set '=3'",)),
    Bad("set-empty-part", SIM + " --set strategy..workers=3", ("--set 'strategy..workers=3'",)),
    Bad("set-deep", SIM + " --set " + "a." * 2000 + "b=1", ("--set", "a.a.a")),
    Bad("set-into-value", SIM + " --set strategy.workers.count=3", ("s.toml", "strategy.workers.count")),
    Bad("set-into-list", SIM + " --set workload.variables.0.size=1B", ("workload.variables.0.size",)),
    Bad("set-wrong-value", SIM + " --set strategy.workers=many", ("strategy.workers: 'many'",)),
    Bad("set-wrong-unit", SIM + " --set cluster.inter_node.bandwidth=10Gbit", ("inter_node.bandwidth: '10Gbit'",)),
    Bad("set-vanishing", SIM + " --set workload.apply_s=1e-400", ("--set", "workload.apply_s=1e-400")),
    Bad("samples-as-thousands", SIM + " --samples 1.280", ("--samples", "'1.280'", "1,280")),
    Bad("samples-with-a-separator", SIM + " --samples 1_280", ("'1_280'",)),
    Bad("set-section", SIM + " --set strategy=3", ("s.toml: strategy: 3",)),
    Bad("set-nothing", SIM + " --set", ("'--set'",)),
    Bad("unknown-option", SIM + " --sett a=1", ("--sett",)),
    Bad("unknown-command", "simulte s.toml", ("'simulte'",)),
    Bad("no-argument", "simulate", ("'SCENARIO.toml'",)),
    Bad("two-arguments", "simulate s.toml t.toml", ("t.toml",)),
    Bad("schema-nonsense", "schema nonsense", ("'nonsense'", "'scenario'", "'workload'")),
    Bad("show-unknown", "models show nothing", ("'nothing'",)),
    Bad("show-near", "models show ethernet-25", ("'ethernet-25'",)),
    Bad("show-missing-file", "models show none.toml", ("'none.toml'",)),
    Bad("show-scenario", "models show s.toml", ("s.toml",)),
    Bad("show-binary", "models show b.toml", ("b.toml", "UTF-8"), {"b.toml": b"\xff\x00"}),
    Bad("over-without-values", "sweep s.toml --over strategy.workers= --out r", ("--over 'strategy.workers='",)),
    Bad("over-empty-value", "sweep s.toml --over strategy.workers=1,2,,4 --out r", ("'strategy.workers=1,2,,4'", "between commas")),
    Bad("over-value-twice", "sweep s.toml --over strategy.workers=1..3,2 --out r", ("--over", "strategy.workers", "2 twice")),
    Bad("over-zero-twice", "sweep s.toml --over run.seed=0,0 --out r", ("--over", "run.seed", "0 twice")),
    Bad("over-without-equals", "sweep s.toml --over strategy.workers --out r", ("--over 'strategy.workers'",)),
    Bad("over-missing", "sweep s.toml --out r", ("'--over'",)),
    Bad("over-wrong-value", "sweep s.toml --over strategy.workers=1,zwei --out r", ("--over", "strategy.workers=zwei", "'zwei'")),
    Bad("over-vanishing", "sweep s.toml --over workload.apply_s=1,1e-400 --out r", ("--over", "workload.apply_s: 1e-400")),
    Bad("over-wrong-key", "sweep s.toml --over strategy.wrokers=1,2 --out r", ("strategy.wrokers",)),
    Bad("over-twice", SWEEP + " --over strategy.workers=3 --out r", ("--over", "strategy.workers")),
    Bad(
        "over-a-million",
        f"sweep s.toml --over run.seed={SIZES[0]} --over run.steps={SIZES[1]} --over run.replications={SIZES[1]} --out r",
        ("1,030,301", "1,000,000"),
    ),
    Bad("out-is-another", SWEEP, ("s.ndjson", "--force"), {"s.ndjson": "mine"}),
    Bad("jobs-negative", SWEEP + " --jobs -1 --out r", ("--jobs", "'-1'")),
    Bad("jobs-as-text", SWEEP + " --jobs many --out r", ("--jobs", "'many'")),
    Bad("replications-one", SWEEP + " --replications 1 --out r", ("run.replications: 1",)),
]
OUTPUT = [
    Bad("folder", SWEEP + " --out sub", ("'sub'",), {"sub/x": ""}),
    Bad("in-a-file", SWEEP + " --out s.toml/r", ("'s.toml/r'",)),
    Bad("unwritable", SWEEP + " --out /proc/none/r", ("'/proc/none/r'",)),
    Bad("long-path", SWEEP + " --out " + "r" * 300, ("'rrrr",)),
    Bad("device", SWEEP + " --out /dev/null", ("--out '/dev/null'",)),
    Bad("the-scenario", SWEEP + " --out s.toml --force", ("'s.toml'",)),
    Bad("notes", SWEEP + " --out notes", ("--force",), {"notes": "remember the milk"}),
    Bad("trace-unwritable", SIM + " --trace /proc/none/t", ("'/proc/none/t'",)),
    Bad("trace-the-scenario", SIM + " --trace s.toml", ("'s.toml'",)),
]
REPORT = [
    Bad("empty", "report r", ("r: ",), {"r": ""}),
    Bad("no-json", "report r", ("r:1",), {"r": "workers, samples\n"}),
    Bad("no-result", "report r", ("r:1", "scenario_hash"), {"r": "{}\n"}),
    Bad("nan", "report r", ("r:1",), {"r": '{"schema_version": NaN}\n'}),
]
OWN = "init --step-time 1s --parameters 1e6"
INIT = [
    Bad("nobody-to-ask", "init", ("--workload", "--step-time", "--parameters")),
    Bad("half-a-workload", "init --step-time 1s", ("--parameters", "--step-time", "--workload")),
    Bad("other-half", "init --parameters 1e6", ("--step-time",)),
    Bad("nothing-of-it", "init --nodes 4", ("--step-time",)),
    Bad("both-workloads", "init --workload cnn-cpu --step-time 1s", ("--step-time", "--workload")),
    Bad("both-clusters", OWN + " --cluster ethernet-1g --latency 1us", ("--latency", "--cluster")),
    Bad("workload-unknown", "init --workload cnn-gpu", ("--workload", "'cnn-gpu'")),
    Bad("workload-missing", "init --workload no.toml", ("--workload", "'no.toml'")),
    Bad("cluster-unknown", OWN + " --cluster ethernet", ("--cluster", "'ethernet'")),
    Bad("no-time", "init --step-time fast --parameters 1e6", ("--step-time 'fast'",)),
    Bad("time-zero", "init --step-time 0s --parameters 1e6", ("--step-time '0s'",)),
    Bad("no-parameters", "init --step-time 1s --parameters 0", ("--parameters: 0",)),
    Bad("no-bandwidth", OWN + " --bandwidth 10", ("--bandwidth '10'",)),
    Bad("small-b", OWN + " --bandwidth 10gbit/s", ("--bandwidth '10gbit/s'", '"10Gbit/s"')),
    Bad("no-price", OWN + " --price cheap", ("--price",)),
    Bad("no-machine-for-servers", OWN + " --strategy async-ps --nodes 1", ("--nodes: 1", "--servers 1")),
    Bad("no-machines", OWN + " --nodes 0", ("--nodes: 0",)),
    Bad("strategy-unknown", OWN + " --strategy rnig", ("--strategy 'rnig'",)),
    Bad("strategy-that-cuts", OWN + " --strategy fsdp", ("--strategy 'fsdp'",)),
    Bad("half-a-job", OWN + " --epochs 9", ("--epochs", "--dataset-size")),
    Bad("exists", OWN + " --out s.toml", ("--out 's.toml'", "--force")),
    Bad("folder", OWN + " --out sub", ("'sub'",), {"sub/x": ""}),
]
GROUPS = {
    "keys": KEYS,
    "values": VALUES,
    "units": UNITS,
    "rules": RULES,
    "files": FILES,
    "typed": TYPED,
    "output": OUTPUT,
    "report": REPORT,
    "init": INIT,
}
ALL = [pytest.param(bad, id=f"{group}-{bad.name}") for group, cases in GROUPS.items() for bad in cases]


def put(folder: Path, files: Mapping[str, Content]) -> None:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())


@pytest.mark.parametrize("bad", ALL)
def test_bad_input_is_one_line(bad: Bad, folder: Path, refusal: Callable[..., None]) -> None:
    put(folder, bad.files)
    refusal(bad.command.split(" "), *bad.names)


def test_how_many_processes_may_be_is_for_the_cores_of_this_machine(folder: Path, paceline: Callable[..., Answer]) -> None:
    refused(paceline(*SWEEP.split(" "), "--jobs", "99999", "--out", "r"), "--jobs: 99999")
    assert not (folder / "r").exists()


@pytest.mark.parametrize("bad", [FILES[2]], ids=lambda bad: bad.name)
def test_the_same_in_a_process_of_its_own(bad: Bad, folder: Path, process: Callable[..., Answer]) -> None:
    put(folder, bad.files)
    refused(process(*bad.command.split(" ")), *bad.names)


def test_several_faults_are_told_together_one_a_line(folder: Path, paceline: Callable[..., Answer], snapshot: SnapshotAssertion) -> None:
    put(folder, edited("workers = 2", "workers = 0\nserver = 1"))
    answer = paceline("simulate", "s.toml")
    assert answer.code == 2
    first, second = answer.stderr.splitlines()
    assert first.startswith("paceline: s.toml: strategy.workers: 0 ")
    assert second.startswith("paceline: s.toml: strategy.server: ")
    assert answer.stderr == snapshot


def test_results_of_another_sweep_are_not_touched(folder: Path, paceline: Callable[..., Answer]) -> None:
    first = ("sweep", "s.toml", "--over", "strategy.workers=1,2", "--jobs", "1", "--out", "r.ndjson")
    assert paceline(*first).code == 0
    # the same scenarios in another order are not simulated again
    assert paceline(*first[:3], "strategy.workers=2,1", *first[4:]).code == 0
    before = contents(folder)
    refused(paceline(*first[:3], "strategy.workers=1", *first[4:]), "r.ndjson:1: ", "--force")
    assert contents(folder) == before
    assert paceline(*first[:3], "strategy.workers=1", *first[4:], "--force").code == 0
    assert len((folder / "r.ndjson").read_text().splitlines()) == 1


def test_a_results_file_cut_in_half_is_reported_up_to_the_cut(folder: Path, paceline: Callable[..., Answer]) -> None:
    assert paceline("sweep", "s.toml", "--over", "strategy.workers=1,2", "--jobs", "1", "--out", "r.ndjson").code == 0
    whole = (folder / "r.ndjson").read_bytes()
    (folder / "r.ndjson").write_bytes(whole[:-300])
    answer = paceline("report", "r.ndjson", "--json", "--no-simulate")
    assert answer.code == 0
    assert json.loads(answer.stdout)["results"] == 1
    assert "line 2" in answer.stderr
    (folder / "r.ndjson").write_bytes(whole[:300])
    refused(paceline("report", "r.ndjson"), "r.ndjson: ")


def test_steps_that_take_no_time_are_a_failed_run(refusal: Callable[..., None]) -> None:
    refusal(("simulate", "s.toml", "--set", 'workload.jitter={kind="gamma", shape=1e-4}'), "jitter", code=1)


def test_a_full_disk_is_a_failed_run(folder: Path) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-m", "paceline", "schema"], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    refused(Answer(done.returncode, "", done.stderr), "No space left on device", code=1)


def test_a_reader_that_leaves_is_no_error(folder: Path) -> None:
    child = subprocess.Popen([sys.executable, "-m", "paceline", "schema"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stderr is not None
    child.stdout.close()
    said = child.stderr.read()
    child.stderr.close()
    assert child.wait() == 0
    assert said == b""
