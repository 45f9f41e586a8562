"""What tests measure of runs: rates of replications, means within their standard errors, recordings in milliseconds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from simulator import Scenario
from simulator.engine.recorder import Measured
from simulator.engine.replication import Shared, replicate
from simulator.observing.recording import Recording
from simulator.resolve.resolve import resolve
from support.engines import disagreement, run

FAST = {"inter_node": {"bandwidth": "1000000 GB/s", "latency": "0 s"}}
"""A cluster whose network costs nothing: a megabyte takes a nanosecond."""
COMPUTE_S = 6e-3
"""Forward (2 ms) and backward pass (4 ms) of the sample scenario."""


def recorded(scenario: Scenario, replication: int = 0) -> Recording:
    """All records of one replication."""
    recording = Recording(resolve(scenario))
    replicate(resolve(scenario), replication, recording)
    return recording


def measured(scenario: Scenario, replications: int) -> list[Measured]:
    """Many replications by machine code; SimPy makes the first of them as well, which has the same events and numbers."""
    shared = Shared()
    witness, compiled = (run(scenario, engine, observer=False).measured for engine in ("simpy", "compiled"))
    assert witness is not None
    assert compiled is not None
    assert disagreement(witness, compiled) is None
    return [replicate(resolve(scenario), number, engine="compiled", shared=shared) for number in range(replications)]


def steps_per_s(scenario: Scenario, replications: int) -> np.ndarray:
    """Steps per second of each replication."""
    return np.array([run.steps / run.window_s for run in measured(scenario, replications)])


def seconds_per_update(scenario: Scenario, replications: int) -> np.ndarray:
    """Mean seconds between updates of each replication."""
    return np.array([run.window_s / run.updates for run in measured(scenario, replications)])


def assert_mean(sample: np.ndarray | Sequence[float], want: float, z: float = 4.0) -> None:
    """The sample's mean lies within z of its standard errors, and these are small enough to tell anything.

    z = 4 makes a false alarm a matter of one in ten thousand; seeds are fixed, so there is none.
    """
    sample = np.asarray(sample)
    error = sample.std(ddof=1) / np.sqrt(len(sample))
    assert abs(sample.mean() - want) < z * error, f"{sample.mean():.6g} +- {error:.2g}, not {want:.6g}"
    assert error < 0.02 * want, "the sample is too small to tell anything"


def ms(*seconds: float) -> list[float]:
    """Times in milliseconds, rounded to a picosecond."""
    return [round(value * 1e3, 9) for value in seconds]
