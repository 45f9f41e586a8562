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

from simulator.network.flows import Network
from simulator.network.kernel import Kernel
from simulator.network.ports import Connection, Port, leave_out_ample
from simulator.program.program import Changes

__all__ = ["Flow", "Star", "build", "missing", "ours", "random_star", "their_server", "theirs"]

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
    """When each flow ends, by this simulator."""
    kernel = Kernel()
    network = Network(kernel)
    out = [Port(f"host {host} out", rate) for host, rate in enumerate(star.bandwidths)]
    into = [Port(f"host {host} in", rate) for host, rate in enumerate(star.bandwidths)]
    if star.changes is not None:
        for port in (*out, *into):
            port.leave(float(star.changes.left[0]), float(star.changes.beside[0]))
        network.follow([*out, *into], star.changes)
    connections = [Connection((out[flow.source], into[flow.target]), star.latency_s) for flow in star.flows]
    leave_out_ample(connections)
    ends = [0.0] * len(connections)

    def end(number: int) -> None:
        ends[number] = kernel.now

    def begin(number: int) -> None:
        network.send(connections[number], star.flows[number].size_bytes, lambda _: end(number))

    for number, flow in enumerate(star.flows):
        kernel.call_later(flow.start_s, lambda _, number=number: begin(number))
    kernel.run()
    return ends


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
