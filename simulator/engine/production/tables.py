"""A program as tables of the compiled engine, with what is drawn for it.

It adds to those of ``state``, and translates the kinds of operations and names of gates of ``simulator.program.program`` into
``codes``: what is new in a program must be read here. The messages of collectives are added by ``exchanges``.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, MutableMapping
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulator.base.errors import InputError
from simulator.engine.choosing import MOST_OPERATIONS
from simulator.engine.draws import Draws, Jitter, ahead_of
from simulator.engine.production import codes, layout
from simulator.engine.production.exchanges import add_exchanges
from simulator.engine.production.state import State, aligned
from simulator.engine.recorder import STEP_COLUMNS, UPDATE_COLUMNS
from simulator.program.program import (
    Feed,
    Floats,
    Integers,
    Program,
    Routine,
    Synchronous,
    amid_passes,
    collectives_of,
    last_groups,
    may_overlap,
    memberships,
    of_partition,
    stands_still,
)

_KINDS = {
    "gate": codes.GATE,
    "compute": codes.COMPUTE,
    "send": codes.SEND,
    "receive": codes.RECEIVE,
    "serve": codes.SERVE,
    "collective": codes.COLLECTIVE,
}
_GATES = {"turn": codes.TURN_GATE, "prepare": codes.PREPARE_GATE, "input": codes.INPUT_GATE, "update": codes.UPDATE_GATE}
_COLUMNS = (
    "forward", "backward", "apply", "size_bytes", "tensors", "cost_s", "joins", "slot", "departs", "lands", "feeds", "channel", "server",
    "tensor", "partition", "every", "from_step",
)  # fmt: skip
"""Of the table of operations, those that operations have under the same name."""
_ROWS = 4096
_BATCH = 8
"""Things that follow at once between two looks at whether tables are full."""
_AT_A_TIME = 1 << 13
"""Ranks that are drawn for together."""
_FOR_EVER = 1 << 62
_KEPT_BYTES = 1 << 24


def begin(
    program: Program, draws: Draws, steps: int, kept: MutableMapping[bool, Simulation] | None = None, *, observed: bool = False
) -> Simulation:
    """A simulation that is about to begin: one of the same program that has ended, all of it as it was, or a new one.

    Parameters
    ----------
    program, draws, steps, observed
        As of :class:`Simulation`.
    kept
        Those of the same program and number of steps whose tables are to be used again, by whether they are observed; a new
        one is added unless its tables are large. None: nothing is kept.
    """
    if kept is not None and observed in kept:
        kept[observed].begin_again(program, draws)
        return kept[observed]
    made = Simulation(program, draws, steps, observed=observed)
    made.grow(4 * len(program.ranks))
    if kept is not None and made.nbytes <= _KEPT_BYTES:
        made.keep()
        kept[observed] = made
    return made


class Simulation(State):
    """A program, about to begin or under way.

    Parameters
    ----------
    program
        What happens.
    draws
        How fast each rank computes, and the orders that chance decides.
    steps
        That each rank makes, roughly.
    observed
        Whether rows are written for whoever observes.

    Raises
    ------
    InputError
        A step has more operations than can be counted.
    """

    def __init__(self, program: Program, draws: Draws, steps: int, *, observed: bool = False) -> None:
        most = max(len(routine.operations) for routine in program.routines)
        if most > MOST_OPERATIONS:
            raise InputError(
                f"the compiled engine supports at most {MOST_OPERATIONS:,} operations per step, and these have {most:,}: use run.engine = "
                '"simpy", or fewer tensors'
            )
        devices, rules = program.devices, program.rules
        self._program, self._draws, self._all_steps = program, draws, steps
        self._ranks = ranks = len(program.ranks)
        on_cores = devices.on_cores and program.cores is not None
        slowdown = np.zeros(0)
        feed = program.feed
        batch_tasks = -1
        server_tasks = dispatcher_task = client_task = -1
        if program.cores is not None:
            counts = [
                devices.count if on_cores else 0,
                program.servers.count if program.servers.on_cores else 0,
                rules.dispatcher is not None,
                rules.client is not None,
            ]
            begins = np.cumsum([0, *counts]).tolist()
            server_tasks, dispatcher_task, client_task = (
                begin if count else -1 for begin, count in zip(begins[1:4], counts[1:], strict=True)
            )
            batch_tasks = begins[-1]
            slowdown = np.zeros(begins[-1] + (np.count_nonzero(feed.work_s) if feed is not None else 0))
            slowdown[: counts[0]] = devices.busy_core_slowdown
        tensors = len(rules.updates.server) if isinstance(rules.updates, Synchronous) else 0
        super().__init__(
            program.ports,
            program.paths,
            program.hosts.count,
            program.transport,
            cores=program.cores,
            slowdown=slowdown,
            weight=program.paths.weight,
            departs=bool(program.exchanges),
            spare=16 + tensors + (1 + feed.path.shape[1] + feed.work_s.shape[1] if feed is not None else 0),
            observed=observed,
            changes=program.changes,
        )
        s = self.s
        s.ranks_n = ranks
        s.on_servers = rules.updates is not None
        s.device_tasks = 0
        s.slowing = devices.slowdown
        s.by_messages = bool(program.exchanges)
        self._on_cores = on_cores
        self._make_routines(program.routines)
        self._make_ranks(on_cores)
        self._make_devices()
        self._make_inputs(batch_tasks)
        self._take_speeds()
        self._make_rules(dispatcher_task, client_task)
        self._make_servers(server_tasks)
        self._make_updates()
        self._make_meetings()
        if program.exchanges:
            add_exchanges(self, program)
        s.spare *= s.batch
        s.soon_spare = s.soon_spare * s.batch + self._gathered
        self._make_draws()
        self._make_rows()
        self._make_causes()

    # -- making ----------------------------------------------------------------------

    def _make_routines(self, routines: tuple[Routine, ...]) -> None:
        s = self.s
        table = np.zeros(len(routines), layout.ROUTINE)
        operations = np.zeros(sum(len(routine.operations) for routine in routines), layout.OPERATION)
        then: list[int] = []
        computes: list[int] = []
        buckets: list[int] = []
        first = sent = channels = 0
        for row, routine in zip(table, routines, strict=True):
            row["operations"], row["operations_n"] = first, len(routine.operations)
            following: list[list[int]] = [[] for _ in routine.operations]
            row["input"] = row["update"] = -1
            row["computes"], row["buckets"] = len(computes), len(buckets)
            sends_to_ranks = 0
            rows = operations[first : first + len(routine.operations)]
            for name, column in zip(_COLUMNS, zip(*map(attrgetter(*_COLUMNS), routine.operations), strict=True), strict=True):
                rows[name] = column
            rows["lasts_s"] = [-1.0 if each.lasts_s is None else each.lasts_s for each in routine.operations]
            rows["moves_s"] = [each.moves_s for each in routine.operations]
            rows["in_group"] = [each.bucket for each in routine.operations]
            rows["kind"] = [_KINDS[each.kind] for each in routine.operations]
            rows["missing"] = [len(each.after) for each in routine.operations]
            row["feeds"] = rows["feeds"].any()
            for number, operation in enumerate(routine.operations):
                for before in operation.after:
                    following[before].append(number)
                if operation.kind == "compute":
                    computes.append(number)
                elif operation.kind == "gate":
                    rows["gate"][number] = _GATES[operation.name]
                    if operation.name in ("input", "update"):
                        row[operation.name] = number
                elif operation.kind == "serve":
                    row["parts"] += 1
                elif operation.channel >= 0 and operation.kind == "send":
                    rows["sent"][number] = sends_to_ranks
                    sends_to_ranks += 1
            reduced = collectives_of(routine)
            rows["bucket"][reduced] = range(len(reduced))
            buckets += reduced
            waiting = [len(numbers) for numbers in following]
            rows["then"], rows["then_n"] = len(then) + np.cumsum([0, *waiting[:-1]]), waiting
            then += itertools.chain.from_iterable(following)
            row["computes_n"], row["buckets_n"] = len(computes) - row["computes"], len(buckets) - row["buckets"]
            row["channels_n"] = 1 + max(operation.channel for operation in routine.operations)
            row["shuffled"], row["shuffled_n"] = routine.shuffled[0], routine.shuffled[1] - routine.shuffled[0]
            if row["shuffled_n"]:
                row["before"] = following[0].index(routine.shuffled[0])
            row["overlaps"] = may_overlap(self._program, routine)
            row["amid"] = amid_passes(routine)
            row["stands_still"] = stands_still(routine)
            first += len(routine.operations)
            sent, channels = max(sent, sends_to_ranks), max(channels, int(row["channels_n"]))
        self.add("routines", table)
        self.add("operations", operations)
        # once more, side by side: every step begins with all of them
        self.add("awaited", operations["missing"].astype(np.int16).view(layout.COUNT))
        for name, numbers in (("then", then), ("computes", computes), ("buckets", buckets)):
            self.add(name, np.array(numbers, dtype=np.int32).view(layout.NUMBER))
        s.stride = table["operations_n"].max()
        s.sent_n, s.channels_n = sent, channels
        s.buckets_n = table["buckets_n"].max()
        ranks, rules = self._ranks, self._program.rules
        # what one thing may let begin at once: of one rank all operations, and where ranks wait for each other, of all ranks some
        meet = rules.bound is not None or isinstance(rules.updates, Synchronous)
        s.soon_spare = int(s.stride) + 8 + (2 * ranks if meet else 0)
        feed = self._program.feed
        s.batch = 1 if meet or s.observed or (feed is not None and not feed.alone) else _BATCH
        lasting = operations["lasts_s"] >= 0
        self._timed = bool(lasting.any())
        self._gathered = 0
        if self._timed:  # of each partition, all ranks at once
            self._gathered = ranks * (1 + int(operations["then_n"][lasting].max())) * (1 + int(operations["partition"][lasting].max()))
        self.add("sent", np.zeros(ranks * sent, layout.REAL))
        self.add("channels", np.full(3 * ranks * channels, -1, dtype=np.int32).view(layout.CHANNEL))
        self.add("overlaps", np.zeros(ranks if table["overlaps"].any() else 0, layout.OVERLAP))

    def _make_ranks(self, on_cores: bool) -> None:
        s, ranks = self.s, self._program.ranks
        table = aligned(self._ranks, layout.RANK)
        table["routine"], table["device"] = ranks.routine, ranks.device
        table["step"] = -1
        alone = codes.STRETCHED if self._program.devices.slowdown else codes.ALONE
        table["manner"] = codes.ON_CORES if on_cores else np.where(ranks.seat >= 0, codes.SHARED, alone)
        self.add("ranks", table)
        self.add("seats", _numbers(ranks.seat) if (ranks.seat >= 0).any() else np.zeros(0, layout.NUMBER))
        slots = s.peers_n = ranks.path.shape[1]
        lines = layout.RANK.itemsize
        if s.stride <= layout.OWN_OPERATIONS and slots <= layout.OWN_SLOTS:
            table["slots"][:, :slots] = ranks.path
            s.missing, s.slots = (s.ranks + layout.RANK.fields[name][1] for name in ("missing", "slots"))  # type: ignore[index]
            s.stride, s.slots_n = lines // layout.COUNT.itemsize, lines // layout.NUMBER.itemsize
        else:
            self.add("missing", aligned(self._ranks * int(s.stride), layout.COUNT))
            s.slots_n = slots
            self.add("slots", _numbers(ranks.path))
        self.add("peers", _numbers(ranks.peer) if int(s.channels_n) else np.zeros(0, layout.NUMBER))

    def _make_devices(self) -> None:
        devices, ranks = self._program.devices, self._program.ranks
        stretches = np.zeros(devices.count if devices.slowdown else 0, layout.STRETCH)
        stretches["done"] = -1
        self.add("stretches", stretches)
        seated = ranks.seat >= 0
        self._in_order = devices.count == self._ranks and bool((ranks.device == np.arange(devices.count)).all())
        self._device_port = np.full(devices.count if seated.any() else 0, -1)
        self._device_port[ranks.device[seated]] = self._program.paths.port[self._program.paths.first[ranks.seat[seated]]]

    def _make_inputs(self, first_task: int) -> None:
        s, feed = self.s, self._program.feed
        fed = any(operation.feeds for routine in self._program.routines for operation in routine.operations)
        s.on_inputs = fed or feed is not None
        table = np.zeros(self._ranks if s.on_inputs else 0, layout.INPUT)
        pipelines = np.zeros(len(feed) if feed is not None else 0, layout.PIPELINE)
        parts = np.zeros(0, layout.PART)
        ranks: Integers = np.zeros(0, dtype=np.int64)
        ring = 0
        if feed is not None:
            s.pipelines_n, s.feeds_alone, s.prefetch = len(feed), feed.alone, feed.prefetch
            table["pipeline"] = feed.of_rank
            pipelines["batch_s"] = feed.own_s
            ranks = np.argsort(feed.of_rank, kind="stable")
            pipelines["fed_n"] = np.bincount(feed.of_rank)
            pipelines["fed"] = np.cumsum(pipelines["fed_n"]) - pipelines["fed_n"]
            ring = min(feed.prefetch, self._most_batches) if feed.alone else 0
            if not feed.alone:
                parts, pipelines["parts_n"] = _parts_of(feed, first_task)
                pipelines["parts"] = np.cumsum(pipelines["parts_n"]) - pipelines["parts_n"]
                s.soon_spare += int(pipelines["fed_n"].max()) * (int(s.stride) + 2) + int(pipelines["parts_n"].max())
        s.taken_n = ring
        self.add("inputs", table)
        self.add("pipelines", pipelines)
        self.add("parts_of_batches", parts)
        self.add("fed", _numbers(ranks))
        self.add("taken", np.zeros(ring * len(pipelines), layout.REAL))

    @property
    def _most_batches(self) -> int:
        """Batches that a rank takes at most."""
        rules = self._program.rules
        if rules.steps_each is not None:
            return rules.steps_each + rules.sync_every + 1
        return self._all_steps * self._ranks + 1

    def _make_rules(self, dispatcher_task: int, client_task: int) -> None:
        s, rules = self.s, self._program.rules
        s.shared = -1 if rules.steps_shared is None else rules.steps_shared
        s.each = -1 if rules.most_steps_each is None else rules.most_steps_each
        s.closes = rules.closes
        table = np.zeros(2, layout.ONE_BY_ONE)
        table["task"] = dispatcher_task, client_task
        if rules.dispatcher is not None:
            s.dispatching = 1
            table["work_s"][0], table["latency_s"][0] = rules.dispatcher.dispatch_s, rules.dispatcher.latency_s
        if rules.client is not None:
            s.preparing = 1
            table["work_s"][1] = rules.client.input_s
        self.add("processes", table)
        s.bound = -1 if rules.bound is None else rules.bound
        s.at_slowest = self._ranks
        count = self._ranks if rules.bound is not None else 0
        self.add("clocks", np.zeros(count, layout.NUMBER))
        self.add("behind", np.zeros(count, layout.NUMBER))

    def _make_servers(self, first_task: int) -> None:
        servers = self._program.servers
        self.s.servers_n = servers.count
        table = np.zeros(servers.count, layout.SERVER)
        table["front"] = table["last"] = -1
        table["seat"] = servers.seat
        table["task"] = -1 if first_task < 0 else first_task + np.arange(servers.count)
        self.add("servers", table)

    def _make_updates(self) -> None:
        s, rule = self.s, self._program.rules.updates
        tensors = np.zeros(0, layout.TENSOR)
        reads = 0
        for name in ("waiting_ranks", "tokens"):
            self.add(name, np.zeros(self._ranks if isinstance(rule, Synchronous) else 0, layout.NUMBER))
        if isinstance(rule, Synchronous):
            s.synchronous, s.required, s.cancels = 1, rule.required, rule.cancel
            s.parts = s.unapplied = len(rule.server)
            tensors = np.zeros(len(rule.server), layout.TENSOR)
            tensors["server"], tensors["cost_s"] = rule.server, rule.cost_s
            s.update_width = len(UPDATE_COLUMNS)
        elif rule is not None:
            s.parts = sum(rule.parts)
            self.tables["servers"]["parts"][: len(rule.parts)] = rule.parts
            s.update_width = len(UPDATE_COLUMNS) + 2 * int(s.servers_n)
            reads = self._ranks * int(s.servers_n) if s.servers_n > 1 else 0
        else:
            s.update_width = len(UPDATE_COLUMNS)
        self.add("tensors", tensors)
        self.add("versions", np.zeros(reads, layout.READ))

    def _make_meetings(self) -> None:
        s = self.s
        count = 0 if s.on_servers else self._ranks
        meetings = np.zeros(count, layout.MEETING)
        if count:
            meetings["group"] = last_groups(self._program)
        self.add("meetings", meetings)
        s.every = self._program.rules.sync_every
        cells = count * int(s.buckets_n)
        s.unready = cells
        for name in ("entered", "finished", "ready"):
            self.add(name, np.zeros(cells, layout.REAL))
        last = np.zeros(4 * max(len(self._program.groups), 1), layout.LAST_READY)
        last["step"] = -1
        self.add("last_ready", last)

        self._make_gatherings()

    def _make_gatherings(self) -> None:
        """Of groups whose collectives last known times; nothing where there are none."""
        program, ranks = self._program, self._ranks
        groups = np.zeros(len(program.groups) if self._timed else 0, layout.GROUP)
        group_of: Integers = np.zeros(0, dtype=np.int64)
        gatherings = np.zeros(0, layout.GATHERING)
        if self._timed:
            each = np.zeros(len(groups), dtype=np.int64)
            for routine in program.routines:
                for operation in routine.operations:
                    if operation.kind == "collective":
                        within = of_partition(program, operation.partition)
                        each[within] = np.maximum(each[within], operation.bucket + 1)
            groups["ranks"], groups["gatherings"] = [len(group) for group in program.groups], np.cumsum(each) - each
            groups["over"], groups["next"] = program.over or -1, -1
            gatherings = np.zeros(int(each.sum()), layout.GATHERING)
            group_of = memberships(program).group.reshape(-1)
        self.add("groups", groups)
        self.add("gatherings", gatherings)
        self.add("group_of", _numbers(group_of))
        self.add("gathered", np.zeros(ranks * int(self.s.buckets_n) if self._timed else 0, layout.ENTERED))

    # -- draws -----------------------------------------------------------------------

    def begin_again(self, program: Program, draws: Draws) -> None:
        """All as it was made, for another replication of the same program but for what messages cost hosts, with what that one draws."""
        self._program, self._draws = program, draws
        self.reset()
        self.take_host_costs(program.transport)
        self._take_speeds()
        self._make_draws()

    def _take_speeds(self) -> None:
        """How fast each rank is, and when it begins."""
        s, draws = self.s, self._draws
        mean_s = draws.forward_s, draws.backward_s, draws.apply_s
        s.paces_n = any(seconds.strides[0] for seconds in mean_s)  # what is the same for all has no strides
        paces = np.zeros(self._ranks if s.paces_n else 1, layout.PACE)
        for name, its_s in zip(("forward_s", "backward_s", "update_s"), mean_s, strict=True):
            paces[name] = its_s[: len(paces)]
        self.add("paces", paces)
        self.tables["ranks"]["start_s"] = draws.start_s
        later = np.flatnonzero(draws.start_s)
        starts = np.zeros(len(later), layout.STARTING)
        starts["number"] = np.argsort(draws.start_s[later], kind="stable")
        starts["rank"] = later[starts["number"]]
        s.starts_n = len(starts)
        self.add("starts", starts)
        if self._program.feed is not None:
            first_s = np.full(int(s.pipelines_n), np.inf)
            np.minimum.at(first_s, self._program.feed.of_rank, draws.start_s)
            pipelines = self.tables["pipelines"]
            pipelines["first_s"] = pipelines["ready_s"] = first_s

    def _make_draws(self) -> None:
        s, draws, ranks, steps = self.s, self._draws, self._ranks, self._all_steps
        ahead = 0 if draws.constant.all() else ahead_of(steps, ranks * 8)
        s.factors_n = ahead
        self._factors: Floats = aligned(ahead * ranks, np.dtype(np.float64)).reshape(ahead, ranks)
        self._filled = np.zeros(ranks if ahead else 0, dtype=np.int32)
        self.add("factors", self._factors.reshape(-1).view(layout.REAL))
        self.add("filled", self._filled.view(layout.NUMBER))
        feed = self._program.feed
        self._batches = draws.of_batches(len(feed)) if feed is not None else None
        rows = 0
        if feed is not None and self._batches is not None:
            s.batch_lead = 0 if feed.alone else feed.prefetch
            rows = ahead_of(steps, len(feed) * 8) + 2 * (int(s.batch_lead) + 1)
        s.batch_factors_n = rows
        self._batch_factors: Floats = np.empty((rows, len(feed) if feed is not None else 0))
        self._batch_filled = np.zeros(len(feed) if feed is not None and rows else 0, dtype=np.int32)
        self.add("batch_factors", self._batch_factors.reshape(-1).view(layout.REAL))
        self.add("batch_filled", self._batch_filled.view(layout.NUMBER))
        counts = self.tables["routines"]["shuffled_n"]
        s.order = counts.max()
        ahead = ahead_of(steps, ranks * 4 * int(s.order)) if s.order else 0
        s.orders_n = ahead
        self._orders = aligned(ranks * ahead * int(s.order), np.dtype(np.int32)).reshape(ranks, ahead, int(s.order))
        self._ordered = np.zeros(ranks if ahead else 0, dtype=np.int32)
        self.add("orders", self._orders.reshape(-1).view(layout.NUMBER))
        self.add("ordered", self._ordered.view(layout.NUMBER))
        self._order_of_rank = counts[self._program.ranks.routine] if ahead else counts[:0]
        self.draw(first=True)

    def draw(self, *, first: bool = False) -> None:
        """Draw for all ranks that have used at least a third of what they had; the first time all that they have room for."""
        for begin in range(0, self._ranks, _AT_A_TIME):
            step = self.tables["ranks"]["step"][begin : begin + _AT_A_TIME]
            if len(self._filled):
                for ranks, places in _due(self._filled, step, begin, len(self._factors), first):
                    drawn = np.empty((len(ranks), places.shape[1]))
                    self._draws.fill(ranks, drawn)
                    _put(self._factors, places, ranks, drawn)
            if len(self._ordered):
                for ranks, places in _due(self._ordered, step, begin, self._orders.shape[1], first):
                    for count in np.unique(self._order_of_rank[ranks]).tolist():
                        some = self._order_of_rank[ranks] == count
                        if count:
                            drawn_orders = self._draws.pull_orders(ranks[some], count, block=places.shape[1])
                            self._orders[ranks[some, None], places[some], :count] = drawn_orders
        leads = [int(each.min()) if len(each) else _FOR_EVER for each in (self._filled, self._ordered)]
        if self._batches is not None:
            self._draw_batches(self._batches, first=first)
            leads.append(int(self._batch_filled.min()) - int(self.s.batch_lead))
        self.s.drawn = min(leads)

    def _draw_batches(self, jitter: Jitter, *, first: bool) -> None:
        """The same for the batches of pipelines."""
        for begin in range(0, len(self._batch_filled), _AT_A_TIME):
            begun = self.tables["pipelines"]["begun"][begin : begin + _AT_A_TIME]
            for which, places in _due(self._batch_filled, begun, begin, len(self._batch_factors), first):
                drawn = np.empty((len(which), places.shape[1]))
                jitter.fill(which, drawn)
                _put(self._batch_factors, places, which, drawn)

    # -- rows ------------------------------------------------------------------------

    def _make_rows(self) -> None:
        s = self.s
        # ranks that wait for each other may all end their steps at once
        s.rows_each = 2 * s.batch
        s.rows_spare = self._ranks + s.rows_each if s.synchronous or self._timed else 2 * s.rows_each
        s.steps_room = _ROWS + int(s.rows_spare)
        s.updates_room = s.reads_room = _ROWS
        self._steps = np.empty((len(STEP_COLUMNS), int(s.steps_room)))
        self._updates = np.empty((int(s.update_width), _ROWS))
        self._reads = np.empty(_ROWS, dtype=np.int64)
        self.add("steps", self._steps.reshape(-1).view(layout.REAL))
        self.add("updates", self._updates.reshape(-1).view(layout.REAL))
        self.add("reads", self._reads.view(layout.LONG))

    def _make_causes(self) -> None:
        s, observed = self.s, bool(self.s.observed)
        s.each_operations = max(len(routine.operations) for routine in self._program.routines)
        # ranks that wait for each other may all end their steps at once
        s.logged_spare = 4 * (self._ranks + int(s.each_operations)) + 16 if observed else 0
        s.logged_room = _ROWS + int(s.logged_spare) if observed else 0
        self._logged = np.empty(int(s.logged_room), layout.LOGGED)
        self.add("logged", self._logged)
        counts = {
            "compute_causes": self._ranks * int(s.each_operations),
            "input_causes": self._ranks,
            "made_by": len(self.tables["ready"]),
        }
        for name, count in counts.items():
            self.add(name, np.full(count if observed else 0, -1, dtype=np.int64).view(layout.LONG))
        members = np.zeros(len(self.tables["members"]) if observed and self.s.by_messages else 0, layout.CONTEXT)
        members["cause"] = -1
        self.add("member_causes", members)

    def end(self) -> None:
        """Nothing more happens; how long everything was in use can still be asked for."""
        if self._kept:
            return
        self._factors, self._orders = np.empty((0, 0)), np.empty((0, 0, 0), dtype=np.int32)
        self.drop("factors", "orders", "missing", "slots", "calendar", "noted", "soon", "messages", "connections", "incidences")

    def take_logged(self) -> NDArray[Any]:
        """Return what is to be told since this was last asked, as records of ``layout.LOGGED``; before :meth:`take_rows`."""
        taken = self._logged[: int(self.s.logged_n)]
        self.s.logged_n = 0
        return taken

    @property
    def made_by(self) -> Integers:
        """Return what made each rank's data of each bucket of the step, for whoever observes; shape (buckets, ranks)."""
        table: Integers = self.tables["made_by"]["n"].reshape(int(self.s.buckets_n), self._ranks)
        return table

    def take_rows(self) -> tuple[Floats, Floats, NDArray[np.int64]]:
        """Steps, updates and reads since this was last asked, to be used before the run goes on."""
        s = self.s
        taken = self._steps[:, : int(s.steps_n)].T, self._updates[:, : int(s.updates_n)].T, self._reads[: int(s.reads_n)]
        s.steps_n = s.updates_n = s.reads_n = 0
        return taken

    # -- collectives at once ---------------------------------------------------------

    @property
    def ready_s(self) -> Floats:
        """When each rank had each bucket of the step, shape (buckets, ranks)."""
        return self._by_bucket("ready")

    @property
    def finished_s(self) -> Floats:
        """When each rank ended each bucket of the last step that it has finished, shape (buckets, ranks)."""
        return self._by_bucket("finished")

    def _by_bucket(self, name: str) -> Floats:
        table: Floats = self.tables[name]["x"].reshape(int(self.s.buckets_n), self._ranks)
        return table

    # -- reading ---------------------------------------------------------------------

    def devices_in_use_s(self, now: float) -> Floats:
        """Seconds for which each device has worked; on shared cores, in which it had something to do."""
        count = self._program.devices.count
        if self._on_cores:
            return self.tasks_in_use_s(now)[:count]
        ranks = self.tables["ranks"][: self._ranks]
        left_s = ranks["free_s"] - now
        np.maximum(left_s, 0.0, out=left_s)
        used: Floats = np.subtract(ranks["busy_s"], left_s, out=left_s)
        if not self._in_order:
            own_s, used = used, np.zeros(count)
            used[ranks["device"]] = own_s  # 0 where several ranks share it
        if len(self._device_port):
            used = np.where(self._device_port >= 0, self.busy_until(now)[self._device_port], used)
        return used

    def servers_in_use_s(self, now: float) -> Floats:
        """Of each server, seconds in which it has worked."""
        table = self.tables["servers"][: int(self.s.servers_n)]
        used: Floats = table["busy_s"] + np.where(table["front"] >= 0, now - table["busy_since"], 0.0)
        return used


