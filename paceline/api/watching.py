"""Library function that follows a running training beside its prediction.

Parameters, defaults and docstring are also the options and the help of ``paceline watch``. The work is done in ``paceline.watching``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from paceline.arguments import (
    NOT_TYPED,
    Asking,
    Command,
    File,
    Force,
    Jobs,
    MustBe,
    Python,
    Settings,
    Source,
    Text,
    Typed,
    checked,
    file_of,
    path_of,
)

if TYPE_CHECKING:
    from paceline.watching import Update, Watched
    from simulator.results.results import Result
    from simulator.scenario import Scenario

Telling = Annotated[Callable[[Any], None] | None, MustBe("a function"), NOT_TYPED]
"""Called with an :class:`~paceline.watching.Update` after each look."""


@checked
def watch(
    scenario: Source,
    sources: Annotated[
        Sequence[str | Path], MustBe("a list of files in which steps are recorded"), Typed(place=True, metavar="STEPS...", reads="files")
    ],
    settings: Settings = (),
    *,
    once: bool = False,
    until_steps: Annotated[int | None, MustBe("a whole number from 1 on", least=1), Typed(metavar="N")] = None,
    every: Annotated[
        float, MustBe("a number of seconds from 0.1 on", holds=lambda seconds: 0.1 <= seconds < float("inf")), Typed(metavar="SECONDS")
    ] = 2.0,
    pattern: Text | None = None,
    coverage: Annotated[
        float, MustBe("a share from 0.9 to 0.9999", holds=lambda share: 0.9 <= share <= 0.9999), Typed(metavar="SHARE")
    ] = 0.99,
    journal: Annotated[File | None, Typed(metavar="FILE.ndjson")] = None,
    out_scenario: Annotated[File | None, Typed(metavar="FILE.toml")] = None,
    python: Python = None,
    jobs: Jobs = 0,
    force: Force = False,
    agree: Asking = None,
    command: Command = "",
    telling: Telling = None,
    stopped: Annotated[Callable[[Any], bool] | None, MustBe("a function"), NOT_TYPED] = None,
) -> Watched:
    """Follow a running training, and compare its steps with the prediction: since when and why it is not as predicted.

    Parameters
    ----------
    scenario, settings
        As for :func:`load`.

        What is trained.
    sources
        What records its steps, one file for each worker that does: of Paceline's Keras callback, a table (CSV) of steps, TensorBoard's
        folder, a log, or profiles. Each may still grow.
    once
        Look at what is there, and end.
    until_steps
        End when every worker has made so many steps; left out: at the end of the training, where its file tells it.
    every
        Seconds from one look to the next.
    pattern
        Regular expression with named groups by which lines of a log tell steps: ``step``, and ``time_s``, ``time_ms``, ``rate``
        (steps/s) or ``throughput`` (samples/s).
    coverage
        Share of runs that go as predicted and are not to be called outside their interval.
    journal
        Keep what is said in this file, so that a watch that is begun again does not say it again.
    out_scenario
        Fit the scenario to the steps when the watch ends, and write it.

        As :func:`refit` does.
    python
        A Python that has TensorFlow, for profiles; left out: the one that runs.
    jobs
        Processes that simulate what may be the cause; 0 takes all cores.
    force
        Replace ``out_scenario`` where it is there.
    agree
        As for :func:`simulate`.
    command
        What made the scenario, as it says itself; empty: this call.
    telling
        Called with how it stands after each look.
    stopped
        Called with the KeyboardInterrupt of Ctrl-C; whether it ends the watch in order. None: it does.

    Returns
    -------
    Watched
        How it stood at the end: ``left`` says whether it left its interval, ``reasons`` why, ``table()`` has the figures.

    Raises
    ------
    InputError
        A source, an argument or a file cannot be used; names file, line and rule.
    ScenarioError
        The scenario breaks a rule.
    SimulationError
        It cannot be simulated.
    CalibrationError
        No values of the scenario explain the steps.

    Examples
    --------
    >>> from tempfile import mkdtemp
    >>> steps = Path(mkdtemp(), "steps.csv")
    >>> _ = steps.write_text("step_time_ms\\n" + "".join(f"{300 + row % 7}\\n" for row in range(60)))
    >>> seen = watch("ring", [steps], {"run.steps": 20, "run.replications": 3}, once=True)
    >>> seen.state, seen.left
    ('slower', True)
    """
    from calibrate.recorded.reading import file_and_run
    from paceline.api.predicting import simulate
    from paceline.watching import Watch
    from simulator.base.errors import InputError
    from simulator.base.files import EDITED, Output

    if not sources:
        raise InputError("`sources`: give at least one file in which steps are recorded, such as run.ndjson of paceline.keras_callback")
    given = [Path(source) for source in sources]
    if double := next((source for place, source in enumerate(given) if source in given[:place]), None):
        raise InputError(f"`sources`: {str(double)!r}: is given twice; keep one")
    missing = next((file for file, _ in map(file_and_run, given) if not file.exists()), None)
    if missing is not None:
        from simulator.base.text import no_such_file

        raise InputError(f"{missing}: {no_such_file(missing)}")
    if out_scenario is not None:
        read = [file for file in (file_of(scenario), *given) if file is not None]
        Output(Path(out_scenario), EDITED, force=force, argument="out_scenario", reads=read)
    result = simulate(scenario, settings, agree=agree)
    its = Watch(result, given, coverage=coverage, journal=path_of(journal), pattern=pattern, python=python, waits=not once, jobs=jobs)
    update = None
    try:
        if once:
            update = its.look()
            if telling is not None:
                telling(update)
        else:
            for update in its.updates(every, until_steps):
                if telling is not None:
                    telling(update)
    except KeyboardInterrupt as error:
        if update is None or (stopped is not None and not stopped(error)):
            raise
    assert update is not None
    if out_scenario is not None:
        _write_refitted(scenario, settings, result, update, Path(out_scenario), force=force, command=command or "paceline.watch")
    return its.last(update)


def _write_refitted(scenario: Any, settings: Any, result: Result, update: Update, out: Path, *, force: bool, command: str) -> None:
    """Fit the scenario to the steps as they are at present, and write it.

    Raises
    ------
    InputError
        There are too few steps, or they may mean something else.
    CalibrationError
        No values explain them.
    """
    from calibrate.validation.against_points import PointsCase, refit_to_points
    from calibrate.validation.points import Setting
    from paceline.sweeping import sweep
    from simulator.base.errors import InputError
    from simulator.catalogue.loading import table_of

    if doubt := next((doubt for its in update.verdicts for doubt in its.doubts), ""):
        raise InputError(f"`out_scenario`: nothing is fitted to figures that may mean something else: {doubt}")
    if update.state == "unclear":
        raise InputError(f"`out_scenario`: {update.sentence}; go on watching")
    table, source, beside = table_of(scenario, settings)
    seen = Setting(workers=result.scenario.workers, throughput=(update.predicted.samples / update.mean_s,), line=1)
    case = PointsCase(table, source, beside, Path(update.verdicts[0].run.source), (seen,), "samples/s")

    def simulated(scenarios: Sequence[Scenario]) -> Sequence[Result]:
        swept = sweep(scenarios, jobs=1)
        swept.check()
        return swept.results

    refit_to_points(case, simulated, command=command).write(out, force=force)
