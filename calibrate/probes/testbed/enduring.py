"""One repeat of a job with checkpoints or faults on purpose: tasks are killed when the setting says, and started again.

A worker of an asynchronous job comes back alone while the others go on. Where the others cannot
go on (synchronous workers, a parameter server), all tasks end as soon as one of them has noticed,
and all start again from the latest checkpoint. What the tasks themselves do is in lasting.py.
"""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
import time
from typing import Any

from .. import load
from ..ending import UsageError
from . import links, supervisor
from .supervisor import Child, RunFailedError

BEFORE_START_S = 0.3
"""From the word that all are ready until the common start."""


def _own_cpu_s() -> float:
    """CPU seconds of this process and of all tasks that have ended, killed ones too."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


class Enduring(supervisor.Supervisor):
    """One repeat: attempts, of which the last one comes to the job's end."""

    def __init__(self, tf: Any, setting: dict[str, Any], recorder: Any, congestion: Any, repeat: int) -> None:
        self.folder = os.path.join(setting["checkpoints"], str(repeat))
        super().__init__(tf, {**setting, "checkpoints": self.folder}, recorder, congestion, repeat)
        self.attempt = 0
        self.origin_s = 0.0
        self.events: list[dict[str, Any]] = []
        self.steps: list[dict[str, Any]] = []
        self.faults = sorted(setting.get("faults", ()), key=lambda fault: fault["at_s"])
        self.dead: dict[str, float] = {}
        """Tasks that were killed and are not back, with the time at which each is to be started again."""
        self.switch: Any = None

    # -- life -------------------------------------------------------------------------

    def run(self) -> None:
        """All of it; raises RunFailedError."""
        os.makedirs(self.folder, exist_ok=True)
        cores = load.cores_of_process()
        began_s, began_monotonic, before, own_s = time.time(), time.monotonic(), load.ticks(cores), _own_cpu_s()
        try:
            while not self._attempt():
                self._end_attempt()
                wait_s = max(self.dead.values()) - time.time()
                self.dead.clear()
                self.attempt += 1
                if wait_s > 0:
                    time.sleep(min(wait_s, max(self.deadline - time.monotonic(), 0.0)))
            self._tell("finish")
            self._gather("used")
            used = [dict(message, task=child.name) for child in self.children for message in child.said if message["kind"] == "used"]
        finally:
            self._end_attempt()
            self.selector.close()
            shutil.rmtree(self.folder, ignore_errors=True)
        after, lasted_s = load.ticks(cores), time.monotonic() - began_monotonic
        drift_s = self.checked_drift_s(began_s, began_monotonic)
        self._write(used)
        others = None
        if before is not None and after is not None:
            others = max(sum(after) - sum(before) - (_own_cpu_s() - own_s), 0.0) / (lasted_s * len(cores))
        self.recorder.write("repeat", repeat=self.repeat, clock_drift_s=drift_s, others_share=others)

    def _attempt(self) -> bool:
        """Start all tasks and let them train; whether they came to the end."""
        roles = self.roles()
        cluster = self.cluster(roles)
        self._note("launched")
        for host, (job, index) in enumerate(roles):
            self._fork(host, len(roles), job, index, cluster)
        self._gather("born")
        if self.setting["link"] is not None:
            self.switch = links.Switch(self._shape())
            self.switch.connect([child.pid for child in self.children])
            with self.congestion.choosable():
                self._tell("plug")
                self._gather("plugged")
            if not self.attempt:
                self._check_link()
        self._tell("start")
        self._gather("ready")
        for child in self.children:
            for message in [one for one in child.said if one["kind"] == "event"]:
                child.said.remove(message)
                self._heard(child, message)
        began_s = time.time() + BEFORE_START_S
        if not self.attempt:
            self.origin_s = began_s
        self._tell("run", began_s=began_s, origin_s=self.origin_s, step_s=0.0)
        self._note("started", at_s=began_s)
        return self._watch(cluster)

    def _watch(self, cluster: dict[str, list[str]]) -> bool:
        """Hear what the tasks say, kill and start again at the given times; True at the job's end, False if all must start again."""
        drivers = {child.name for child in self.drivers()}
        while not drivers <= set(self.dead):  # a worker that dies after its last step is not missed
            if time.monotonic() > self.deadline:
                raise RunFailedError(
                    f"the job did not end within {self.setting['timeout_s']:g} s (`timeout_s`); last lines of "
                    f"{self.children[-1].name}: {self.children[-1].last_lines()}"
                )
            self._kill_what_is_due()
            self._start_what_is_due(cluster)
            for key, _ in self.selector.select(timeout=self._until_next_s()):
                child = key.data
                messages = child.line.heard()
                if messages is None:
                    self._gone(child)
                    if not any(one.name in drivers for one in self.children):
                        return False
                    continue
                for message in messages:
                    kind = message["kind"]
                    if kind == "lost" and self.dead:
                        return False
                    self._heard(child, message)
                    if kind == "reported":
                        drivers.discard(child.name)
        return True

    def _heard(self, child: Child, message: dict[str, Any]) -> None:
        kind = message.pop("kind")
        if kind == "update":
            self.steps.append(message)
        elif kind == "event":
            self._note(task=child.name, **message)
        elif kind == "born":
            child.line.say("start")
        elif kind == "ready":
            self._note("back", task=child.name)
            child.line.say("run", began_s=time.time(), origin_s=self.origin_s, step_s=0.0)
        elif kind == "failed":
            raise (UsageError if message["usage"] else RunFailedError)(f"{child.name}: {message['message']}")
        elif kind == "lost":
            raise RunFailedError(f"{child.name} lost its peers, and none was killed: {self.events[-1].get('message', '')}")
        else:
            child.said.append({"kind": kind, **message})

    # -- faults -----------------------------------------------------------------------

    def _until_next_s(self) -> float:
        due = [self.origin_s + fault["at_s"] for fault in self.faults[:1]] + [when for when in self.dead.values() if self._alone()]
        return min(max(min(due, default=time.time() + 0.5) - time.time(), 0.0), 0.5)

    def _alone(self) -> bool:
        """Whether what is dead comes back while the others go on: asynchronous workers, as long as all servers live."""
        return self.setting["mode"] == "async" and not any(name.startswith("ps") for name in self.dead)

    def _kill_what_is_due(self) -> None:
        while self.faults and time.time() >= self.origin_s + self.faults[0]["at_s"]:
            fault = self.faults.pop(0)
            name = f"{'ps' if fault['of'] == 'server' else 'worker'} {fault['number']}"
            if name in self.dead:
                self._note("missed", task=name)
                continue
            child = next(one for one in self.children if one.name == name)
            now = time.time()
            os.kill(child.pid, signal.SIGKILL)
            self._note("killed", task=name, at_s=now)
            self.dead[name] = now + fault["back_after_s"]
            os.waitpid(child.pid, 0)
            self._forget(child)

    def _start_what_is_due(self, cluster: dict[str, list[str]]) -> None:
        if not self._alone():
            return
        roles = self.roles()
        for name, when in list(self.dead.items()):
            if time.time() >= when:
                job, index = name.split()
                host = roles.index((job, int(index)))
                self._note("restarted", task=name)
                self._fork(host, len(roles), job, int(index), cluster)
                del self.dead[name]

    def _gone(self, child: Child) -> None:
        """A task ended by itself: with a peer of its ring dead that is one way to notice."""
        how = child.end()
        if not self.dead or self.setting["mode"] != "ring":
            raise RunFailedError(f"{child.name} {how} before the job's end; its last lines: {child.last_lines()}")
        self._note("ended", task=child.name, message=how)
        self._forget(child)

    def _forget(self, child: Child) -> None:
        self.selector.unregister(child.line.sock)
        child.line.sock.close()
        child.errors.close()
        self.children.remove(child)

    def _end_attempt(self) -> None:
        """End every task, and take the network down."""
        for child in self.children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child.pid, signal.SIGKILL)
        for child in list(self.children):
            with contextlib.suppress(ChildProcessError):
                os.waitpid(child.pid, 0)
            with contextlib.suppress(KeyError, ValueError):
                self._forget(child)
        if self.switch is not None:
            with contextlib.suppress(Exception):
                self.switch.close()
            self.switch = None

    # -- what is written --------------------------------------------------------------

    def _note(self, what: str, **fields: Any) -> None:
        self.events.append({"what": what, "attempt": self.attempt, "at_s": time.time(), **fields})

    def _write(self, used: list[dict[str, Any]]) -> None:
        for one in self.steps:
            self.recorder.write("update", repeat=self.repeat, **one)
        for one in sorted(self.events, key=lambda event: event["at_s"]):
            self.recorder.write("event", repeat=self.repeat, **{**one, "at_s": one["at_s"] - self.origin_s})
        for one in used:
            self.recorder.write("used", repeat=self.repeat, **{key: value for key, value in one.items() if key != "kind"})
