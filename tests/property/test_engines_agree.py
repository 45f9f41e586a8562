"""Two engines that share no code measure the same: the textbook one in SimPy, and the one that users get.

Where two events fall into one instant, and nothing says which is first, single runs differ: processes that come together are queued for
shared cores, and messages for a host, in some order, and messages that set out together draw their weights so. So random programs are
compared with every length a little off any other; of those with ties, means over many runs are.
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from support.engines import disagreement, run
from support.modes import LOAD, MODES
from support.random_scenarios import seeded_scenarios, untied
from support.scenarios import scenario_table

import paceline
from simulator import Scenario, scenario_from_table

CATALOGUE = sorted(path.stem for path in Path(__file__).parents[2].glob("models/scenarios/*.toml"))

EACH = 50
"""Random programs of a test."""


def assert_agree(scenario: Scenario, replication: int = 0) -> None:
    """Both engines measure the same in one replication, or refuse it alike."""
    textbook, compiled = (run(scenario, engine, replication, observer=False) for engine in ("simpy", "compiled"))
    assert textbook.failed == compiled.failed
    if textbook.measured is not None and compiled.measured is not None:
        assert disagreement(textbook.measured, compiled.measured) is None, scenario


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 400, EACH))
def test_random_programs_agree(first: int) -> None:
    apart = (untied(scenario) for scenario in seeded_scenarios(1000))
    for number, scenario in enumerate(islice((each for each in apart if each is not None), first, first + EACH)):
        assert_agree(scenario, number % 2)


@pytest.mark.parametrize("mode", MODES)
def test_every_way_of_training_agrees(mode: str) -> None:
    strategy, cluster, settings = MODES[mode]
    table = scenario_table(workload=LOAD, cluster=cluster, strategy=strategy, run={"steps": 12, "warmup_steps": 2, **settings})
    built = scenario_from_table(table, mode)
    if (apart := untied(built)) is None:
        pytest.skip("nothing says which of two events is first")
    assert_agree(apart)


@pytest.mark.parametrize("name", CATALOGUE)
def test_the_catalogue_agrees(name: str) -> None:
    scenario = paceline.load(name)
    steps = max(6, 2 * getattr(scenario.strategy, "sync_every", 1))
    run_of_it = scenario.run.model_copy(update={"steps": steps, "warmup_steps": 1, "job_steps": None})
    assert_agree(scenario.model_copy(update={"run": run_of_it}))


@pytest.mark.slow
def test_where_ties_decide_the_means_agree() -> None:
    """Round lengths and shared cores make ties common: mean rates over replications are within 0.5% over all programs."""
    ratios = []
    for scenario in seeded_scenarios(120):
        if getattr(scenario.strategy, "priority", "ready") == "forward":
            continue
        for replication in range(4):
            textbook, compiled = (run(scenario, engine, replication, observer=False).measured for engine in ("simpy", "compiled"))
            if textbook is not None and compiled is not None:
                rates = [each.steps / each.window_s for each in (textbook, compiled)]
                ratios.append(np.log(rates[0] / rates[1]))
    assert len(ratios) > 400
    assert np.mean(ratios) == pytest.approx(0.0, abs=0.005)
    assert np.median(np.abs(ratios)) < 1e-9  # most do not differ at all
