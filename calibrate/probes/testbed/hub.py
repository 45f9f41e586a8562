"""Messages between a testbed's supervisor and its tasks (JSON, over a pair of connections), and what a task knows.

Kinds of messages are names that supervisor.py, links.py and the modules of the tasks share; evidence/probes/staged_model.py uses them
too. A task of a job (:func:`is_job`) writes checkpoints, reports steps as they end, and says when a peer is gone. Steps count from the
job's first common start, also in processes that were started later; events, whose names are those of calibrate/measurements.py, have
wall-clock times until the supervisor writes them.
"""

from __future__ import annotations

import json
import os
import resource
import time
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

from . import links


def is_job(setting: dict[str, Any]) -> bool:
    """Tell whether a setting is run as a job, with checkpoints and faults on purpose."""
    return bool(setting.get("faults") or setting.get("checkpoint_every"))


class CannotComputeError(RuntimeError):
    """The model cannot be computed on pulled values; the message says why, and what to choose."""


class Line:
    """One end of the line between a task and the process that started it."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def say(self, kind: str, **fields: Any) -> None:
        """Send one message."""
        self.connection.send_bytes(json.dumps({"kind": kind, **fields}).encode())

    def heard(self) -> dict[str, Any] | None:
        """The next message; None if the other end has gone."""
        try:
            message: dict[str, Any] = json.loads(self.connection.recv_bytes())  # recv would unpickle what a model's code may have sent
        except (EOFError, OSError):  # also in the middle of a message, of a task that was killed
            return None
        return message

    def wait(self, *kinds: str) -> dict[str, Any]:
        """The next message of some kinds, others passed over; the process ends if the other end has gone."""
        while (message := self.heard()) is not None:
            if message["kind"] in kinds:
                return message
        os._exit(1)


@dataclass(eq=False)
class Task:
    """Context of a task: its identity, the hub that it reports to, and its work.

    Attributes
    ----------
    setting
        The whole setting, as the starter has read it.
    cluster
        Addresses by job, for TensorFlow.
    began_s
        Wall clock at which the measured part began, once it has.
    origin_s
        Wall clock from which times count: the same, but of a job that was restarted when it first began.
    """

    line: Line
    setting: dict[str, Any]
    job: str
    index: int
    cluster: dict[str, list[str]]
    repeat: int
    began_s: float = 0.0
    origin_s: float = 0.0
    _mark: dict[str, float] = field(default_factory=dict)

    @property
    def seed(self) -> int:
        """Seed of this repeat."""
        return int(self.setting["seed"]) + 1000 * self.repeat

    def line_up(self, step_s: float = 0.0, offset_s: float = 0.0) -> float:
        """Say that all is ready, and wait for the common start, plus an offset; returns the longest ``step_s`` of all tasks."""
        self.line.say("ready", step_s=step_s)
        message = self.line.wait("run")
        self.began_s = float(message["began_s"])
        self.origin_s = float(message.get("origin_s", self.began_s))
        self._mark = self._counted()
        time.sleep(max(self.began_s + offset_s - time.time(), 0.0))
        return float(message["step_s"])

    def end(self) -> None:
        """Report what was sent, received and computed since the start."""
        now = self._counted()
        self.line.say("used", **{key: now[key] - self._mark.get(key, 0.0) for key in now})

    def start_offsets_s(self) -> list[float]:
        """When each worker begins after the common start; none where all begin together."""
        spread_s = self.setting.get("start_spread_s", 0.0)
        if not spread_s:
            return []
        import numpy  # not sooner: it starts threads, which a process on its way into a namespace must not have

        drawn: list[float] = numpy.random.default_rng(self.seed + 1).uniform(0.0, spread_s, self.setting["workers"]).tolist()
        return drawn

    def before_step(self, number: int) -> None:
        """Do what a worker does between two steps: nothing. Kinds of tasks whose input is late, say, have another one."""

    def report(self, worker: int, row: Any, origin_s: float) -> None:
        """Report a step by its times (it began, pulled, computed, applied; wall clock) and the versions that it read and made."""
        asked, begun, ended, done, read, after = (float(value) for value in row)
        self.line.say(
            "update", worker=worker, start_s=asked - origin_s, pulled_s=begun - origin_s, computed_s=ended - origin_s,
            applied_s=done - origin_s, read_version=int(read), version=int(after),
        )  # fmt: skip

    def event(self, what: str, at_s: float | None = None, **fields: Any) -> None:
        """Report an event outside steps, now or at a given time."""
        self.line.say("event", what=what, at_s=time.time() if at_s is None else at_s, **fields)

    def lost(self, error: Exception) -> None:
        """Report that peers are gone, as an error of TensorFlow shows."""
        self.event("noticed", message=first_line(error))
        self.line.say("lost")

    @staticmethod
    def _counted() -> dict[str, float]:
        sent, received = links.counters()
        used = resource.getrusage(resource.RUSAGE_SELF)
        return {"sent_bytes": sent, "received_bytes": received, "user_s": used.ru_utime, "system_s": used.ru_stime}


def first_line(error: Exception) -> str:
    """An error of TensorFlow, in short."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


class Checkpoints:
    """The job's checkpoints in a folder, as ``tf.train.CheckpointManager`` keeps them, each timed.

    Parameters
    ----------
    objects
        What is written, by name.
    ours
        Whether this process's files are the ones that count. Each worker of
        MultiWorkerMirroredStrategy has to write, and those of the others are not kept.
    """

    def __init__(self, tf: Any, task: Task, ours: bool, **objects: Any) -> None:
        self._tf = tf
        self._task = task
        self._ours = ours
        self.steps = tf.Variable(0, dtype=tf.int64, trainable=False, name="steps")
        self._checkpoint = tf.train.Checkpoint(steps=self.steps, **objects)
        folder = task.setting["checkpoints"]
        kept = os.path.join(folder, "kept")
        own = kept if ours else os.path.join(folder, f"worker-{task.index}")
        self._manager = tf.train.CheckpointManager(self._checkpoint, own, max_to_keep=2)
        self._latest = tf.train.latest_checkpoint(kept)

    def restore(self) -> int:
        """Take the latest one, where there is one; returns the steps that it holds."""
        if self._latest is None:
            return 0
        began_s = time.time()
        self._checkpoint.restore(self._latest)
        done = int(self.steps.numpy())
        self._say("restored", began_s, done)
        return done

    def write(self, done: int) -> None:
        """Write one after this many steps; training waits for it."""
        began_s = time.time()
        self.steps.assign(done)
        self._manager.save(checkpoint_number=done)
        self._say("checkpoint", began_s, done)

    def _say(self, what: str, began_s: float, done: int) -> None:
        if self._ours:
            self._task.event(what, began_s, seconds=time.time() - began_s, step=done)
