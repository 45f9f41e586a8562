"""One repeat of a testbed run: forks the tasks, connects them, lets them run, and records what they report; none outlives it.

The setting's ``mode`` decides which module a task runs (:meth:`Supervisor.train`); evidence/probes/staged.py makes another supervisor by
``roles``, ``drivers`` and ``train``. In a job with checkpoints or faults on purpose (:class:`Enduring`) tasks are killed when the setting
says, and started again. A worker of an asynchronous job restarts alone while the others continue. Where the others cannot go on
(synchronous workers, a parameter server), all tasks end as soon as one of them has noticed, and all start again from the latest
checkpoint.
"""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import resource
import selectors
import shutil
import signal
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass, field
from typing import Any, Iterator

from .. import machine
from ..recording import UsageError
from . import hub, links

PR_SET_PDEATHSIG = 1
PORT = 2222
CLOCK_JUMP_S = 0.01
SLEWING = 5e-4
"""Share by which a clock is sped up or slowed down at most while it is being set right (adjtime)."""
CHECK_S = 0.4
CHECKS = 3
GOOD_SHARE = 0.94
BEFORE_START_S = 0.3
"""From the word that all are ready until the common start."""


def die_with(parent: int) -> None:
    """Let the kernel kill this process when its parent, a process of this number, ends however it may."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before that was said
        os._exit(1)


class RunFailedError(RuntimeError):
    """A task died, or hung; the message names it and its last lines."""


@dataclass(eq=False)
class Child:
    """A forked task, as its starter sees it."""

    name: str
    pid: int
    line: Any
    errors: Any
    said: list[dict[str, Any]] = field(default_factory=list)

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
        """The last lines that it printed."""
        self.errors.seek(0)
        text = self.errors.read().decode("utf-8", "replace")
        lines = [line.strip() for line in text.splitlines() if line.strip() and "oneDNN" not in line and "cudart_stub" not in line]
        return " | ".join(lines[-3:])[-600:] or "no output"


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
        self.switch: Any = None

    # -- who takes part ---------------------------------------------------------------

    def roles(self) -> list[tuple[str, int]]:
        """Job and index of each task, in the order of their hosts."""
        setting = self.setting
        if setting["mode"] == "mirrored":
            return [("worker", 0)]
        counts = {"ps": setting["servers"], "worker": setting["workers"], "chief": int(setting["mode"] == "async")}
        return [(job, index) for job, count in counts.items() for index in range(count)]

    def cluster(self, roles: list[tuple[str, int]]) -> dict[str, list[str]]:
        """Addresses by job."""
        shaped = self.setting["link"] is not None
        addresses: dict[str, list[str]] = {}
        for host, (job, _) in enumerate(roles):
            addresses.setdefault(job, []).append(f"{links.address(host)}:{PORT}" if shaped else f"127.0.0.1:{PORT + host}")
        return addresses

    # -- life -------------------------------------------------------------------------

    def run(self) -> None:
        """All of it; raises RunFailedError."""
        try:
            self._connect(check=True)
            self._tell("start")
            if self.setting["mode"] in ("between-graph", "sync"):
                self._gather("initialised", lambda child: child.name == "worker 0")
                self._tell("initialised", lambda child: child.name.startswith("worker"))
            self._gather("ready")
            self._measure()
        finally:
            self._end()

    def _connect(self, *, check: bool) -> None:
        """Start all tasks, and the network between them where links are shaped."""
        roles = self.roles()
        for host, (job, index) in enumerate(roles):
            self._fork(host, len(roles), job, index)
        self._gather("born")
        if self.setting["link"] is not None:
            self.switch = links.Switch(self._shape())
            self.switch.connect([child.pid for child in self.children])
            with self.congestion.choosable():
                self._tell("plug")
                self._gather("plugged")
            if check:
                self._check_link()

    def _measure(self) -> None:
        cores = machine.cores_of_process()
        began_s, began_monotonic, before = time.time() + BEFORE_START_S, time.monotonic() + BEFORE_START_S, machine.ticks(cores)
        step_s = max(message["step_s"] for child in self.children for message in child.said if message["kind"] == "ready")
        self._tell("run", began_s=began_s, step_s=step_s)
        drivers = self.drivers()
        self._gather("reported", lambda child: child in drivers)
        lasted_s, after = time.monotonic() - began_monotonic + BEFORE_START_S, machine.ticks(cores)
        self._tell("finish")
        self._gather("used")
        drift_s = self.checked_drift_s(began_s, began_monotonic)
        for child in self.children:
            for message in child.said:
                if message["kind"] in ("update", "pass", "note", "used"):
                    self._write(message, **({"task": child.name} if message["kind"] == "used" else {}))
        own_s = sum(message["user_s"] + message["system_s"] for child in self.children for message in child.said if "user_s" in message)
        self._write_repeat(drift_s, before, after, own_s, lasted_s * len(cores))

    def _write(self, message: dict[str, Any], **more: Any) -> None:
        """Record what a task has said."""
        self.recorder.write(repeat=self.repeat, **more, **message)

    def _write_repeat(
        self, drift_s: float, before: tuple[float, float] | None, after: tuple[float, float] | None, own_s: float, cores_s: float
    ) -> None:
        """The last record of the repeat, with the share of the cores' time that others than the tasks took."""
        known = before is not None and after is not None
        others = max(sum(after) - sum(before) - own_s, 0.0) / cores_s if known else None
        self.recorder.write("repeat", repeat=self.repeat, clock_drift_s=drift_s, others_share=others)

    @staticmethod
    def checked_drift_s(began_s: float, began_monotonic: float) -> float:
        """By how much the wall clock has drifted from the monotonic one since; raises RunFailedError if it jumped."""
        lasted_s = time.monotonic() - began_monotonic
        drift_s = (time.time() - began_s) - lasted_s
        if abs(drift_s) > CLOCK_JUMP_S + SLEWING * lasted_s:
            raise RunFailedError(
                f"the machine's clock jumped by {drift_s * 1000:.0f} ms during the run, so its times are invalid: run it again"
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
                f"link.bandwidth: {asked * 8e-6:.0f} Mbit/s requested, but this machine moves {rate * 8e-6:.0f} Mbit/s between two hosts: "
                "give less"
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
                child = next(child for child in self.children if child.name in waiting)
                raise RunFailedError(
                    f"{silent} did not reach {kind!r} within {self.setting['timeout_s']:g} s (`timeout_s`); last lines of {child.name}: "
                    f"{child.last_lines()}"
                )
            for child, message in self._heard_of(min(left_s, 1.0)):
                if message is None:
                    if self._has_ended(child):
                        self.selector.unregister(child.line.connection)
                        continue
                    raise RunFailedError(f"{child.name} {child.end()} before {kind!r}; its last lines: {child.last_lines()}")
                child.said.append(message)
                if message["kind"] == kind:
                    waiting.discard(child.name)

    def _heard_of(self, timeout_s: float) -> Iterator[tuple[Child, dict[str, Any] | None]]:
        """Children that have said something within a time, each with its next message; None: its end of the line has gone."""
        for key, _ in self.selector.select(timeout_s):
            message = key.data.line.heard()
            if message is not None and message["kind"] == "failed":
                raise (UsageError if message["usage"] else RunFailedError)(f"{key.data.name}: {message['message']}")
            yield key.data, message

    def _has_ended(self, child: Child) -> bool:
        """Tell whether a task has said its last word: what it used, and if it drives steps, all of them."""
        said = {message["kind"] for message in child.said}
        return "used" in said and ("reported" in said or child not in self.drivers())

    # -- processes --------------------------------------------------------------------

    def _fork(self, host: int, hosts: int, job: str, index: int) -> None:
        ours, theirs = multiprocessing.Pipe()
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
        task = hub.Task(hub.Line(theirs), self.setting, job, index, self.cluster(self.roles()), self.repeat)
        try:
            die_with(starter)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            os.dup2(errors.fileno(), 2)
            os.dup2(errors.fileno(), 1)
            ours.close()
            for child in self.children:
                child.line.connection.close()
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
        """Do what a task does, once the network is there."""
        # not sooner: NumPy starts threads, which a process on its way into a namespace must not have
        from . import ring, servers

        mode = self.setting["mode"]
        if task.job == "ps" or (mode == "async" and task.job == "worker"):
            servers.serve(self.tf, task)
        elif task.job == "chief":
            servers.coordinate(self.tf, task)
        elif mode in ("between-graph", "sync"):
            servers.drive(self.tf, task)
        elif mode == "ring":
            ring.train(self.tf, task)
        elif mode == "apart":
            ring.apart(self.tf, task)
        else:
            ring.mirrored(self.tf, task)

    def _forget(self, child: Child) -> None:
        with contextlib.suppress(KeyError, ValueError):  # it had said its last word before
            self.selector.unregister(child.line.connection)
        child.line.connection.close()
        child.errors.close()
        self.children.remove(child)

    def _end_tasks(self) -> None:
        """End every task, and take the network down."""
        for child in self.children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child.pid, signal.SIGKILL)
        for child in list(self.children):
            with contextlib.suppress(ChildProcessError):
                os.waitpid(child.pid, 0)
            self._forget(child)
        if self.switch is not None:
            with contextlib.suppress(Exception):
                self.switch.close()
            self.switch = None

    def _end(self) -> None:
        self._end_tasks()
        self.selector.close()


