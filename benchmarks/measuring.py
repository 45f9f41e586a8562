"""CPU time of a simulation by an engine, here or in a process of its own, with what else tells of it."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from scenarios import asynchronous, ring

from simulator import Scenario
from simulator.engine.choosing import Engine, unavailable
from simulator.engine.replication import replicate
from simulator.resolve.resolve import resolve

AnswerT = TypeVar("AnswerT")
_ALONE_S = 3600


@dataclass(frozen=True)
class Ran:
    """One run: whose, what it was given to do, its CPU seconds, and what it did.

    Attributes
    ----------
    by
        The engine, or the program beside it.
    units
        Worker-steps, messages or scenarios.
    events
        Entries of its calendar; none where nobody counts them.
    facts
        What it found, such as updates a second, so that two that should agree can be compared.
    """

    by: str
    units: int
    cpu_s: float
    events: int | None = None
    facts: dict[str, float] = field(default_factory=dict)

    @property
    def per_s(self) -> float:
        """Units a second of CPU time."""
        return self.units / self.cpu_s


@dataclass(frozen=True)
class Finding:
    """A figure, and the aim that it is held against.

    Attributes
    ----------
    value
        None where it could not be measured; ``note`` then says why.
    least, most
        The aim: the value is at least, or at most, this; none for figures that are only told.
    """

    what: str
    value: float | None
    unit: str = ""
    least: float | None = None
    most: float | None = None
    note: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the aim is reached; None where there is none, or nothing was measured."""
        if self.value is None or (self.least is None and self.most is None):
            return None
        return (self.least is None or self.value >= self.least) and (self.most is None or self.value <= self.most)


def timed(action: Callable[[], AnswerT]) -> tuple[float, AnswerT]:
    """CPU seconds of this process, and what the action gave."""
    begun = time.process_time()
    value = action()
    return time.process_time() - begun, value


def missing(engine: Engine) -> str | None:
    """Why an engine cannot be asked here; None if it can."""
    return None if engine == "simpy" else unavailable()


def with_engine(scenario: Scenario, engine: Engine) -> Scenario:
    """The scenario, run by that engine."""
    return scenario.model_copy(update={"run": scenario.run.model_copy(update={"engine": engine})})


def simulated(scenario: Scenario, engine: Engine, units: int, replication: int = 0) -> Ran:
    """One replication, and its CPU time; the machine code of the compiled engine is taken to be loaded."""
    cpu_s, measured = timed(lambda: replicate(resolve(with_engine(scenario, engine)), replication))
    facts = {"end_s": measured.run_s, "updates_per_s": measured.updates / measured.window_s}
    if measured.staleness.counts:
        facts["staleness"] = measured.staleness.mean()
    return Ran(engine, units, cpu_s, measured.events, facts)


def in_turn(repeats: int, *each: Callable[[int], Ran]) -> list[Ran]:
    """Several, run in turn, ``repeats`` times: the runs of the turn in which the first stood to the last as in the median turn.

    Machines are faster at one time than at another, so that only runs of one turn are compared.
    """
    turns = [[action(repeat) for action in each] for repeat in range(repeats)]
    return sorted(turns, key=lambda runs: runs[0].cpu_s / (runs[-1].cpu_s if len(runs) > 1 else 1.0))[repeats // 2]


# -- in a process of its own ----------------------------------------------------------


def alone(kind: Literal["asynchronous", "ring"], engine: Engine, units: int, **scenario: Any) -> Ran | str:
    """A replication in a fresh process; ``bytes_beyond`` are its peak memory beyond that of a small run.

    Returns the last line of what it complained about where it failed.
    """
    given = json.dumps({"kind": kind, "engine": engine, "units": units, "scenario": scenario})
    done = subprocess.run([sys.executable, str(Path(__file__)), given], text=True, capture_output=True, check=False, timeout=_ALONE_S)
    if done.returncode:
        return (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    return Ran(**json.loads(done.stdout))


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _main() -> None:
    given = json.loads(sys.argv[1])
    engine, units, scenario = given["engine"], given["units"], given["scenario"]
    build = asynchronous if given["kind"] == "asynchronous" else ring
    count = next(name for name in ("workers", "ranks") if name in scenario)
    simulated(build(**{**scenario, count: 64}), engine, 1)  # loads all that is loaded once
    before = _peak_bytes()
    built_s, built = timed(lambda: build(**scenario))
    ran = simulated(built, engine, units)
    facts = {**ran.facts, "loading_s": built_s, "bytes_beyond": _peak_bytes() - before}
    print(json.dumps(asdict(Ran(ran.by, ran.units, ran.cpu_s, ran.events, facts))))


if __name__ == "__main__":
    _main()
