"""The configurations that a plan chooses from: lines that differ in nothing but their number of workers.

The ways to cut a model that has layers are made in ways.py. Nothing is simulated here; every scenario is validated.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

from paceline.planning.answer import Refused, Scaling, configuration_name, refused_once
from paceline.planning.bounds import Ceilings
from paceline.planning.ways import NAMES, NOT_CUT, Fixed, Maker, Way, fixed_of, trained_in_words, uncut, way_of, without_layers
from paceline.ranges import doubled, is_range, numbers_in
from paceline.sweeping import Axis, several_clusters
from simulator.base.catalog import find
from simulator.base.errors import InputError, ScenarioError
from simulator.base.spec import Spec, short_name
from simulator.base.text import counted, did_you_mean, listed
from simulator.base.validation_errors import quoted, validated
from simulator.catalogue.loading import Source, apply_settings, prices_for_several, scenario_from_table, table_of, with_measured
from simulator.memory import does_not_fit
from simulator.resolve.published_throughputs import kind_of as device_kind_of
from simulator.resolve.resolve import Asked
from simulator.scenario import Resolved, Scenario
from simulator.spec.cluster import Cluster
from simulator.spec.paying import Price
from simulator.spec.prices import Prices
from simulator.spec.training import Training
from simulator.spec.workload import Workload
from simulator.strategies.catalogue import kind_of, strategy_table
from simulator.strategies.strategy import SOFTWARE, Strategy, software_in_words

KeyT = TypeVar("KeyT")
BUCKET_KEY = "strategy.bucket_size"
_MOST_CONFIGURATIONS = 100_000
_MOST_WORKERS = 100_000
_MOST_REASONS = 5
_MOST_TRIED = 4096
"""Workers with which a scenario is tried whose own number of them cannot be."""
_WORKERS = "1..64"


class Counts(NamedTuple):
    """Numbers of workers, of servers or of machines to choose from.

    Attributes
    ----------
    values
        Ascending.
    searched
        Whether they are a range, of which a search needs to simulate only some; else each is simulated.
    of_machines
        Whether they count machines, all of whose devices train but for what servers and a client have to themselves.
    """

    values: tuple[int, ...]
    searched: bool
    of_machines: bool = False

    def workers(self, strategy: Strategy, cluster: Cluster) -> Iterator[tuple[int, str]]:
        """Number of workers that each number makes of a strategy, and why there are none."""
        for value in self.values if strategy.count_key else (1,):
            yield _workers_on(value, strategy, cluster) if self.of_machines and strategy.count_key else (value, "")


def _workers_on(machines: int, strategy: Strategy, cluster: Cluster) -> tuple[int, str]:
    """Count the workers that fill some machines beside servers and a client, and say why there are none."""
    per_node = cluster.replicas_per_node
    layout = strategy.with_count(1).layout(cluster)
    each = 1 if layout.one_process else layout.replicas_per_process
    layout = strategy.with_count(max(machines * per_node // each, 1)).layout(cluster)
    apart = layout.nodes - layout.worker_nodes
    if apart < machines:
        return (machines - apart) * per_node // each, ""
    who = listed([counted(layout.servers, "parameter server")] * bool(layout.servers) + ["the client"] * layout.client)
    return 0, f"{counted(machines, 'machine')} in all would hold no worker beside {who}"


def counts_of(given: str | Iterable[int], argument: str, such: str = "", most: float = _MOST_WORKERS) -> Counts:
    """Read ``"1..256"`` as a range, ``"1,2,4"`` or ``"1..4,8"`` as a list; ``such`` says in an error what may be given.

    Raises
    ------
    InputError
        It is empty, or has what is no count.
    """
    text = given if isinstance(given, str) else ",".join(str(value) for value in given)
    such = such or f"a range such as `{argument}='1..64'`, or a list such as `{argument}='1,2,4,8'`"
    numbers = numbers_in(text, f"`{argument}` ")
    if numbers is None or not 1 <= min(numbers) <= max(numbers) <= most:
        limits = f"from 1 to {most}" if math.isfinite(most) else "from 1 on"
        raise InputError(f"`{argument}` {quoted(text)} must be {such}, of whole numbers {limits}")
    return Counts(tuple(sorted(set(numbers))), searched=is_range(text))


@dataclass(eq=False)
class Line:
    """Configurations that differ in their number of workers alone.

    Attributes
    ----------
    what
        Strategy in words, and how it is trained.
    on
        Name of its cluster.
    others
        Whatever else distinguishes it, in words.
    cluster
        That it is on, as it was asked for.
    scaling
        What more workers keep as it is.
    searched
        Whether a search may leave some of them out.
    most
        The largest number of workers that was asked for, possible or not.
    candidates
        Each as it was asked for and resolved, by number of workers, ascending.
    ceilings
        Its bounds; lines that differ in how a model is cut alone share them.
    cut
        Whether it is one of many such lines.
    asked
        Short name of the strategy, as it was asked for; empty: the scenario's own.
    tunable
        Whether the size of buckets is searched: it is neither set nor one of the values to choose from.
    """

    what: str
    on: str
    others: tuple[str, ...]
    cluster: str
    scaling: Scaling
    searched: bool
    most: int
    candidates: dict[int, Asked] = field(default_factory=dict)
    ceilings: Ceilings = field(default_factory=Ceilings)
    cut: bool = False
    asked: str = ""
    tunable: bool = False

    @property
    def way(self) -> Way:
        """Its way of training."""
        return way_of(self.first.strategy)

    @property
    def fewest(self) -> Asked:
        """Candidate of the fewest workers."""
        return next(iter(self.candidates.values()))

    @property
    def first(self) -> Scenario:
        """Scenario of the fewest workers, as it was asked for."""
        return self.fewest.given

    @property
    def name(self) -> str:
        """Strategy, cluster and whatever else distinguishes it."""
        return configuration_name(self.what, self.on, self.others)

    def title(self, workers: int | None = None) -> str:
        """A configuration in words, or without workers all of the line."""
        count = workers if workers is not None and self.candidates[workers].given.strategy.count_key else None
        return configuration_name(self.what, self.on, self.others, count, self.scaling)

    def refused(self, text: str, configurations: int, workers: int | None = None, **more: Any) -> Refused:
        """Say why one of its configurations, or some of them, cannot be."""
        return Refused(name=self.title(workers), cluster=self.cluster, text=text, configurations=configurations, **more)


@dataclass
class Space:
    """All lines, and what of the ranges cannot be.

    Attributes
    ----------
    base
        The scenario that the ranges vary.
    base_name
        Of its file, for messages.
    clusters
        All that were asked for, those included on which nothing can be.
    strategies
        Short names that were asked for, likewise; none: the scenario's own.
    base_replicas
        Of the scenario with its own number of workers: what a batch of each is multiplied by, or one of all divided by.
    price_notes
        Which clusters have a price that was given, and how it came about.
    """

    lines: list[Line]
    refused: list[Refused]
    base: Scenario
    base_name: str
    clusters: list[str] = field(default_factory=list)
    strategies: list[str] = field(default_factory=list)
    base_replicas: int = 1
    price_notes: list[str] = field(default_factory=list)

    @property
    def searched_together(self) -> list[list[Resolved]]:
        """Configurations of which the search looks for one: a line, or all ways to cut a model alike on a cluster."""
        together: dict[object, list[Resolved]] = {}
        for line in self.lines:
            key = (line.cluster, line.scaling, line.way) if line.cut else line
            together.setdefault(key, []).extend(asked.resolved for asked in line.candidates.values())
        return list(together.values())

    @property
    def cuts(self) -> bool:
        """Return whether a model is cut in several ways."""
        return any(line.cut for line in self.lines)

    @property
    def considered(self) -> int:
        """Configurations that the ranges name, those that cannot be included."""
        return sum(len(line.candidates) for line in self.lines) + sum(refusal.configurations for refusal in self.refused)


def space_of(
    scenario: Source,
    *,
    settings: Iterable[tuple[str, Any]] = (),
    clusters: Sequence[str] = (),
    over: Sequence[Axis] = (),
    strategies: Sequence[str] = (),
    workers: str | Iterable[int] | None = None,
    servers: str | Iterable[int] | None = None,
    scaling: Literal["weak", "strong", "both"] | None = None,
    batches: str | Iterable[int] | None = None,
    runs_on: Sequence[str] = (),
    prices: Prices | None = None,
    machines: Sequence[int] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Space:
    """Every configuration that the ranges name, validated.

    Parameters
    ----------
    scenario
        Nested tables, the path of a scenario file, the name of one that comes along, or a scenario.
    settings
        Keys to set in all configurations, whatever their cluster.
    clusters
        Names of the catalogue or paths of files; none: the scenario's own.
    over
        Further keys and their values; ``strategy.workers`` and ``strategy.servers`` stand for ``workers`` and ``servers``.
    strategies
        Short names (:data:`~simulator.strategies.catalogue.SHORT_NAMES`); none: the scenario's own, and of a workload with layers every
        way of cutting it (:mod:`paceline.planning.ways`).
    workers, servers
        Such as ``"1..256"`` or ``"1,2,4"``; left out: 1 to 64 workers, the scenario's own servers.
    scaling
        Weak: each replica keeps its batch. Strong: all together keep theirs. Left out: as the scenario has it.
    batches
        Such as ``"16..512"``, of which 16, 32, 64 and so on and the end are taken, or a list: of the samples of each replica with weak
        scaling, of all replicas together with strong. Left out: as the scenario has it.
    runs_on
        Software of which one must run a strategy as it comes; none: whatever runs it.
    prices
        Of clusters by name. Where there are several clusters, a price among the settings holds for those that have none.
    machines
        Numbers of machines, in place of those of workers: servers and a client with machines of their own are among them.
    progress
        Called with how many of the configurations that the ranges name have been made, and how many they name.

    Raises
    ------
    InputError
        An unknown name, an empty or unreadable range, too many configurations, a price for a cluster that is none of these.
    ScenarioError
        The scenario itself breaks a rule, or every configuration does.
    """
    settings = list(settings)
    clusters = list(dict.fromkeys(clusters))
    if len(clusters) > 1 or several_clusters(over):
        settings, prices = prices_for_several(settings, prices)
    base_table, source, beside = table_of(scenario, settings)
    base_table = with_measured(base_table, source, beside)
    settings = [(key, value) for key, value in settings if not isinstance(value, Spec)]
    counted_by = {"workers": workers, "servers": servers}
    over = _routed(over, counted_by)
    given, tried = _keys_of(settings), _keys_of((key, value) for key, values in over for value in values)
    for name in counted_by if counted_by["servers"] is not None else ("workers",):
        for option in (option for option, keys in (("settings", given), ("over", tried)) if f"strategy.{name}" in keys):
            argument = "machines" if name == "workers" and machines is not None else name
            raise InputError(f"`{option}` strategy.{name}: is what a plan chooses; leave it out, and name the range by `{argument}`")
    # the scenario's own cluster may be none of those that are asked for: its price is looked up below
    base = _base(base_table, source, beside)
    counts = counts_of(counted_by["workers"] or _WORKERS, "workers")
    if machines is not None:
        counts = Counts(tuple(machines), searched=False, of_machines=True)
    of_servers = None if counted_by["servers"] is None else counts_of(counted_by["servers"], "servers").values
    own: Scaling = "weak" if base.workload.global_batch is None else "strong"
    scalings: tuple[Scaling, ...] = ("weak", "strong") if scaling == "both" else (scaling or own,)
    if batches is not None:
        over = [*over, _batch_axis(batches, scalings, {*given, *tried})]
    for name in clusters:
        find("clusters", name, f"`clusters` {quoted(name)}", beside)
    asked_for = list(dict.fromkeys(strategies))
    strategies = asked_for or ("", *(NAMES if base.workload.layers else ()))
    cells = len(clusters or [""]) * len(strategies) * math.prod(len(values) for _, values in over)
    named = cells * len(scalings) * len(of_servers or [1]) * len(counts.values)
    if named > _MOST_CONFIGURATIONS:
        raise InputError(f"{source}: the ranges name {named:,} configurations; at most {_MOST_CONFIGURATIONS:,} are taken")
    many = itertools.count()
    tell = (lambda: None) if progress is None else (lambda: progress(min(next(many), named), named))
    powers = [count for count in counts.values if count & (count - 1) == 0 or count in (counts.values[0], counts.values[-1])]
    space = Space([], [], base, source, strategies=asked_for, base_replicas=_own_replicas(base_table, base))
    tunable = BUCKET_KEY not in given | tried
    for cluster, short in itertools.product(clusters or ("",), strategies):
        on = _on_cluster(base_table, cluster, settings) if cluster else base_table
        if short:
            on = {**on, "strategy": strategy_table(short, on["strategy"])}
        spans = short in NAMES and bool(base.workload.layers or short not in NOT_CUT)
        kind = kind_of(on["strategy"])
        configurations = len(scalings) * (len(counts.values) if kind.count_key else 1)
        configurations *= len(of_servers or [1]) if kind.has_servers else 1
        for combination in itertools.product(*(values for _, values in over)):
            chosen = [(key, value) for (key, _), value in zip(over, combination, strict=True)]
            name = ", ".join(filter(None, [short, f"on {cluster}" if cluster else "", *(f"{key}={value}" for key, value in chosen)]))
            where = f"{source}{f' ({name})' if name else ''}"
            table = apply_settings(on, chosen, f"{source}: ")
            keys = given | _keys_of(chosen)
            template, problem = base, ""
            begun = uncut(table, keys) if spans else table
            # of what is not cut yet, or shares machines with servers, the smallest that can be may be below all of these
            sizes = _sizes(begun, counts.values[-1]) if spans or counts.of_machines else []
            try:
                template = _first_valid(begun, [*sizes, *powers], where, beside, prices)
                problem = without_layers(template.workload) if spans and not template.workload.layers else ""
            except ScenarioError as error:
                problem = error.reasons[0]
            # as ``clusters`` or ``over`` with ``cluster.use`` name it, or by its own name
            used = next((str(value) for key, value in chosen if key == "cluster.use"), "")
            asked = used or cluster or template.cluster.name
            space.clusters.append(asked)
            if problem:
                if prices is not None:
                    prices.mention(asked)
                refusal = Refused(name=name or source, cluster=asked, text=problem, configurations=configurations, asked=short)
                space.refused.append(refusal)
                continue
            others = tuple(f"{key.partition('.')[2]} {value}" for key, value in chosen)
            cell = _Cell(space, template, asked, others, counts, where, short, tunable, tell)
            if spans:
                for each in scalings:
                    cell.add_ways(each, fixed_of(table, keys))
                continue
            numbers = of_servers if of_servers is not None and template.strategy.has_servers else (template.servers,)
            for each, number in itertools.product(scalings, numbers):
                cell.add_line(each, number)
    _keep_runnable(space, runs_on)
    space.clusters = list(dict.fromkeys(space.clusters))
    if prices is not None:
        prices.check()
        space.price_notes = prices.notes()
    if not space.lines:
        told = refused_once(space.refused)[:_MOST_REASONS]
        raise ScenarioError(*(f"{source}{f' ({refusal.name})' if refusal.name != source else ''}: {refusal.text}" for refusal in told))
    if of_servers and not space.refused and not any(line.first.servers for line in space.lines):
        raise InputError(
            f"`servers` {quoted(','.join(map(str, of_servers)))}: no strategy considered has parameter servers; "
            "leave it out, or add one that has, such as `strategies=['sync-ps']`"
        )
    return space


@dataclass
class _Cell:
    """One strategy on one cluster with one combination of further values: it adds lines to a space.

    Attributes
    ----------
    template
        All else of the configurations.
    asked
        What the cluster was asked for as.
    others
        The further values in words.
    counts
        Numbers of workers or machines.
    where
        For messages.
    short, tunable
        As of a line.
    tell
        Tells of progress, before each number of workers.
    """

    space: Space
    template: Scenario
    asked: str
    others: tuple[str, ...]
    counts: Counts
    where: str
    short: str
    tunable: bool
    tell: Callable[[], None]

    def add_line(self, scaling: Scaling, servers: int) -> None:
        """Make a line of configurations, and note which of it cannot be."""
        workload = _scaled(self.template.workload, scaling, self.space.base_replicas)
        start = self.template.strategy.with_servers(servers)
        candidates: dict[int, Asked] = {}
        problems: list[str] = []
        for count, problem in self.counts.workers(start, self.template.cluster):
            self.tell()
            if problem:
                problems.append(problem)
                continue
            parts = {**self.template.sections, "workload": workload, "strategy": start.with_count(count)}
            try:
                candidates[count] = Asked.of(validated(Scenario, parts, self.where))
            except ScenarioError as error:
                problems.append(error.reasons[0])
        line = self._line(next((asked.given.strategy for asked in candidates.values()), start), self.template.training, scaling)
        line.candidates = candidates
        if problems:
            self.space.refused.append(line.refused(problems[0], len(problems), asked=self.short))
        if candidates:
            self.space.lines.append(line)

    def add_ways(self, scaling: Scaling, fixed: Fixed) -> None:
        """Make a line of each way in which a model is cut, and note which cannot be."""
        space, template = self.space, self.template
        workload = _scaled(template.workload, scaling, space.base_replicas)
        each = workload.batch_per_replica
        device_batch = None if each is None else Fraction(each, space.base.layout.ranks_per_replica)
        lines: dict[str, Line] = {}
        refused: dict[tuple[Way, bool], list[tuple[str, str]]] = {}
        known = {line.name: line for line in space.lines if line.cluster == self.asked and line.scaling == scaling}
        ceilings = Ceilings()
        maker = Maker(self.short, template, workload, device_batch, fixed, self.where)
        per_node = template.cluster.devices_per_node
        for count, _ in self.counts.workers(template.strategy, template.cluster):
            self.tell()
            if self.counts.searched and count % per_node and per_node % count:
                continue  # of a range, whole nodes, or a part that divides one
            for tried in maker.tried(count):
                new = replace(self._line(tried.strategy, tried.training, scaling), ceilings=ceilings, cut=True)
                if tried.asked is None:
                    title = configuration_name(new.what, new.on, new.others, count, scaling)
                    refused.setdefault((way_of(tried.strategy), tried.by_memory), []).append((title, tried.refused))
                elif count not in known.get(new.name, new).candidates:
                    lines.setdefault(new.name, new).candidates[count] = tried.asked
        space.lines += lines.values()
        for (way, by_memory), reasons in refused.items():
            (name, text), many = reasons[0], len(reasons)
            name = f"{way} under {self.short!r}, such as {name}" if many > 1 else name
            space.refused.append(
                Refused(name=name, cluster=self.asked, text=text, configurations=many, by_memory=by_memory, way=way, asked=self.short)
            )
        total = sum(len(line.candidates) for line in space.lines)
        if total > _MOST_CONFIGURATIONS:
            raise InputError(
                f"{self.where}: the ranges name more than {total:,} configurations; at most {_MOST_CONFIGURATIONS:,} are taken: give a "
                "list of `workers`, or fewer `strategies`"
            )

    def _line(self, strategy: Strategy, training: Training, scaling: Scaling) -> Line:
        """An empty line that is named after a configuration of it."""
        what = ", ".join(filter(None, (strategy.in_words, trained_in_words(training))))
        return Line(
            what, self.template.cluster.name, self.others, self.asked, scaling, self.counts.searched, max(self.counts.values),
            asked=self.short, tunable=self.tunable,
        )  # fmt: skip


def _keys_of(pairs: Iterable[tuple[str, Any]]) -> set[str]:
    """Dotted keys that settings name, those inside of tables included, under the names that a person writes."""
    keys: set[str] = set()
    for key, value in pairs:
        keys |= _keys_of((f"{key}.{name}", inner) for name, inner in value.items()) if isinstance(value, Mapping) else {short_name(key)}
    return keys


def _batch_axis(batches: str | Iterable[int], kinds: Sequence[Scaling], given: Iterable[str]) -> Axis:
    """Batches to choose from, as values of the key that the scaling keeps."""
    if len(kinds) > 1:
        raise InputError(
            "`batches`: counts samples of each replica with weak scaling, of all together with strong; give `scaling` as one of them"
        )
    key = "workload.global_batch" if kinds[0] == "strong" else "workload.batch_per_replica"
    if not {"workload.global_batch", "workload.batch_per_replica"}.isdisjoint(given):
        raise InputError(f"`batches` and a setting of {key} name the same numbers; give one of them")
    such = "a range such as `batches='16..512'`, of which 16, 32, 64 and so on and its end are taken, or a list such as `batches='16,128'`"
    counts = counts_of(batches, "batches", such, math.inf)
    return key, doubled(counts.values[0], counts.values[-1]) if counts.searched else list(counts.values)


def _keep_runnable(space: Space, runs_on: Sequence[str]) -> None:
    """Refuse what none of some software runs as it comes."""
    if not runs_on:
        return
    for name in runs_on:
        if name not in SOFTWARE:
            hint = did_you_mean(name, SOFTWARE, f"there are {', '.join(SOFTWARE)}")
            raise InputError(f"`runs_on` {quoted(name)}: no such software is known; {hint}")
    kept = []
    for line in space.lines:
        able = line.first.strategy.software
        if set(able) & set(runs_on):
            kept.append(line)
            continue
        wanted = listed([title for name, title in SOFTWARE.items() if name in runs_on], "or")
        text = f"{wanted} does not run it as it comes; {software_in_words(able)}"
        way = line.way if line.cut else ""
        space.refused.append(line.refused(text, len(line.candidates), way=way, asked=line.asked))
    space.lines = kept


def _routed(over: Sequence[Axis], counted_by: dict[str, str | Iterable[int] | None]) -> list[Axis]:
    """Axes without those of workers and servers, which have arguments of their own: their values go there."""
    left: list[Axis] = []
    for key, values in over:
        argument = key.removeprefix("strategy.")
        if argument != key and argument in counted_by:
            if counted_by[argument] is not None:
                raise InputError(f"`over` {key} and `{argument}` name the same numbers; give one of them")
            counted_by[argument] = ",".join(map(str, values))
        elif any(key == other for other, _ in left):
            raise InputError(f"`over` {key[:80]}: is given twice; write all its values into one `over`, separated by commas")
        else:
            left.append((key, values))
    return left


def _on_cluster(table: Mapping[str, Any], name: str, settings: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """A scenario's tables on another cluster; what the scenario says of its own cluster is left behind, what ``settings`` say is not."""
    own = table.get("cluster")
    if isinstance(own, Mapping) and own.get("use") == name:
        return dict(table)
    moved = {**table, "cluster": {"use": name}}
    tables = [value for key, value in settings if key == "cluster" and isinstance(value, Mapping)]
    inside = [(f"cluster.{key}", value) for own_table in tables for key, value in own_table.items()]
    return apply_settings(
        moved, [(key, value) for key, value in (*inside, *settings) if key.startswith("cluster.") and key != "cluster.use"]
    )


