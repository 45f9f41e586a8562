"""Measures what a training costs besides its steps: start-up, first evaluation, checkpoints, ends of iterators, updates on servers.

How much longer the first training step takes is seen in the warm-up. What cannot be measured is left out, with the reason in the file; step
times are used without it. calibrate/probing.py knows the name of the folder for checkpoints, to remove it; evidence/probes/job.py calls
functions of this module.
"""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import statistics
import tempfile
import time
from typing import Any, Callable, Iterator

EVALUATIONS = 4
"""Calls of the evaluation step that are timed; the first traces."""
CHECKPOINTS = 5
CHECKPOINTS_LIMIT_S = 3.0
"""After so long no further checkpoint is begun: one of a large model takes longer than steps."""
ITERATORS = 24
ITERATORS_LIMIT_S = 5.0
ITERATOR_AGE_S = 0.07
"""Age at which an iterator is ended, at least: after the second turn of its tuning thread, at 0.06 s."""
MOST_STEPS = 200
"""That are timed to know how many an iterator needs for that."""
SLOW_STEP_S = 1.0
"""A step that takes longer is too slow for stepping through many iterators."""
OLDEST_S = 86400.0
SIZES = (4 * 2**10, 64 * 2**10, 2**20, 8 * 2**20)
"""Of tensors that a server updates; and the largest variable, up to ``LARGEST``."""
LARGEST = 64 * 2**20
SHORT, LONG, LONG_OF_SMALL = 1, 9, 33
"""Updates in one call: the difference of two such times is free of the call's own cost."""
SMALL = 256 * 2**10


