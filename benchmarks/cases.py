"""The cases of ``benchmarks/run.py``: what each runs, and what its figures must reach.

A case returns the runs that it timed and the findings drawn from them. Ratios are of CPU
time within one run of the case. ``quick`` makes a case small enough to see that it works;
its figures then say little.
"""

from __future__ import annotations

import math
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import plain_c
import simgrid_peer
from effort import beside_the_model
from learning import ten_thousand_updates
from measuring import Engine, Finding, Ran, alone, in_turn, missing, simulated, timed, with_engine
from scenarios import BANDWIDTH, COMPUTE_S, LATENCY_S, RING_BYTES, SIGMA, SIZE_BYTES, asynchronous, hybrid, ring

from paceline.sweeping.backends import local_workers
from simulator import Scenario, load_scenario, simulate
from simulator.engine.replication import replicate
from simulator.resolve.resolve import resolve

OF_C, OF_C_WITH_HOSTS, OF_C_RING = 0.6, 0.5, 0.9
HOST_S = 4.6e-3
"""About what gRPC costs a host for a message of the parameters."""
HUNDRED = 100.0
MILLION_S, MILLION_BYTES, MILLION_TIMES = 30.0, 300.0, 2.0
WINDOW_S = 10.0
SWEPT, SWEEP_S, BEYOND_ENGINE_S = 10_000, 600.0, 2e-3
SIMGRID_TIMES = 6.0


class Report(NamedTuple):
    """What a case gives."""

    runs: list[Ran]
    findings: list[Finding]


@dataclass(frozen=True)
class Case:
    """One row of the table: its name, what is run, and how."""

    name: str
    title: str
    run: Callable[[bool], Report]


# -- what stands beside the engines ---------------------------------------------------


@contextmanager
def _plain_program() -> Iterator[Path | None]:
    with tempfile.TemporaryDirectory() as folder:
        yield plain_c.build(Path(folder))


def _c_workers(program: Path, workers: int, steps: int, seed: int, host_s: float = 0.0) -> Ran:
    answer = plain_c.workers_of_a_server(program, workers, steps, SIZE_BYTES, BANDWIDTH, COMPUTE_S, seed, host_s)
    facts = {name: answer[name] for name in ("updates_per_s", "staleness")}
    return Ran("plain C", int(answer["worker_steps"]), answer["cpu_s"], int(answer["events"]), facts)


def _c_ring(program: Path, ranks: int, steps: int, seed: int) -> Ran:
    answer = plain_c.ring(program, ranks, steps, RING_BYTES, BANDWIDTH, LATENCY_S, COMPUTE_S, SIGMA, seed)
    return Ran("plain C", int(answer["messages"]), answer["cpu_s"], int(answer["events"]), {"end_s": answer["end_s"]})


def _ours(built: Scenario, engine: Engine, units: int) -> Callable[[int], Ran]:
    return lambda repeat: simulated(built, engine, units, repeat)


def _ratio(what: str, ours: Ran, theirs: Ran, *, least: float | None = None, most: float | None = None) -> Finding:
    """How many times as fast the one is as the other."""
    return Finding(what, ours.per_s / theirs.per_s, "x", least, most)


def _unmeasured(what: str, why: str, *, least: float | None = None, most: float | None = None) -> Finding:
    return Finding(what, None, "", least, most, why)


# -- the compiled engine --------------------------------------------------------------


def _beside_c(built: Scenario, small: Scenario, units: int, c: Callable[[Path, int], Ran], repeats: int, least: float) -> Report:
    """The compiled engine and plain C on one case, in turn; a small run loads the machine code."""
    what, why = "compiled, beside plain C", missing("compiled")
    with _plain_program() as program:
        if program is None or why is not None:
            return Report([], [_unmeasured(what, why or "no C compiler", least=least)])
        simulated(small, "compiled", 1)
        runs = in_turn(repeats, _ours(built, "compiled", units), partial(c, program))
    return Report(runs, [_ratio(what, *runs, least=least)])