def base_of(scenario: Source, settings: Iterable[tuple[str, Any]]) -> Scenario:
    """The scenario that ranges vary: as it is, or where its own number of workers cannot be, with another one.

    Raises
    ------
    ScenarioError
        It breaks a rule, whatever the number of its workers.
    """
    return _base(*table_of(scenario, settings))


def _base(table: Mapping[str, Any], source: str, beside: Path | None) -> Scenario:
    """Read it from tables: what is about to be chosen need not be possible as it stands."""
    return _first_valid(table, [None, *_sizes(table, _MOST_TRIED)], source, beside)


def _own_replicas(table: Mapping[str, Any], base: Scenario) -> int:
    """Copies that a scenario has with its own number of workers."""
    count = table["strategy"].get(base.strategy.count_key)
    return max(base.strategy.with_count(count).layout(base.cluster).replicas, 1) if isinstance(count, int) else base.replicas


def _sizes(table: Mapping[str, Any], most: int) -> list[int]:
    """The fewest workers that the degrees of a strategy's table allow, and that number doubled, up to another one."""
    strategy = table.get("strategy")
    degrees = [strategy.get(key, 1) for key in ("pipeline", "tensor", "expert")] if isinstance(strategy, Mapping) else []
    least = math.prod(degree for degree in degrees if isinstance(degree, int) and degree > 1)
    return doubled(least, max(least, most))