def age_s() -> float | None:
    """Seconds since this process was started, before its interpreter; None where the system does not tell (not Linux)."""
    try:
        with open("/proc/self/stat", encoding="utf-8", errors="replace") as file:
            started = int(file.read().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - started
    except (OSError, ValueError, IndexError, AttributeError):
        return None
    return age if 0.0 <= age < OLDEST_S else None


class StartUp:
    """Time from the start of the process, without what the probe does for itself."""

    def __init__(self) -> None:
        self._at_first = age_s()
        self._began = time.perf_counter()
        self._own_s = 0.0

    @contextlib.contextmanager
    def without(self) -> Iterator[None]:
        """Leave out what is done within: it is the probe's work, and no training's."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self._own_s += time.perf_counter() - began

    def seconds(self) -> float:
        """Until now."""
        return (self._at_first or 0.0) + time.perf_counter() - self._began - self._own_s

    def elapsed_s(self) -> float:
        """Seconds since the start of the process, with everything in it."""
        return (self._at_first or 0.0) + time.perf_counter() - self._began

    @property
    def of_process(self) -> bool:
        """Tell whether the interpreter's own start is in it."""
        return self._at_first is not None


def evaluation(step: Callable[[], Any], timed: Callable[[Callable[[], Any]], float], batch: int, recorder: Any) -> None:
    """Time the first evaluation steps of this process."""
    with or_said("evaluation", recorder):
        for index in range(EVALUATIONS):
            recorder.write("evaluation", batch=batch, index=index, seconds=timed(step))


def iterator_ends(tf: Any, step: Callable[[], Any], timed: Callable[[Callable[[], Any]], float], recorder: Any) -> None:
    """Step through short data sets, and time how long the end of each one's iterator takes; nothing where steps are slow."""
    with or_said("iterators", recorder):
        step_s = max(timed(step), 1e-6)
        if step_s > SLOW_STEP_S:
            return
        # the first steps of a process are slower than those that follow
        again = min(max(math.ceil(ITERATOR_AGE_S / step_s), 2), MOST_STEPS)
        step_s = statistics.median([max(timed(step), 1e-6) for _ in range(again)][again // 2 :])
        data = tf.data.Dataset.from_tensors(tf.zeros(())).repeat(_steps_of(step_s)).prefetch(2)
        began = time.perf_counter()
        for index in range(ITERATORS):
            born = time.perf_counter()
            iterator = iter(data)
            for _ in iterator:
                timed(step)
            ended = time.perf_counter()
            del iterator  # it goes with its last reference, as when fit makes the next epoch's
            recorder.write("iterator", index=index, age_s=ended - born, wait_s=time.perf_counter() - ended)
            if time.perf_counter() - began > ITERATORS_LIMIT_S:
                break


def _steps_of(step_s: float) -> int:
    """Steps after which the next turn of an iterator's tuning thread is a quarter of its age away, so that a wait for it shows."""
    count = max(2, math.ceil(ITERATOR_AGE_S / step_s))
    while _next_turn_s(count * step_s) < 1.25 * count * step_s:
        count += 1
    return count


def _next_turn_s(age_s: float) -> float:
    """Turns come at 0.02, 0.06, 0.14 s, and so on: each time after twice as long (``tensorflow/core/framework/model.h``)."""
    turn_s = 0.02
    while turn_s <= age_s:
        turn_s = 2 * turn_s + 0.02
    return turn_s


def unmeasured(what: str, error: Any, recorder: Any) -> None:
    """Say in the file what could not be measured, and why."""
    why = error if isinstance(error, str) else type(error).__name__ + ": " + " ".join(str(error).split())
    recorder.write("unmeasured", what=what, why=why[:500])


@contextlib.contextmanager
def or_said(what: str, recorder: Any) -> Iterator[None]:
    """Within, an error is said in the file: the user's code may raise anything, a disk may be full; earlier measurements are kept."""
    try:
        yield
    except Exception as error:
        unmeasured(what, error, recorder)


def variables_of_step(tf: Any, step: Callable[[], Any]) -> list[Any]:
    """All variables that a step of the user's own touches, those of its optimizer among them, by its graph."""
    graph = tf.function(step, autograph=False).get_concrete_function().graph
    return list({id(variable): variable for variable in graph.variables}.values())


def checkpoints(state: Any, size_bytes: int, copied: Callable[[], list[Any]], beside: str, recorder: Any) -> None:
    """Write, synchronise, read and copy the state a few times, in a folder next to a file; nothing of it stays.

    Parameters
    ----------
    state
        A ``tf.train.Checkpoint``, or what else has ``write(prefix)``, which returns what ``read`` takes.
    size_bytes
        Bytes of its variables, about.
    copied
        Copies them to the host, as an asynchronous checkpoint does before training goes on.
    """
    with or_said("checkpoint", recorder), disk_beside(beside) as folder:
        free = shutil.disk_usage(folder).free
        if free < 2 * size_bytes:  # the user's disk must not be filled by a measurement
            raise OSError(f"{folder}: has {free / 2**20:.0f} MiB free, less than twice the {size_bytes / 2**20:.0f} MiB of a checkpoint")
        began = time.perf_counter()
        for index in range(CHECKPOINTS):
            recorder.write("checkpoint", index=index, **_one(state, copied, folder))
            if time.perf_counter() - began > CHECKPOINTS_LIMIT_S:
                break


@contextlib.contextmanager
def disk_beside(out: str) -> Iterator[str]:
    """A folder for checkpoints next to the file of measurements; whoever has started this process knows its name, to remove it."""
    folder = os.path.abspath(out) + ".checkpoints"
    os.makedirs(folder)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def bytes_of(tf: Any, variables: list[Any]) -> int:
    """Bytes of variables of TensorFlow."""
    return sum(math.prod(int(size) for size in variable.shape) * tf.as_dtype(variable.dtype).size for variable in variables)


def write_state(state: Any, place: str) -> tuple[str, list[str], float]:
    """Write a state, as :func:`checkpoints` takes it, into a new folder, until the disk has it.

    Returns
    -------
    str, list of str, float
        Its prefix, its files, and when the framework had written it and the system still had to.
    """
    os.makedirs(place, exist_ok=True)
    prefix = state.write(os.path.join(place, "state"))
    written = time.perf_counter()
    files = [os.path.join(place, name) for name in os.listdir(place)]
    _synchronise([*files, place])
    return prefix, files, written


def _one(state: Any, copied: Callable[[], list[Any]], folder: str) -> dict[str, Any]:
    place = tempfile.mkdtemp(dir=folder)
    began = time.perf_counter()
    prefix, files, written = write_state(state, place)
    synchronised = time.perf_counter()
    size = sum(os.path.getsize(name) for name in files)
    cold = sum(map(_out_of_cache, files)) == len(files)
    reading = time.perf_counter()
    state.read(prefix)
    read = time.perf_counter()
    copies = copied()
    at_host = time.perf_counter()
    del copies
    shutil.rmtree(place)
    return {
        "size_bytes": size, "write_s": written - began, "sync_s": synchronised - written, "restore_s": read - reading, "cold": cold,
        "snapshot_s": at_host - read,
    }  # fmt: skip


def _synchronise(paths: list[str]) -> None:
    """Until the disk has them, and not only the page cache."""
    for path in paths:
        try:
            with _opened(path) as descriptor:
                os.fsync(descriptor)
        except OSError:  # a folder cannot be opened everywhere
            if os.path.isfile(path):
                raise


def _out_of_cache(path: str) -> bool:
    """Ask the system to forget what it keeps of a file, so that it is read from the disk; False where it takes no such advice."""
    if not hasattr(os, "posix_fadvise"):
        return False
    with _opened(path) as descriptor:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    return True


@contextlib.contextmanager
def _opened(path: str) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


# -- what a parameter server does with a gradient: the update of one tensor, without any network ----------------------


def server_cost(tf: Any, optimizer: Any, largest_variable_bytes: int, rounds: int, recorder: Any) -> None:
    """Write ``server`` records, which calibrate/fit/step.py fits: seconds for a call with several updates of a tensor of a size.

    Parameters
    ----------
    optimizer
        Of which a fresh copy is used; None takes plain SGD.
    largest_variable_bytes
        Size of the model's largest variable, measured too.
    rounds
        Times that each size is measured, in turn.
    """
    import keras

    inner = getattr(optimizer, "inner_optimizer", optimizer)
    calls: list[tuple[int, int, Callable[[], Any]]] = []
    with tf.device("/CPU:0"):
        for size in sorted({*SIZES, max(4, min(largest_variable_bytes, LARGEST) // 4 * 4)}):
            variable = keras.Variable(tf.zeros([size // 4]), trainable=True)
            copy = keras.optimizers.SGD(0.01) if inner is None else type(inner).from_config(inner.get_config())
            copy.build([variable])
            gradient = tf.fill([size // 4], 1e-3)
            lengths = (SHORT, LONG_OF_SMALL if size <= SMALL else LONG)
            calls += [(size, length, _chain(tf, copy, variable, gradient, length)) for length in lengths]
        for _, _, call in calls:
            call()
            call()
        for turn in range(rounds):
            for size, length, call in calls:
                times = []
                for _ in range(5):
                    start = time.perf_counter()
                    call()
                    times.append(time.perf_counter() - start)
                recorder.write("server", size_bytes=size, round=turn, applies=length, seconds=statistics.median(times))


def _chain(tf: Any, optimizer: Any, variable: Any, gradient: Any, length: int) -> Callable[[], Any]:
    def body(gradient: Any) -> None:
        # updates of one variable wait for each other, so that the chain takes `length` times one
        for _ in range(length):
            optimizer.apply_gradients([(gradient, variable)])

    traced = tf.function(body, autograph=False)
    return lambda: traced(gradient)
