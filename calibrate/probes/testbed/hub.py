"""Messages between a testbed's supervisor and its tasks (JSON objects, one a line, over a pair of sockets), and what a task knows.

Kinds of messages are names that supervisor.py, enduring.py, links.py and the modules of the tasks share; evidence/probes/staged_model.py
uses them too.
"""

from __future__ import annotations

import json
import os
import resource
import socket
import time
from typing import Any

from . import links


class CannotComputeError(RuntimeError):
    """The model cannot be computed on pulled values; the message says why, and what to choose."""


class Line:
    """One end of the line between a task and the process that started it."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._rest = b""
        self._unread: list[dict[str, Any]] = []

    def say(self, kind: str, **fields: Any) -> None:
        """Send one message."""
        self.sock.sendall(json.dumps({"kind": kind, **fields}).encode() + b"\n")

    def heard(self) -> list[dict[str, Any]] | None:
        """All whole messages that are there after waiting for something; None if the other end has gone."""
        try:
            data = self.sock.recv(1 << 20)
        except ConnectionError:
            return None
        if not data:
            return None
        *whole, self._rest = (self._rest + data).split(b"\n")
        return [json.loads(line) for line in whole]

    def wait(self, kind: str) -> dict[str, Any]:
        """The next message of a kind; the process ends if the other end has gone."""
        while True:
            for number, message in enumerate(self._unread):
                if message["kind"] == kind:
                    del self._unread[: number + 1]
                    return message
            self._unread.clear()
            messages = self.heard()
            if messages is None:
                os._exit(1)
            self._unread += messages

    def keep(self, messages: list[dict[str, Any]]) -> None:
        """Put back what has been heard and is for a later :meth:`wait`."""
        self._unread = messages + self._unread


class Task:
    """What a task knows: who it is, whom it reports to, what is to be done.

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

    def __init__(self, line: Line, setting: dict[str, Any], job: str, index: int, cluster: dict[str, list[str]], repeat: int) -> None:
        self.line = line
        self.setting = setting
        self.job = job
        self.index = index
        self.cluster = cluster
        self.repeat = repeat
        self.began_s = 0.0
        self.origin_s = 0.0
        self._mark: dict[str, float] = {}

    @property
    def seed(self) -> int:
        """Of this repeat."""
        return int(self.setting["seed"]) + 1000 * self.repeat

    def line_up(self, step_s: float = 0.0) -> float:
        """Say that all is ready, and wait until every task is; returns a moment before the common start, with the longest ``step_s``."""
        self.line.say("ready", step_s=step_s)
        message = self.line.wait("run")
        self.begin(message)
        return float(message["step_s"])

    def begin(self, message: dict[str, Any]) -> None:
        """Remember where the counters stand at the start."""
        self.began_s = float(message["began_s"])
        self.origin_s = float(message.get("origin_s", self.began_s))
        self._mark = self._counted()

    def end(self) -> None:
        """Report what was sent, received and computed since the start."""
        now = self._counted()
        self.line.say("used", **{key: now[key] - self._mark.get(key, 0.0) for key in now})

    def sleep_until(self, offset_s: float) -> None:
        """Wait for the common start, plus an offset."""
        wait_s = self.began_s + offset_s - time.time()
        if wait_s > 0:
            time.sleep(wait_s)

    def before_step(self, number: int) -> None:
        """What a worker does between two steps: nothing. Kinds of tasks whose input is late, say, have another one."""

    @staticmethod
    def _counted() -> dict[str, float]:
        sent, received = links.counters()
        used = resource.getrusage(resource.RUSAGE_SELF)
        return {"sent_bytes": sent, "received_bytes": received, "user_s": used.ru_utime, "system_s": used.ru_stime}
