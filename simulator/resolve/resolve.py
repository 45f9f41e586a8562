"""What a scenario leaves open, decided before it is simulated: on which device its workload runs, when its workers begin, how they pull.

A scenario is what somebody wrote, and its identity (:attr:`~simulator.scenario.Scenario.hash`)
is that of what was written. What it means beyond that is decided here, in four parts, each
of which can be told to a reader: a workload that was measured on another device than the
cluster has is moved to it, and one whose times are computed is computed for it
(:mod:`simulator.resolve.device_transfer`); its step is made as ``[training]`` says, in parts or in
another precision (:mod:`simulator.resolve.trained`); what is left out is taken as TensorFlow was
measured to do it (:mod:`simulator.resolve.defaults`); and links of which a sort alone is known get
rates that are uncertain (:mod:`simulator.resolve.practice`), drawn for each replication. A strategy
that cuts nothing is replaced by the simpler one that does the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from simulator.base.catalog import entries
from simulator.base.files import read_toml
from simulator.base.spec import Itself
from simulator.base.validation_errors import validated
from simulator.resolve.defaults import assumptions, filled_in
from simulator.resolve.device_transfer import moved_to
from simulator.resolve.practice import assumed_in_practice
from simulator.resolve.published_throughputs import plain
from simulator.resolve.trained import as_trained, assumed_in_training
from simulator.scenario import Resolved, Scenario
from simulator.spec.computed import CONSTANTS
from simulator.spec.constants import Known
from simulator.spec.figures import Assumed
from simulator.spec.workload import BY_DIMENSIONS, DeviceTransfer, Workload


@dataclass(frozen=True, slots=True)
class Asked:
    """What somebody asked for.

    Attributes
    ----------
    given
        The scenario as it was written.
    resolved
        As it is simulated: its workload on the cluster's device and as it is trained there, its defaults filled in.
    """

    given: Scenario
    resolved: Resolved

    @classmethod
    def of(cls, scenario: Scenario) -> Asked:
        """A scenario, resolved: raises what :func:`resolve` does."""
        return cls(scenario, resolve(scenario))

    @property
    def moved(self) -> DeviceTransfer | None:
        """To which device the workload was moved and by which rule; none where it was measured there, or is taken as it is."""
        moved = self.resolved.workload.moved
        return moved if moved is not None and moved.applied else None

    @property
    def assumed(self) -> tuple[Assumed, ...]:
        """What was taken for what the scenario leaves out, where another value would give another result."""
        return (*assumptions(self.given), *assumed_in_training(self.resolved), *assumed_in_practice(self.resolved))


def resolve(scenario: Scenario) -> Resolved:
    """Decide what a scenario leaves open.

    What is resolved already stays as it is, so that whoever needs a scenario's times may ask
    for them again. It takes microseconds but for the first time that a workload is moved.

    Raises
    ------
    ScenarioError
        The workload was measured on another device than the cluster has, or in another precision than it is trained in, and no rule
        leads there; or its times are computed, and cannot be for that device.

    Examples
    --------
    >>> from simulator.catalogue.loading import load_scenario
    >>> given = load_scenario("async-ps", [("run.start", "together")])
    >>> found = resolve(given)
    >>> found.strategy.pull_order, [each.path for each in Asked(given, found).assumed]
    ('random', ['strategy.pull_order', 'cluster, links of sort ethernet', 'cluster.transport', 'cluster.transport'])
    >>> found == resolve(found)
    True
    """
    load, device = scenario.workload, scenario.cluster.device
    on_device = scenario
    own = tuple((name, scenario.practice[name]) for name in CONSTANTS if name in scenario.practice)
    if (device and (load.device or load.moved is not None)) or (own and load.is_computed):
        there = _moved(Itself(load), device, own)
        on_device = scenario if there is load else scenario.model_copy(update={"workload": there})
    if (simpler := scenario.strategy.simpler) is not None:
        on_device = on_device.model_copy(update={"strategy": simpler})
    return Resolved(filled_in(as_trained(_as_paid(on_device))))


def _as_paid(scenario: Scenario) -> Scenario:
    """Whose job lives through what its price brings: nodes at a spot price are taken away."""
    if scenario.job is None or scenario.job.faults == (faults := scenario.faults):
        return scenario
    return scenario.model_copy(update={"job": scenario.job.model_copy(update={"faults": faults})})


@lru_cache(maxsize=256)
def _moved(this: Itself[Workload], device: str, own: tuple[tuple[str, Known], ...]) -> Workload:
    return moved_to(this.spec, device, _of_the_same_model(this.spec), own=dict(own))


def _of_the_same_model(load: Workload) -> Iterator[Workload]:
    """Workloads of the catalogue of the same model, but those that nobody measured."""
    for path in entries("workloads").values():
        table = read_toml(path)
        if load.model and plain(str(table.get("model", ""))) == plain(load.model) and not BY_DIMENSIONS.keys() & table.keys():
            yield validated(Workload, table, str(path))