def _due(
    filled: NDArray[np.int32], step: Integers, begin: int, room: int, first: bool
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Ranks from ``begin`` on that have used at least a third of what they had, those that have used as much together.

    What the step needs that a rank is at may still be asked for.

    Yields
    ------
    tuple
        Some ranks, shape (n,), and the places where what is drawn for them goes, shape (n, drawn); it counts as drawn.
    """
    of_these = filled[begin : begin + len(step)]
    used = np.full(len(step), room) if first else room - (of_these - step)
    used -= used % max(room // 8, 1)  # so that not everyone has used another number
    due = np.flatnonzero(used >= max(room // 3, 1))
    for count in np.unique(used[due]).tolist():
        some = due[used[due] == count]
        places = (of_these[some, None].astype(np.int64) + np.arange(count)) % room
        of_these[some] += count
        yield begin + some, places


def _put(table: Floats, places: NDArray[np.int64], ranks: NDArray[np.int64], drawn: Floats) -> None:
    """Write what was drawn for some ranks, row after row where they are as far as each other and none is left out: numpy is faster then."""
    if (places[:, 0] == places[0, 0]).all() and ranks[-1] - ranks[0] + 1 == len(ranks):
        table[places[0], ranks[0] : ranks[-1] + 1] = drawn.T
    else:
        table[places, ranks[:, None]] = drawn


def _parts_of(feed: Feed, first_task: int) -> tuple[NDArray[Any], Integers]:
    """Parts of batches, pipeline by pipeline: threads on shared cores, flows, and what takes seconds; how many each pipeline has."""
    amounts = np.concatenate([feed.work_s, feed.amount, feed.own_s[:, None]], axis=1)
    threads = feed.work_s.shape[1]
    path = np.full(amounts.shape, -1)
    path[:, threads:-1] = feed.path
    task = np.full(amounts.shape, -1)
    working = feed.work_s != 0
    task[:, :threads][working] = first_task + np.arange(np.count_nonzero(working))
    there = np.nonzero(amounts)
    parts = np.zeros(len(there[0]), layout.PART)
    parts["amount"], parts["path"], parts["task"] = amounts[there], path[there], task[there]
    return parts, np.bincount(there[0], minlength=len(feed))


def _numbers(values: Integers) -> NDArray[Any]:
    return np.ascontiguousarray(values, dtype=np.int32).reshape(-1).view(layout.NUMBER)
