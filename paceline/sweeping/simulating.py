"""Simulation of scenarios on this machine or a cluster, with outcomes in a results file from which it can resume.

:class:`Runner` simulates a stream of scenarios; an error of Paceline becomes a failure among the outcomes. :func:`sweep` knows all
scenarios beforehand; :class:`Simulations` gets them step by step, as from a plan. grid.py makes the scenarios of a grid, backends.py the
processes, and journal.py writes files.
"""

from __future__ import annotations

import itertools
import os
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, NamedTuple, TypeVar

from paceline.sweeping.backends import Workers, local_workers
from paceline.sweeping.clusters import check_dask_address, check_ray_address, dask_workers, ray_workers
from paceline.sweeping.journal import Journal, Written
from paceline.sweeping.results_file import Line, Outcome, Outcomes, line_of
from simulator.base.errors import EngineWarning, InputError, PacelineError, ResultsError, SimulationError
from simulator.base.table import html_of
from simulator.base.text import shortly_listed
from simulator.engine.choosing import check
from simulator.resolve.resolve import Asked
from simulator.results.results import Failed, Failure, Result
from simulator.run import simulate
from simulator.scenario import Scenario

Backend = Literal["local", "dask", "ray"]
SentT = TypeVar("SentT")

_MOST_PER_CORE = 16
"""Most processes per core of this machine; more would use memory without a gain."""


class Runner:
    """Simulates scenarios in parallel.

    The outcomes depend only on the scenarios, not on backend or number of jobs. As a context manager, it keeps the connection to a
    cluster for several runs.

    Parameters
    ----------
    jobs
        Processes, or concurrent tasks; 0 uses all cores, of the cluster if one is used.
    backend
        ``"local"``: processes of this machine. ``"dask"``, ``"ray"``: a cluster of theirs,
        which runs what it is sent: use one that you trust, on your own network.
    scheduler
        Address of the cluster: ``tcp://host:port`` of a Dask scheduler; ``host:port``,
        ``ray://host:port`` or ``auto`` of Ray, which starts a cluster of its own on this machine if it is left out.

    Raises
    ------
    InputError
        There are very many jobs, or the scheduler does not fit the backend.
    """

    def __init__(self, *, jobs: int = 0, backend: Backend = "local", scheduler: str | None = None) -> None:
        most = _MOST_PER_CORE * (os.cpu_count() or 1)
        if backend == "local" and jobs > most:
            raise InputError(f"`jobs`: {jobs} must be at most {most} on this machine, {_MOST_PER_CORE} per core; 0 uses all cores")
        if backend == "local" and scheduler is not None:
            raise InputError(f"`scheduler` {scheduler[:80]!r}: is the address of a cluster; give `backend='dask'` or `backend='ray'` too")
        if backend == "dask":
            check_dask_address(scheduler)
        if backend == "ray":
            check_ray_address(scheduler)
        self.jobs, self.backend, self.scheduler = jobs, backend, scheduler
        self._connected = ExitStack()
        self._workers: Workers | None = None

    def __enter__(self) -> Runner:
        self._workers = self._connected.enter_context(self._connection())
        return self

    def __exit__(self, *_: object) -> None:
        self._workers = None
        self._connected.close()

    def completed(self, scenarios: Iterable[Scenario]) -> Generator[list[tuple[int, Outcome]], None, None]:
        """Simulate scenarios, and yield lists of outcomes as soon as they are available.

        Scenarios are requested only when a process is free.

        Parameters
        ----------
        scenarios
            The scenarios.

        Yields
        ------
        list of tuple
            The number of a scenario, from 0, and a result; or a failure where its simulation ended in an error of
            :class:`~simulator.base.errors.PacelineError`: the others go on.

        Raises
        ------
        InputError
            The cluster cannot be reached, or a worker of it has other versions of what results depend on; or ``run.engine``
            cannot run on this machine.
        SimulationError
            A worker process was killed, or the cluster was lost.
        """
        with closing(self._groups(_answer, scenarios)) as groups:
            for group in groups:
                yield [(number, _outcome(scenario, answer)) for number, scenario, answer in group]

    def lines(self, scenarios: Iterable[Scenario]) -> Generator[list[tuple[int, Line]], None, None]:
        """Yield lines of a results file, made by the simulating processes; otherwise as :meth:`completed`."""
        with closing(self._groups(_line, scenarios)) as groups:
            for group in groups:
                yield [(number, line) for number, _, line in group]

    def _groups(
        self, function: Callable[[Scenario | Asked], _Sent[SentT]], scenarios: Iterable[Scenario]
    ) -> Generator[list[tuple[int, Scenario, SentT]], None, None]:
        """Yield lists of finished scenarios with their numbers and the result of a function for each."""
        waiting, held, noted = iter(scenarios), dict[int, Scenario](), set[str]()
        if (first := next(waiting, None)) is None:
            return
        if self.backend == "local":
            check(first.run.engine)

        def asked() -> Iterator[Scenario | Asked]:
            for number, scenario in enumerate(itertools.chain([first], waiting)):
                held[number] = scenario
                yield _resolved(scenario)

        with ExitStack() as stack:
            workers = self._workers or stack.enter_context(self._connection())
            groups = stack.enter_context(closing(workers.completed(function, asked())))
            for group in groups:
                for text in [text for _, sent in group for text in sent.notes if text not in noted]:
                    noted.add(text)
                    warnings.warn(text, EngineWarning, stacklevel=2)
                yield [(number, held.pop(number), sent.answer) for number, sent in group]

    @contextmanager
    def _connection(self) -> Iterator[Workers]:
        if self.backend == "dask":
            assert self.scheduler is not None
            connection = dask_workers(self.jobs, self.scheduler)
        else:
            connection = local_workers(self.jobs) if self.backend == "local" else ray_workers(self.jobs, self.scheduler)
        with connection as workers:
            yield workers


