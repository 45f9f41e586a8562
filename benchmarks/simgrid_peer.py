"""SimGrid as a peer: the same flows over the same star, its shares max-min fair as ours are.

SimGrid (Casanova et al., "Versatile, scalable, and accurate simulation of distributed
applications and platforms", 2014) gives flows TCP's shares by default. The options below
take that away: no window, no cross-traffic of acknowledgements, no factors on bandwidth
and latency, no share by round-trip time beyond equal latencies.
"""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import numpy as np

from simulator.engine.production import codes
from simulator.engine.production.codes import DRAINED, FULL, HANDLE
from simulator.engine.production.machine import act
from simulator.engine.production.state import State
from simulator.program.program import Changes, Paths, Ports
from simulator.spec.transport import Transport

SOURCE = Path(__file__).with_name("simgrid_star.cpp")
COMPILER = shutil.which("g++")
OPTIONS = (
    "--cfg=network/model:CM02",
    "--cfg=network/TCP-gamma:0",
    "--cfg=network/crosstraffic:0",
    "--cfg=network/bandwidth-factor:1",
    "--cfg=network/latency-factor:1",
    "--cfg=network/weight-S:0",
    "--cfg=contexts/factory:raw",
    "--cfg=surf/precision:1e-9",
    "--log=root.thres:error",
)


class Flow(NamedTuple):
    """When it starts, between which hosts, and how many bytes it has."""

    start_s: float
    source: int
    target: int
    size_bytes: float


class Star(NamedTuple):
    """Hosts by the bytes/s of their links, the latency between two, and what they send."""

    bandwidths: list[float]
    latency_s: float
    flows: list[Flow]
    changes: Changes | None = None
    """What others take from all links; of flows that share them fairly as many as at the beginning."""


def missing() -> str | None:
    """Why SimGrid cannot be asked here; none if it can."""
    if COMPILER is None:
        return "no g++"
    code = "#include <simgrid/s4u.hpp>\n"
    probe = subprocess.run([COMPILER, "-E", "-x", "c++", "-"], input=code, text=True, capture_output=True, check=False)
    return None if probe.returncode == 0 else "SimGrid's headers are not installed (Debian: libsimgrid-dev)"


def build(folder: Path) -> Path:
    """Compile the program that simulates a star."""
    program = folder / "simgrid_star"
    subprocess.run([str(COMPILER), "-O2", "-std=c++17", "-o", program, SOURCE, "-lsimgrid"], check=True)
    return program


def random_star(seed: int, hosts: int, flows: int, *, equal: bool) -> Star:
    """Flows of 0.1 to 20 MB at random times; so many that a host's link has several at a time."""
    chance = random.Random(seed)
    bandwidths = [1.25e8 if equal else chance.choice([2.5e7, 1.25e8, 1.25e8, 5e8]) for _ in range(hosts)]
    busy_s = 10e6 * flows / hosts / 1.25e8
    chosen = []
    for _ in range(flows):
        source, target = chance.sample(range(hosts), 2)
        chosen.append(Flow(round(chance.uniform(0.0, 0.5 * busy_s), 6), source, target, float(chance.randrange(100_000, 20_000_000))))
    return Star(bandwidths, chance.choice([0.0, 1e-4, 5e-3]), chosen)


def ours(star: Star) -> list[float]:
    """When each flow ends, by this simulator's network."""
    state = _network_of(star)
    begins, arrives = codes.FIRST << 32, (codes.FIRST + 1) << 32
    act(state.address, 6, 0, 0.0, 0, 0, 0)
    for number, flow in enumerate(star.flows):
        state.grow()
        act(state.address, 3, 0, flow.start_s, begins | number, 0, 0)
    ends = [0.0] * len(star.flows)
    while (why := act(state.address, 8, 1 << 60, 0.0, 0, 0, 0)) != DRAINED:
        if why == FULL:
            state.grow()
            continue
        assert why == HANDLE, why
        what = int(state.s.what)
        number = what & 0xFFFFFFFF
        if what < arrives:
            act(state.address, 1, number, star.flows[number].size_bytes, arrives | number, 0, 0)
        else:
            ends[number] = float(state.s.now)
    return ends


def _network_of(star: Star) -> State:
    """Two ports a host, out and in, and a path a flow, which belongs to no host that would spend time on it."""
    whole, changes, flows = np.array([*star.bandwidths, *star.bandwidths]), star.changes, len(star.flows)
    left, beside = whole.copy(), np.zeros(len(whole))
    if changes is not None:
        left[changes.port] *= changes.left[0]
        beside[changes.port] = changes.beside[0]
    no_limit = np.full(len(whole), np.inf), np.zeros(len(whole)), np.ones(len(whole), dtype=int)
    crossed = np.array([(flow.source, len(star.bandwidths) + flow.target) for flow in star.flows]).ravel()
    nobody = np.full(flows, -1)
    paths = Paths(2 * np.arange(flows + 1), crossed, np.full(flows, star.latency_s), nobody, nobody, np.zeros(flows, dtype=bool))
    return State(Ports(left, *no_limit, (), whole, beside), paths, 0, Transport(), changes=changes)


def theirs(program: Path, star: Star) -> list[float]:
    """When each flow ends, by SimGrid."""
    lines = [" ".join(map(repr, star.bandwidths)), *(f"{f.start_s!r} {f.source} {f.target} {f.size_bytes:.0f}" for f in star.flows)]
    others = []
    if (its := star.changes) is not None:
        profile = ", ".join(f"{at!r} {left!r}" for at, left in zip(its.at_s.tolist(), its.left.tolist(), strict=True))
        assert its.repeat_s is None, "how SimGrid repeats a profile is another matter"
        others = [str(int(its.beside[0])), "-1", profile]
    command = [program, "flows", str(len(star.bandwidths)), repr(star.latency_s), *others, *OPTIONS]
    answer = subprocess.run(command, input="\n".join(lines), text=True, capture_output=True, check=True)
    return [float(line) for line in answer.stdout.split()]


def their_server(program: Path, workers: int, steps: int, bandwidth: float, size_bytes: float, compute_s: float, seed: int) -> list[float]:
    """Updates a second and mean staleness of asynchronous workers of one server, by SimGrid."""
    numbers = [workers, steps, bandwidth, f"{size_bytes:.0f}", compute_s, seed]
    answer = subprocess.run([program, "server", *map(str, numbers), *OPTIONS], text=True, capture_output=True, check=True)
    return [float(number) for number in answer.stdout.split()]
