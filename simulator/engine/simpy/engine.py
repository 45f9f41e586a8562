"""The SimPy engine: runs a program's operations event by event.

It begins and ends operations and steps; devices, inputs, rules, updates and collectives are in the modules beside it. Kinds of
operations and names of gates are those of :class:`simulator.program.program.Operation`.

``interpreter`` and ``rank`` of ``simulator.engine.compiled`` do the same, compiled, and in the same order: change them together
(tests/property/test_engines_agree.py holds all records and figures equal to the last bit).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from simpy.events import Event

from simulator.base.log import Log
from simulator.base.records import NOTHING
from simulator.engine.draws import Draws
from simulator.engine.operation_log import OperationLog
from simulator.engine.recorder import InUse
from simulator.engine.simpy.accounts import Accounts
from simulator.engine.simpy.collectives import Collectives, Entered, Gatherings, MessageByMessage
from simulator.engine.simpy.device import Overlap
from simulator.engine.simpy.inputs import Inputs
from simulator.engine.simpy.objects import devices_of, on_cores, servers_of
from simulator.engine.simpy.rank import Orders, Plan, Rank
from simulator.engine.simpy.recorder import KernelRecorder, in_use_of
from simulator.engine.simpy.rules import Clocks, Steps, coordinator, preparing_client
from simulator.engine.simpy.updates import AsynchronousUpdates, SynchronousUpdates, Updates
from simulator.network.flows import Network
from simulator.network.kernel import Kernel
from simulator.network.objects import network_of
from simulator.network.ports import Connection, leave_out_ample
from simulator.program.groups import last_groups, may_overlap
from simulator.program.program import Operation, Program, Synchronous

__all__ = ["Engine"]


class Engine:
    """A program on the event calendar.

    Parameters
    ----------
    kernel, network
        The calendar, and what carries messages.
    program
        What happens.
    draws
        How fast each rank computes, and the orders that chance decides.
    recorder
        Keeps what is measured.
    collectives
        What reduces buckets among the ranks; none where nothing is reduced, or where the program has the messages.
    log
        Is told what was done; none if nobody wants to know. Only then are the numbers of work, which operations pass on as
        the cause of what follows them, anything but -1.
    """

    def __init__(
        self,
        kernel: Kernel,
        network: Network,
        program: Program,
        draws: Draws,
        recorder: KernelRecorder,
        collectives: Collectives | None = None,
        log: Log | None = None,
    ) -> None:
        self._kernel = kernel
        self._network = network
        self._recorder = recorder
        self._log = OperationLog(log, program) if log is not None else None
        self._program = program
        rules = program.rules
        ports, connections, self._hosts = network_of(program.ports, program.paths, program.hosts, program.transport.at_a_time)
        if program.changes is not None:
            network.follow(ports, program.changes)
        self._ports = ports[: program.links]
        plans = [Plan(routine) for routine in program.routines]
        self._devices = devices_of(kernel, network, program, connections)
        self._ranks = self._make_ranks(plans, draws, connections)
        self._orders = Orders(draws)
        self._servers = servers_of(kernel, network, program, connections)
        leave_out_ample(connections)
        self._updates = self._make_updates()
        each = rules.steps_each
        if each is not None and rules.sync_every > 1:
            # between two averages some ranks are ahead: the window closes amid their steps as it opened, so nobody stops before
            each += rules.sync_every
        self._steps = Steps(len(self._ranks), rules.steps_shared, each)
        self._clocks = Clocks(len(self._ranks), rules.bound) if rules.bound is not None else None
        self._dispatcher = coordinator(kernel, rules.dispatcher, on_cores(network)) if rules.dispatcher is not None else None
        self._client = preparing_client(kernel, rules.client, on_cores(network)) if rules.client is not None else None
        self._inputs = Inputs(network, program.feed, draws, connections, self._ranks, self._passed, self._end)
        if program.exchanges:
            collectives = MessageByMessage(kernel, network, program, connections, log)
        self._collectives = collectives
        if collectives is not None:
            collectives.start(self._collective_ended)
        timed = any(its.lasts_s is not None for routine in program.routines for its in routine.operations)
        self._gatherings = Gatherings(network, program, connections, self._gathering_ended) if timed else None
        self._accounts = Accounts(kernel, recorder, rules.sync_every, self._updates, collectives, last_groups(program))
        self._kinds: dict[str, Callable[[Rank, int, Operation, int, int], None]] = {
            "gate": self._begin_gate,
            "compute": self._begin_compute,
            "send": self._begin_send,
            "receive": self._begin_receive,
            "serve": self._begin_serve,
            "collective": self._begin_collective,
        }
        self._gates: dict[str, Callable[[Rank, int, int], None]] = {
            "turn": self._turn,
            "prepare": self._prepare,
            "input": self._inputs.needed,
            "update": self._update,
        }

    # -- building --------------------------------------------------------------------

    def _make_ranks(self, plans: Sequence[Plan], draws: Draws, connections: Sequence[Connection]) -> list[Rank]:
        program, kernel = self._program, self._kernel
        its = program.ranks
        found = []
        for index, (device, routine, seat) in enumerate(zip(its.device.tolist(), its.routine.tolist(), its.seat.tolist(), strict=True)):
            plan, own = plans[routine], self._devices[device]
            overlap = Overlap(kernel, own) if may_overlap(program, plan.routine) else None
            seated = own.seat(connections[seat] if seat >= 0 else None)
            paths = [connections[path] if path >= 0 else None for path in its.path[index].tolist()]
            found.append(Rank(index, plan, draws, own, seated, paths, overlap))
        return found

    def _links(self, now: float) -> InUse:
        links = in_use_of([*self._ports, *self._hosts], now)
        use = self._collectives.use if self._collectives is not None else None
        return links if use is None else links.beside(InUse(use.names, use.seconds))

    def _make_updates(self) -> Updates | None:
        rule = self._program.rules.updates
        if rule is None:
            return None
        parts = self._kernel, self._servers, self._recorder, self._end, self._log
        if isinstance(rule, Synchronous):
            return SynchronousUpdates(rule, *parts, len(self._ranks), self._released)
        return AsynchronousUpdates(rule, *parts)

    def start(self) -> None:
        """Have every rank begin its first step when it is due."""
        recorder = self._recorder
        recorder.watch("devices", partial(in_use_of, self._devices))
        recorder.watch("links", self._links)
        if self._servers:
            recorder.watch("servers", partial(in_use_of, self._servers))
        for rank in self._ranks:
            self._inputs.start(rank)
            self._kernel.after(rank.first_s, partial(self._start, rank))

    def _start(self, rank: Rank) -> None:
        cause = NOTHING
        if self._log is not None and rank.first_s:
            cause = self._log.started(rank.index, rank.first_s)
        self._begin(rank, 0, 0, cause)

    # -- operations begin and end ------------------------------------------------------

    def _begin(self, rank: Rank, number: int, step: int, cause: int) -> None:
        """An operation begins because the work ``cause`` has ended."""
        operation = rank.plan.operations[number]
        self._kinds[operation.kind](rank, number, operation, step, cause)

    def _end(self, rank: Rank, number: int, step: int, cause: int) -> None:
        """An operation has ended, with the work ``cause``: those that waited for it alone begin."""
        plan, soon = rank.plan, self._kernel.soon
        if plan.operations[number].lands and rank.overlap is not None:
            rank.overlap.message(-1)
        if step != rank.step:
            # the step was given up: what is under way goes on to its end, nothing else begins
            for following in plan.then[number]:
                if plan.missing[following] == 1 and plan.operations[following].kind in ("send", "serve"):
                    soon(self._begin, rank, following, step, cause)
            return
        missing = rank.missing
        for following in self._following(rank, number):
            missing[following] -= 1
            if not missing[following]:
                soon(self._begin, rank, following, step, cause)
        rank.left -= 1
        if not rank.left:
            self._end_step(rank, cause)

    def _following(self, rank: Rank, number: int) -> Sequence[int]:
        """What waits for an operation, in the order in which it begins."""
        following, (first, last) = rank.plan.then[number], rank.plan.shuffled
        if number or not last:
            return following
        shuffled = [first + place for place in self._orders.next(rank.index, last - first)]
        before = following.index(first)
        return [*following[:before], *shuffled, *following[before + last - first :]]

    # -- gates -------------------------------------------------------------------------

    def _begin_gate(self, rank: Rank, number: int, operation: Operation, step: int, cause: int) -> None:
        del step
        self._gates[operation.name](rank, number, cause)

    def _passed(self, rank: Rank, number: int, since_s: float, cause: int) -> int:
        """A rank passes a gate that it came to at ``since_s``, because of ``cause``; what let it pass."""
        now = self._kernel.now
        return self._log.ended(rank.index, number, since_s, now, cause) if self._log is not None and now > since_s else cause

    def _turn(self, rank: Rank, number: int, cause: int) -> None:
        """The rank asks for its next step."""
        if not self._steps.take(rank.index):
            if self._program.rules.closes:  # from now on not all ranks are busy
                self._kernel.at_end_of_instant(self._recorder.close)
            return
        rank.begin_step(self._kernel.now)
        if rank.plan.feeds:
            rank.batch_there = rank.wants_batch = False
        if self._dispatcher is not None:
            self._dispatcher.ask(partial(self._dispatched, rank, number, cause))
        elif self._clocks is None or self._clocks.may_begin(rank.index):
            self._read(rank, cause)

    def _dispatched(self, rank: Rank, number: int, cause: int) -> None:
        self._read(rank, self._passed(rank, number, rank.start_s, cause))

    def _read(self, rank: Rank, cause: int) -> None:
        """The step is the rank's, which begins to read the variables."""
        rank.held_s = self._kernel.now - rank.start_s
        if self._updates is not None:
            self._updates.read(rank)
        self._end(rank, 0, rank.step, cause)

    def _prepare(self, rank: Rank, number: int, cause: int) -> None:
        assert self._client is not None
        self._client.ask(partial(self._prepared, rank, number, rank.step, self._kernel.now, cause))

    def _prepared(self, rank: Rank, number: int, step: int, asked_s: float, cause: int) -> None:
        self._end(rank, number, step, self._passed(rank, number, asked_s, cause))

    def _update(self, rank: Rank, number: int, cause: int) -> None:
        assert self._updates is not None
        self._updates.finish(rank, number, cause)

    # -- compute -----------------------------------------------------------------------

    def _begin_compute(self, rank: Rank, number: int, operation: Operation, step: int, cause: int) -> None:
        del operation, step
        if self._log is not None:
            rank.causes[number] = cause
        self._advance(rank)

    def _advance(self, rank: Rank) -> None:
        """Compute what may be computed by now, in one piece as far as that is asked for."""
        if rank.computing or not rank.complete:
            return
        plan = rank.plan
        computes = plan.computes
        while rank.at < len(computes):
            number = computes[rank.at]
            if rank.missing[number]:
                break
            its = plan.operations[number]
            rank.pending_s += its.forward * rank.forward_s + its.backward * rank.backward_s + its.apply * rank.update_s
            rank.pending.append(number)
            rank.at += 1
            if not its.joins:
                self._compute(rank)
                return
        if rank.pending_s:
            self._compute(rank)

    def _compute(self, rank: Rank) -> None:
        rank.computing = True
        rank.began_s = self._kernel.now
        if rank.plan.stands_still:
            rank.stood_still(rank.began_s, rank.begun_by_s)
        rank.work = work = rank.work + 1
        work_s, rank.pending_s = rank.pending_s * rank.factor, 0.0
        if self._updates is not None and self._updates.outdated(rank):
            self._give_up(rank, NOTHING)
            return
        if rank.overlap is not None:
            rank.overlap.compute(True)
        rank.seat(work_s, lambda _: self._computed(rank, work))

    def _computed(self, rank: Rank, work: int) -> None:
        if work != rank.work:
            return
        logged = self._stop_computing(rank)
        done, rank.pending = rank.pending, []
        now, step = self._kernel.now, rank.step
        rank.idle_since_s = now
        if rank.plan.operations[done[-1]].apply:
            rank.apply_s = now - rank.began_s
        else:
            rank.compute_s += now - rank.began_s
            rank.computed_s = now
        for number in done:
            self._end(rank, number, step, logged)
        if step == rank.step:
            self._kernel.soon(self._go_on, rank, step)

    def _go_on(self, rank: Rank, step: int) -> None:
        if step == rank.step:
            self._advance(rank)

    def _stop_computing(self, rank: Rank) -> int:
        """The rank computes no longer; the number of what it did."""
        rank.computing = False
        if rank.overlap is not None:
            rank.overlap.compute(False)
        if self._log is None:
            return NOTHING
        # a compute that waits for no other operation follows the compute before it
        cause = max(rank.causes.pop(number, NOTHING) for number in rank.pending)
        return self._log.ended(rank.index, rank.pending[-1], rank.began_s, self._kernel.now, cause)

    def _released(self, cause: int) -> None:
        """A new version is there: who computes for an older one gives up."""
        for rank in self._ranks:
            if rank.computing:
                self._give_up(rank, cause)

    def _give_up(self, rank: Rank, cause: int) -> None:
        """Its gradients would come too late: the rank ends its step where it is, because of ``cause`` if that comes meanwhile."""
        rank.device.cancel()
        rank.work += 1
        logged = self._stop_computing(rank)
        rank.causes.clear()
        rank.compute_s += self._kernel.now - rank.began_s
        rank.complete = False
        self._end_step(rank, logged if cause == NOTHING else cause)

    # -- messages, servers, collectives --------------------------------------------------

    def _begin_send(self, rank: Rank, number: int, operation: Operation, step: int, cause: int) -> None:
        if step < operation.from_step:
            if operation.departs and operation.lands and rank.overlap is not None:
                rank.overlap.message(1)
            self._end(rank, number, step, cause)
            return
        if operation.departs and rank.overlap is not None:
            rank.overlap.message(1)
        connection = rank.paths[operation.slot]
        assert connection is not None
        arrived = partial(self._arrived, rank, number, step, self._kernel.now, cause)
        self._network.send(connection, operation.size_bytes, arrived, tensors=operation.tensors)

    def _arrived(self, rank: Rank, number: int, step: int, sent_s: float, cause: int, _: Event | None) -> None:
        operation = rank.plan.operations[number]
        logged = NOTHING
        if self._log is not None:
            logged = self._log.ended(rank.index, number, sent_s, self._kernel.now, cause)
        if operation.channel >= 0:
            self._delivered(self._peer(rank, operation.slot), operation.channel, sent_s, logged)
        self._end(rank, number, step, logged)
        if operation.feeds and step == rank.step:
            self._inputs.come(rank, logged)

    def _peer(self, rank: Rank, slot: int) -> Rank:
        return self._ranks[int(self._program.ranks.peer[rank.index, slot])]

    def _delivered(self, peer: Rank, channel: int, sent_s: float, logged: int) -> None:
        """A message to another rank has come: whoever waits for it has it."""
        peer.come[channel].append((sent_s, logged))
        if peer.receiving[channel] >= 0:
            number, peer.receiving[channel] = peer.receiving[channel], -1
            self._receive(peer, number, channel, NOTHING)

    def _begin_receive(self, rank: Rank, number: int, operation: Operation, step: int, cause: int) -> None:
        if step < operation.from_step:
            self._end(rank, number, step, cause)
        elif rank.come[operation.channel]:
            self._receive(rank, number, operation.channel, cause)
        else:
            rank.receiving[operation.channel] = number

    def _receive(self, rank: Rank, number: int, channel: int, cause: int) -> None:
        sent_s, logged = rank.come[channel].popleft()
        rank.heard(self._kernel.now, sent_s)
        self._end(rank, number, rank.step, max(logged, cause))

    def _begin_serve(self, rank: Rank, number: int, operation: Operation, step: int, cause: int) -> None:
        assert self._updates is not None
        self._updates.serve(rank, number, operation, step, cause)

    def _begin_collective(self, rank: Rank, number: int, operation: Operation, step: int, cause: int) -> None:
        if operation.departs and rank.overlap is not None:
            rank.overlap.message(1)
        if (step + 1) % operation.every:
            self._end(rank, number, step, cause)
            return
        if operation.lasts_s is not None:
            assert self._gatherings is not None
            self._gatherings.enter(rank.index, number, operation, cause)
            return
        assert self._collectives is not None
        self._accounts.entered(rank, last=number == rank.plan.buckets[-1])
        self._collectives.enter(rank.index, rank.plan.bucket[number], cause)

    def _collective_ended(self, rank: int, bucket: int, cause: int) -> None:
        """A rank has what a collective gives it, and has sent what others need of it."""
        its = self._ranks[rank]
        self._end(its, its.plan.buckets[bucket], its.step, cause)

    def _gathering_ended(self, joined_s: float, cause: int, members: list[Entered]) -> None:
        """A collective that lasts a known time has ended for all of its group."""
        if self._log is not None:
            self._log.joined(joined_s, cause)
        for index, number, entered_s, made_by in members:
            rank = self._ranks[index]
            rank.heard(self._kernel.now, joined_s)
            logged = NOTHING
            if self._log is not None:
                logged = self._log.ended(index, number, entered_s, self._kernel.now, made_by)
            self._end(rank, number, rank.step, logged)

    # -- ends of steps -------------------------------------------------------------------

    def _end_step(self, rank: Rank, cause: int) -> None:
        step = rank.step
        self._accounts.step_ended(rank, cause)
        self._kernel.soon(self._begin, rank, 0, step + 1, cause)
        if self._clocks is not None:
            for other in self._clocks.tick(rank.index):
                self._kernel.soon(self._read, self._ranks[other], cause)