Answer = Failed | dict[str, Any]
"""A failure, or the result's fields without the scenario, which this process has already."""


class _Sent(NamedTuple, Generic[SentT]):
    """Answer of a worker."""

    answer: SentT
    notes: tuple[str, ...]
    """Warnings of the worker's engine."""


def _resolved(scenario: Scenario) -> Scenario | Asked:
    """Resolve a scenario here, with the user's catalogue; the simulating process reports failures."""
    try:
        return Asked.of(scenario)
    except PacelineError:
        return scenario


def _answer(scenario: Scenario | Asked) -> _Sent[Answer]:
    """Simulate one scenario in a worker."""
    return _noting(lambda: _simulated(scenario))


def _line(scenario: Scenario | Asked) -> _Sent[Line]:
    """Simulate one scenario in a worker, and return its line."""
    given = scenario.given if isinstance(scenario, Asked) else scenario
    return _noting(lambda: line_of(_outcome(given, _simulated(scenario))))


def _noting(made: Callable[[], SentT]) -> _Sent[SentT]:
    """Return the answer of a function, and its warnings about engines."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", EngineWarning)
        answer = made()
    for other in warned:
        if not issubclass(other.category, EngineWarning):
            warnings.warn_explicit(other.message, other.category, other.filename, other.lineno)
    return _Sent(answer, tuple(str(each.message) for each in warned if issubclass(each.category, EngineWarning)))


def _simulated(scenario: Scenario | Asked) -> Answer:
    try:
        result = simulate(scenario)
    except PacelineError as error:
        return Failed(kind=type(error).__name__, text=" ".join(str(error).split()))
    return {name: getattr(result, name) for name in Result.model_fields if name != "scenario"}


def _outcome(scenario: Scenario, answer: Answer) -> Outcome:
    """Return the outcome of an answer and its scenario."""
    if isinstance(answer, Failed):
        return Failure(scenario_hash=scenario.hash, scenario=scenario, failed=answer)
    return Result.model_construct(scenario=scenario, **answer)


Progress = Callable[[int, int], None]
_NAMED = 3
_READ = 100
"""Most failures that are read for their reasons."""


@dataclass(frozen=True, eq=False, repr=False)
class Sweep(Outcomes):
    """Outcomes of a sweep, in the order of its scenarios.

    Outcomes in a file are read on request, so that iteration needs the memory of one.

    Attributes
    ----------
    path
        The results file; None if all outcomes are in memory.
    """

    see: ClassVar[str] = "to_frame() has a row for each, sweep[0] is the first; paceline.report(sweep) draws them"

    path: Path | None
    _outcomes: tuple[Outcome, ...] | Written = field(repr=False)

    def _repr_html_(self) -> str:
        """Return a table for a notebook: the first rows, with the main figures."""
        return html_of(self, f"Sweep of {len(self)} scenarios", total=len(self))

    def check(self, name: Callable[[int], str] | None = None) -> None:
        """Raise an error if any scenario failed.

        Parameters
        ----------
        name
            Returns the name of scenario 0, 1, ...; default: its number, from 1.

        Raises
        ------
        SimulationError
            Some failed; the message gives each reason once, with its scenarios.
        """
        if not self.failed:
            return
        called = name if name is not None else (lambda place: f"scenario {place + 1}")
        reasons: dict[str, list[str]] = {}
        for place in self.failed[:_READ]:
            if isinstance(outcome := self[place], Failure):
                reasons.setdefault(outcome.failed.text, []).append(called(place))
        told = [f"{text} ({shortly_listed(places)})" for text, places in list(reasons.items())[:_NAMED]]
        more = "; and others" if len(reasons) > _NAMED or len(self.failed) > _READ else ""
        kept = "" if self.path is None else f"; {self.path} tells of them all, `retry_failed=True` simulates them again"
        raise SimulationError(f"{len(self.failed)} of {len(self)} scenarios failed: {'; '.join(told)}{more}{kept}")


def sweep(
    scenarios: Sequence[Scenario],
    out: Path | None = None,
    *,
    jobs: int = 0,
    backend: Backend = "local",
    scheduler: str | None = None,
    force: bool = False,
    retry_failed: bool = False,
    progress: Progress | None = None,
    agree: Callable[[Sequence[int]], None] | None = None,
) -> Sweep:
    """Simulate scenarios in parallel, and write each outcome to a results file.

    If a simulation fails, a failure is written, and the others continue. The bytes of the finished file depend only on the scenarios. After
    an interruption, another call simulates the missing ones.

    Parameters
    ----------
    scenarios
        What to simulate, in order; a :class:`~paceline.sweeping.grid.Grid` builds each when its turn comes.
    out
        The results file; outcomes that it already has are kept. None: outcomes are held in memory.
    jobs, backend, scheduler
        Where and on how many processes, as in :class:`~paceline.sweeping.simulating.Runner`.
    force
        Replace ``out``, whatever it is; results of this very sweep are kept.
    retry_failed
        Simulate again those that the file has as failures.
    progress
        Called with scenarios done and in all.
    agree
        Called with the places of the scenarios that are yet to be simulated, before any is; raises where they shall not be.

    Raises
    ------
    InputError
        ``out`` cannot be written or is being written, or the cluster cannot be used.
    ResultsError
        ``out`` holds results of another sweep, or is no results file.
    SimulationError
        A worker process was killed; a results file keeps earlier outcomes.
    """
    runner = Runner(jobs=jobs, backend=backend, scheduler=scheduler)
    tell = progress or (lambda *_: None)
    total = len(scenarios)
    if out is None:
        if agree is not None:
            agree(range(total))
        tell(0, total)
        held: dict[int, Outcome] = {}
        with closing(runner.completed(scenarios)) as outcomes:
            for several in outcomes:
                held.update(several)
                tell(len(held), total)
        return Sweep(None, tuple(held[place] for place in range(total)))
    with Journal(out, force=force) as file:
        # of a new file the hashes come with the lines
        hashes = [""] * total if file.is_empty else [scenario.hash for scenario in scenarios]
        if not file.is_empty:
            file.go_on_with(scenarios, hashes)
        todo = [place for place, key in enumerate(hashes) if key not in file or (retry_failed and file.failed(key))]
        if agree is not None:
            agree(todo)
        kept = total - len(todo)
        tell(kept, total)
        done = kept
        try:
            # closed, it ends its processes also where this one is stopped between two outcomes
            with file.keeping(), closing(runner.lines(scenarios[place] for place in todo)) as groups:
                for group in groups:
                    for number, line in group:
                        hashes[todo[number]] = line.scenario_hash
                    file.write((todo[number], line) for number, line in group)
                    done += len(group)
                    tell(done, total)
            return Sweep(file.path, file.finish(hashes))
        except KeyboardInterrupt:
            tell(max(done, kept + file.written()), total)  # perhaps it came between a line and the word of it
            raise


Simulate = Callable[[Sequence[Scenario]], Sequence[Outcome]]
"""Simulates scenarios and returns outcomes in order."""


class Simulations:
    """Simulates the scenarios of a plan, each once.

    A plan requests the same scenarios in the same order, whatever the number of jobs. So an existing results file is of an interrupted run,
    or belongs to another plan.

    Parameters
    ----------
    runner
        Where to simulate.
    file
        What is simulated goes there; at the end it is in the order in which it was asked for.
    force
        Replace the file if it belongs to another plan.
    progress
        Called with scenarios done and asked for.
    """

    def __init__(
        self,
        runner: Runner,
        file: Journal | None = None,
        *,
        force: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        self._runner = runner
        self._file = file
        self._force = force
        self._progress = progress or (lambda *_: None)
        self._places: dict[str, int] = {}  # of all that was asked for
        self._known: dict[str, Outcome] = {}
        self._known_aside: dict[str, Outcome] = {}
        self._taken = 0  # of them from the file

    def __call__(self, scenarios: Sequence[Scenario]) -> list[Outcome]:
        """Return outcomes in the order of the scenarios.

        Raises
        ------
        ResultsError
            The file belongs to another plan.
        """
        new = [scenario for key, scenario in _by_hash(scenarios) if key not in self._places]
        for scenario in new:
            self._places[scenario.hash] = len(self._places)
        if self._file is not None:
            self._refuse_others(self._file, len(self._places))
            taken = {key: outcome for key, _ in _by_hash(new) if (outcome := self._file.outcome(key)) is not None}
            self._known |= taken
            self._taken += len(taken)
        left = [scenario for scenario in new if scenario.hash not in self._known]
        total = len(self._places)
        self._progress(len(self._known), total)
        try:
            keeping = self._file.keeping() if self._file is not None else nullcontext()
            with keeping, closing(self._runner.completed(left)) as groups:
                for group in groups:
                    if self._file is not None:
                        self._file.write((self._places[outcome.scenario_hash], line_of(outcome)) for _, outcome in group)
                    self._known |= {outcome.scenario_hash: outcome for _, outcome in group}
                    self._progress(len(self._known), total)
        except KeyboardInterrupt:
            if self._file is not None:  # perhaps it came between a line and the word of it
                self._progress(self._taken + self._file.written(), total)
            raise
        return [self._known[scenario.hash] for scenario in scenarios]

    def aside(self, scenarios: Sequence[Scenario]) -> list[Outcome]:
        """Return outcomes of scenarios outside the plan, which are cached but neither written to the file nor counted."""
        new = [scenario for key, scenario in _by_hash(scenarios) if key not in self._known_aside]
        with closing(self._runner.completed(new)) as groups:
            for group in groups:
                self._known_aside |= {outcome.scenario_hash: outcome for _, outcome in group}
                self._progress(len(self._known), len(self._places))
        return [self._known_aside[scenario.hash] for scenario in scenarios]

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        """Outcomes of all requested scenarios, in the order of the first request."""
        return tuple(self._known[key] for key in self._places)

    def finish(self) -> None:
        """Finish the results file.

        Raises
        ------
        ResultsError
            The file holds more than this plan asks for.
        """
        if self._file is not None:
            self._refuse_others(self._file, None)
            self._file.finish(list(self._places))

    def _refuse_others(self, file: Journal, among: int | None) -> None:
        """Raise ResultsError, or forget them, where lines with places below a number, or any, are of nothing that was asked for."""
        number = file.others(self._places, among)
        if number is not None and not self._force:
            raise ResultsError(
                f"{file.path}:{number}: holds the results of another plan or sweep; choose another `out`, or `force=True` to replace it"
            )
        if number is not None:
            file.keep(self._places)


def _by_hash(scenarios: Iterable[Scenario]) -> Iterable[tuple[str, Scenario]]:
    """Each scenario once, with its hash."""
    return {scenario.hash: scenario for scenario in scenarios}.items()
