"""Processes that simulate: those of this machine, by loky, and the parts that all backends share (:class:`Workers`, checks of versions).

clusters.py connects clusters; simulating.py decides what the processes do. Workers of a cluster must have the same sources of
``simulator`` and ``paceline.sweeping``, byte by byte (:func:`versions`).
"""

from __future__ import annotations

import ctypes
import hashlib
import itertools
import multiprocessing
import os
import platform
import pydoc
import signal
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, nullcontext, suppress
from functools import cache, partial
from importlib import metadata
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Generic, NamedTuple, TypeVar

import simulator
from paceline.version import __version__
from simulator.base.errors import InputError, SimulationError
from simulator.base.process import removed_after_this_process

ItemT = TypeVar("ItemT")
AnswerT = TypeVar("AnswerT")

_SOME_S, _MOST_AT_A_TIME = 0.25, 64
"""Target duration, and largest number, of the items that a process gets at a time."""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""Constants of glibc's malloc.h."""
_KEPT_BYTES = 64 << 20
_IDLE_S = 300
"""Seconds that an idle process is kept."""
_THREADS = "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"
"""Numbers of threads of libraries in each process: one, unless the user sets more."""
_ANSWER_S = 10.0
_WATCH_S = 0.5
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

KILLED = "a worker process was killed, perhaps because memory ran out", "run again with fewer `jobs`"
"""Message and advice when a simulating process has ended."""


class WorkersLostError(SimulationError):
    """Simulating processes, or their cluster, are gone.

    Parameters
    ----------
    what
        The event.
    advice
        What to try.
    kept
        Finished work that is kept, if the caller has a results file.
    """

    def __init__(self, what: str, advice: str, kept: str = "") -> None:
        super().__init__(f"{what}; {kept}: {advice}" if kept else f"{what}; {advice}")
        self.what, self.advice = what, advice


Submit = Callable[..., Future[Any]]
"""Calls a function somewhere, with its arguments."""


class Workers:
    """Ready processes.

    Parameters
    ----------
    submit
        Submits a task to one of them.
    count
        Number of concurrent tasks.
    lost
        Message and advice for exceptions that mean that processes, or the cluster, are gone; the first match counts, and None means
        another error.
    stop
        Cancels tasks that nobody waits for any more.
    ahead
        Tasks submitted ahead; default: twice the concurrent ones.
    cluster
        Name of their cluster in messages; their versions are then checked before each task, since workers may join late. Without one they
        are processes of this machine, and a single task starts none.
    """

    def __init__(
        self,
        submit: Submit,
        count: int,
        *,
        lost: Mapping[type[BaseException], tuple[str, str] | None],
        stop: Callable[[], object] = lambda: None,
        ahead: int = 0,
        cluster: str | None = None,
    ) -> None:
        self._submit, self.count, self._lost, self._stop, self._cluster = submit, count, lost, stop, cluster
        self._ahead = ahead or 2 * count
        self._at_a_time = 1

    def map(self, function: Callable[[ItemT], AnswerT], items: Iterable[ItemT]) -> Iterator[AnswerT]:
        """Yield the results of a function for each item, in order, each as soon as all before it are there; else as :meth:`completed`."""
        early: dict[int, AnswerT] = {}
        place = 0
        for some in self.completed(function, items):
            early.update(some)
            while place in early:
                yield early.pop(place)
                place += 1

    def completed(self, function: Callable[[ItemT], AnswerT], items: Iterable[ItemT]) -> Generator[list[tuple[int, AnswerT]], None, None]:
        """Yield lists of results of a function, with item numbers, as soon as they are available.

        Items are requested when a process is free. A process gets several items at a time if they take milliseconds, and answers within a
        fraction of a second unless a single item takes longer.

        Raises
        ------
        WorkersLostError
            A process was killed, or the cluster lost.
        InputError
            A worker of a cluster has another version of something that results depend on.
        """
        waiting = enumerate(items)
        again = deque(itertools.islice(waiting, 2))
        is_here = self._cluster is None and (self.count == 1 or len(again) < 2)
        submit, ahead = (_here, 1) if is_here else (self._submit, self._ahead)
        asked = None if self._cluster is None else versions()
        running: set[Future[_Some[AnswerT]]] = set()
        # not concurrent.futures.wait: a signal inside it may leave a future locked, for which its executor then waits for ever
        finished: SimpleQueue[Future[_Some[AnswerT]]] = SimpleQueue()
        try:
            with self._explaining():
                while True:
                    with nullcontext() if is_here else deaf_to(*_ENDING):
                        while len(running) < ahead and (some := self._taken(again, waiting)):
                            future = submit(_some, function, some, asked)
                            running.add(future)
                            future.add_done_callback(finished.put)
                    if not running:
                        return
                    future = finished.get()
                    running.discard(future)
                    answered = future.result()
                    again.extend(answered.left)
                    in_time = int(len(answered.answers) * _SOME_S / max(answered.took_s, 1e-9))
                    self._at_a_time = max(1, min(2 * self._at_a_time, _MOST_AT_A_TIME, in_time))
                    yield answered.answers
        finally:
            for future in running:
                future.cancel()
            if running:
                self._stop()

    def _taken(self, again: deque[tuple[int, ItemT]], waiting: Iterator[tuple[int, ItemT]]) -> list[tuple[int, ItemT]]:
        """Return the next items: returned ones first, then new ones."""
        most = self._at_a_time
        return [again.popleft() for _ in range(min(most, len(again)))] or list(itertools.islice(waiting, most))

    @contextmanager
    def _explaining(self) -> Iterator[None]:
        """Convert exceptions that end the work; errors as in :meth:`completed`."""
        try:
            yield
        except _UnlikeError as error:
            raise InputError(f"{self._cluster}: {getattr(error, 'cause', error)}") from None  # Ray's own says where, too
        except tuple(self._lost) as error:
            text = next(text for kind, text in self._lost.items() if isinstance(error, kind))
            if text is None:
                raise
            raise WorkersLostError(*text) from None

    def ask(self, function: Callable[[ItemT], AnswerT], items: Sequence[ItemT]) -> list[AnswerT]:
        """Yield answers of workers of a cluster, whatever their version; otherwise as :meth:`map`."""
        with self._explaining():
            return [future.result() for future in [self._submit(function, item) for item in items]]


