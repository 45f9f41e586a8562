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

Content = str | bytes


@dataclass(frozen=True)
class Bad:
    """One mistake: what is typed, what the one line must name, and the files that differ from the valid ones."""

    name: str
    command: str
    says: tuple[str, ...]
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
    Bad("wrong", SIM, ("s.toml: strategy.wrokers: is no key of this table; did you mean workers?",), edited("workers = 2", "wrokers = 2")),
    Bad("wrong-deep", SIM, ("cluster.inter_node.latncy: is no key", "did you mean latency?"), edited(LATENCY, 'latncy = "20 us"')),
    Bad("wrong-in-list", SIM, ("workload.variables.1.zzz: is no key", "paceline schema"), edited('"1 kB"', '"1 kB", zzz = 3')),
    Bad("wrong-section", SIM, ("s.toml: runs: is no key", "did you mean run?"), edited("[run]", "[runs]")),
    Bad("named-as-a-kind", SIM, ("strategy.single: is no key",), edited("workers = 2", "single = 2")),
    Bad("with-line-break", SIM, (r"strategy.'wor\nkers': is no key",), edited("workers = 2", '"wor\\nkers" = 2')),
    Bad("with-escape", SIM, (r"strategy.'\x1b[31mred': is no key",), edited("workers = 2", '"\\u001b[31mred" = 2')),
    Bad("of-10000-letters", SIM, ("strategy.'kkkkk", "...': is no key"), edited("workers = 2", "k" * 10_000 + " = 2")),
    Bad(
        "both-names",
        SIM,
        ("cluster.inter_node: has both latency and latency_s; keep one",),
        edited(LATENCY, f"{LATENCY}, latency_s = 2e-5"),
    ),
    Bad("missing", SIM, ("s.toml: workload.backward: is missing",), edited('backward = {base = "2 ms", per_sample = "200 us"}\n', "")),
    Bad("missing-kind", SIM, ("s.toml: strategy.kind: is missing",), edited('kind = "parameter-server"\n', "")),
    Bad("missing-section", SIM, ("s.toml: strategy: is missing",), {"s.toml": SCENARIO.split("[strategy]")[0]}),
]
VALUES = [
    Bad("negative-bandwidth", SIM, ("cluster.inter_node.bandwidth: '-1 GB/s' must be above 0",), edited('"1 GB/s"', '"-1 GB/s"')),
    Bad("negative-latency", SIM, ("cluster.inter_node.latency_s: -1e-06 must be at least 0",), edited(LATENCY, "latency_s = -1e-6")),
    Bad("zero-workers", SIM, ("strategy.workers: 0 must be at least 1",), edited("workers = 2", "workers = 0")),
    Bad("workers-as-text", SIM, ("strategy.workers: '2' must be a whole number",), edited("workers = 2", 'workers = "2"')),
    Bad("workers-half", SIM, ("strategy.workers: 2.5 must be a whole number",), edited("workers = 2", "workers = 2.5")),
    Bad("workers-true", SIM, ("strategy.workers: true must be a whole number",), edited("workers = 2", "workers = true")),
    Bad("workers-as-date", SIM, ("strategy.workers: ", "must be a whole number"), edited("workers = 2", "workers = 2024-01-01")),
    Bad("400-digits", SIM, ("strategy.workers: 9999", "... must be at most 100000"), edited("workers = 2", "workers = " + "9" * 400)),
    Bad("5000-digits", SIM, ("s.toml: cannot be read: ", "4300 digits"), edited("workers = 2", "workers = " + "9" * 5000)),
    Bad("unknown-unit", SIM, ("inter_node.bandwidth: '1 parsec' must be", 'such as "25 Gbit/s"'), edited('"1 GB/s"', '"1 parsec"')),
    Bad("wrong-dimension", SIM, ("inter_node.bandwidth: '1 GB' must be a bandwidth",), edited('"1 GB/s"', '"1 GB"')),
    Bad("unit-alone", SIM, ("inter_node.latency: 'us' must be a time with its unit",), edited('"20 us"', '"us"')),
    Bad("decimal-comma", SIM, ("inter_node.latency: '1,5 ms' must be a time",), edited('"20 us"', '"1,5 ms"')),
    Bad("sum-to-work-out", SIM, ("inter_node.latency: '9**9**9 s' must be a time",), edited('"20 us"', '"9**9**9 s"')),
    Bad("bare-number", SIM, ('inter_node.latency: 20 must carry its unit, such as "20 us"',), edited('"20 us"', "20")),
    Bad("text-under-full-name", SIM, ("latency_s: '20 us' must be a plain number of seconds",), edited(LATENCY, 'latency_s = "20 us"')),
    Bad("endless-time", SIM, ("workload.forward.base: 'inf s' must be a time",), edited('"1 ms"', '"inf s"')),
    Bad("nan", SIM, ("workload.jitter.sigma: nan must be a finite number",), edited("sigma = 0.1", "sigma = nan")),
    Bad("inf", SIM, ("inter_node.latency_s: inf must be a finite number",), edited(LATENCY, "latency_s = inf")),
    Bad("unknown-kind", SIM, ("strategy.kind: 'ring' must be one of", "'multi-worker-mirrored'"), edited('"parameter-server"', '"ring"')),
    Bad("kind-as-list", SIM, ("strategy.kind: must be one of 'single'",), edited('"parameter-server"', "[1]")),
    Bad("unknown-mode", SIM, ("strategy.mode: 'hogwild' must be 'sync', 'async' or 'ssp'",), edited('mode = "async"', 'mode = "hogwild"')),
    Bad("10000-letters", SIM, ("strategy.mode: 'mmmm", "...' must be 'sync', 'async' or 'ssp'"), edited('"async"', f'"{"m" * 10_000}"')),
    Bad("unknown-law", SIM, ("workload.jitter.kind: 'weibull' must be one of",), edited('"lognormal", sigma', '"weibull", sigma')),
    Bad(
        "list-for-table",
        SIM,
        ("cluster.inter_node: must be a table, not a list",),
        edited('{bandwidth = "1 GB/s", latency = "20 us"}', "[1]"),
    ),
    Bad("table-for-text", SIM, ("cluster.name: must be text in quotes, not a table",), edited('"lab"', "{a = 1}")),
    Bad("truth-as-text", SIM + " --set run.drain='yes'", ("run.drain: 'yes' must be true or false",)),
    Bad("no-variables", SIM + " --set workload.variables=[]", ("workload.variables: must have 1 or more entries, not 0",)),
    Bad("ready-over-one", SIM, ("workload.variables.1.ready: 1.5 must be at most 1",), edited("ready = 1.0", "ready = 1.5")),
    Bad("speed-zero", SIM, ("cluster.node_speed.1: 0 must be above 0",), edited(LAB, f"{LAB}\nnode_speed = [1, 0]")),
    Bad("seed-below-zero", SIM, ("run.seed: -1 must be at least 0",), edited("steps = 4", "steps = 4\nseed = -1")),
    Bad("one-replication", SIM, ("run.replications: 1 must be at least 2",), edited("replications = 2", "replications = 1")),
    Bad("newer-version", SIM, ("s.toml: schema_version: 2 must be 1",), {"s.toml": "schema_version = 2\n" + SCENARIO}),
]
MEANT = 'did you mean "10 Mbit/s"?'
UNITS = [
    Bad("milli-bits", SIM, ("s.toml: cluster.inter_node.bandwidth: '10 mbit/s' must be", MEANT), edited('"1 GB/s"', '"10 mbit/s"')),
    Bad("milli-bytes", SIM, ("s.toml: workload.variables.0.size: '1 mb' must be", 'did you mean "1 MB"?'), edited('"1 MB"', '"1 mb"')),
    Bad("pico-bytes", SIM, ("variables.0.size: '100 pb' must be", 'did you mean "100 PB"?'), edited('"1 MB"', '"100 pb"')),
    Bad("nano-bytes", SIM, ("'1 nB' must be", "prefixes are k, K, M, G, T, P and Ki, Mi, Gi, Ti, Pi"), edited('"1 MB"', '"1 nB"')),
    Bad("mega-seconds", SIM, ("forward.base: '1 Ms' must be a time", 'did you mean "1 ms"?'), edited('base = "1 ms"', 'base = "1 Ms"')),
    Bad("set", SIM + " --set cluster.inter_node.bandwidth=10mbit/s", ("s.toml: cluster.inter_node.bandwidth: '10mbit/s'", "10Mbit/s")),
    Bad(
        "over", "sweep s.toml --over cluster.inter_node.bandwidth=1GB/s,10mbit/s --out r", ("inter_node.bandwidth: '10mbit/s'", "10Mbit/s")
    ),
    Bad(
        "cluster",
        SIM,
        ("paceline: c.toml: inter_node.bandwidth: '10 mbit/s' must be", MEANT),
        {**edited(USED, '[cluster]\nuse = "c.toml"'), "c.toml": CLUSTER.replace("1 GB/s", "10 mbit/s")},
    ),
    Bad(
        "matrix",
        "validate --matrix m.toml",
        ("m.toml: fit[0]: link.bandwidth: '10 mbit/s'", MEANT),
        {
            "m.toml": '[[fit]]\nmode = "async"\nworkers = 2\nlink = {bandwidth = "10 mbit/s"}\n',
        },
    ),
    Bad("deadline", "plan s.toml --samples 1e6 --deadline 12H", ("--deadline '12H'", 'did you mean "12h"?')),
]
RULES = [
    Bad(
        "both-batches",
        SIM,
        ("s.toml: workload has both batch_per_replica (10) and global_batch (20)",),
        edited("= 10", "= 10\nglobal_batch = 20"),
    ),
    Bad("no-batch", SIM, ("workload has neither batch_per_replica", "exactly one"), edited("batch_per_replica = 10\n", "")),
    Bad(
        "indivisible-batch",
        SIM,
        ("workload.global_batch (21) must be a multiple of the 2",),
        edited("batch_per_replica = 10", "global_batch = 21"),
    ),
    Bad("warm-up-too-long", SIM, ("run: warmup_steps (4) must be below steps (4)",), edited("steps = 4", "steps = 4\nwarmup_steps = 4")),
    Bad(
        "servers-over-variables",
        SIM,
        ("strategy.servers (3) must be at most the workload's 2",),
        edited("workers = 2", "workers = 2\nservers = 3"),
    ),
    Bad(
        "too-few-nodes",
        SIM,
        ("cluster.nodes (2) must be at least 3, which 2 replicas and 1 server of the strategy need",),
        edited(LAB, f"{LAB}\nnodes = 2"),
    ),
    Bad(
        "speeds-over-nodes",
        SIM,
        ("node_speed names 4 nodes, but there are 3",),
        edited(LAB, f"{LAB}\nnodes = 3\nnode_speed = [1, 1, 1, 1]"),
    ),
    Bad(
        "over-one-node",
        SIM + " --set strategy={kind='mirrored',replicas=4}",
        ("strategy.replicas (4) must be at most the 1", "multi-worker"),
    ),
    Bad(
        "creation-index-twice",
        SIM,
        ("workload: variables must carry each creation_index",),
        edited("creation_index = 1", "creation_index = 0"),
    ),
    Bad(
        "ready-out-of-order",
        SIM,
        ("workload: variables must be in the order", "but 'kernel' (ready 0.5) stands before 'bias' (ready 0.1)"),
        edited("ready = 1.0", "ready = 0.1"),
    ),
    Bad("staggered-alone", SIM, ('start = "staggered" and start_spread belong',), edited("steps = 4", 'steps = 4\nstart = "staggered"')),
    Bad("spread-alone", SIM, ('start = "staggered" and start_spread belong',), edited("steps = 4", 'steps = 4\nstart_spread = "1 s"')),
]
FILES = [
    Bad("missing", "simulate none.toml", ("none.toml: there is no such file; check the path",)),
    Bad("folder", "simulate sub", ("sub: cannot be read: Is a directory",), {"sub/x": ""}),
    Bad("binary", SIM, ("s.toml: is no text in UTF-8 (byte 128); give a TOML file",), {"s.toml": bytes(range(256))}),
    Bad("utf-16", SIM, ("s.toml: is no text in UTF-8 (byte 0)",), {"s.toml": SCENARIO.encode("utf-16")}),
    Bad("no-toml", SIM, ("s.toml: is no valid TOML: ", "line 1, column 9"), {"s.toml": "workload: {name: plain}\n"}),
    Bad("json", SIM, ("s.toml: is no valid TOML: ",), {"s.toml": '{"workload": {}}'}),
    Bad("key-twice", SIM, ("s.toml: is no valid TOML: ", "line 21"), edited("workers = 2", "workers = 2\nworkers = 3")),
    Bad("cut-in-half", SIM, ("s.toml: is no valid TOML: ", "end of document"), {"s.toml": SCENARIO[:250]}),
    Bad("empty", SIM, ("s.toml: is empty; a scenario has the tables [workload]",), {"s.toml": ""}),
    Bad("deep", SIM, ("s.toml: is nested too deeply",), {"s.toml": "a = " + "[" * 3000 + "]" * 3000}),
    Bad("in-a-file", "simulate s.toml/x.toml", ("s.toml/x.toml: cannot be read: Not a directory",)),
    Bad("long-path", "simulate " + "a" * 5000, ("aaaa ... aaaa", "cannot be read: File name too long")),
    Bad(
        "use-unknown",
        SIM,
        ("s.toml: cluster.use: there is no cluster named 'ethernet-52g'; did you mean ethernet-25g",),
        edited(USED, '[cluster]\nuse = "ethernet-52g"'),
    ),
    Bad("use-far-off", SIM, ("cluster.use: there is no cluster named 'zzzzzzz'; known are ",), edited(USED, '[cluster]\nuse = "zzzzzzz"')),
    Bad("use-number", SIM, ("cluster.use: 3 must be a name or a path in quotes",), edited(USED, "[cluster]\nuse = 3")),
    Bad("use-missing", SIM, ("cluster.use: no file 'none.toml'; give a path",), edited(USED, '[cluster]\nuse = "none.toml"')),
    Bad("use-zero-byte", SIM, (r"cluster.use: no file 'a\x00b.toml'",), edited(USED, '[cluster]\nuse = "a\\u0000b.toml"')),
    Bad(
        "vanishing",
        SIM,
        ("s.toml: 1e-400 is too small to be told from 0: write 0,",),
        edited(LAB, f"{LAB}\nprice = {{usd_per_node_hour = 1e-400}}"),
    ),
    Bad("use-long-path", SIM, ("cluster.use: no file 'aaaa", "aaa.toml'; give"), edited(USED, f'[cluster]\nuse = "{"a" * 5000}.toml"')),
    Bad("use-broken", SIM, ("c.toml: is no valid TOML: ",), {**edited(USED, '[cluster]\nuse = "c.toml"'), "c.toml": "name = \n"}),
    Bad(
        "use-invalid",
        SIM,
        ("paceline: c.toml: nodes: 0 must be at least 1",),
        {**edited(USED, '[cluster]\nuse = "c.toml"'), "c.toml": "nodes = 0\n" + CLUSTER},
    ),
    Bad(
        "use-other-kind",
        SIM,
        ("cluster.use: 'w.toml' must be a cluster file, but w.toml is a workload;",),
        {**edited(USED, '[cluster]\nuse = "w.toml"'), "w.toml": WORKLOAD},
    ),
    Bad(
        "use-with-precision",
        SIM + " --set workload={use='w.toml',batch_per_replica=1,precision='mixed_float16'}",
        ("workload.precision: 'mixed_float16' is not what 'w.toml' was measured in", "calibrate it again in that precision"),
        {"w.toml": WORKLOAD},
    ),
    Bad("sweep-missing", "sweep none.toml --over a=1 --out r.ndjson", ("none.toml: there is no such file",)),
]
SWEEP = "sweep s.toml --over strategy.workers=1,2"
SIZES = [",".join(map(str, range(start, start + 101))) for start in (0, 2)]
TYPED = [
    Bad("assumptions-in-json", SIM + " --json --assumptions", ("--assumptions: says nothing with --json",)),
    Bad("set-without-equals", SIM + " --set strategy.workers", ("--set 'strategy.workers': must be key=value",)),
    Bad("set-without-key", SIM + " --set =3", ("--set '=3': must be key=value",)),
    Bad("set-empty-part", SIM + " --set strategy..workers=3", ("--set 'strategy..workers=3': must be key=value",)),
    Bad("set-deep", SIM + " --set " + "a." * 2000 + "b=1", ("--set 'a.a.a", "at most 20 parts")),
    Bad("set-into-value", SIM + " --set strategy.workers.count=3", ("s.toml: strategy.workers.count: workers is 2, not a table",)),
    Bad("set-into-list", SIM + " --set workload.variables.0.size=1B", ("workload.variables.0.size: variables is a list",)),
    Bad("set-wrong-key", SIM + " --set strategy.wrokers=3", ("strategy.wrokers: is no key", "did you mean workers?")),
    Bad("set-wrong-value", SIM + " --set strategy.workers=many", ("strategy.workers: 'many' must be a whole number",)),
    Bad("set-wrong-unit", SIM + " --set cluster.inter_node.bandwidth=10Gbit", ("inter_node.bandwidth: '10Gbit' must be a bandwidth",)),
    Bad(
        "set-vanishing", SIM + " --set workload.apply_s=1e-400", ("--set workload.apply_s=1e-400 is too small to be told from 0: write 0,",)
    ),
    Bad("samples-as-thousands", SIM + " --samples 1.280", ("--samples", "'1.280' may be 1.28 or 1,280: write 1.28 or 1280")),
    Bad("samples-with-a-separator", SIM + " --samples 1_280", ("'1_280' must be a number; write it with a decimal point, and nothing",)),
    Bad("set-section", SIM + " --set strategy=3", ("s.toml: strategy: 3 must be a table",)),
    Bad("set-nothing", SIM + " --set", ("Option '--set' requires an argument",)),
    Bad("unknown-option", SIM + " --sett a=1", ("No such option: --sett; did you mean --set? (see `paceline simulate --help`)",)),
    Bad("unknown-command", "simulte s.toml", ("No such command 'simulte'", "did you mean simulate?", "paceline --help")),
    Bad("no-argument", "simulate", ("Missing argument 'SCENARIO.toml'", "paceline simulate --help")),
    Bad("two-arguments", "simulate s.toml t.toml", ("unexpected extra argument", "t.toml")),
    Bad(
        "schema-nonsense",
        "schema nonsense",
        ("'nonsense' is not one of 'scenario', 'workload', 'cluster', 'device', 'input', 'faults', 'result', 'testbed-setting'",),
    ),
    Bad(
        "show-unknown",
        "models show nothing",
        ("there is no workload, cluster, device, input or fault named 'nothing'", "paceline models list"),
    ),
    Bad("show-near", "models show ethernet-25", ("named 'ethernet-25'; did you mean ethernet-25g",)),
    Bad("show-missing-file", "models show none.toml", ("models: no file 'none.toml'",)),
    Bad(
        "show-scenario",
        "models show s.toml",
        ("s.toml: must be a workload, a cluster, a device, an input pipeline or a file of faults, but is a scenario;",),
    ),
    Bad("show-binary", "models show b.toml", ("b.toml: is no text in UTF-8",), {"b.toml": b"\xff\x00"}),
    Bad("over-without-values", "sweep s.toml --over strategy.workers= --out r", ("--over 'strategy.workers=': has no values",)),
    Bad("over-without-equals", "sweep s.toml --over strategy.workers --out r", ("--over 'strategy.workers': must be key=v1,v2",)),
    Bad("over-missing", "sweep s.toml --out r", ("Missing option '--over'",)),
    Bad(
        "over-wrong-value",
        "sweep s.toml --over strategy.workers=1,zwei --out r",
        ("--over strategy.workers=zwei", "'zwei' must be a whole number"),
    ),
    Bad("over-vanishing", "sweep s.toml --over workload.apply_s=1,1e-400 --out r", ("--over workload.apply_s: 1e-400 is too small",)),
    Bad("over-wrong-key", "sweep s.toml --over strategy.wrokers=1,2 --out r", ("strategy.wrokers: is no key", "did you mean workers?")),
    Bad("over-twice", SWEEP + " --over strategy.workers=3 --out r", ("--over strategy.workers: is given twice",)),
    Bad(
        "over-a-million",
        f"sweep s.toml --over run.seed={SIZES[0]} --over run.steps={SIZES[1]} --over run.replications={SIZES[1]} --out r",
        ("the grid has 1,030,301 scenarios; at most 1,000,000",),
    ),
    Bad("out-is-another", SWEEP, ("s.ndjson: is there already and is no results file", "--force"), {"s.ndjson": "mine"}),
    Bad("jobs-negative", SWEEP + " --jobs -1 --out r", ("--jobs", "'-1' must be greater than or equal to 0")),
    Bad("jobs-as-text", SWEEP + " --jobs many --out r", ("--jobs", "'many' must be a valid integer")),
    Bad("jobs-too-many", SWEEP + " --jobs 99999 --out r", ("--jobs: 99999 must be at most", "per core")),
    Bad("replications-one", SWEEP + " --replications 1 --out r", ("run.replications: 1 must be at least 2",)),
]
OUTPUT = [
    Bad("folder", SWEEP + " --out sub", ("'sub': is a folder; give the name of a file",), {"sub/x": ""}),
    Bad("in-a-file", SWEEP + " --out s.toml/r", ("'s.toml/r': cannot be written: s.toml is a file, not a folder",)),
    Bad("unwritable", SWEEP + " --out /proc/none/r", ("'/proc/none/r': cannot be written: ", "choose another path")),
    Bad("long-path", SWEEP + " --out " + "r" * 300, ("'rrrr", "cannot be written: File name too long")),
    Bad("device", SWEEP + " --out /dev/null", ("--out '/dev/null': is no regular file",)),
    Bad("the-scenario", SWEEP + " --out s.toml --force", ("'s.toml': is the file that is read",)),
    Bad("notes", SWEEP + " --out notes", ("notes: is there already and is no results file", "--force"), {"notes": "remember the milk"}),
    Bad("trace-folder", SIM + " --trace sub", ("'sub': is a folder",), {"sub/x": ""}),
    Bad("trace-unwritable", SIM + " --trace /proc/none/t", ("'/proc/none/t': cannot be written: ",)),
    Bad("trace-the-scenario", SIM + " --trace s.toml", ("'s.toml': is the file that is read",)),
]
REPORT = [
    Bad("missing", "report none.ndjson", ("none.ndjson: there is no such file",)),
    Bad("folder", "report sub", ("sub: cannot be read: Is a directory",), {"sub/x": ""}),
    Bad("empty", "report r", ("r: holds no result",), {"r": ""}),
    Bad("no-json", "report r", ("r:1: must be JSON, one result a line",), {"r": "workers, samples\n"}),
    Bad("no-result", "report r", ("r:1: scenario_hash is missing",), {"r": "{}\n"}),
    Bad("newer", "report r", ("r:1: schema_version 2 is newer than 1", "update Paceline"), {"r": '{"schema_version": 2}\n'}),
    Bad("nan", "report r", ("r:1: ",), {"r": '{"schema_version": NaN}\n'}),
    Bad("binary", "report r", ("r:1: must be JSON",), {"r": b"\xff\xfe\x00\n"}),
]
OWN = "init --step-time 1s --parameters 1e6"
INIT = [
    Bad("nobody-to-ask", "init", ("init: nobody can be asked here; give --workload NAME, or --step-time and --parameters",)),
    Bad("half-a-workload", "init --step-time 1s", ("--parameters: is missing", "--step-time and --parameters", "--workload")),
    Bad("other-half", "init --parameters 1e6", ("--step-time: is missing",)),
    Bad("nothing-of-it", "init --nodes 4", ("--step-time: is missing",)),
    Bad("both-workloads", "init --workload cnn-cpu --step-time 1s", ("--step-time: says nothing with --workload",)),
    Bad("both-clusters", OWN + " --cluster ethernet-1g --latency 1us", ("--latency: says nothing with --cluster",)),
    Bad("workload-unknown", "init --workload cnn-gpu", ("--workload: there is no workload named 'cnn-gpu'; did you mean cnn-cpu",)),
    Bad("workload-missing", "init --workload no.toml", ("--workload: no file 'no.toml'",)),
    Bad("cluster-unknown", OWN + " --cluster ethernet", ("--cluster: there is no cluster named 'ethernet'; did you mean ethernet-",)),
    Bad("no-time", "init --step-time fast --parameters 1e6", ("--step-time 'fast' must be a time with its unit",)),
    Bad("time-zero", "init --step-time 0s --parameters 1e6", ("--step-time '0s' must be above 0",)),
    Bad("no-parameters", "init --step-time 1s --parameters 0", ("--parameters: 0 must be at least 1",)),
    Bad("no-bandwidth", OWN + " --bandwidth 10", ("--bandwidth '10' must be a bandwidth with its unit",)),
    Bad("small-b", OWN + " --bandwidth 10gbit/s", ("--bandwidth '10gbit/s' must be", 'did you mean "10Gbit/s"?')),
    Bad("no-price", OWN + " --price cheap", ("--price", "US dollars over a time")),
    Bad("no-machine-for-servers", OWN + " --strategy async-ps --nodes 1", ("--nodes: 1 must be at least 2", "--servers 1")),
    Bad("no-machines", OWN + " --nodes 0", ("--nodes: 0 must be at least 1",)),
    Bad("strategy-unknown", OWN + " --strategy rnig", ("--strategy 'rnig'", "did you mean ring")),
    Bad("strategy-that-cuts", OWN + " --strategy fsdp", ("--strategy 'fsdp': needs more than these figures",)),
    Bad("half-a-job", OWN + " --epochs 9", ("--epochs: goes with --dataset-size",)),
    Bad("exists", OWN + " --out s.toml", ("--out 's.toml': is there already; overwrite it with --force, or choose another --out",)),
    Bad("folder", OWN + " --out sub", ("'sub': is a folder",), {"sub/x": ""}),
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
def test_bad_input_is_one_line(bad: Bad, folder: Path, paceline: Callable[..., Answer]) -> None:
    put(folder, bad.files)
    before = contents(folder)
    refused(paceline(*bad.command.split(" ")), *bad.says)
    assert contents(folder) == before


def test_there_are_enough_of_them() -> None:
    assert len({bad.command + repr(bad.files) for cases in GROUPS.values() for bad in cases}) >= 45


@pytest.mark.parametrize("bad", [KEYS[0], VALUES[0], FILES[2], TYPED[11], OUTPUT[0], REPORT[3]], ids=lambda bad: bad.name)
def test_the_same_in_a_process_of_its_own(bad: Bad, folder: Path, process: Callable[..., Answer]) -> None:
    put(folder, bad.files)
    refused(process(*bad.command.split(" ")), *bad.says)


def test_several_faults_are_told_together_one_a_line(folder: Path, paceline: Callable[..., Answer]) -> None:
    put(folder, edited("workers = 2", "workers = 0\nserver = 1"))
    answer = paceline("simulate", "s.toml")
    assert answer.code == 2
    assert answer.stderr.splitlines() == [
        "paceline: s.toml: strategy.workers: 0 must be at least 1",
        "paceline: s.toml: strategy.server: is no key of this table; did you mean servers?",
    ]


def test_results_of_another_sweep_are_not_touched(folder: Path, paceline: Callable[..., Answer]) -> None:
    first = ("sweep", "s.toml", "--over", "strategy.workers=1,2", "--jobs", "1", "--out", "r.ndjson")
    assert paceline(*first).code == 0
    # the same scenarios in another order are not simulated again
    assert paceline(*first[:3], "strategy.workers=2,1", *first[4:]).code == 0
    before = contents(folder)
    refused(paceline(*first[:3], "strategy.workers=1", *first[4:]), "r.ndjson:1: holds the results of another sweep", "--force")
    assert contents(folder) == before
    assert paceline(*first[:3], "strategy.workers=1", *first[4:], "--force").code == 0
    assert len((folder / "r.ndjson").read_text().splitlines()) == 1


def test_a_results_file_cut_in_half_is_reported_up_to_the_cut(folder: Path, paceline: Callable[..., Answer]) -> None:
    assert paceline("sweep", "s.toml", "--over", "strategy.workers=1,2", "--jobs", "1", "--out", "r.ndjson").code == 0
    whole = (folder / "r.ndjson").read_bytes()
    (folder / "r.ndjson").write_bytes(whole[:-300])
    answer = paceline("report", "r.ndjson", "--json")
    assert answer.code == 0
    assert json.loads(answer.stdout)["results"] == 1
    assert "ends in the middle of line 2" in answer.stderr
    (folder / "r.ndjson").write_bytes(whole[:300])
    refused(paceline("report", "r.ndjson"), "r.ndjson: holds no complete result")


def test_steps_that_take_no_time_are_a_failed_run(folder: Path, paceline: Callable[..., Answer]) -> None:
    refused(paceline("simulate", "s.toml", "--set", 'workload.jitter={kind="gamma", shape=1e-4}'), "check the times and the jitter", code=1)


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
