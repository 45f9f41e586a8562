"""One result as a point of a curve, and the curves."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.results import Breakdown, Result

__all__ = ["PARTS", "Point", "Series"]

PARTS = {
    "input": "Input",
    "compute": "Compute",
    "exposed_communication": "Exposed communication",
    "waiting": "Waiting for others",
    "apply": "Apply",
}
"""The parts of a step, in the order in which they are stacked."""


@dataclass(frozen=True)
class Point:
    """The figures of one result; rates in samples/s, times in seconds.

    Attributes
    ----------
    single
        Throughput of one worker, from which speed-up and efficiency are counted.
    hollow
        Whether it lies beyond what was calibrated.
    """

    workers: int
    throughput: float
    low: float
    high: float
    single: float
    error: float
    speedup: float
    efficiency: float
    efficiency_low: float
    efficiency_high: float
    step_mean: float
    step_p50: float
    step_p95: float
    staleness_mean: float
    staleness_p95: int
    staleness_max: int
    asynchronous: bool
    breakdown: Breakdown
    bottleneck: str
    bottleneck_text: str
    hollow: bool
    warnings: int
    scenario_hash: str

    @classmethod
    def of(cls, result: Result) -> Point:
        """Take from a result what a reader sees of it."""
        rate, staleness = result.throughput_samples_per_s, result.staleness
        per_rate = result.scaling_efficiency / rate.mean if rate.mean > 0 else 0.0
        return cls(
            workers=result.replicas,
            throughput=rate.mean,
            low=rate.low,
            high=rate.high,
            single=rate.mean / result.speedup if result.speedup > 0 else 0.0,
            error=result.monte_carlo_error,
            speedup=result.speedup,
            efficiency=result.scaling_efficiency,
            efficiency_low=rate.low * per_rate,
            efficiency_high=rate.high * per_rate,
            step_mean=result.step_time_s.mean,
            step_p50=result.step_time_s.p50,
            step_p95=result.step_time_s.p95,
            staleness_mean=staleness.mean,
            staleness_p95=staleness.p95,
            staleness_max=staleness.max,
            asynchronous=getattr(result.scenario.strategy, "mode", "sync") != "sync",
            breakdown=result.breakdown_s,
            bottleneck=result.bottleneck.name,
            bottleneck_text=result.bottleneck.text,
            hollow=result.extrapolated,
            warnings=len(result.warnings),
            scenario_hash=result.scenario_hash,
        )

    @property
    def error_share(self) -> float:
        """Monte Carlo error as a share of the throughput."""
        return self.error / self.throughput if self.throughput > 0 else 0.0

    def share(self, part: str) -> float:
        """Part of the mean step, 0 to 1."""
        total = sum(float(getattr(self.breakdown, name)) for name in PARTS)
        return float(getattr(self.breakdown, part)) / total if total > 0 else 0.0


@dataclass(frozen=True)
class Series:
    """One curve: a strategy over numbers of workers, ascending."""

    index: int
    name: str
    points: tuple[Point, ...]

    @property
    def asynchronous(self) -> bool:
        """Whether its updates may be stale."""
        return any(point.asynchronous for point in self.points)

    @property
    def hollow(self) -> bool:
        """Whether any of its points lies beyond what was calibrated."""
        return any(point.hollow for point in self.points)

    @property
    def largest(self) -> Point:
        """The point with the most workers."""
        return self.points[-1]

    @property
    def limits(self) -> tuple[tuple[int, int, str], ...]:
        """What limits it: (fewest workers, most workers, sentence), one for each stretch."""
        stretches: list[tuple[int, int, str, str]] = []
        for point in self.points:
            if stretches and stretches[-1][2] == point.bottleneck:
                first = stretches[-1][0]
                stretches[-1] = (first, point.workers, point.bottleneck, point.bottleneck_text)
            else:
                stretches.append((point.workers, point.workers, point.bottleneck, point.bottleneck_text))
        return tuple((first, last, text) for first, last, _, text in stretches)
