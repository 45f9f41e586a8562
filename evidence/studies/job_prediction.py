"""Predict a job of the testbed with its faults, as a user would: a scenario with ``[job]``, and what other runs have measured in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from pydantic import Field

from calibrate.testbed.platform import Platform
from calibrate.testbed.readings import OneRun, faults_of
from calibrate.testbed.scenarios import scenario_of
from calibrate.testbed.setting import TestbedSetting
from evidence.studies.job_readings import checkpoint_stops_s, restores_s, startups_s
from simulator import scenario_from_table
from simulator.base.errors import InputError
from simulator.base.spec import Spec
from simulator.scenario import Scenario


class JobCosts(Spec):
    """Time of a job outside its steps, from means of other runs than the predicted one.

    ``startup_s`` is that of all tasks, ``rejoin_s`` that of an asynchronous worker which comes
    back alone, ``stop_s`` for how long a checkpoint stops the training, ``restore_s`` what
    reading it takes.
    """

    startup_s: float = Field(ge=0)
    stop_s: float = Field(default=0.0, ge=0)
    detection_s: float = Field(default=0.0, ge=0)
    rejoin_s: float = Field(default=0.0, ge=0)
    restore_s: float = Field(default=0.0, ge=0)


def costs_of(fault_free: Sequence[OneRun], with_faults: Sequence[OneRun]) -> JobCosts:
    """The costs that runs show: start-up and checkpoints those without faults, all else those with.

    A start-up after a fault is left out, as it holds the reading of a checkpoint.
    """
    met = [one for run in with_faults for one in faults_of(run)]
    return JobCosts(
        startup_s=_mean([run_s for run in fault_free for run_s in startups_s(run)]),
        stop_s=max(_mean([stop_s for run in fault_free for stop_s in checkpoint_stops_s(run)]), 0.0),
        detection_s=_mean([one.detection_s for one in met if one.detection_s is not None]),
        rejoin_s=_mean([one.start_up_s for one in met if not one.stopped and one.start_up_s is not None]),
        restore_s=_mean([run_s for run in with_faults for run_s in restores_s(run)]),
    )


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else 0.0


def job_table(setting: TestbedSetting, costs: JobCosts) -> dict[str, Any]:
    """``[job]`` of the scenario that predicts a setting's job; its time counts from the launch of the tasks.

    Raises
    ------
    InputError
        Its faults differ in what a scenario has one value of: after how long what was killed is started again, and whether
        it comes back alone.
    """
    alone = setting.mode == "async"
    table: dict[str, Any] = {
        "samples": setting.steps * setting.workers * setting.batch,
        "startup": f"{costs.startup_s!r} s",
    }
    if setting.checkpoint_every is not None:
        table["checkpoint"] = {
            # an update of a single worker is a step of an asynchronous job
            "every_steps": setting.checkpoint_every * (setting.workers if alone else 1),
            "size_bytes": setting.parameter_bytes,
            "write_bytes_per_s": setting.parameter_bytes / max(costs.stop_s, _LEAST_S),
            "restore_bytes_per_s": setting.parameter_bytes / max(costs.restore_s, _LEAST_S),
        }
    if setting.faults:
        if len({(one.back_after_s, one.of == "server") for one in setting.faults}) > 1:
            raise InputError("faults: a scenario has one restart for all: give all the same back_after, and kill either workers or servers")
        first = setting.faults[0]
        returns = alone and first.of == "worker"
        table["faults"] = {
            "trace": [{"at_s": costs.startup_s + one.at_s, "of": one.of, "number": one.number} for one in setting.faults],
            "detection_s": costs.detection_s,
            # started again by the supervisor, which does not wait for TensorFlow to notice, unless the others have to stop
            "restart_s": max(first.back_after_s - costs.detection_s, 0.0),
        }
        if returns:
            table["faults"]["startup_s"] = costs.rejoin_s
    return table


_LEAST_S = 1e-6


def job_scenario(setting: TestbedSetting, platform: Platform, costs: JobCosts, *, replications: int = 19, seed: int = 0) -> Scenario:
    """The scenario whose ``job`` predicts a setting's, on a platform that was fitted to runs without faults."""
    plain = setting.model_copy(update={"faults": (), "checkpoint_every": None})
    values = {name: one.value for name, one in platform.parameters.items()}
    table = scenario_of(plain, values, platform.cores, replications=replications, seed=seed).model_dump(mode="json", exclude_none=True)
    # how long it is the job says
    run = {key: value for key, value in table["run"].items() if key not in ("job_steps", "drain")}
    return scenario_from_table({**table, "run": run, "job": job_table(setting, costs)}, "testbed")
