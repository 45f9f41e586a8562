"""Trains a model in a testbed of its own with causes planted that make it slow: which diagnoses are compared with.

The setting's key ``planted`` lists them, each with its ``kind``:

- ``slow-worker``: ``worker`` computes ``times`` as long;
- ``input``: every worker waits ``seconds`` for each batch, which a thread of its own prepares;
- ``compute``: all workers run on core ``core``;
- ``checkpoint``: worker 0 writes ``size_bytes`` to disk every ``every`` steps.

With the key ``pinned`` each worker has a core of its own, as far as there are as many. Each reports, beside its steps, when it began
them, how long it waited for its input, and what its process used.
"""

from __future__ import annotations

import os
import queue
import resource
import tempfile
import threading
import time
from typing import Any

from _paceline_probes.testbed import run
from _paceline_probes.testbed.hub import Task
from _paceline_probes.testbed.supervisor import Supervisor

_BLOCK = 1 << 24
"""Bytes that are written at a time."""


class Planted(Supervisor):
    """One repeat."""

    def train(self, task: Task) -> None:
        """Work of a task when the network is ready."""
        if task.job != "worker":
            super().train(task)
            return
        kinds = {one["kind"]: one for one in self.setting["planted"]}
        if self.setting["pinned"]:
            cores = sorted(os.sched_getaffinity(0))
            os.sched_setaffinity(0, {kinds["compute"]["core"] if "compute" in kinds else cores[task.index % len(cores)]})
        slow = kinds.get("slow-worker")
        if slow is not None and slow["worker"] == task.index:
            compute = self.setting["compute"]
            task.setting = {**self.setting, "compute": {**compute, "mean_s": compute["mean_s"] * slow["times"]}}
        between = _Between(task, kinds)
        task.before_step = between  # type: ignore[method-assign]
        end = task.end

        def reported() -> None:
            between.report()
            end()

        task.end = reported  # type: ignore[method-assign]
        super().train(task)


class _Between:
    """Work of a worker between two steps, and its records."""

    def __init__(self, task: Task, kinds: dict[str, dict[str, Any]]) -> None:
        self._task = task
        self._began_s: list[float] = []
        self._waited_s: list[float] = []
        self._used_s: list[float] = []
        self._batches = _Batches(kinds["input"]["seconds"]) if "input" in kinds else None
        checkpoint = kinds.get("checkpoint")
        self._checkpoint = checkpoint if checkpoint is not None and task.index == 0 else None

    def __call__(self, number: int) -> None:
        """Before each step: its input, and now and then a checkpoint."""
        self._note()
        if self._checkpoint is not None and number and number % self._checkpoint["every"] == 0:
            _write(self._checkpoint["size_bytes"])
        began_s = time.monotonic()
        if self._batches is not None:
            self._batches.take()
        self._waited_s.append(time.monotonic() - began_s)

    def _note(self) -> None:
        used = resource.getrusage(resource.RUSAGE_SELF)
        self._began_s.append(time.time() - self._task.began_s)
        self._used_s.append(used.ru_utime + used.ru_stime)

    def report(self) -> None:
        """All that was noted; the last step's end is one of its beginnings."""
        self._note()
        self._task.line.say(
            "note", worker=self._task.index, began_s=self._began_s, waited_s=self._waited_s, used_s=self._used_s,
        )  # fmt: skip


class _Batches:
    """A batch takes as long to prepare; one is ready ahead."""

    def __init__(self, seconds: float) -> None:
        self._ready: queue.Queue[int] = queue.Queue(maxsize=1)
        self._seconds = seconds
        threading.Thread(target=self._prepare, daemon=True).start()

    def _prepare(self) -> None:
        while True:
            time.sleep(self._seconds)
            self._ready.put(1)

    def take(self) -> None:
        """Wait for the next one."""
        self._ready.get()


def _write(size_bytes: int) -> None:
    """A checkpoint, on disk when it returns."""
    with tempfile.TemporaryFile(dir=".") as file:
        block = os.urandom(_BLOCK)
        for _ in range(max(size_bytes // _BLOCK, 1)):
            file.write(block)
        file.flush()
        os.fsync(file.fileno())


def main() -> int:
    """Measure one setting."""
    return run.main(Planted)
