"""Plausible whole jobs, worked out without the simulator: what a result of a scenario with ``[job]`` could say of it."""

from __future__ import annotations

from simulator.results.cost import usd_per_hour
from simulator.results.results import Result
from simulator.spec.figures import Checkpointing, Epoch, Estimate, JobOutcome, JobParts

STARTUP_S, TRACING_S = 20.0, 16.0
_EVALUATION_S, _CHECKPOINT_S, _LOST_S, _DOWN_S, _INTERVAL_S = 8.0, 3.0, 450.0, 95.0, 900.0


def with_job(result: Result, samples: float = 1.28e6, epochs: int = 10, *, plain: bool = False) -> Result:
    """The result, of a job of so many samples; ``plain``: of nothing but steps."""
    rates = result.throughput_of_each_replication or (result.throughput_samples_per_s.mean,)
    steady = sum(rates) / len(rates)
    step_s = result.scenario.batch * result.scenario.replicas / steady
    steps = samples * sum(1 / rate for rate in rates) / len(rates)
    checkpoints = 0 if plain else round(steps / _INTERVAL_S)
    faults = 0.0 if plain else steps / 40_000
    parts = JobParts(
        startup=0 if plain else STARTUP_S,
        tracing=0 if plain else TRACING_S,
        first_epoch=0.0 if plain else 0.2 * steps / epochs,
        filling=0.0,
        steps=steps,
        evaluation=0 if plain else _EVALUATION_S * epochs,
        checkpoints=_CHECKPOINT_S * checkpoints,
        lost_work=_LOST_S * faults,
        down=_DOWN_S * faults,
        fewer_workers=0.0,
    )
    beside = sum(parts.model_dump().values()) - steps
    times = sorted(samples / rate + beside for rate in rates)
    mean = sum(times) / len(times)
    hourly = usd_per_hour(result.scenario)

    def priced(seconds: float) -> float:
        return seconds / 3600 * (hourly or 0.0)

    def epoch(number: int, like_it: int, slower: float, first_s: float) -> Epoch:
        count = samples / epochs / (steady * step_s)
        time_s = count * step_s * slower + first_s
        evaluation_s = 0 if plain else _EVALUATION_S
        writing_s = _CHECKPOINT_S * checkpoints / epochs
        return Epoch(
            number=number,
            like_it=like_it,
            time_s=time_s + evaluation_s + writing_s,
            first_step_s=step_s * slower + first_s,
            step_s=step_s * slower,
            steps=count,
            evaluation_s=evaluation_s,
            checkpoint_s=writing_s,
        )

    first = epoch(1, 1, 1.0 if plain else 1.2, 0 if plain else TRACING_S)
    outcome = JobOutcome(
        samples=samples,
        steps=samples / (steady * step_s),
        epochs=epochs,
        time_s=Estimate(mean=mean, low=times[0], high=times[-1]),
        cost_usd=None if hourly is None else Estimate(mean=priced(mean), low=priced(times[0]), high=priced(times[-1])),
        samples_per_s=Estimate(mean=samples / mean, low=samples / times[-1], high=samples / times[0]),
        samples_per_s_of_each_replication=tuple(samples / (samples / rate + beside) for rate in rates),
        goodput=Estimate(mean=steps / mean, low=steps / mean * 0.98, high=min(1.0, steps / mean * 1.01)),
        parts_s=parts,
        each_epoch=(first, epoch(2, epochs - 1, 1.0, 0.0)) if epochs > 1 else (first,),
        checkpointing=None
        if plain
        else Checkpointing(interval_s=_INTERVAL_S, cost_s=_CHECKPOINT_S, size_bytes=3e8, best_s=489.0, young_s=490.0, daly_s=489.0),
        mtbf_s=None if plain else 40_000.0,
        faults=faults,
    )
    return result.model_copy(update={"job": outcome})
