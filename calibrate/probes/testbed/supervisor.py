"""One repeat of a testbed run: forks the tasks, connects them, lets them run, and records what they report; none outlives it.

The setting's ``mode`` decides which module a task runs (:meth:`Supervisor.train`). Jobs with checkpoints or faults have a supervisor of
their own, enduring.py; evidence/probes/staged.py makes another by ``roles``, ``drivers`` and ``train``.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import selectors
import signal
import socket
import sys
import tempfile
import time
import traceback
from typing import Any

from .. import load
from ..ending import UsageError
from . import hub, links

PR_SET_PDEATHSIG = 1
PORT = 2222
CLOCK_JUMP_S = 0.01
SLEWING = 5e-4
"""Share by which a clock is sped up or slowed down at most while it is being set right (adjtime)."""
CHECK_S = 0.4
CHECKS = 3
GOOD_SHARE = 0.94


def die_with(parent: int) -> None:
    """Let the kernel kill this process when its parent, a process of this number, ends however it may."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before that was said
        os._exit(1)


def is_job(setting: dict[str, Any]) -> bool:
    """Whether a setting is run as a job, with checkpoints and faults on purpose."""
    return bool(setting.get("faults") or setting.get("checkpoint_every"))


class RunFailedError(RuntimeError):
    """A task died, or hung; the message names it and its last lines."""


class Child:
    """A forked task, as its starter sees it."""

    def __init__(self, name: str, pid: int, line: Any, errors: Any) -> None:
        self.name = name
        self.pid = pid
        self.line = line
        self.errors = errors
        self.said: list[dict[str, Any]] = []

    def end(self) -> str:
        """How it ended, once it has."""
        for _ in range(20):
            with contextlib.suppress(ChildProcessError):
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                if pid and os.WIFSIGNALED(status):
                    return f"was killed by signal {os.WTERMSIG(status)}"
                if pid:
                    return f"ended with status {os.WEXITSTATUS(status)}"
            time.sleep(0.05)
        return "closed its line"

    def last_lines(self) -> str:
        """What it printed last."""
        self.errors.seek(0)
        text = self.errors.read().decode("utf-8", "replace")
        found = [line.strip() for line in text.splitlines() if line.strip() and "oneDNN" not in line and "cudart_stub" not in line]
        return " | ".join(found[-3:])[-600:] or "it printed nothing"


