"""Processes that simulate: those of this machine by joblib, and what all backends share (:class:`Workers`, checks of versions).

Clusters are connected in clusters.py; what is sent to the processes is decided in simulating.py. Workers of a cluster must have
the same sources of ``simulator`` and ``paceline.sweeping``, byte by byte (:func:`versions`).
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import pydoc
import signal
import socket
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from functools import cache, partial
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import simulator
from paceline.version import __version__
from simulator.base.errors import InputError, SimulationError
from simulator.base.process import removed_after_this_process

if TYPE_CHECKING:
    from joblib import Parallel

ItemT = TypeVar("ItemT")
AnswerT = TypeVar("AnswerT")
GivenT = TypeVar("GivenT")

_AHEAD, _MOST_AHEAD = 64, 1024
"""Tasks handed over together: this number for each process, but no more than that in all."""
_QUICK_S, _LONG_S = 2.0, 8.0
"""Batches that take less grow, those that take more shrink."""
_SOME_S, _MOST_AT_A_TIME = 0.25, 64
"""How long a process works on what it is given at a time, and how much that is at most."""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""Of glibc's malloc.h."""
_KEPT_BYTES = 64 << 20
_ANSWER_S = 10.0
_WATCH_S = 0.5
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

KILLED = "a worker process was killed, perhaps for want of memory", "run again with fewer `jobs`"
"""What to say when a process that simulated has ended, and what to try."""


class WorkersLostError(SimulationError):
    """Processes that simulate, or the cluster that they are of, are gone.

    Parameters
    ----------
    what
        What happened.
    advice
        What to try.
    kept
        What is kept of the work, where the caller has a results file.
    """

    def __init__(self, what: str, advice: str, kept: str = "") -> None:
        super().__init__(f"{what}; {kept}: {advice}" if kept else f"{what}; {advice}")
        self.what, self.advice = what, advice


