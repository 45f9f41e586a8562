"""What a scenario leaves out that decides its result: taken as real TensorFlow was measured to do it, with the reason.

Everything else that is left out is either said by its own default or asked for. Keys of a strategy
are its own matter (``filled_in``, ``left_open``); what is taken for links and hosts is in practice.py,
for ``[training]`` in trained.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from simulator.base.spec import Spec
from simulator.scenario import Scenario
from simulator.spec.accelerator import accelerator_named
from simulator.spec.figures import Assumed
from simulator.spec.job import Overheads
from simulator.spec.training import ASSUMED_OPTIMIZER, Optimizer

Start = Literal["together", "staggered", "random-phase"]


def start_of(scenario: Scenario) -> Start:
    """When workers begin: as given, or as it is with their way of training."""
    return scenario.run.start or scenario.strategy.pace.start


def optimizer_of(scenario: Scenario) -> Optimizer | None:
    """Whose slots are counted: as given, or one where memory is computed from layers; else none is known."""
    return scenario.training.optimizer or (ASSUMED_OPTIMIZER if scenario.workload.layers else None)


def filled_in(scenario: Scenario) -> Scenario:
    """The scenario with what it leaves out in place; itself where it leaves out nothing."""
    strategy = scenario.strategy
    changes: dict[str, Spec] = {}
    if scenario.run.start is None:
        changes["run"] = scenario.run.model_copy(update={"start": start_of(scenario)})
    if (filled := strategy.filled_in(scenario)) is not strategy:
        changes["strategy"] = filled
    return scenario.model_copy(update=changes) if changes else scenario


def assumptions(scenario: Scenario) -> tuple[Assumed, ...]:
    """What was taken for what the scenario leaves out, where another value would give another result."""
    found = [Assumed(path=its.path, value=its.value, reason=its.reason) for its in scenario.strategy.left_open(scenario)]
    pace = scenario.strategy.pace
    if scenario.run.start is None and pace.asynchronous and scenario.replicas > 1:
        found.append(Assumed(path="run.start", value=pace.start, reason=pace.start_reason))
    if scenario.training.optimizer is None and scenario.workload.layers and _memory_known(scenario):
        found.append(Assumed(path="training.optimizer", value=ASSUMED_OPTIMIZER, reason=_MOST_USE_IT))
    found.extend(_of_the_job(scenario))
    return tuple(found)


def _of_the_job(scenario: Scenario) -> Iterator[Assumed]:
    """What a job leaves out that nobody measured either."""
    job, known = scenario.job, scenario.workload.overheads or Overheads()
    if job is None:
        return
    measure = 'nothing says how long it takes; measure it with "paceline calibrate", or give it'
    if job.startup is None and known.startup is None:
        yield Assumed(path="job.startup", value="0 s", reason=measure)
    if job.tracing is None and known.tracing is None:
        yield Assumed(path="job.tracing", value="0 s", reason=measure)
    checkpoint = job.checkpoint
    if checkpoint is not None and checkpoint.size_bytes is None and known.checkpoint_bytes is None:
        optimizer = optimizer_of(scenario) or ASSUMED_OPTIMIZER
        yield Assumed(
            path="job.checkpoint.size", value="variables and slots", reason=f"a checkpoint holds both; slots are those of {optimizer}"
        )


_MOST_USE_IT = "nearly all large models are trained with it; its slots take memory of a device, and decide nothing else"


def _memory_known(scenario: Scenario) -> bool:
    """Whether the memory of the cluster's device is known, so that it decides what fits."""
    device = accelerator_named(scenario.cluster.device) if scenario.cluster.device else None
    return device is not None and device.memory_bytes is not None
