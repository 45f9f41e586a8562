"""Paceline's network beside SimGrid's: ``python benchmarks/simgrid_compare.py``.

Prints by how much the times of the same flows differ. With ``--server`` also the
throughput and staleness of 1,024 asynchronous workers of one server, 100 steps each (a
minute or two of SimGrid): the draws differ, so the two agree as two seeds do.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import simgrid_peer as peer
from scenarios import asynchronous

from simulator.engine.replication import replicate
from simulator.resolve.resolve import resolve

CASES = [(2, 200), (4, 200), (8, 400), (16, 400), (32, 600), (64, 1000)]


def flows(program: Path) -> None:
    print(f"{'star':32s} {'flows':>6s} {'worst':>9s} {'mean':>9s}   relative difference of a flow's end")
    for hosts, count in CASES:
        for equal in (True, False):
            star = peer.random_star(hosts, hosts, count, equal=equal)
            pairs = zip(peer.ours(star), peer.theirs(program, star), strict=True)
            differences = [abs(ours - theirs) / theirs for ours, theirs in pairs]
            name = f"{hosts} hosts, {'equal' if equal else 'different'} links"
            print(f"{name:32s} {count:6d} {max(differences):9.2g} {sum(differences) / count:9.2g}")


def server(program: Path, workers: int = 1024, steps: int = 100) -> None:
    bandwidth, size_bytes, compute_s = 1.25e9, 10e6, 0.1
    rate, stale = peer.their_server(program, workers, steps, bandwidth, size_bytes, compute_s, seed=1)
    print(f"{workers} workers x {steps} steps, SimGrid: {rate:.3f} updates/s, mean staleness {stale:.2f}")
    for seed in range(2):
        measured = replicate(resolve(asynchronous(workers, steps, size_bytes=size_bytes, warmup_steps=0, start="together")), seed)
        rate, stale = measured.updates / measured.window_s, measured.staleness.mean()
        print(f"  Paceline, seed {seed}: {rate:.3f} updates/s, mean staleness {stale:.2f}")


def main() -> None:
    reason = peer.missing()
    if reason is not None:
        sys.exit(f"SimGrid cannot be asked: {reason}")
    with tempfile.TemporaryDirectory() as folder:
        program = peer.build(Path(folder))
        flows(program)
        if "--server" in sys.argv:
            server(program)


if __name__ == "__main__":
    main()
