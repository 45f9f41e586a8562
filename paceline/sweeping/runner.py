"""Simulates a stream of scenarios on processes of this machine or of a cluster: in their order, or as each is done.

An error of Paceline becomes a failure among the outcomes. The processes come from backends.py; files are written by sweep.py and
simulations.py.
"""

from __future__ import annotations

import itertools
import os
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Any, Generic, Literal, NamedTuple, TypeVar, get_args

from paceline.sweeping.backends import Workers, in_order, local_workers
from paceline.sweeping.clusters import check_dask_address, check_ray_address, dask_workers, ray_workers
from paceline.sweeping.results_file import Line, Outcome, line_of
from simulator.base.errors import EngineWarning, InputError, PacelineError
from simulator.engine.choosing import check
from simulator.resolve.resolve import Asked
from simulator.results.results import Failed, Failure, Result
from simulator.run import simulate
from simulator.scenario import Scenario

Backend = Literal["local", "dask", "ray"]
SentT = TypeVar("SentT")

_MOST_PER_CORE = 16
"""Processes of this machine for each of its cores; more would take its memory and bring nothing."""


class Runner:
    """Simulates scenarios in parallel.

    The outcomes depend on the scenarios alone, not on backend or number of jobs. Used as a
    context manager, it keeps the connection to a cluster for several runs.

    Parameters
    ----------
    jobs
        Processes, or tasks at a time; 0 takes all cores, of the cluster where there is one.
    backend
        ``"local"``: processes of this machine. ``"dask"``, ``"ray"``: a cluster of theirs,
        which runs what it is sent: use one that you trust, on your own network.
    scheduler
        Address of the cluster: ``tcp://host:port`` of a Dask scheduler; ``host:port``,
        ``ray://host:port`` or ``auto`` of Ray, which starts a cluster of its own on this machine if it is left out.

    Raises
    ------
    InputError
        There is no such backend, jobs are negative, or the scheduler does not fit the backend.
    """

    def __init__(self, *, jobs: int = 0, backend: Backend = "local", scheduler: str | None = None) -> None:
        if backend not in get_args(Backend):
            raise InputError(f"`backend` {str(backend)[:40]!r}: must be local, dask or ray")
        if jobs < 0:
            raise InputError(f"`jobs` {jobs}: must be at least 0, which takes all cores")
        most = _MOST_PER_CORE * (os.cpu_count() or 1)
        if backend == "local" and jobs > most:
            raise InputError(f"`jobs`: {jobs} must be at most {most} on this machine, {_MOST_PER_CORE} per core; 0 takes all cores")
        if backend == "local" and scheduler is not None:
            raise InputError(f"`scheduler` {scheduler[:80]!r}: is of a cluster; say which kind with `backend='dask'` or `backend='ray'`")
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

    def run(self, scenarios: Iterable[Scenario]) -> Generator[Outcome, None, None]:
        """Simulate scenarios; each outcome comes as soon as it and all before it are there.

        No more than some scenarios are read, and held, ahead of the outcome that is waited for.

        Parameters
        ----------
        scenarios
            What to simulate.

        Yields
        ------
        Result or Failure
            A failure where the simulation of a scenario ended in an error of
            :class:`~simulator.base.errors.PacelineError`; the others go on.

        Raises
        ------
        InputError
            The cluster cannot be reached, or a worker of it has other versions of what results depend on; or ``run.engine``
            cannot run on this machine.
        SimulationError
            A worker process was killed, or the cluster was lost.
        """
        with closing(self.completed(scenarios)) as groups:
            yield from in_order(groups)

    def completed(self, scenarios: Iterable[Scenario]) -> Generator[list[tuple[int, Outcome]], None, None]:
        """The same, each as soon as it is there, with the number, from 0, of its scenario; those that come together in one list."""
        with closing(self._groups(_answer, scenarios)) as groups:
            for group in groups:
                yield [(number, _outcome(scenario, answer)) for number, scenario, answer in group]

    def lines(self, scenarios: Iterable[Scenario]) -> Generator[list[tuple[int, Line]], None, None]:
        """As :meth:`completed`, lines of a results file, made where the scenarios are simulated."""
        with closing(self._groups(_line, scenarios)) as groups:
            for group in groups:
                yield [(number, line) for number, _, line in group]

    def _groups(
        self, function: Callable[[Scenario | Asked], _Sent[SentT]], scenarios: Iterable[Scenario]
    ) -> Generator[list[tuple[int, Scenario, SentT]], None, None]:
        """Scenarios with their numbers, as they are done, and what a function has sent back of each; those that come together at once."""
        waiting = iter(scenarios)
        first = list(itertools.islice(waiting, 1))
        if not first:
            return
        if self.backend == "local":
            check(first[0].run.engine)
        with ExitStack() as stack:
            workers = self._workers or stack.enter_context(self._connection())
            begin, noted = 0, set[str]()
            while window := [*first, *itertools.islice(waiting, workers.window - len(first))]:
                first = []
                with closing(workers.completed(function, [_resolved(scenario) for scenario in window])) as groups:
                    for group in groups:
                        for text in [text for _, sent in group for text in sent.notes if text not in noted]:
                            noted.add(text)
                            warnings.warn(text, EngineWarning, stacklevel=2)
                        yield [(begin + number, window[number], sent.answer) for number, sent in group]
                begin += len(window)

    @contextmanager
    def _connection(self) -> Iterator[Workers]:
        with ExitStack() as stack:
            if self.backend == "dask":
                assert self.scheduler is not None
                yield stack.enter_context(dask_workers(self.jobs, self.scheduler))
            elif self.backend == "ray":
                yield stack.enter_context(ray_workers(self.jobs, self.scheduler))
            else:
                yield stack.enter_context(local_workers(self.jobs))


