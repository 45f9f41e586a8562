"""Library functions about convergence: the time until a model is good enough, with each strategy.

Parameters, defaults and docstrings are also the options and the help of ``paceline learn``. ``simulator`` simulates schedules,
``calibrate`` replays them, and ``paceline.learning`` compares them; this module checks arguments and passes them on.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from paceline.arguments import (
    Aim,
    Asking,
    Counts,
    File,
    Folder,
    Force,
    Jobs,
    MustBe,
    Names,
    Over,
    Prices,
    Problem,
    Python,
    Quantity,
    Rates,
    Runs,
    Settings,
    Source,
    Stages,
    Timeout,
    Typed,
    checked,
    file_of,
    path_of,
    writable,
)

if TYPE_CHECKING:
    from paceline.learning import Learned
    from paceline.learning.planning import TargetPlan

_POSITIVE = MustBe("a number above 0", holds=lambda value: math.isfinite(value) and value > 0)
_MOST_PROCESSES = 8


def processes_of(jobs: int) -> int:
    """Return the number of concurrent replay processes: the requested number, else one per core, at most 8."""
    return jobs or min(len(os.sched_getaffinity(0)), _MOST_PROCESSES)


@checked
def learn(
    scenario: Source,
    *,
    problem: Problem = "digits-mlp",
    target: Aim = "accuracy=0.95",
    strategies: Annotated[Names, MustBe("a list of names, such as ['sync-ps', 'async-ps']")] = (),
    over: Over | None = None,
    settings: Settings = (),
    prices: Prices = None,
    batch: Annotated[int | None, MustBe("a whole number from 1 on", least=1), Typed(metavar="N")] = None,
    epochs: Annotated[float, _POSITIVE, Typed(metavar="N")] = 20.0,
    seeds: Runs = 5,
    rates: Rates = (1.0,),
    rate_scaling: Literal["same", "sqrt", "linear"] = "same",
    staleness_aware: bool = False,
    recorded: Annotated[Sequence[str | Path], MustBe("a list of measurement files"), Typed(metavar="RUN.ndjson", reads="files")] = (),
    checkpoints: Annotated[int, MustBe("a whole number from 1 to 10000", least=1, most=10_000), Typed(metavar="N")] = 50,
    measurements: Folder = "measurements",
    curves: Annotated[File | None, Typed(metavar="FILE.csv")] = None,
    tensorboard: Annotated[Folder | None, Typed(metavar="DIR")] = None,
    out: Annotated[File | None, Typed(short="-o", metavar="FILE.json")] = None,
    force: Force = False,
    python: Python = None,
    jobs: Jobs = 0,
    timeout_s: Timeout = 7200.0,
    progress: Stages = None,
) -> Learned:
    """Predict time and cost until a model is good enough, with each strategy.

    The schedule of each strategy is simulated: which version of the model each worker reads, and when each gradient is applied. Then real
    gradients are computed and applied in that order, in child processes with TensorFlow, and the model is validated as it learns.

    Parameters
    ----------
    scenario
        As for :func:`load`. Its workload gives the time of a step; ``problem`` is the model that learns.
    problem
        Model and data: digits-mlp, digits-cnn, linear-regression, or your own FILE.py:FUNCTION. FUNCTION() returns (model, (x, y), (x,
        y)): a compiled Keras model, data to train on, and data to validate with.
    target
        Metric of the validation data to reach, such as accuracy=0.95 or loss<=0.1. Also recall=0.9, average_precision=0.9, or any
        metric that your model is compiled with.
    strategies
        Strategies to compare, such as ring,sync-ps,async-ps. sync-ps/async-ps@0.25 trains the first 25% with sync-ps, the rest with
        async-ps. Default: that of the scenario.
    over
        Values of any key to try with each strategy.
    settings
        Change a key in all scenarios, such as strategy.servers=2.
    prices
        As for :func:`load`.
    batch
        Samples of each gradient in the replay. Default: batch_per_replica of the scenario, which always determines the time of a step.
        To change both use ``settings`` with workload.batch_per_replica=8.
    epochs
        Passes of all workers together over the training data.
    seeds
        Runs of each strategy, with different initial values, data order and replication.
    rates
        Factors of the optimizer's learning rate; the best counts. Up to four more are tried while the best is the smallest or the
        largest.
    rate_scaling
        Growth of the learning rate with the number of averaged gradients: none, square root, or linear.
    staleness_aware
        Divide the rate of each update by its staleness (Zhang et al. 2016, arXiv:1511.05950).
    recorded
        Also replay recorded asynchronous runs: measurement files of ``paceline testbed run``.
    checkpoints
        Validations of each run, evenly spaced.
    measurements
        Folder for replays; each process adds a file. Existing replays are not repeated.
    curves
        Also write every validation of every run into this table.
    tensorboard
        Also write the learning curves into this folder, for TensorBoard.
    out
        Also write the answer into this file, as JSON.
    force
        Replace files at ``out``, ``curves`` and ``tensorboard``, whatever they are.
    python
        As for :func:`calibrate`.
    jobs
        Processes at the same time; 0: one per core, at most 8.
    timeout_s
        Seconds after which the replay is stopped. Finished runs are kept.
    progress
        Called with the finished and total number, and what is counted.

    Returns
    -------
    Learned
        ``sentences`` name the fastest and the cheapest way, ``ways`` has the runs, ``to_frame()`` a row for each way.

    Raises
    ------
    InputError
        A name is unknown, the problem cannot be used or lacks the metric, or a file cannot be written.
    ScenarioError
        A scenario breaks a rule.
    CalibrationError
        The function or its model failed; finished replays are kept.
    """
    from paceline.learning import Target, contenders_of, recorded_of
    from paceline.learning import learn as run
    from paceline.learning.learning import Course, LearnedFiles
    from paceline.sweeping import axes_of
    from simulator.catalogue.loading import pairs_of
    from simulator.spec.prices import parse_prices

    course = Course(
        problem, Target.of(target), Path(measurements), epochs, seeds, rates, batch, rate_scaling, staleness_aware, checkpoints, python,
        processes_of(jobs), timeout_s, progress or (lambda *_: None),
    )  # fmt: skip
    files = LearnedFiles(path_of(out), path_of(curves), path_of(tensorboard), force=force, reads=file_of(scenario))
    contenders = contenders_of(scenario, axes_of(over or {}), strategies, pairs_of(settings), parse_prices(prices))
    contenders += [recorded_of(Path(file)) for file in recorded]
    learned = run(contenders, course)
    files.write(learned)
    return learned


@checked
def plan_to_target(
    scenario: Source,
    target: Annotated[Aim, Typed("--target")],
    *,
    problem: Problem = "digits-mlp",
    epochs: Annotated[float, _POSITIVE] = 20.0,
    seeds: Runs = 3,
    rates: Rates = (0.3, 1.0, 3.0),
    deadline: Annotated[Quantity, MustBe("a number, or text with a unit, such as '12 h'"), Typed(metavar="TIME")] | None = None,
    budget: Annotated[Quantity, MustBe("a number, or text with a unit, such as '500 USD'"), Typed(metavar="SUM")] | None = None,
    clusters: Annotated[Names, MustBe("a list of names or paths, such as ['ethernet-10g']")] = (),
    strategies: Annotated[Names, MustBe("a list of names, such as ['ring', 'async-ps']")] = (),
    workers: Counts = None,
    servers: Annotated[Counts, Typed(metavar="LIST")] = None,
    batches: Annotated[Counts, Typed("--batch")] = None,
    over: Over | None = None,
    settings: Settings = (),
    prices: Prices = None,
    measurements: Folder = "measurements",
    out: Annotated[File | None, Typed(metavar="FILE.ndjson")] = None,
    force: Force = False,
    python: Python = None,
    jobs: Jobs = 0,
    timeout_s: Timeout = 7200.0,
    progress: Stages = None,
    agree: Asking = None,
) -> TargetPlan:
    """Find the fastest and the cheapest way to a model that is good enough, choosing batch and strategy together.

    Every configuration is simulated. Its samples are estimated from the gradient noise scale, which is optimistic except for one device.
    The best by estimate are replayed with real gradients, until no other estimate is better.

    Parameters
    ----------
    scenario
        As for :func:`load`.
    target
        Metric of the validation data to reach, such as accuracy=0.95 or loss<=0.1.
    problem
        Model and data, as for ``paceline learn``: a name (digits-mlp, digits-cnn, linear-regression) or FILE.py:FUNCTION.

        See :func:`learn`.
    epochs
        Most passes over the problem's training data.
    seeds
        As for :func:`learn`.
    rates
        Factors of the optimizer's learning rate. The best of each configuration counts.
    deadline
        Longest time to the target, such as ``"12h"``.
    budget
        Highest cost in US dollars, such as ``"500 USD"``.
    clusters, strategies, workers, servers, batches, over, settings
        As for :func:`plan`.
    prices
        As for :func:`load`.
    measurements
        As for :func:`learn`.
    out
        Save the result of every simulation here. After an interruption run the same command again to resume.
    force
        Replace ``out``, whatever it is.
    python, jobs, timeout_s
        As for :func:`learn`.
    progress
        Called with the finished and total number, and what is counted.
    agree
        As for :func:`sweep`.

    Returns
    -------
    TargetPlan
        ``fastest`` and ``cheapest``; ``sentences`` say what is simulated, measured and assumed; ``learned`` has the curves.

    Raises
    ------
    InputError
        One device does not reach the target, a range is empty, or a name is unknown.
    ScenarioError
        No configuration is possible.
    CalibrationError
        The function or its model failed.
    """
    from paceline.learning import Target
    from paceline.learning.learning import Course
    from paceline.learning.planning import Limits
    from paceline.learning.planning import plan_to_target as search
    from paceline.lengthy import agree_to_plan
    from paceline.planning import goal_of, space_of
    from paceline.sweeping import axes_of
    from simulator.catalogue.loading import pairs_of
    from simulator.spec.prices import parse_prices

    limits = Limits(
        deadline_s=None if deadline is None else goal_of(samples=1, deadline=deadline).deadline_s,
        budget_usd=None if budget is None else goal_of(samples=1, budget=budget).budget_usd,
    )
    space = space_of(
        scenario, settings=pairs_of(settings), clusters=clusters, over=axes_of(over or {}), strategies=strategies, workers=workers,
        servers=servers, batches=batches, prices=parse_prices(prices),
    )  # fmt: skip
    agree_to_plan(space.searched_together, agree, jobs=jobs)
    course = Course(
        problem, Target.of(target), Path(measurements), epochs, seeds, rates, python=python, jobs=processes_of(jobs), timeout_s=timeout_s,
        progress=progress or (lambda *_: None),
    )  # fmt: skip
    return search(space, limits, course, out=writable(out, scenario), force=force)