class Supervisor:
    """One repeat: forks the tasks, wires them, lets them run, collects what they measured."""

    def __init__(self, tf: Any, setting: dict[str, Any], recorder: Any, congestion: Any, repeat: int) -> None:
        self.tf = tf
        self.setting = setting
        self.recorder = recorder
        self.congestion = congestion
        self.repeat = repeat
        self.deadline = time.monotonic() + setting["timeout_s"]
        self.selector = selectors.DefaultSelector()
        self.children: list[Child] = []

    # -- who takes part ---------------------------------------------------------------

    def roles(self) -> list[tuple[str, int]]:
        """Job and index of each task, in the order of their hosts."""
        setting = self.setting
        if setting["mode"] == "mirrored":
            return [("worker", 0)]
        found = [("ps", index) for index in range(setting["servers"])] + [("worker", index) for index in range(setting["workers"])]
        return found + ([("chief", 0)] if setting["mode"] == "async" else [])

    def cluster(self, roles: list[tuple[str, int]]) -> dict[str, list[str]]:
        """Addresses by job."""
        shaped = self.setting["link"] is not None
        found: dict[str, list[str]] = {}
        for host, (job, _) in enumerate(roles):
            found.setdefault(job, []).append(f"{links.address(host)}:{PORT}" if shaped else f"127.0.0.1:{PORT + host}")
        return found

    # -- life -------------------------------------------------------------------------

    def run(self) -> None:
        """All of it; raises RunFailedError."""
        roles = self.roles()
        cluster = self.cluster(roles)
        switch = None
        try:
            for host, (job, index) in enumerate(roles):
                self._fork(host, len(roles), job, index, cluster)
            self._gather("born")
            if self.setting["link"] is not None:
                switch = links.Switch(self._shape())
                switch.connect([child.pid for child in self.children])
                with self.congestion.choosable():
                    self._tell("plug")
                    self._gather("plugged")
                self._check_link()
            self._tell("start")
            if self.setting["mode"] in ("between-graph", "sync"):
                self._gather("initialised", lambda child: child.name == "worker 0")
                self._tell("initialised", lambda child: child.name.startswith("worker"))
            self._gather("ready")
            self._measure()
        finally:
            self._end()
            if switch is not None:
                with contextlib.suppress(Exception):
                    switch.close()

    def _measure(self) -> None:
        cores = load.cores_of_process()
        began_s, began_monotonic, before = time.time() + 0.3, time.monotonic() + 0.3, load.ticks(cores)
        step_s = max(message["step_s"] for child in self.children for message in child.said if message["kind"] == "ready")
        self._tell("run", began_s=began_s, step_s=step_s)
        drivers = self.drivers()
        self._gather("reported", lambda child: child in drivers)
        lasted_s, after = time.monotonic() - began_monotonic + 0.3, load.ticks(cores)
        self._tell("finish")
        self._gather("used")
        drift_s = self.checked_drift_s(began_s, began_monotonic)
        for child in self.children:
            for message in child.said:
                fields = {key: value for key, value in message.items() if key != "kind"}
                if message["kind"] == "update":
                    self.recorder.write("update", repeat=self.repeat, **fields)
                elif message["kind"] == "pass":
                    self.recorder.write("pass", repeat=self.repeat, **fields)
                elif message["kind"] == "note":
                    self.recorder.write("note", repeat=self.repeat, **fields)
                elif message["kind"] == "used":
                    self.recorder.write("used", repeat=self.repeat, task=child.name, **fields)
        others = None
        if before is not None and after is not None:
            own_s = sum(message["user_s"] + message["system_s"] for child in self.children for message in child.said if "user_s" in message)
            others = max(sum(after) - sum(before) - own_s, 0.0) / (lasted_s * len(cores))
        self.recorder.write("repeat", repeat=self.repeat, clock_drift_s=drift_s, others_share=others)

    @staticmethod
    def checked_drift_s(began_s: float, began_monotonic: float) -> float:
        """By how much the wall clock has drifted from the monotonic one since; raises RunFailedError if it jumped."""
        lasted_s = time.monotonic() - began_monotonic
        drift_s = (time.time() - began_s) - lasted_s
        if abs(drift_s) > CLOCK_JUMP_S + SLEWING * lasted_s:
            raise RunFailedError(
                f"the machine's clock jumped by {drift_s * 1000:.0f} ms during the run, so its times mean nothing; run it again"
            )
        return drift_s

    def drivers(self) -> list[Child]:
        """Tasks that report steps."""
        job = "chief" if self.setting["mode"] == "async" else "worker"
        return [child for child in self.children if child.name.startswith(job)]

    def _shape(self) -> Any:
        link = self.setting["link"]
        return links.Shape(link["bits_per_s"], link["sharing"], link["buffer_ms"])

    def _check_link(self) -> None:
        """How fast bytes cross between two hosts by plain sockets, before TensorFlow starts."""
        if len(self.children) < 2:
            return
        source, target = self.children[0], self.children[1]
        asked = self.setting["link"]["bits_per_s"] / 8
        rate = 0.0
        for _ in range(CHECKS):  # one may be unlucky: a short transfer, and a machine that does other things as well
            target.line.say("receive", seconds=CHECK_S)
            self._gather("listening", lambda child: child is target)
            source.line.say("send", address=links.address(1), seconds=CHECK_S)
            self._gather("received", lambda child: child is target)
            rate = max(rate, *(message["bytes_per_s"] for message in target.said if message["kind"] == "received"))
            target.said = [message for message in target.said if message["kind"] not in ("listening", "received")]
            if rate > GOOD_SHARE * asked:
                break
        self.recorder.write("link", repeat=self.repeat, asked_bytes_per_s=asked, bytes_per_s=rate)
        if rate < 0.85 * asked:
            raise RunFailedError(
                f"link.bandwidth: asked for {asked * 8e-6:.0f} Mbit/s, but this machine moves {rate * 8e-6:.0f} Mbit/s "
                "between two hosts; ask for less"
            )

    # -- messages ---------------------------------------------------------------------

    def _tell(self, kind: str, who: Any = None, **fields: Any) -> None:
        for child in self.children:
            if who is None or who(child):
                with contextlib.suppress(OSError):
                    child.line.say(kind, **fields)

    def _gather(self, kind: str, who: Any = None) -> None:
        """Wait until every child (or those that ``who`` picks) has said it; all that is said meanwhile is kept."""
        waiting = {child.name for child in self.children if who is None or who(child)}
        waiting -= {child.name for child in self.children if any(message["kind"] == kind for message in child.said)}
        while waiting:
            left_s = self.deadline - time.monotonic()
            if left_s <= 0:
                silent = ", ".join(sorted(waiting)[:4])
                child = next(one for one in self.children if one.name in waiting)
                raise RunFailedError(
                    f"{silent} did not get to {kind!r} within {self.setting['timeout_s']:g} s (`timeout_s`); "
                    f"last lines of {child.name}: {child.last_lines()}"
                )
            for key, _ in self.selector.select(timeout=min(left_s, 1.0)):
                child = key.data
                messages = child.line.heard()
                if messages is None:
                    if self._has_ended(child):
                        self.selector.unregister(child.line.sock)
                        continue
                    raise RunFailedError(f"{child.name} {child.end()} before {kind!r}; its last lines: {child.last_lines()}")
                for message in messages:
                    if message["kind"] == "failed":
                        raise (UsageError if message["usage"] else RunFailedError)(f"{child.name}: {message['message']}")
                child.said += messages
                if any(message["kind"] == kind for message in messages):
                    waiting.discard(child.name)

    def _has_ended(self, child: Child) -> bool:
        """Whether a task has said its last word: what it used, and if it drives steps, all of them."""
        said = {message["kind"] for message in child.said}
        return "used" in said and ("reported" in said or child not in self.drivers())

    # -- processes --------------------------------------------------------------------

    def _fork(self, host: int, hosts: int, job: str, index: int, cluster: dict[str, list[str]]) -> None:
        ours, theirs = socket.socketpair()
        errors = tempfile.TemporaryFile()  # noqa: SIM115 - the task prints to it as long as it lives
        starter = os.getpid()
        pid = os.fork()
        if pid:
            theirs.close()
            child = Child(f"{job} {index}", pid, hub.Line(ours), errors)
            self.children.append(child)
            self.selector.register(ours, selectors.EVENT_READ, child)
            return
        # the task; it must never come back from here
        task = hub.Task(hub.Line(theirs), self.setting, job, index, cluster, self.repeat)
        try:
            die_with(starter)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            os.dup2(errors.fileno(), 2)
            os.dup2(errors.fileno(), 1)
            ours.close()
            for child in self.children:
                child.line.sock.close()
            self._live(task, host, hosts)
        except BaseException as error:
            traceback.print_exc()
            sys.stderr.flush()
            if isinstance(error, (hub.CannotComputeError, links.NetworkError, UsageError)):  # they say it all
                task.line.say("failed", message=str(error), usage=isinstance(error, UsageError))
            os._exit(1)
        os._exit(0)

    def _live(self, task: Any, host: int, hosts: int) -> None:
        if self.setting["link"] is not None:
            links.new_namespace()
            task.line.say("born")
            task.line.wait("plug")
            links.plug_in(host, hosts, self._shape(), self.setting["link"]["congestion"])
            task.line.say("plugged")
            links.check_until_start(task.line)
        else:
            task.line.say("born")
            task.line.wait("start")
        self.train(task)

    def train(self, task: hub.Task) -> None:
        """What a task does, once the network is there."""
        # not sooner: NumPy starts threads, which a process on its way into a namespace must not have
        from . import apart, between_graph, coordinated, lasting, ring

        mode = self.setting["mode"]
        job = is_job(self.setting)
        if task.job == "ps" or (mode == "async" and task.job == "worker"):
            coordinated.serve(self.tf, task)
        elif task.job == "chief":
            (lasting.coordinate if job else coordinated.coordinate)(self.tf, task)
        elif mode in ("between-graph", "sync"):
            between_graph.train(self.tf, task)
        elif mode == "ring":
            (lasting.train if job else ring.train)(self.tf, task)
        elif mode == "apart":
            apart.compute(self.tf, task)
        else:
            ring.mirrored(self.tf, task)

    def _end(self) -> None:
        for child in self.children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child.pid, signal.SIGKILL)
        for child in self.children:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(child.pid, 0)
            child.line.sock.close()
            child.errors.close()
        self.selector.close()