# -- jobs with checkpoints or faults ----------------------------------------------------------


def _own_cpu_s() -> float:
    """CPU seconds of this process and of all tasks that have ended, killed ones too."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


class Enduring(Supervisor):
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

    def run(self) -> None:
        """All of it; raises RunFailedError."""
        os.makedirs(self.folder, exist_ok=True)
        cores = machine.cores_of_process()
        began_s, began_monotonic, before, own_s = time.time(), time.monotonic(), machine.ticks(cores), _own_cpu_s()
        try:
            while not self._attempt():
                self._end_tasks()
                wait_s = max(self.dead.values()) - time.time()
                self.dead.clear()
                self.attempt += 1
                if wait_s > 0:
                    time.sleep(min(wait_s, max(self.deadline - time.monotonic(), 0.0)))
            self._tell("finish")
            self._gather("used")
            used = [{**message, "task": child.name} for child in self.children for message in child.said if message["kind"] == "used"]
        finally:
            self._end()
            shutil.rmtree(self.folder, ignore_errors=True)
        after, lasted_s = machine.ticks(cores), time.monotonic() - began_monotonic
        drift_s = self.checked_drift_s(began_s, began_monotonic)
        for step in self.steps:
            self._write(step)
        for event in sorted(self.events, key=lambda event: event["at_s"]):
            self._write({**event, "kind": "event", "at_s": event["at_s"] - self.origin_s})
        for message in used:
            self._write(message)
        self._write_repeat(drift_s, before, after, _own_cpu_s() - own_s, lasted_s * len(cores))

    def _attempt(self) -> bool:
        """Start all tasks and let them train; whether they came to the end."""
        self._note("launched")
        self._connect(check=not self.attempt)
        self._tell("start")
        self._gather("ready")
        for child in self.children:
            for message in [message for message in child.said if message["kind"] == "event"]:
                child.said.remove(message)
                self._heard(child, message)
        began_s = time.time() + BEFORE_START_S
        if not self.attempt:
            self.origin_s = began_s
        self._tell("run", began_s=began_s, origin_s=self.origin_s, step_s=0.0)
        self._note("started", at_s=began_s)
        return self._watch()

    def _watch(self) -> bool:
        """Hear what the tasks say, kill and start again at the given times; True at the job's end, False if all must start again."""
        drivers = {child.name for child in self.drivers()}
        while not drivers <= set(self.dead):  # a worker that dies after its last step is not missed
            if time.monotonic() > self.deadline:
                raise RunFailedError(
                    f"the job did not end within {self.setting['timeout_s']:g} s (`timeout_s`); last lines of "
                    f"{self.children[-1].name}: {self.children[-1].last_lines()}"
                )
            self._kill_what_is_due()
            self._start_what_is_due()
            for child, message in self._heard_of(self._until_next_s()):
                if message is None:
                    self._gone(child)
                    if not any(child.name in drivers for child in self.children):
                        return False
                    continue
                kind = message["kind"]
                if kind == "lost" and self.dead:
                    return False
                self._heard(child, message)
                if kind == "reported":
                    drivers.discard(child.name)
        return True

    def _heard(self, child: Child, message: dict[str, Any]) -> None:
        kind = message["kind"]
        if kind == "update":
            self.steps.append(message)
        elif kind == "event":
            self._note(task=child.name, **{key: value for key, value in message.items() if key != "kind"})
        elif kind == "born":
            child.line.say("start")
        elif kind == "ready":
            self._note("back", task=child.name)
            child.line.say("run", began_s=time.time(), origin_s=self.origin_s, step_s=0.0)
        elif kind == "lost":
            raise RunFailedError(f"{child.name} lost its peers, although none was killed: {self.events[-1].get('message', '')}")
        else:
            child.said.append(message)

    # -- faults -----------------------------------------------------------------------

    def _until_next_s(self) -> float:
        due = [self.origin_s + fault["at_s"] for fault in self.faults[:1]] + [when for when in self.dead.values() if self._alone()]
        return min(max(min(due, default=time.time() + 0.5) - time.time(), 0.0), 0.5)

    def _alone(self) -> bool:
        """Tell whether what is dead comes back while the others go on: asynchronous workers, as long as all servers live."""
        return self.setting["mode"] == "async" and not any(name.startswith("ps") for name in self.dead)

    def _kill_what_is_due(self) -> None:
        while self.faults and time.time() >= self.origin_s + self.faults[0]["at_s"]:
            fault = self.faults.pop(0)
            name = f"{'ps' if fault['of'] == 'server' else 'worker'} {fault['number']}"
            if name in self.dead:
                self._note("missed", task=name)
                continue
            child = next(child for child in self.children if child.name == name)
            now = time.time()
            os.kill(child.pid, signal.SIGKILL)
            self._note("killed", task=name, at_s=now)
            self.dead[name] = now + fault["back_after_s"]
            os.waitpid(child.pid, 0)
            self._forget(child)

    def _start_what_is_due(self) -> None:
        if not self._alone():
            return
        roles = self.roles()
        for name, when in list(self.dead.items()):
            if time.time() >= when:
                job, index = name.split()
                host = roles.index((job, int(index)))
                self._note("restarted", task=name)
                self._fork(host, len(roles), job, int(index))
                del self.dead[name]

    def _gone(self, child: Child) -> None:
        """A task ended by itself: with a peer of its ring dead that is one way to notice."""
        how = child.end()
        if not self.dead or self.setting["mode"] != "ring":
            raise RunFailedError(f"{child.name} {how} before the job's end; its last lines: {child.last_lines()}")
        self._note("ended", task=child.name, message=how)
        self._forget(child)

    def _note(self, what: str, **fields: Any) -> None:
        self.events.append({"what": what, "attempt": self.attempt, "at_s": time.time(), **fields})