def async_one_server(quick: bool, host_s: float = 0.0, least: float = OF_C) -> Report:
    workers, steps = 1024, 10 if quick else 100
    return _beside_c(
        asynchronous(workers, steps, warmup_steps=0, start="together", host_s=host_s),
        asynchronous(16, 2, host_s=host_s),
        workers * steps,
        lambda program, seed: _c_workers(program, workers, steps, seed, host_s),
        repeats=7,
        least=least,
    )


def async_with_hosts(quick: bool) -> Report:
    """The same where each message costs its hosts something, one message at a time."""
    return async_one_server(quick, HOST_S, OF_C_WITH_HOSTS)


def ring_by_messages(quick: bool) -> Report:
    ranks, steps = 128 if quick else 1024, 2
    return _beside_c(
        ring(ranks, steps, detail="messages"),
        ring(4, 2, detail="messages"),
        steps * 2 * ranks * (ranks - 1),
        lambda program, seed: _c_ring(program, ranks, steps, seed),
        repeats=3,
        least=OF_C_RING,
    )


def async_many_servers(quick: bool) -> Report:
    """So few workers that the textbook engine, which shares all links anew at each message, ends within a minute."""
    workers, steps = 16 if quick else 128, 2 if quick else 10
    built, what, why = asynchronous(workers, steps, servers=16, tensors=16), "compiled, beside the textbook engine", missing("compiled")
    if why is not None:
        return Report([], [_unmeasured(what, why, least=HUNDRED)])
    simulated(asynchronous(16, 2, servers=16, tensors=16), "compiled", 1)  # loads its machine code
    (compiled,) = in_turn(3, _ours(built, "compiled", workers * steps))
    (textbook,) = in_turn(1, _ours(built, "simpy", workers * steps))
    return Report([compiled, textbook], [_ratio(what, compiled, textbook, least=HUNDRED)])


def million(quick: bool) -> Report:
    workers, steps = 10_000 if quick else 1_000_000, 20
    names = "CPU time", "memory of a worker, beyond a small run"
    why = missing("compiled")
    ran = why if why is not None else alone("asynchronous", "compiled", workers * steps, workers=workers, steps=steps)
    if isinstance(ran, str):
        return Report([], [_unmeasured(name, ran, most=most) for name, most in zip(names, (MILLION_S, MILLION_BYTES), strict=True)])
    findings = [
        Finding(names[0], ran.cpu_s, "s", most=MILLION_S),
        Finding(names[1], ran.facts["bytes_beyond"] / workers, "bytes", most=MILLION_BYTES),
        Finding("reading the scenario", ran.facts["loading_s"], "s"),
    ]
    return Report([ran], findings)