def _first_valid(
    table: Mapping[str, Any], counts: Sequence[int | None], where: str, beside: Path | None, prices: Prices | None = None
) -> Scenario:
    """A scenario with the first of some numbers of workers with which it is valid; None: its own.

    Raises
    ------
    ScenarioError
        What is wrong with the first, where all are.
    """
    key = kind_of(table.get("strategy")).count_key
    problems: list[ScenarioError] = []
    for count in counts if key else counts[:1]:
        try:
            own = apply_settings(table, [(f"strategy.{key}", count)]) if key and count is not None else table
            return scenario_from_table(own, where, beside, prices)
        except ScenarioError as error:
            problems.append(error)
    raise problems[0]


def _scaled(workload: Workload, scaling: Scaling, base_replicas: int) -> Workload:
    """A workload with the batch of a replica fixed, or with that of all: the scenario's own batch times, or over, its own replicas."""
    each, together = workload.batch_per_replica, workload.global_batch
    if scaling == "strong" and each is not None:
        return workload.timed_at(each).replaced({"batch_per_replica": None, "global_batch": each * base_replicas})
    if scaling == "weak" and together is not None:
        own = max(together // base_replicas, 1)
        return workload.timed_at(together).replaced({"batch_per_replica": own, "global_batch": None})
    return workload


# -- ways to pay -----------------------------------------------------------------------


def with_offers(space: Space, *, whole_job: bool) -> Space:
    """The space with each line once for every way to pay that its cluster has, where there are several; their names say which.

    Parameters
    ----------
    whole_job
        Whether a goal is about samples, so that the time of a whole job counts. Else, and without a ``[job]``, what preemptions cost
        is in no figure, and a spot price is refused.

    Raises
    ------
    ScenarioError
        All are refused.
    """
    lines: list[Line] = []
    refused = list(space.refused)
    for line in space.lines:
        ways = line.first.cluster.ways_to_pay
        if len(ways) < 2:
            lines.append(line)
        for price in ways if len(ways) > 1 else ():
            named = replace(line, others=(*line.others, price.called))
            candidates, why = paid_by(line, price, whole_job=whole_job)
            if candidates:
                lines.append(replace(named, candidates=candidates))
            if left := len(line.candidates) - len(candidates):
                refused.append(named.refused(why, left, asked=line.asked))
    if not lines:
        raise ScenarioError(f"{space.base_name}: {refused[-1].text}")
    return replace(space, lines=lines, refused=refused)


def paid_by(line: Line, price: Price, *, whole_job: bool) -> tuple[dict[int, Asked], str]:
    """A line's candidates on nodes that are paid for in another way, and why some or all cannot be: a rule, or a spot price without a job.

    What preemptions cost is in the time of a whole job alone; ``whole_job``: whether a goal is about one.
    """
    if price.preemption is not None and not (whole_job and line.first.job is not None):
        lacking = "a [job]" if whole_job else "a goal of samples and a [job]"
        return {}, f"what preemptions cost is in the time of a whole job alone, so the spot price {price.called!r} needs {lacking}"
    candidates, why = {}, ""
    for workers, asked in line.candidates.items():
        parts = {**asked.given.sections, "cluster": asked.given.cluster.paid_by(price.called)}
        try:
            candidates[workers] = Asked.of(validated(Scenario, parts, f"paid for as {price.called}"))
        except ScenarioError as error:
            why = error.reasons[0]
    return candidates, why


def fitting(space: Space) -> tuple[list[Line], dict[Line, dict[int, str]]]:
    """Lines of what fits into its device's memory, as far as that is known; and why the other candidates of each line do not."""
    lines, refused = [], {}
    for line in space.lines:
        # ways to cut a model were made of what fits
        texts = {workers: does_not_fit(asked.resolved) for workers, asked in line.candidates.items() if not line.cut}
        refused[line] = {workers: text for workers, text in texts.items() if text is not None}
        left = {workers: asked for workers, asked in line.candidates.items() if workers not in refused[line]}
        if left:
            lines.append(replace(line, candidates=left) if refused[line] else line)
    return lines, {line: texts for line, texts in refused.items() if texts}


# -- devices ---------------------------------------------------------------------------


def check_devices(scenarios: Iterable[Resolved], source: str) -> list[str]:
    """Refuse to compare devices by a workload that does not say on which it was measured.

    Returns
    -------
    list of str
        A note for each device that was taken for granted: that of the cluster where the
        workload names none, that of the workload where the cluster names none and others
        do, or the workload was moved already.

    Raises
    ------
    InputError
        A workload names no device, and its clusters have several, on which it cannot be equally
        fast; or one factor, given by hand, would move it to several devices alike.
    """
    pairs = [(scenario.workload, scenario.cluster) for scenario in scenarios]
    unsaid = _kinds((load.name, cluster.device) for load, cluster in pairs if load.moved is None and not load.device and cluster.device)
    by_hand = [(load.name, load.moved) for load, _ in pairs if load.moved is not None and load.moved.applied and load.moved.rule == "given"]
    moved = _kinds(((name, move.factor), move.to_device) for name, move in by_hand)
    for (workload, factor), kinds in moved.items():
        if len(kinds) > 1:
            ends = " to ".join(f"{end:g}" for end in (factor[0], factor[-1]))
            raise InputError(
                f"{source}: workload.moved gives the workload {workload!r} one factor ({ends}), but the clusters have several devices "
                f"({_quoted(kinds)}), to which it cannot be the same: plan for each cluster by itself, "
                "with `clusters` and its own factor, or leave workload.moved out where a published rule leads there"
            )
    for workload, kinds in unsaid.items():
        if len(kinds) > 1:
            setting = f'`settings` workload.calibrated={{batch=[1,64],device="{next(iter(kinds.values()))[:60]}"}}'
            raise InputError(
                f"{source}: the workload {workload!r} names no device, but the clusters have several ({_quoted(kinds)}), on which it "
                f"cannot be equally fast: say on which it was measured, such as {setting}, or plan for one of them at a time"
            )
    notes = [
        f"the workload {workload!r} names no device; its times are taken to be those on {name!r}"
        for workload, kinds in unsaid.items()
        for name in kinds.values()
    ]
    some_name_one = any(cluster.device for _, cluster in pairs)
    for load, cluster in pairs:
        is_moved = load.moved is not None and load.moved.applied
        if load.device and not cluster.device and (is_moved or some_name_one):
            notes.append(f"the cluster {cluster.name!r} names no device; it is taken to have that of the workload's times, {load.device!r}")
    return list(dict.fromkeys(notes))


def _kinds(devices: Iterable[tuple[KeyT, str]]) -> dict[KeyT, dict[object, str]]:
    """Group names of devices by what has them, one of each kind."""
    kinds: dict[KeyT, dict[object, str]] = {}
    for key, device in devices:
        kinds.setdefault(key, {}).setdefault(device_kind_of(device), device)
    return kinds


def _quoted(kinds: Mapping[object, str]) -> str:
    return ", ".join(map(repr, list(kinds.values())[:4]))