Answer = Failed | dict[str, Any]
"""Why there is no result, or the result's fields without the scenario, which is here already."""


class _Sent(NamedTuple, Generic[SentT]):
    """What a worker sends back."""

    answer: SentT
    notes: tuple[str, ...]
    """What it would have warned of, had anybody looked: what its engine could not do."""


def _resolved(scenario: Scenario) -> Scenario | Asked:
    """Resolved here, where the user's catalogue is; what cannot be is reported by who simulates it."""
    try:
        return Asked.of(scenario)
    except PacelineError:
        return scenario


def _answer(scenario: Scenario | Asked) -> _Sent[Answer]:
    """Simulate one scenario, in a worker."""
    return _noting(lambda: _simulated(scenario))


def _line(scenario: Scenario | Asked) -> _Sent[Line]:
    """Simulate one scenario, in a worker, and write down what comes of it."""
    given = scenario.given if isinstance(scenario, Asked) else scenario
    return _noting(lambda: line_of(_outcome(given, _simulated(scenario))))


def _noting(made: Callable[[], SentT]) -> _Sent[SentT]:
    """What a function makes, and what it warns of an engine meanwhile."""
    notes: list[str] = []
    show = warnings.showwarning

    def keep(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
        if issubclass(category, EngineWarning):
            notes.append(str(message))
        else:
            show(message, category, *where, **more)

    with warnings.catch_warnings():
        warnings.simplefilter("always", EngineWarning)
        warnings.showwarning = keep
        answer = made()
    return _Sent(answer, tuple(notes))


def _simulated(scenario: Scenario | Asked) -> Answer:
    try:
        result = simulate(scenario)
    except PacelineError as error:
        return Failed(kind=type(error).__name__, text=" ".join(str(error).split()))
    return {name: getattr(result, name) for name in Result.model_fields if name != "scenario"}


def _outcome(scenario: Scenario, answer: Answer) -> Outcome:
    """An answer, with the scenario that it is of."""
    if isinstance(answer, Failed):
        return Failure(scenario_hash=scenario.hash, scenario=scenario, failed=answer)
    return Result.model_construct(scenario=scenario, **answer)