class Workers:
    """Processes that stand ready.

    Parameters
    ----------
    parallel
        joblib's, open.
    count
        How many tasks they work on at a time.
    streaming
        Whether answers come one by one; else they come by batches, of some seconds each.
    lost
        What to say, and what to try, on exceptions that mean that processes, or the cluster, are gone; the first that fits.
    cluster
        What they are called in messages where they are of a cluster, so that their versions must be looked at before each task:
        a worker may come late. Left out, they are of this machine, and for a single task none need be started.
    """

    def __init__(
        self,
        parallel: Parallel,
        count: int,
        *,
        lost: Mapping[type[BaseException], tuple[str, str]],
        streaming: bool = True,
        cluster: str | None = None,
    ) -> None:
        self._parallel, self.count, self._lost, self._streaming, self._cluster = parallel, count, lost, streaming, cluster
        self._batch = 2 * count
        self._at_a_time = 1

    @property
    def window(self) -> int:
        """Tasks to hand over together: enough to keep all busy, few enough to hold the answers."""
        return max(2 * self.count, min(_AHEAD * self.count, _MOST_AHEAD))

    def map(self, function: Callable[[ItemT], AnswerT], items: Sequence[ItemT]) -> Generator[AnswerT, None, None]:
        """What a function answers to each item, in order; else as :meth:`completed`."""
        with closing(self.completed(function, items)) as groups:
            yield from in_order(groups)

    def completed(self, function: Callable[[ItemT], AnswerT], items: Sequence[ItemT]) -> Generator[list[tuple[int, AnswerT]], None, None]:
        """What a function answers to each item, as soon as it is there, with the item's number; those that come together in a list.

        A process of this machine is given several items at a time where they take
        milliseconds; it answers after a fraction of a second at the latest, but for one item that takes longer.

        Raises
        ------
        WorkersLostError
            A process was killed, or the cluster lost.
        InputError
            A worker of a cluster has another version of something that results depend on.
        """
        if self._cluster is not None:
            answers = self._elsewhere(partial(_by_equals, function, versions()), items)
        elif len(items) > 1:
            answers = self._here(function, items)
        else:
            answers = ([(number, function(item))] for number, item in enumerate(items))
        with self._explaining():
            yield from answers

    def ask(self, function: Callable[[ItemT], AnswerT], items: Sequence[ItemT]) -> list[AnswerT]:
        """What workers of a cluster answer, be they of whatever version; else as :meth:`map`."""
        with self._explaining():
            return [answer for answers in self._elsewhere(function, items) for _, answer in answers]

    @contextmanager
    def _explaining(self) -> Iterator[None]:
        """What ends the work, in words."""
        try:
            yield
        except _UnlikeError as error:
            raise InputError(f"{self._cluster}: {error}") from None
        except tuple(self._lost) as error:
            raise WorkersLostError(*next(text for kind, text in self._lost.items() if isinstance(error, kind))) from None

    def _elsewhere(self, function: Callable[[ItemT], AnswerT], items: Sequence[ItemT]) -> Iterator[list[tuple[int, AnswerT]]]:
        """Answers of a cluster, in order."""
        if not self._streaming:
            yield from self._by_batches(function, items)
            return
        with closing(self._in_parallel(function, ((item,) for item in items))) as answers:
            for answer in enumerate(answers):
                yield [answer]

    def _in_parallel(self, function: Callable[..., GivenT], arguments: Iterable[tuple[Any, ...]]) -> Generator[GivenT, None, None]:
        """What a function gives to each of some arguments, which are asked for when somebody is free."""
        from joblib import delayed

        with deaf_to(*_ENDING):
            given = self._parallel(delayed(function)(*each) for each in arguments)
        with warnings.catch_warnings(), closing(given):
            warnings.filterwarnings("ignore", message=r"\d+ tasks ")  # joblib's remark where it is stopped half-way
            yield from given

    def _here(self, function: Callable[[ItemT], AnswerT], items: Sequence[ItemT]) -> Iterator[list[tuple[int, AnswerT]]]:
        """Answers of processes of this machine."""
        left = list(range(len(items)))
        while left:
            numbers, left = left, []
            tasks = ((function, [(number, items[number]) for number in some]) for some in self._parts(numbers))
            with closing(self._in_parallel(_some, tasks)) as given:
                for some in given:
                    left += some.left
                    in_time = int(len(some.answers) * _SOME_S / max(some.took_s, 1e-9))
                    self._at_a_time = max(1, min(2 * self._at_a_time, _MOST_AT_A_TIME, in_time))
                    yield some.answers
            left.sort()

    def _parts(self, numbers: Sequence[int]) -> Iterator[Sequence[int]]:
        """What to hand over at a time; less towards the end, so that nobody waits long for the last."""
        begin = 0
        while begin < len(numbers):
            end = begin + max(1, min(self._at_a_time, (len(numbers) - begin) // (2 * self.count)))
            yield numbers[begin:end]
            begin = end

    def _by_batches(self, function: Callable[[ItemT], AnswerT], items: Sequence[ItemT]) -> Iterator[list[tuple[int, AnswerT]]]:
        from joblib import delayed

        begin = 0
        while begin < len(items):
            begun_s = time.monotonic()
            batch = items[begin : begin + self._batch]
            yield list(enumerate(self._parallel(delayed(function)(item) for item in batch), start=begin))
            begin += len(batch)
            took_s = time.monotonic() - begun_s
            if took_s < _QUICK_S:
                self._batch *= 2
            elif took_s > _LONG_S:
                self._batch = max(self.count, self._batch // 2)


def in_order(groups: Iterable[Iterable[tuple[int, AnswerT]]]) -> Iterator[AnswerT]:
    """Answers in the order of their numbers, which count from 0: each as soon as it and all before it are there."""
    waiting: dict[int, AnswerT] = {}
    due = 0
    for group in groups:
        waiting.update(group)
        while due in waiting:
            yield waiting.pop(due)
            due += 1


_TRACKERS_REMARK = "ignore:resource_tracker:UserWarning"
"""joblib's tracker removes what an ended process has left behind; that it does so is nothing for a person at the terminal."""

_SEMAPHORES = "/dev/shm"  # noqa: S108
"""Where Linux has semaphores."""
OUTSIDE = {"PYTHONSAFEPATH": "1"}
"""joblib starts ``python -m joblib...``, which would take a ``joblib`` of the working directory, where strangers may have written."""


@contextmanager
def environment(**values: str) -> Iterator[None]:
    """Inside, these variables of the environment have these values, for processes that are started."""
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


def without_files() -> dict[str, Any]:
    """Arguments that have joblib send arrays as all else, not by files: the folder for these, once named, is never made."""
    return {"max_nbytes": None, "temp_folder": tempfile.gettempdir()}


def ready_tracker() -> None:
    """Start the trackers of what processes leave behind, joblib's and Python's, where they do not run, so that they say nothing.

    They take no notice of SIGINT and SIGTERM by themselves, nor of SIGHUP, which a terminal that is closed sends to all: one that is
    started in place of another says of each name that it does not know it.
    """
    import multiprocessing.resource_tracker

    from joblib.externals.loky.backend import resource_tracker

    ignoring = environment(PYTHONWARNINGS=",".join(filter(None, (os.environ.get("PYTHONWARNINGS"), _TRACKERS_REMARK))), **OUTSIDE)
    with ignoring, deaf_to(signal.SIGHUP):
        for tracker in (resource_tracker, multiprocessing.resource_tracker):
            tracker.ensure_running()  # not while signals wait: it lets them through


def _outside_backend() -> Any:
    """joblib's own processes, of which none, whenever it is started, takes modules of the working directory."""
    from joblib.parallel import LokyBackend

    class Outside(LokyBackend):  # type: ignore[misc]
        def _prepare_worker_env(self, n_jobs: int) -> dict[str, str]:
            return {**super()._prepare_worker_env(n_jobs), **OUTSIDE}

    return Outside()


@contextmanager
def local_workers(jobs: int) -> Iterator[Workers]:
    """Processes of this machine: as many as asked for, or where that is 0, as it has cores."""
    from joblib import Parallel
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    count = jobs or os.cpu_count() or 1
    if count > 1:
        ready_tracker()
        if os.path.isdir(_SEMAPHORES):  # which the tracker removes as well, but is killed with this process where its whole group is
            removed_after_this_process(f"{_SEMAPHORES}/sem.loky-{os.getpid()}-*")
    # each process watches from its first moment: one that was never given a task would outlive its starter by minutes
    watching = {"initializer": begin, "initargs": (os.getpid(),)}
    with Parallel(
        n_jobs=count,
        backend=_outside_backend(),
        return_as="generator_unordered",
        batch_size=1,
        pre_dispatch="2*n_jobs",
        **without_files(),
        **watching,
    ) as parallel:
        yield Workers(parallel, count, lost={TerminatedWorkerError: KILLED})


@contextmanager
def deaf_to(*numbers: signal.Signals) -> Iterator[None]:
    """Processes that are started inside take no notice of these signals: this one does, afterwards, and ends them."""
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
    """What a process has done of what it was given."""

    answers: list[tuple[int, AnswerT]]
    """With the numbers of their items."""
    left: list[int]
    took_s: float


def _some(function: Callable[[ItemT], AnswerT], numbered: Sequence[tuple[int, ItemT]]) -> _Some[AnswerT]:
    """Answer some items, in a process; for others there may be more time elsewhere."""
    begun_s = time.monotonic()
    answers: list[tuple[int, AnswerT]] = []
    took_s = 0.0
    for number, item in numbered:
        answers.append((number, function(item)))
        took_s = time.monotonic() - begun_s
        if took_s >= _SOME_S:
            break
    return _Some(answers, [number for number, _ in numbered[len(answers) :]], took_s)


def begin(starter: int) -> None:
    """What a process does first that ``starter``, by its id, has started to simulate."""
    _end_with(starter)
    _keep_freed_memory()


def _keep_freed_memory() -> None:
    """Keep some memory that is freed for what comes next: given back and taken anew, its pages cost a seventh of a short simulation."""
    with suppress(OSError, AttributeError):  # where the C library has no such call
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
        mallopt(_M_MMAP_THRESHOLD, _KEPT_BYTES // 4)


def _end_with(starter: int) -> None:
    """See to it that this process ends, soon, when its parent has: killed, it can tell nobody."""

    def watch() -> None:
        while os.getppid() == starter:
            time.sleep(_WATCH_S)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def check_answers(address: str, shown: str, hint: str) -> None:
    """Make sure that something listens at ``[scheme://]host:port``, since libraries of clusters try for minutes.

    Raises
    ------
    InputError
        Nothing does; ``shown`` begins the message and ``hint`` ends it.
    """
    host, _, port = address.rpartition("://")[2].rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_ANSWER_S).close()
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"{shown}: nothing answers there ({reason}); {hint}") from None


_PACKAGES = "numpy", "scipy", "pydantic", "simpy"
"""What results are computed and written with, beside Paceline and Python."""
_COMPILERS = "numba", "llvmlite"
"""What makes machine code, where it is there; without them other engines compute the same."""


@cache
def versions() -> Mapping[str, str]:
    """Version by name of all that the bytes of results depend on, in this process; "" of what is not there."""
    return {
        "Paceline": __version__,
        "Paceline's sources": _sources(),
        "Python": f"{platform.python_implementation()} {'.'.join(platform.python_version_tuple()[:2])}",
        "a processor of kind": platform.machine(),
        **{name: _version(name) for name in (*_PACKAGES, *_COMPILERS)},
    }


def _version(package: str) -> str:
    """Of a package, without importing it."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _sources() -> str:
    """A digest of what workers compute with."""
    digest = hashlib.sha256()
    for folder in (Path(simulator.__file__).parent, Path(__file__).parent):
        for file in sorted(folder.rglob("*.py")):
            digest.update(file.relative_to(folder).as_posix().encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:12]


class _UnlikeError(Exception):
    """A worker would compute something else; the text says why."""


def _by_equals(function: Callable[[ItemT], AnswerT], asked: Mapping[str, str], item: ItemT) -> AnswerT:
    """What a function answers to an item, in a worker that is as whoever asks."""
    own = versions()
    if own != asked:
        for name, here in asked.items():
            there = own.get(name, "")
            if there != here and (name not in _COMPILERS or (there and here)):
                unlike = f"{name} {there}" if there else f"no {name}"
                raise _UnlikeError(f"a worker has {unlike}, but here is {here}, so results could differ; install the same version there")
    return function(item)


def check_versions(workers: Workers, cluster: str) -> None:
    """Make sure that the workers of a cluster compute what this process would.

    Raises
    ------
    InputError
        One has no Paceline, or another version of something that results depend on.
    """
    try:
        # a function that Python has wherever it is: the others are Paceline's
        there = set(workers.ask(pydoc.locate, ["paceline.__version__"] * workers.count)) - {__version__}
    except ImportError as error:
        raise InputError(f"{cluster}: a worker cannot run anything ({error}); install paceline where the workers run") from None
    if there:
        version = "no Paceline" if None in there else f"Paceline {min(map(str, there))}"
        raise InputError(
            f"{cluster}: a worker has {version}, but here is {__version__}, so results could differ; install the same version there"
        )
    try:
        list(workers.map(abs, range(workers.count)))
    except (ImportError, AttributeError):
        raise InputError(
            f"{cluster}: a worker has other sources of Paceline {__version__}, so results could differ; install the same there"
        ) from None
