"""Replays the learning of a run: real gradients, computed and applied in the order of a schedule; runs in the user's Python.

``--problem FILE.py:FUNCTION``: FUNCTION() returns ``(model, (x, y), (x, y))``, a compiled Keras model with data to train on and to
validate with. ``--request FILE.json`` lists the runs, each with a seed and its phases: a schedule (FILE.npz, as
simulator/engine/schedule.py writes it) and how many of its updates are replayed. Every run begins with the model that the function
returns after Keras has been given the run's seed; batches are slices of one stream of the shuffled data, handed out in the order of
the updates.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import Any, Iterator

from . import machine, recording, training
from .learner import Learner, assign
from .recording import Recorder, UsageError, progress


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


def replayed(np: Any, learner: Learner, stream: Stream, phase: Phase) -> Iterator[None]:
    """Replay the updates of a phase; yields after each."""
    if phase.read.shape[1]:
        yield from _apart(np, learner, stream, phase)
    elif phase.every > 1 or phase.neighbours:
        yield from _by_copies(learner, stream, phase)
    else:
        yield from _together(learner, stream, phase)


def _together(learner: Learner, stream: Stream, phase: Phase) -> Iterator[None]:
    """All compute with the same version, and the mean of the gradients that came in time is applied."""
    values = learner.values()
    for _ in range(phase.updates):
        batches = stream.take(phase.workers * phase.batch).reshape(phase.workers, phase.batch)
        values = learner.update(values, batches[: phase.averaged], phase.rate)
        yield


def _by_copies(learner: Learner, stream: Stream, phase: Phase) -> Iterator[None]:
    """Each worker has a copy, and keeps what the optimizer keeps of it; the present version is the mean of all.

    Without neighbours each makes steps alone, and then all take the mean (local SGD). With neighbours each applies its gradient to
    the mean of its copy and theirs, on a circle (D-PSGD).
    """
    workers = range(phase.workers)
    copies, slots = [learner.values() for _ in workers], [learner.slot_values() for _ in workers]
    for _ in range(phase.updates):
        batches = stream.take(phase.every * phase.workers * phase.batch).reshape(phase.every, phase.workers, 1, phase.batch)
        for batch in batches:
            around = [[copies[(worker + at) % phase.workers] for at in (0, -1, 1)[: phase.neighbours + 1]] for worker in workers]
            starts = [learner.mean(nearby) for nearby in around] if phase.neighbours else copies
            for worker, start in enumerate(starts):
                copies[worker], slots[worker] = learner.step_of_copy(copies[worker], slots[worker], start, batch[worker], phase.rate)
        mean = learner.mean(copies)
        if not phase.neighbours:
            copies = [mean] * phase.workers
        assign(learner.variables, mean)
        yield


class Order:
    """Work on the servers, gradient by gradient, in an order that respects dependencies.

    Attributes
    ----------
    read
        The version of each server that each update's gradient is computed with, shape (updates, servers).
    """

    def __init__(self, np: Any, read: Any, applied: Any) -> None:
        # an update that its worker did not complete is none: it made no version
        complete = np.sort(applied, 0)
        self.read, self._made = (
            np.stack([np.searchsorted(*columns) for columns in zip(complete.T, numbers.T)], 1).tolist() for numbers in (read, applied)
        )
        self._made_by = np.argsort(applied, 0, kind="stable").T.tolist()
        self._version = [0] * applied.shape[1]
        self._computed: set[int] = set()

    def until(self, update: int) -> Iterator[tuple[int, int]]:
        """Server and update of all that is applied until an update is complete on every server, beyond what was applied before."""
        for server, version in enumerate(self._made[update]):
            needed = [(server, version + 1)]
            while needed:
                where, version = needed[-1]
                if self._version[where] >= version:
                    needed.pop()
                    continue
                first = self._made_by[where][self._version[where]]
                missing = [(other, seen) for other, seen in enumerate(self.read[first]) if self._version[other] < seen]
                if missing and first not in self._computed:  # versions that its worker has read
                    needed += missing
                    continue
                self._computed.add(first)
                self._version[where] += 1
                yield where, first


def _apart(np: Any, learner: Learner, stream: Stream, phase: Phase) -> Iterator[None]:
    """Each update is the gradient of one batch with the versions that its worker read, applied server by server in their order.

    A version is kept until all who have read it have computed, a gradient until it is applied everywhere.
    """
    read, applied = phase.read[: phase.updates], phase.applied[: phase.updates]
    order, count = Order(np, read, applied), read.shape[1]
    batches = stream.take(phase.updates * phase.batch).reshape(phase.updates, 1, phase.batch)
    handed = np.argsort(np.argsort(read.sum(axis=1), kind="stable"), kind="stable")  # batches go to workers in the order of reads
    stale = np.maximum(applied - read, 1) if phase.by_staleness else np.ones_like(read)  # Zhang et al. 2016, arXiv:1511.05950
    shares, values = learner.servers(count), learner.values()
    versions = [{0: {number: values[number] for number in share}} for share in shares]
    readers = [Counter(versions_read) for versions_read in zip(*order.read)]
    gradients: dict[int, list[Any]] = {}
    left: Counter[int] = Counter()

    def seen_by(update: int) -> list[Any]:
        seen: dict[int, Any] = {}
        for server, version in enumerate(order.read[update]):
            seen |= versions[server][version]
            readers[server][version] -= 1
            _forget(versions[server], readers[server], version)
        return [seen[number] for number in range(len(values))]

    for complete in range(phase.updates):
        for server, update in order.until(complete):
            share, present = shares[server], max(versions[server])
            rows, scale = batches[handed[update]], np.float32(phase.rate) / np.float32(stale[update, server])
            if count == 1:  # no other server needs the gradient
                applied_now = learner.update(seen_by(update), rows, scale)
            else:
                if update not in gradients:
                    gradients[update], left[update] = learner.gradients(seen_by(update), rows), count
                applied_now = learner.applier(share)([gradients[update][number] for number in share], scale)
                left[update] -= 1
                if not left[update]:
                    del gradients[update]
            versions[server][present + 1] = dict(zip(share, applied_now))
            _forget(versions[server], readers[server], present)
        yield


def _forget(versions: dict[int, Any], readers: Counter[int], version: int) -> None:
    """Let a version go that nobody will read any more, but for the present one."""
    if not readers[version] and version != max(versions):
        del versions[version]


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
            stops, each = set(_checkpoints(phase.updates, asked["checkpoints"])), phase.batches_an_update * phase.batch
            for done, _ in enumerate(replayed(np, learner, stream, phase), start=1):
                self._done += 1
                if done in stops:
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
    # without a request it only says what the problem is; the identity is for whoever reads the measurements
    arguments = recording.asked(__doc__, problem=None, request=None, identity="")
    request: dict[str, Any] = {"runs": []}
    if arguments.request:
        with open(arguments.request, encoding="utf-8") as file:
            request = json.load(file)

    def measure(recorder: Recorder) -> None:
        tf, on_device = machine.tensorflow_alike(recorder, None)
        with on_device:
            Replay(tf, arguments.problem, request, recorder).run()

    header = {"problem": arguments.problem, "identity": arguments.identity}
    return recording.run("replay", arguments, measure, arguments.problem, header)
