"""The law of input pipelines: every rank is fed, with as much reading and work as its batches need."""

from __future__ import annotations

import numpy as np

from oracles.programs.walk import broken
from simulator.program.port_names import PortKind
from simulator.program.program import Program
from simulator.scenario import Scenario
from simulator.spec.input_pipeline import InputWork


def pipelines_prepare_the_batches(program: Program, scenario: Scenario) -> None:
    """Each rank has an input pipeline, alone or with others of its process; together they read and work as much as all batches need."""
    law, feed, work = pipelines_prepare_the_batches, program.feed, scenario.input_work
    if scenario.layout.client or work is None:
        input_s = 0.0 if scenario.layout.client else float(scenario.workload.input(scenario.batch))
        if (float(feed.own_s.max(initial=0.0) + feed.work_s.sum(axis=1).max(initial=0.0)) if feed is not None else 0.0) != input_s:
            raise broken(law, f"pipelines: do not prepare a batch in {input_s:g} s")
        return
    if feed is None:
        if work != InputWork():
            raise broken(law, "pipelines: there are none")
        return
    copies = np.unique(np.stack([feed.of_rank, program.ranks.copy]), axis=1)
    if copies.shape[1] != scenario.replicas:
        raise broken(law, "pipelines: several feed one copy of the model")
    samples = scenario.batch * np.bincount(copies[0])
    reads = work.read_bytes_per_sample * samples
    crossing = [program.paths.first[path] for path in feed.path.T]
    kinds = [program.ports.names[int(program.paths.port[first[0]])].kind for first in crossing]
    flowing = [kind != PortKind.HOST_CORES for kind in kinds]
    if any(flowing) and not np.allclose(feed.amount[:, flowing].sum(axis=1), reads, rtol=1e-12):
        raise broken(law, f"pipelines: do not read {reads.sum():g} bytes a step")
    parts_s = np.array([(work.serial(each), work.parallel(each)) for each in samples.tolist()])
    cpu_s = parts_s.sum(axis=1)
    shared_s = feed.work_s.sum(axis=1) + feed.amount[:, [not flows for flows in flowing]].sum(axis=1)
    if shared_s.any() and not np.allclose(shared_s, cpu_s, rtol=1e-9):
        raise broken(law, f"pipelines: do not work for {cpu_s.sum():g} s on the batches of a step")
    calls = scenario.input.parallel_calls if scenario.input is not None else 1
    least_s = np.maximum(parts_s[:, 0], parts_s[:, 1] / calls)
    if not shared_s.any() and (feed.own_s < least_s * (1 - 1e-9)).any():
        raise broken(law, f"pipelines: prepare a batch in less than {least_s.max():g} s")
