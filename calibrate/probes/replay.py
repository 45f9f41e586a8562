"""Replays the learning of a run: real gradients, computed and applied in the order of a schedule; runs in the user's Python.

``--problem FILE.py:FUNCTION``: FUNCTION() returns ``(model, (x, y), (x, y))``, a compiled Keras model with data to train on and to
validate with. ``--request FILE.json`` lists the runs, each with a seed and its phases: a schedule (FILE.npz, as
simulator/engine/schedule.py writes it) and how many of its updates are replayed. Every run begins with the model that the function
returns after Keras has been given the run's seed; batches are slices of one stream of the shuffled data, handed out in the order of
the updates.
"""

from __future__ import annotations

import argparse
import json
import math
from typing import Any, Iterator

from . import machine, recording, training
from .learner import Learner
from .recording import Recorder, UsageError, progress

MOST_ROWS = 1 << 20
"""Numbers of samples that are handed to TensorFlow at a time."""


class Stream:
    """Numbers of samples, in batches: the shuffled data, epoch after epoch, each sample once in each."""

    def __init__(self, np: Any, samples: int, seed: int) -> None:
        self._np, self._samples = np, samples
        self._rng = np.random.default_rng(seed)
        self._left = np.zeros(0, np.int64)

    def take(self, count: int) -> Any:
        """The next samples."""
        missing = -(-(count - len(self._left)) // self._samples)
        if missing > 0:
            self._left = self._np.concatenate([self._left, *(self._rng.permutation(self._samples) for _ in range(missing))])
        taken, self._left = self._left[:count], self._left[count:]
        return taken


class Phase:
    """Some updates of a schedule, of one rule."""

    def __init__(self, np: Any, asked: dict[str, Any]) -> None:
        with np.load(asked["schedule"], allow_pickle=False) as arrays:
            rule = json.loads(arrays["rule"].tobytes())
            self.time_s, self.read, self.applied = arrays["time_s"], arrays["read"], arrays["applied"]
        self.workers, self.averaged, self.every, self.neighbours = (rule[name] for name in ("workers", "averaged", "every", "neighbours"))
        self.batch, self.updates, self.begins_s, self.rate, self.by_staleness = (
            asked[name] for name in ("batch", "updates", "begins_s", "rate", "by_staleness")
        )

    @property
    def batches_an_update(self) -> int:
        """Batches that are computed for an update, thrown away or not."""
        return 1 if self.read.shape[1] else self.workers * self.every


def replayed(np: Any, learner: Learner, stream: Stream, phase: Phase, stops: list[int]) -> Iterator[int]:
    """Replay the updates of a phase; yields how many are complete whenever that is one of ``stops``."""
    if phase.read.shape[1]:
        yield from _apart(np, learner, stream, phase, stops)
        return
    # each worker has a copy of its own: local SGD, or averages with neighbours
    copies = learner.copies(phase.workers, phase.neighbours) if phase.every > 1 or phase.neighbours else None
    # or all compute with the same version, and the mean of the gradients that came in time is applied
    server = learner.on_servers(1, [1], 1) if copies is None else None
    done, a_round = 0, phase.every * phase.workers * phase.batch
    for stop in stops:
        for count in _pieces(stop - done, a_round):
            batches = stream.take(count * a_round).reshape(count, phase.every, phase.workers, phase.batch)
            if copies is not None:
                copies.go_on(batches, np.full(count, phase.rate, np.float32))
            else:
                server.apply_in_turn(batches[:, 0, : phase.averaged], phase.rate)
        done = stop
        yield done


def _pieces(updates: int, samples: int) -> Iterator[int]:
    """How many updates at a time, so that the numbers of their samples do not take much memory."""
    most = max(MOST_ROWS // max(samples, 1), 1)
    while updates > 0:
        yield min(updates, most)
        updates -= most


class Applications:
    """What is done on the servers, gradient by gradient, in an order in which all that it needs was done before.

    Of each: the server, the update, the row in which its gradient is kept (below 0: it is computed then, and kept in row -1 - n), the
    rows of the versions that it reads, the row of the version that it makes, and its staleness. Rows are used again as soon as nobody
    reads what is in them, so that there are as many as there are versions in use at once.

    Attributes
    ----------
    kept
        Rows of versions that each server needs.
    pending
        Rows of gradients.
    ends
        How many applications there have been when each update is complete.
    """

    def __init__(self, np: Any, read: Any, applied: Any) -> None:
        updates, self._count = read.shape
        stale = (applied - read).tolist()
        readers = []
        self._made_by = []  # of each server: the update that made each version but the first
        columns = []
        for server in range(self._count):
            # an update that its worker did not complete is none: it made no version
            complete = np.sort(applied[:, server])
            its_read, its_applied = np.searchsorted(complete, read[:, server]), np.searchsorted(complete, applied[:, server])
            self._made_by.append(np.argsort(its_applied, kind="stable").tolist())
            readers.append(np.bincount(its_read, minlength=updates + 1).tolist())
            columns.append((its_read.tolist(), its_applied.tolist()))
        self._read = list(zip(*(its_read for its_read, _ in columns)))
        self._readers = readers  # by how many updates each version is still to be read
        self._version = [0] * self._count
        self._row = [{0: 0} for _ in range(self._count)]  # of versions in use
        self._free: list[list[int]] = [[] for _ in range(self._count)]
        self.kept = [1] * self._count
        self._gradient: dict[int, tuple[int, int]] = {}  # of updates that are not complete: the row, and servers that are left
        self._free_gradients: list[int] = []
        self.pending = 0
        self.server: list[int] = []
        self.update: list[int] = []
        self.gradient: list[int] = []
        self.reads: list[list[int]] = []
        self.write: list[int] = []
        self.staleness: list[int] = []
        self.ends: list[int] = []
        for update in range(updates):
            for server, (_, its_applied) in enumerate(columns):
                self._go_on(server, its_applied[update] + 1, stale)
            self.ends.append(len(self.server))

    def _go_on(self, server: int, version: int, stale: list[list[int]]) -> None:
        """Apply on a server until it has a version; what that needs of other servers is done first."""
        needed = [(server, version)]
        while needed:
            server, version = needed[-1]
            if self._version[server] >= version:
                needed.pop()
                continue
            update = self._made_by[server][self._version[server]]
            missing = [] if update in self._gradient else list(self._missing(update))
            if missing:
                needed.extend(missing)
            else:
                self._apply(server, update, stale[update][server])

    def _missing(self, update: int) -> Iterator[tuple[int, int]]:
        """Versions that its worker has read and that are not there yet."""
        for server, version in enumerate(self._read[update]):
            if self._version[server] < version:
                yield server, version

    def _apply(self, server: int, update: int, staleness: int) -> None:
        reads = [0] * self._count
        if update in self._gradient:
            row, left = self._gradient[update]
            self.gradient.append(row)
        else:
            row, left = self._gradient_row(), self._count
            self.gradient.append(-1 - row)
            reads = [self._take(other, version) for other, version in enumerate(self._read[update])]
        if left > 1:
            self._gradient[update] = row, left - 1
        else:
            self._gradient.pop(update, None)
            self._free_gradients.append(row)
        self.server.append(server)
        self.update.append(update)
        self.reads.append(reads)
        self.staleness.append(staleness)
        self.write.append(self._new_version(server))

    def _gradient_row(self) -> int:
        if self._free_gradients:
            return self._free_gradients.pop()
        self.pending += 1
        return self.pending - 1

    def _take(self, server: int, version: int) -> int:
        """The row of a version, for one of its readers; after the last it is free, but for the present version's."""
        self._readers[server][version] -= 1
        row = self._row[server][version]
        if not self._readers[server][version] and version != self._version[server]:
            self._free[server].append(self._row[server].pop(version))
        return row

    def _new_version(self, server: int) -> int:
        """The row of the version that a server has now."""
        before = self._version[server]
        if not self._readers[server][before]:
            self._free[server].append(self._row[server].pop(before))
        if self._free[server]:
            row = self._free[server].pop()
        else:
            row = self.kept[server]
            self.kept[server] += 1
        self._version[server] = before + 1
        self._row[server][before + 1] = row
        return row


def _apart(np: Any, learner: Learner, stream: Stream, phase: Phase, stops: list[int]) -> Iterator[int]:
    """Each update is the gradient of one batch with the versions that its worker read, applied server by server in their order."""
    read, applied = phase.read[: phase.updates], phase.applied[: phase.updates]
    order = Applications(np, read, applied)
    batches = stream.take(phase.updates * phase.batch).reshape(phase.updates, 1, phase.batch)
    handed = np.argsort(np.argsort(read.sum(axis=1), kind="stable"), kind="stable")  # batches go to workers in the order of reads
    columns = [np.array(column, np.int32) for column in (order.server, order.gradient, order.reads, order.write)]
    update, scale = np.array(order.update), np.full(len(order.server), phase.rate, np.float32)
    if phase.by_staleness:  # Zhang et al. 2016, arXiv:1511.05950
        scale = scale / np.maximum(np.array(order.staleness, np.float32), 1.0)
    servers = learner.on_servers(read.shape[1], order.kept, max(order.pending, 1))
    at = 0
    for stop in stops:
        end = order.ends[stop - 1]
        for count in _pieces(end - at, phase.batch):
            piece = slice(at, at + count)
            servers.go_on(*(column[piece] for column in columns), batches[handed[update[piece]]], scale[piece])
            at += count
        yield stop


class Replay:
    """All runs of a request, with one model."""

    def __init__(self, tf: Any, problem: str, request: dict[str, Any], recorder: Recorder) -> None:
        import keras
        import numpy as np

        self._tf, self._keras, self._np, self._recorder, self._request = tf, keras, np, recorder, request
        self._problem, self._build = problem, training.load_function(problem)
        self._keras.utils.set_random_seed(0)
        self._learner = Learner(tf, self._build())
        self._done = 0
        self._total = sum(phase["updates"] for run in request["runs"] for phase in run["phases"])

    def run(self) -> None:
        """Every run, one after the other; without any, only see whether the model takes its data."""
        learner = self._learner
        if not self._request["runs"]:
            learner.try_out(self._problem)
        self._recorder.write("problem", **learner.described)
        for run in self._request["runs"]:
            self._run(run)

    def _run(self, run: dict[str, Any]) -> None:
        np, learner = self._np, self._learner
        self._keras.utils.set_random_seed(run["seed"])
        learner.begin(Learner(self._tf, self._build()).state())
        stream = Stream(np, learner.samples, run["seed"])
        samples, updates = 0, 0
        good = self._note(run, 0.0, 0, 0)
        for asked in run["phases"]:
            phase = Phase(np, asked)
            stops = list(_checkpoints(phase.updates, asked["checkpoints"]))
            each, last = phase.batches_an_update * phase.batch, 0
            for done in replayed(np, learner, stream, phase, stops):
                self._done, last = self._done + done - last, done
                good = self._note(run, phase.begins_s + float(phase.time_s[done - 1]), updates + done, samples + done * each)
                if not good:
                    break
            if not good:
                break
            updates, samples = updates + phase.updates, samples + phase.updates * each
        self._recorder.write("replayed", run=run["name"], diverged=not good)

    def _note(self, run: dict[str, Any], at_s: float, updates: int, samples: int) -> bool:
        """Validate, and record how good the model is; whether it is any good still."""
        metrics = self._learner.validated()
        wanted = self._request.get("metric")
        if wanted is not None and wanted not in metrics:
            raise UsageError(f"the model has no metric {wanted!r}; it has {', '.join(metrics)}")
        finite = {name: value for name, value in metrics.items() if math.isfinite(value)}
        self._recorder.write("learned", run=run["name"], time_s=at_s, updates=updates, samples=samples, metrics=finite)
        progress(self._done, self._total, "updates replayed")
        return math.isfinite(metrics["loss"])


def _checkpoints(updates: int, count: int) -> Iterator[int]:
    """After which updates the model is validated: evenly, and after the last."""
    count = min(count, updates)
    return (math.ceil(updates * (number + 1) / count) for number in range(count))


def main() -> int:
    """Run the probe; the exit status tells the parent who is at fault."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problem", required=True)
    parser.add_argument("--request", help="left out: only say what the problem is")
    parser.add_argument("--identity", default="", help="of the problem, for whoever reads the measurements")
    parser.add_argument("--out", required=True)
    arguments = parser.parse_args()
    recorder = Recorder(arguments.out)
    request: dict[str, Any] = {"runs": []}
    if arguments.request:
        with open(arguments.request, encoding="utf-8") as file:
            request = json.load(file)
    recorder.header("replay", {"problem": arguments.problem, "identity": arguments.identity})
    recording.let_import(arguments.problem)

    def measure() -> None:
        tf, on_device = machine.tensorflow_alike(recorder, None)
        with on_device:
            Replay(tf, arguments.problem, request, recorder).run()

    return recording.recorded(measure, recorder, arguments.problem)
