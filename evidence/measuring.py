"""Uncertainty after measuring, by quantity, from the fits of Paceline's own measurements.

``python -m evidence.measuring`` reads every workload and cluster that was measured (``models/workloads``, ``models/measured``), and
rewrites ``models/measuring.toml``: for each quantity the median over these fits of the standard deviation of its logarithm over bootstrap
draws. :mod:`simulator.results.next_measurement` takes it for what a measurement is expected to leave.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from statistics import median, stdev

import tomlkit

from simulator.base import catalog
from simulator.base.files import EDITED, Output, read_toml
from simulator.base.rng import Streams
from simulator.base.validation_errors import validated
from simulator.resolve.measured_defaults import COMPUTE, HOSTS, JITTER
from simulator.results.next_measurement import BANDWIDTH
from simulator.spec.cluster import Cluster
from simulator.spec.uncertainty import with_draw
from simulator.spec.workload import Workload

_DRAWS = 60
_HEAD = """\
Uncertainty of a quantity after measuring: the standard deviation of its logarithm over the bootstrap draws of a
fit, in the median over fits. Written by `python -m evidence.measuring` from models/workloads and models/measured.
"""
_OF_CLUSTERS = {
    "inter_node.bandwidth_bytes_per_s": BANDWIDTH,
    "transport.cpu_per_message_s": HOSTS[0],
    "transport.copy_per_byte_s": HOSTS[1],
}


def _of_workload(load: Workload) -> Iterator[tuple[str, float]]:
    """Of a step with the batch in the middle of those measured, and of the spread of steps."""
    assert load.calibrated is not None
    assert load.uncertainty is not None
    batch = math.sqrt(math.prod(load.calibrated.batch))
    draws = [with_draw(load, load.uncertainty, Streams(0, number).generator("workload")) for number in range(_DRAWS)]
    yield COMPUTE, _sd([its.compute_s(batch) + its.apply_s for its in draws])
    if load.draws_its_distribution:
        yield JITTER, _sd([load.with_drawn_distribution(Streams(0, number).generator("law")).jitter.spread() for number in range(_DRAWS)])


def _of_cluster(cluster: Cluster) -> Iterator[tuple[str, float]]:
    assert cluster.uncertainty is not None
    for name, column in zip(cluster.uncertainty.parameters, zip(*cluster.uncertainty.draws, strict=True), strict=True):
        if name in _OF_CLUSTERS and (not name.startswith("inter_node") or cluster.basis == "measured"):
            yield _OF_CLUSTERS[name], _sd(column)


def _sd(values: list[float] | tuple[float, ...]) -> float:
    return stdev(map(math.log, values))


def _found(models: Path) -> Iterator[tuple[str, float]]:
    for path in sorted([*(models / "workloads").glob("*.toml"), *(models / "measured").glob("*/*.toml")]):
        table = read_toml(path)
        if "uncertainty" not in table:
            continue
        if "forward" in table:
            yield from _of_workload(validated(Workload, table, str(path)))
        else:
            yield from _of_cluster(validated(Cluster, table, str(path)))


def main() -> None:
    """Rewrite models/measuring.toml from all committed fits."""
    target = catalog.own_file("practice.toml").with_name("measuring.toml")
    found: dict[str, list[float]] = {}
    for name, sd in _found(target.parent):
        found.setdefault(name, []).append(sd)
    document = tomlkit.document()
    for line in _HEAD.splitlines():
        document.add(tomlkit.comment(line))
    document.add("schema_version", tomlkit.item(1))
    tables = tomlkit.aot()
    for name, values in found.items():
        table = tomlkit.table()
        spread = {"sd": median(values), "low": min(values), "high": max(values)}
        table.update({"quantity": name, **{key: float(f"{value:.3g}") for key, value in spread.items()}, "fits": len(values)})
        tables.append(table)
    document.add("left", tables)
    Output(target, EDITED, force=True).write(tomlkit.dumps(document))
    print(f"wrote {target}")  # noqa: T201


if __name__ == "__main__":
    main()
