"""Random scenarios are worth their name: all that can be asked for occurs; and laws hold for all of them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Literal, get_args, get_origin

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from oracles.audit import audit
from oracles.programs import check_program
from support.examples import examples
from support.random_scenarios import built, random_scenarios, random_table, seeded_scenarios

from simulator import Scenario
from simulator.base.rng import Streams
from simulator.base.spec import Spec, parts_of
from simulator.engine.replication import drawn_scenario
from simulator.resolve.drawing import compile_program
from simulator.resolve.resolve import resolve

ALL = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]

TOLD_ONLY = {
    # intervals alone; constants, which a scenario's draws may bring to any value; made of windows of steps, in tests of its own
    "Scenario": "schema_version discrepancy practice job measured_in",
    "Workload": "schema_version name description model backend precision calibrated fit provenance overridden counted moved jitter_steps"
    " transformer residual computed passes recast overheads"  # made into layers and times when it is validated, or resolved
    " noise_scale",  # asked when a schedule is replayed
    "Cluster": "schema_version name description basis device nodes price server_price calibrated fit provenance overridden protocols"
    " device_memory_limit_bytes fit_hosts offers upgrades",
    "Layer": "name flops_per_sample kept_bytes_per_sample kept_selectively_bytes_per_sample temporary_bytes_per_sample logits_per_sample",
    "Experts": "kept_bytes_per_sample grouped",
    "TensorSplit": "kept_whole",
    "Variable": "name",
    "NodeClass": "name",
    "Run": "engine memory replications",
    "Training": "optimizer head deterministic offload",
    "Known": "value low high",
    "InputPipeline": "name description calibrated provenance fit shuffle_buffer shuffle_fill",  # a buffer fills when an epoch begins
    "Storage": "write_bytes_per_s node_write_bytes_per_s",  # of checkpoints
}
"""By class: fields that describe, or that resolving or summing up asks, not what runs a replication."""


def specs_of(kind: type[Spec]) -> Iterator[type[Spec]]:
    """The class, and those of what its fields hold."""
    yield kind
    for name, field in kind.model_fields.items():
        if name not in TOLD_ONLY.get(kind.__name__, "").split() and kind.__name__ != "Uncertainty":
            for part in parts_of(field.annotation):
                if issubclass(part, Spec):
                    yield from specs_of(part)


def options_of(annotation: Any) -> list[Any]:
    """What a field may say, where that is a list of words."""
    if get_origin(annotation) is Literal:
        return list(get_args(annotation))
    return [option for part in get_args(annotation) for option in options_of(part)]


def owner(kind: type[Spec], name: str) -> str:
    """The class that brings a field."""
    return next(base.__name__ for base in reversed(kind.__mro__) if name in getattr(base, "model_fields", {}))


def wanted() -> set[tuple[str, str, Any]]:
    """Every option of every field, and that every other field is given."""
    found: set[tuple[str, str, Any]] = set()
    for kind in specs_of(Scenario):
        for name, field in kind.model_fields.items():
            if name not in TOLD_ONLY.get(kind.__name__, "").split():
                options = options_of(field.annotation) or ["given"]
                found.update((owner(kind, name) if name != "kind" else kind.__name__, name, option) for option in options)
    return found


def occurring(spec: Spec) -> set[tuple[str, str, Any]]:
    """The options of a scenario."""
    found: set[tuple[str, str, Any]] = set()
    kind = type(spec)
    for name, field in kind.model_fields.items():
        value = getattr(spec, name)
        for part in value if isinstance(value, tuple) else [value]:
            if isinstance(part, Spec):
                found |= occurring(part)
        if options_of(field.annotation):
            found.add((owner(kind, name) if name != "kind" else kind.__name__, name, value))
        if field.is_required() or value != field.get_default(call_default_factory=True):
            found.add((owner(kind, name), name, "given"))
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("draws", "least"), [(1_000, 3), pytest.param(5_000, 30, marks=pytest.mark.long)])
def test_every_option_occurs_often_enough(draws: int, least: int, record_property: Callable[[str, object], None]) -> None:
    """In so many draws, of which more than half make a scenario, each value of each option occurs so often: of a new option too."""
    pick = random.Random(0)
    scenarios = [scenario for _ in range(draws) if (scenario := built(random_table(pick.choice))) is not None]
    assert len(scenarios) > draws / 2
    counts = Counter(option for scenario in scenarios for option in occurring(scenario))
    table = [
        f"{counts[option]:5} {'.'.join(map(str, option))}" for option in sorted(wanted(), key=lambda option: (counts[option], str(option)))
    ]
    record_property("scenarios", len(scenarios))
    record_property("options", "\n".join(table))  # `pytest --junitxml` shows them
    assert not [line for line in table if int(line.split()[0]) < least]


@pytest.mark.slow
@examples(200)
@given(random_scenarios(), st.integers(0, 2))
def test_programs_obey_their_laws(scenario: Scenario, replication: int) -> None:
    streams = Streams(scenario.run.seed, replication)
    drawn = drawn_scenario(resolve(scenario), streams)
    check_program(compile_program(drawn, streams), drawn)


@pytest.mark.slow
@examples(150)
@given(random_scenarios())
def test_runs_obey_their_laws(scenario: Scenario) -> None:
    audit(scenario)


def test_a_seed_gives_the_same_scenarios() -> None:
    assert [scenario.hash for scenario in seeded_scenarios(50)] == [scenario.hash for scenario in seeded_scenarios(50)]