def _here(function: Callable[..., AnswerT], *given: Any) -> Future[AnswerT]:
    """Call a function in this process."""
    future: Future[AnswerT] = Future()
    future.set_result(function(*given))
    return future


_TRACKERS_REMARK = "ignore:resource_tracker:UserWarning"
"""joblib's tracker removes what an ended process has left behind; that it does so is nothing for a person at the terminal."""

_SEMAPHORES = "/dev/shm"  # noqa: S108
"""Where Linux has semaphores."""
OUTSIDE = {"PYTHONSAFEPATH": "1"}
"""joblib starts ``python -m joblib...``, which would take a ``joblib`` of the working directory, where strangers may have written."""


@contextmanager
def environment(**values: str) -> Iterator[None]:
    """Set variables of the environment inside the block, for started processes."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def ready_tracker() -> None:
    """Start the resource trackers of joblib and Python, if they do not run, so that they stay silent.

    They ignore SIGINT and SIGTERM, and here SIGHUP too, which a closed terminal sends to all. A restarted tracker would complain about
    each name that it does not know.
    """
    from multiprocessing import resource_tracker as pythons

    from joblib.externals.loky.backend import resource_tracker

    ignoring = environment(PYTHONWARNINGS=",".join(filter(None, (os.environ.get("PYTHONWARNINGS"), _TRACKERS_REMARK))), **OUTSIDE)
    with ignoring, deaf_to(signal.SIGHUP):
        for tracker in (resource_tracker, pythons):
            tracker.ensure_running()  # not while signals wait: it lets them through


@contextmanager
def local_workers(jobs: int) -> Iterator[Workers]:
    """Return processes of this machine: the requested number, or one per core if it is 0."""
    from joblib.externals.loky import get_reusable_executor
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    count = jobs or os.cpu_count() or 1
    if count == 1 or multiprocessing.current_process().daemon:  # which may start no processes
        yield Workers(_here, 1, lost={})
        return
    ready_tracker()
    if os.path.isdir(_SEMAPHORES):  # which the tracker removes as well, but is killed with this process where its whole group is
        removed_after_this_process(f"{_SEMAPHORES}/sem.loky-{os.getpid()}-*")
    pool = partial(  # another one where that has been stopped or has lost a process
        get_reusable_executor,
        count,
        timeout=_IDLE_S,
        # each process watches from its first moment: one that was never given a task would outlive its starter by minutes
        initializer=begin,
        initargs=(os.getpid(),),
        env={**OUTSIDE, **{name: os.environ.get(name, "1") for name in _THREADS}},
    )
    yield Workers(
        lambda *task: pool().submit(*task), count, lost={TerminatedWorkerError: KILLED}, stop=lambda: pool().shutdown(kill_workers=True)
    )


@contextmanager
def deaf_to(*numbers: signal.Signals) -> Iterator[None]:
    """Make processes started inside ignore these signals; this process handles them afterwards and ends the others."""
    if threading.current_thread() is not threading.main_thread():  # others may not set signals
        yield
        return
    # None, of which Python could not set it again: a handler that was set outside Python
    before = {number: handler for number in _ENDING if (handler := signal.getsignal(number)) is not None}
    came: set[int] = set()
    signal.pthread_sigmask(signal.SIG_BLOCK, numbers)  # which processes inherit
    try:
        # not ignored: what is ignored is lost where another thread, of NumPy's perhaps, does not block it
        for number in before.keys() & set(numbers):
            signal.signal(number, lambda number, _: came.add(number))
        yield
    finally:
        for number, handler in before.items():  # of all: Ray sets one of its own
            signal.signal(number, handler)
        for missed in came:
            signal.raise_signal(missed)  # waits until it is let through
        signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)


class _Some(NamedTuple, Generic[AnswerT]):
    """Results of a process for its items."""

    answers: list[tuple[int, AnswerT]]
    """Results with the numbers of their items."""
    left: Sequence[tuple[int, Any]]
    took_s: float


def _some(function: Callable[[ItemT], AnswerT], numbered: Sequence[tuple[int, ItemT]], asked: Mapping[str, str] | None) -> _Some[AnswerT]:
    """Answer some items in a process, after a check of versions on a cluster, and return those left for other processes."""
    if asked is not None:
        _check_alike(asked)
    begun_s = time.monotonic()
    answers: list[tuple[int, AnswerT]] = []
    took_s = 0.0
    for number, item in numbered:
        answers.append((number, function(item)))
        took_s = time.monotonic() - begun_s
        if took_s >= _SOME_S:
            break
    return _Some(answers, numbered[len(answers) :], took_s)


def begin(starter: int) -> None:
    """Initialise a simulating process that ``starter``, given by its id, has started."""
    _end_with(starter)
    _keep_freed_memory()


def _keep_freed_memory() -> None:
    """Keep freed memory for later use; returning and requesting its pages would cost a seventh of a short simulation."""
    with suppress(OSError, AttributeError):  # where the C library has no such call
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
        mallopt(_M_MMAP_THRESHOLD, _KEPT_BYTES // 4)


def _end_with(starter: int) -> None:
    """End this process soon after its parent has ended, since a killed parent cannot end it."""

    def watch() -> None:
        while os.getppid() == starter:
            time.sleep(_WATCH_S)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def check_answers(address: str, shown: str, hint: str) -> None:
    """Check that something listens at ``[scheme://]host:port``, since libraries of clusters try for minutes.

    Raises
    ------
    InputError
        Nothing listens there; ``shown`` begins the message and ``hint`` ends it.
    """
    host, _, port = address.rpartition("://")[2].rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_ANSWER_S).close()
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"{shown}: nothing answers there ({reason}); {hint}") from None


_PACKAGES = "numpy", "pydantic", "simpy"
"""Packages, besides Paceline and Python, that compute and write results. Machine code computes the same as Python, whoever makes it."""


@cache
def versions() -> Mapping[str, str]:
    """Return the versions, by name, of everything that the bytes of results depend on; "" for what is missing."""
    return {
        "Paceline": __version__,
        "Paceline's sources": _sources(),
        "Python": f"{platform.python_implementation()} {'.'.join(platform.python_version_tuple()[:2])}",
        "a processor of kind": platform.machine(),
        **{name: _version(name) for name in _PACKAGES},
    }


def _version(package: str) -> str:
    """Return the version of a package without importing it."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _sources() -> str:
    """Return a digest of the sources that workers compute with."""
    digest = hashlib.sha256()
    for folder in (Path(simulator.__file__).parent, Path(__file__).parent):
        for file in sorted(folder.rglob("*.py")):
            digest.update(file.relative_to(folder).as_posix().encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:12]


class _UnlikeError(Exception):
    """A worker would compute different results; the text says why."""


def _check_alike(asked: Mapping[str, str]) -> None:
    """Raise if this worker differs from the requesting process."""
    own = versions()
    for name, here in asked.items():
        there = own.get(name, "")
        if there != here:
            unlike = f"{name} {there}" if there else f"no {name}"
            raise _UnlikeError(
                f"a worker has {unlike}, but this machine has {here}, so results could differ; install the same version there"
            )


def check_versions(workers: Workers, cluster: str) -> None:
    """Check that the workers of a cluster compute the same as this process.

    Raises
    ------
    InputError
        A worker lacks Paceline, or has another version of something that results depend on.
    """
    try:
        # a function that Python has wherever it is: the others are Paceline's
        there = set(workers.ask(pydoc.locate, ["paceline.__version__"] * workers.count)) - {__version__}
    except ImportError as error:
        raise InputError(f"{cluster}: a worker cannot run Paceline ({error}); install paceline where the workers run") from None
    if there:
        version = "no Paceline" if None in there else f"Paceline {min(map(str, there))}"
        raise InputError(
            f"{cluster}: a worker has {version}, but this machine has {__version__}, so results could differ; install the same there"
        )
    try:
        list(workers.map(abs, range(workers.count)))
    except (ImportError, AttributeError, RuntimeError):
        raise InputError(
            f"{cluster}: a worker has other sources of Paceline {__version__}, so results could differ; install the same version there"
        ) from None