def growth(quick: bool) -> Report:
    """At so few steps that a million workers take seconds; plain C's beside it, whose heaps leave the caches as ours do."""
    sizes = [1_000, 10_000] if quick else [1_000, 10_000, 100_000, 1_000_000]
    steps_of = {workers: max(5, 200_000 // workers) for workers in sizes}
    most, logarithm = MILLION_TIMES, math.log(sizes[-1]) / math.log(sizes[0])
    what = f"cost of a worker-step, {sizes[-1]:,} over {sizes[0]:,} workers (log n: {logarithm:.3g})"
    runs: list[Ran] = []
    findings = []
    with _plain_program() as program:
        if program is not None:
            beside = [_c_workers(program, workers, steps_of[workers], 1) for workers in sizes]
            runs += beside
            findings.append(Finding(f"{what}, plain C", beside[0].per_s / beside[-1].per_s, "x"))
    why = missing("compiled")
    ours = [] if why is not None else [alone("asynchronous", "compiled", n * steps_of[n], workers=n, steps=steps_of[n]) for n in sizes]
    good = [ran for ran in ours if isinstance(ran, Ran)]
    failed = next((ran for ran in ours if isinstance(ran, str)), why)
    if failed is not None:
        return Report([*good, *runs], [_unmeasured(what, failed, most=most), *findings])
    return Report([*good, *runs], [Finding(what, good[0].per_s / good[-1].per_s, "x", most=most), *findings])


# -- sweeps ---------------------------------------------------------------------------

_SWEPT_ASYNC = """
[workload]
name = "swept"
batch_per_replica = 1
forward = {base = "0 s", per_sample = "0 s"}
backward = {base = "100 ms", per_sample = "0 s"}
jitter = {kind = "exponential"}
variables = [{name = "v", size = "10 MB", creation_index = 0, ready = 1.0}]
[cluster]
name = "star"
inter_node = {bandwidth = "10 Gbit/s", latency = "0 s"}
[strategy]
kind = "parameter-server"
mode = "async"
workers = 64
[run]
steps = 100
replications = 3
"""
_SWEPT_RING = _SWEPT_ASYNC.replace('kind = "parameter-server"\nmode = "async"', 'kind = "multi-worker-mirrored"')


def sweeps(quick: bool) -> Report:
    """Half of the scenarios asynchronous, half rings: a grid of bandwidths and batches, by the command line, on two jobs.

    What a scenario costs beyond its engine's time is that of a sweep less that of a short
    one, so that the start of its processes is not counted.
    """
    compiled = missing("compiled") is None
    many = 5_000 if compiled and not quick else 40
    runs, findings, wall_s = [], [], 0.0
    for name, text in (("async", _SWEPT_ASYNC), ("ring", _SWEPT_RING)):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "swept.toml"
            file.write_text(f'{text}engine = "compiled"\n' if compiled else text, encoding="utf-8")
            (few_s, _), (cpu_s, its_wall_s) = (_swept(file, count) for count in (many // 10, many))
            engine_s = _engine_s(file, min(50, many))
        each_s = (cpu_s - few_s) / (many - many // 10)
        facts = {"wall_s": its_wall_s, "ms_each": each_s * 1e3, "engine_ms_each": engine_s * 1e3}
        runs.append(Ran(f"{name}, {'compiled' if compiled else 'simpy'}", many, cpu_s, None, facts))
        what = f"{name}: CPU time of a scenario beyond its engine's"
        findings.append(Finding(what, (each_s - engine_s) * 1e3, "ms", most=BEYOND_ENGINE_S * 1e3))
        wall_s += its_wall_s
    note = "" if 2 * many == SWEPT else f"from {2 * many:,}"
    return Report(
        runs, [Finding(f"wall time of {SWEPT:,} scenarios", wall_s / (2 * many) * SWEPT, "s", most=SWEEP_S, note=note), *findings]
    )


def _swept(file: Path, count: int) -> tuple[float, float]:
    """CPU and wall seconds of a sweep of so many scenarios."""
    wide = max(count // 50, 1)
    over = [
        f"cluster.inter_node.bandwidth={','.join(f'{5 + number / 10:g} Gbit/s' for number in range(wide))}",
        f"workload.batch_per_replica={','.join(str(1 + number) for number in range(count // wide))}",
    ]
    out = file.with_name(f"{count}.ndjson")
    command = [sys.executable, "-m", "paceline", "sweep", str(file), "--out", str(out), "--jobs", "2", "--yes"]
    return _of_children([*command, *(part for text in over for part in ("--over", text))])


def _of_children(command: list[str], environment: dict[str, str] | None = None) -> tuple[float, float]:
    """CPU and wall seconds of a command and all that it starts."""
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
    after, wall_s = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter() - begun
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall_s


def _engine_s(file: Path, count: int) -> float:
    """CPU seconds that the engine takes for a scenario's replications; the mean of some, in two processes at a time as in the sweep.

    Its tables or objects, what it draws and what it tells the recorder count as the engine's; compiling the program, the
    speeds of processes, the baseline where another scenario has left it, and everything before and behind do not.
    """
    with local_workers(2) as workers:
        return statistics.fmean(workers.map(partial(_engine_s_here, file), [count] * 2))


def _engine_s_here(file: Path, count: int) -> float:
    scenarios = [load_scenario(file, [("cluster.inter_node.bandwidth", f"{5 + n / 10:g} Gbit/s")]) for n in range(count)]
    simulate(scenarios[0])
    with _engines_timed() as spent_s:
        for scenario in scenarios:
            simulate(scenario)
    return math.fsum(spent_s) / count


@contextmanager
def _engines_timed() -> Iterator[list[float]]:
    """CPU seconds that engines take meanwhile in this process, for each replication."""
    from simulator.engine.replication import Run

    spent_s: list[float] = []
    own = Run.compiled, Run.simpy, Run.at_once

    def noted(runs: Callable[[Run], object]) -> Callable[[Run], object]:
        def run(its: Run) -> object:
            took_s, measured = timed(lambda: runs(its))
            spent_s.append(took_s)
            return measured

        return run

    Run.compiled, Run.simpy, Run.at_once = map(noted, own)
    try:
        yield spent_s
    finally:
        Run.compiled, Run.simpy, Run.at_once = own


# -- plans ----------------------------------------------------------------------------

_LAYERED = {
    "workload": {
        "name": "7B",
        "precision": "mixed_bfloat16",
        "batch_per_replica": 4,
        "transformer": {
            "layers": 32, "hidden": 4096, "heads": 32, "sequence": 2048, "vocabulary": 32000, "feed_forward": 11008, "gated": True,
            "tied": False, "bias": False, "dropout": False, "positions": 0, "attention": "fused",
        },
    },
    "cluster": {"use": "dgx-a100-80gb"},
    "strategy": {"kind": "hybrid", "workers": 64, "shard": "parameters"},
    "run": {"steps": 50, "seed": 1},
}  # fmt: skip
BESIDE_ENGINES = 1.0


def plan_of_layouts(quick: bool) -> Report:
    """Which way to cut a model of seven billion parameters, in this process: what is beside the engines, and what of it comes first."""
    import paceline

    run = {"run.steps": 10, "run.replications": 3} if quick else {}
    begun, told = time.process_time(), list[tuple[str, float]]()

    def note(done: int, total: int, what: str) -> None:  # noqa: ARG001 - as a plan tells of its progress
        told.append((what, time.process_time() - begun))

    simulate(load_scenario(_LAYERED, {"strategy.workers": 8, "run.steps": 4, "run.replications": 2, "training.recompute": "full"}))
    begun = time.process_time()
    with _engines_timed() as spent_s:
        cpu_s, found = timed(
            partial(
                paceline.plan, _LAYERED, samples=1e7, deadline="240h", workers=[8 if quick else 64], confidence=0.5 if quick else 0.95,
                settings=run, jobs=1, progress=note,
            )
        )  # fmt: skip
    engines_s, first_s = math.fsum(spent_s), next(at_s for what, at_s in told if what == "scenarios")
    runs = [Ran("plan", found.considered, cpu_s, None, {"simulated": float(found.simulated), "engines_s": engines_s})]
    each_s = first_s / found.considered
    findings = [
        Finding("CPU time beside the engines, over theirs", (cpu_s - engines_s) / engines_s, "x", most=BESIDE_ENGINES),
        Finding("a layout until it can be discarded: made, its memory, its bounds", each_s * 1e3, "ms"),
        Finding("CPU time until progress is told", told[0][1], "s", most=1.0),
    ]
    return Report(runs, findings)


# -- others --------------------------------------------------------------------------------


def simgrid(quick: bool) -> Report:
    workers, steps = 1024, 2 if quick else 100
    name, why = "compiled, beside SimGrid", simgrid_peer.missing()
    if why is not None:
        return Report([], [_unmeasured(name, why, least=SIMGRID_TIMES)])
    with tempfile.TemporaryDirectory() as folder:
        program = simgrid_peer.build(Path(folder))
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        rate, stale = simgrid_peer.their_server(program, workers, steps, BANDWIDTH, SIZE_BYTES, COMPUTE_S, seed=1)
        cpu_s = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
    theirs = Ran("SimGrid", workers * steps, cpu_s, None, {"updates_per_s": rate, "staleness": stale})
    (ours,) = in_turn(1, _ours(asynchronous(workers, steps, warmup_steps=0, start="together"), "compiled", workers * steps))
    return Report([ours, theirs], [_ratio(name, ours, theirs, least=SIMGRID_TIMES)])


def rings_at_once(quick: bool) -> Report:
    """All ranks at once, each with its own jitter: not held to anything but its last figures."""
    ranks, steps, tensors = (512, 50, 50) if quick else (4096, 1000, 200)
    slow_link = {"inter_node": {"bandwidth_bytes_per_s": BANDWIDTH / 2, "latency_s": LATENCY_S}}
    cases = {
        "one all-reduce a step": ring(ranks, steps, tensors=tensors),
        "buckets of 8 MB": ring(ranks, steps, tensors=tensors, bucket_size_bytes=8e6),
        "an all-reduce a tensor": ring(ranks, steps, tensors=tensors, bucket_size_bytes=1.0),
        "one rank with half the speed": ring(ranks, steps, tensors=tensors, odd={"speed": 0.5}),
        "one rank with half the bandwidth": ring(ranks, max(steps // 50, 2), tensors=tensors, odd=slow_link),
    }
    runs = []
    for name, built in cases.items():
        cpu_s, measured = timed(partial(replicate, resolve(built), 0))
        runs.append(Ran(name, ranks * built.run.steps, cpu_s, measured.events))
    return Report(runs, [])


def cut_models(quick: bool) -> Report:
    """Pipeline, split tensors and copies at once: one window of 20 steps, and what a user waits for, 19 of them."""
    devices, micro_batches, steps = 128 if quick else 4096, 32, 20
    built = hybrid(devices, steps, micro_batches=micro_batches, replications=19)
    why = missing("compiled")
    if why is not None:
        return Report([], [_unmeasured("CPU time of a window", why, most=WINDOW_S)])
    replicate(resolve(built), 0)  # what is made only once
    one = simulated(with_engine(built, "compiled"), "compiled", devices * steps)
    whole_s, _ = timed(partial(simulate, built))
    findings = [Finding("CPU time of a window", one.cpu_s, "s", most=WINDOW_S), Finding("of all 19 replications", whole_s, "s")]
    return Report([one], findings)


def whole_job(quick: bool) -> Report:
    """What lies beside steps, in turns with the same steps without it: an input pipeline, and a job of 90 epochs with faults."""
    ranks, steps, repeats = (16, 40, 2) if quick else (256, 200, 5)
    plain = {"ring": ring(ranks, steps, tensors=16), "async": asynchronous(ranks, steps // 4)}
    pipeline = {"work": {"serial": {"base_s": COMPUTE_S / 4, "per_sample_s": 0.0}}, "prefetch": 4}
    job = {
        "epochs": 90,
        "dataset_size": 1e6,
        "startup": "30 s",
        "checkpoint": {"every": "5 min", "write": "1 GB/s"},
        "faults": {"node_mtbf": "30 d", "restart": "60 s"},
    }
    runs, findings = [], []
    for name, bare in plain.items():
        cases = {
            name: bare,
            f"{name}, a pipeline": load_scenario(bare, {"input": pipeline}),
            f"{name}, a job": load_scenario(bare, {"job": job}),
        }
        least = dict.fromkeys(cases, math.inf)
        for round_ in range(repeats + 1):
            for number, (case, built) in enumerate(cases.items()):
                # another seed each time, so that nothing is kept from the time before
                its = built.model_copy(update={"run": built.run.model_copy(update={"seed": 3 * round_ + number})})
                cpu_s, _ = timed(partial(simulate, its))
                least[case] = min(least[case], cpu_s) if round_ else math.inf
        runs += [Ran(case, plain[name].run.total_steps(ranks), cpu_s) for case, cpu_s in least.items()]
        findings += [Finding(f"{case}; the same without", least[case] / least[name], "times") for case in list(cases)[1:]]
    return Report(runs, findings)


# -- starting -------------------------------------------------------------------------

START_TIMES = 3.0
"""Times ``import typer``, without which there is no command line."""
_LIBRARY = ["-c", "import simulator; simulator.simulate"]
_COMMAND = ["-m", "paceline"]
_TAB = {"_PACELINE_COMPLETE": "complete_zsh"}
_STARTS: dict[str, tuple[list[str], dict[str, str]]] = {
    "paceline --help": ([*_COMMAND, "--help"], {}),
    "paceline --version": ([*_COMMAND, "--version"], {}),
    "completing a command": (_COMMAND, {**_TAB, "_TYPER_COMPLETE_ARGS": "paceline si"}),
    "completing a key of --set": (_COMMAND, {**_TAB, "_TYPER_COMPLETE_ARGS": "paceline simulate ring --set strategy."}),
}
_WITHOUT_NUMBA = "import sys, simulator; simulator.simulate; sys.exit(3 if {'numba', 'llvmlite'} & set(sys.modules) else 0)"


def starting(quick: bool) -> Report:
    """CPU time of fresh interpreters, beside that of one which imports what they cannot do without; the least of several."""
    repeats = 2 if quick else 9
    # as an installed program starts: from compiled files
    as_installed = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}

    def once(name: str, code: list[str], **more: str) -> Ran:
        return Ran(name, 1, _of_children([sys.executable, *code], as_installed | more)[0])

    def all_once() -> list[Ran]:
        library = once("import numpy, pydantic", ["-c", "import numpy, pydantic"]), once("simulator.simulate", _LIBRARY)
        return [*library, once("import typer", ["-c", "import typer"]), *(once(name, code, **its) for name, (code, its) in _STARTS.items())]

    all_once()  # compiles what is not compiled yet
    runs = [min(its, key=lambda ran: ran.cpu_s) for its in zip(*(all_once() for _ in range(repeats)), strict=True)]
    packages, library, typer, *starts = runs
    free = subprocess.run([sys.executable, "-c", _WITHOUT_NUMBA], check=False).returncode == 0
    findings = [
        Finding(f"{library.by}, times importing numpy and pydantic", library.cpu_s / packages.cpu_s, "x"),
        *(Finding(f"{ran.by}, times import typer", ran.cpu_s / typer.cpu_s, "x", most=START_TIMES) for ran in starts),
        Finding("simulator.simulate imports no numba (1: so it is)", float(free), "", least=1.0),
    ]
    return Report(runs, findings)


CASES = {
    case.name: case
    for case in (
        Case("async", "1,024 asynchronous workers x 100 steps, one server, one tensor", async_one_server),
        Case("async-hosts", "the same with what messages cost hosts", async_with_hosts),
        Case("async-16", "128 asynchronous workers x 10 steps, 16 servers, 16 tensors, on both engines", async_many_servers),
        Case("ring", "ring of 1,024 ranks message by message", ring_by_messages),
        Case("million", "1,000,000 asynchronous workers x 20 steps, one server", million),
        Case("growth", "cost of a worker-step, 1,000 to 1,000,000 workers", growth),
        Case("sweep", "paceline sweep: 64 workers, 100 steps, 3 replications, async and ring, 2 jobs", sweeps),
        Case("plan", "a plan over all ways to cut a model of 7B parameters on 64 devices, in one process", plan_of_layouts),
        Case("simgrid", "the compiled engine beside SimGrid: 1,024 asynchronous workers of one server", simgrid),
        Case("rings", "rings of 4,096 ranks x 1,000 steps of 200 tensors, all ranks at once", rings_at_once),
        Case("hybrid", "4,096 devices: 8 stages x 8 that split tensors x 64 copies, 32 micro-batches, 20 steps", cut_models),
        Case("job", "input pipelines, and whole jobs with faults, beside steps alone: 256 workers", whole_job),
        Case("start", "starting", starting),
        Case("effort", "how long simulating takes, beside what the model says", lambda quick: Report(*beside_the_model(quick))),
        Case("learning", "10,000 updates by 64 workers, simulated and replayed", lambda quick: Report(*ten_thousand_updates(quick))),
    )
}
