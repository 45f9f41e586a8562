"""The configurations that a plan chooses from: lines that differ only in their number of workers.

ways.py makes the ways to cut a model with layers. Every scenario is validated here, and none is simulated.
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
"""Numbers of workers to try if the scenario's own is impossible."""
_WORKERS = "1..64"


class Counts(NamedTuple):
    """Numbers of workers, of servers or of machines to choose from.

    Attributes
    ----------
    values
        Ascending.
    searched
        Whether they are a range, of which a search simulates only some; otherwise each is simulated.
    of_machines
        Whether they count machines. All their devices train, except on machines of servers and a client.
    """

    values: tuple[int, ...]
    searched: bool
    of_machines: bool = False

    def workers(self, strategy: Strategy, cluster: Cluster) -> Iterator[tuple[int, str]]:
        """Return the number of workers for each number, and the reason where there are none."""
        for value in self.values if strategy.count_key else (1,):
            yield _workers_on(value, strategy, cluster) if self.of_machines and strategy.count_key else (value, "")


def _workers_on(machines: int, strategy: Strategy, cluster: Cluster) -> tuple[int, str]:
    """Return the workers that fill the machines left by servers and a client, or the reason why there are none."""
    per_node = cluster.replicas_per_node
    layout = strategy.with_count(1).layout(cluster)
    each = 1 if layout.one_process else layout.replicas_per_process
    layout = strategy.with_count(max(machines * per_node // each, 1)).layout(cluster)
    apart = layout.nodes - layout.worker_nodes
    if apart < machines:
        return (machines - apart) * per_node // each, ""
    who = listed([counted(layout.servers, "parameter server")] * bool(layout.servers) + ["the client"] * layout.client)
    return 0, f"{counted(machines, 'machine')} cannot hold {who} and a worker"


def counts_of(given: str | Iterable[int], argument: str, such: str = "", most: float = _MOST_WORKERS) -> Counts:
    """Read ``"1..256"`` as a range, ``"1,2,4"`` or ``"1..4,8"`` as a list; ``such`` describes valid values in an error.

    Raises
    ------
    InputError
        The text is empty, or an entry is not a count.
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
    """Configurations that differ only in their number of workers.

    Attributes
    ----------
    what
        Strategy in words, and how it is trained.
    on
        Name of its cluster.
    others
        Its other distinguishing settings, in words.
    cluster
        Its cluster, as requested.
    scaling
        What stays fixed with more workers.
    searched
        Whether a search may leave some of them out.
    most
        The largest requested number of workers, possible or not.
    candidates
        Scenarios as requested and resolved, by ascending number of workers.
    ceilings
        Its bounds; lines that differ only in how a model is cut share them.
    cut
        Whether it is one of many such lines.
    asked
        Short name of the strategy, as requested; empty: the scenario's own.
    tunable
        Whether to search the bucket size: it is neither set nor varied.
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
        """Candidate with the fewest workers."""
        return next(iter(self.candidates.values()))

    @property
    def first(self) -> Scenario:
        """Scenario with the fewest workers, as requested."""
        return self.fewest.given

    @property
    def name(self) -> str:
        """Strategy, cluster and other distinguishing settings."""
        return configuration_name(self.what, self.on, self.others)

    def title(self, workers: int | None = None) -> str:
        """Return the name of a configuration, or without workers that of the line."""
        count = workers if workers is not None and self.candidates[workers].given.strategy.count_key else None
        return configuration_name(self.what, self.on, self.others, count, self.scaling)

    def refused(self, text: str, configurations: int, workers: int | None = None, **more: Any) -> Refused:
        """Return a refusal of one or several of its configurations."""
        return Refused(name=self.title(workers), cluster=self.cluster, text=text, configurations=configurations, **more)


@dataclass
class Space:
    """All lines, and the impossible configurations of the ranges.

    Attributes
    ----------
    base
        The scenario that the ranges vary.
    base_name
        Name of its file, for messages.
    clusters
        All requested clusters, including those on which nothing is possible.
    strategies
        All requested short names; none: the scenario's own.
    base_replicas
        Replicas of the scenario with its own number of workers: the ratio of global batch to batch of a replica.
    price_notes
        Notes on specified prices of clusters.
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
        """Groups of lines that are searched for one answer: a line, or all similar cuts of a model on a cluster."""
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
        """Number of configurations in the ranges, including impossible ones."""
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
    """Return every configuration of the ranges, validated.

    Parameters
    ----------
    scenario
        Nested tables, the path of a scenario file, the name of a built-in one, or a scenario.
    settings
        Keys to set in all configurations, on every cluster.
    clusters
        Names of the catalogue or paths of files; none: the scenario's own.
    over
        Further keys and their values; ``strategy.workers`` and ``strategy.servers`` mean ``workers`` and ``servers``.
    strategies
        Short names (:data:`~simulator.strategies.catalogue.SHORT_NAMES`); none: the scenario's own, and of a workload with layers every
        way of cutting it (:mod:`paceline.planning.ways`).
    workers, servers
        Such as ``"1..256"`` or ``"1,2,4"``; default: 1 to 64 workers, the scenario's own servers.
    scaling
        Weak: the batch of each replica is fixed. Strong: the global batch is fixed. Default: the scenario's.
    batches
        A range such as ``"16..512"``, which means 16, 32, 64 and so on and its end, or a list: samples of each replica with weak scaling,
        of all replicas with strong. Default: the scenario's.
    runs_on
        Software, one of which must run a strategy unmodified; none: any.
    prices
        Prices by cluster. With several clusters, a price among the settings is for those without one.
    machines
        Numbers of machines instead of workers, including machines of servers and a client.
    progress
        Called with the number of finished configurations, and their total.

    Raises
    ------
    InputError
        A name is unknown, a range is empty or unreadable, there are too many configurations, or a price is for another cluster.
    ScenarioError
        The scenario breaks a rule, or every configuration does.
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
            raise InputError(f"`{option}` strategy.{name}: the plan chooses it; leave it out, and give a range as `{argument}`")
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
        raise InputError(f"{source}: the ranges contain {named:,} configurations, more than the limit of {_MOST_CONFIGURATIONS:,}")
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
            others = tuple(f"{key.partition('.')[2].removesuffix('_per_replica')} {value}" for key, value in chosen)
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
            f"`servers` {quoted(','.join(map(str, of_servers)))}: no considered strategy has parameter servers; "
            "leave it out, or add one, such as `strategies=['sync-ps']`"
        )
    return space


@dataclass
class _Cell:
    """One strategy on one cluster with one combination of further values, which adds lines to a space.

    Attributes
    ----------
    template
        The fixed part of the configurations.
    asked
        The cluster as requested.
    others
        The further values in words.
    counts
        Numbers of workers or machines.
    where
        Prefix of messages.
    short, tunable
        As for a line.
    tell
        Reports progress before each number of workers.
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
        """Make a line of configurations, and record impossible ones."""
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
        """Make a line for each way to cut a model, and record impossible ones."""
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
        """Return an empty line named after one of its configurations."""
        what = ", ".join(filter(None, (strategy.in_words, trained_in_words(training))))
        return Line(
            what, self.template.cluster.name, self.others, self.asked, scaling, self.counts.searched, max(self.counts.values),
            asked=self.short, tunable=self.tunable,
        )  # fmt: skip


def _keys_of(pairs: Iterable[tuple[str, Any]]) -> set[str]:
    """Yield the dotted keys of settings, including those inside tables, under their short names."""
    keys: set[str] = set()
    for key, value in pairs:
        keys |= _keys_of((f"{key}.{name}", inner) for name, inner in value.items()) if isinstance(value, Mapping) else {short_name(key)}
    return keys


def _batch_axis(batches: str | Iterable[int], kinds: Sequence[Scaling], given: Iterable[str]) -> Axis:
    """Return batches to choose from, as values of the key that the scaling fixes."""
    if len(kinds) > 1:
        raise InputError("`batches`: counts samples per replica with weak scaling, of all replicas with strong; give one `scaling`")
    key = "workload.global_batch" if kinds[0] == "strong" else "workload.batch_per_replica"
    if not {"workload.global_batch", "workload.batch_per_replica"}.isdisjoint(given):
        raise InputError(f"`batches` and a setting of {key} set the same numbers; give one of them")
    such = "a range such as `batches='16..512'`, which means 16, 32, 64 and so on and its end, or a list such as `batches='16,128'`"
    counts = counts_of(batches, "batches", such, math.inf)
    return key, doubled(counts.values[0], counts.values[-1]) if counts.searched else list(counts.values)


def _keep_runnable(space: Space, runs_on: Sequence[str]) -> None:
    """Refuse strategies that none of the software runs unmodified."""
    if not runs_on:
        return
    for name in runs_on:
        if name not in SOFTWARE:
            hint = did_you_mean(name, SOFTWARE, f"there are {', '.join(SOFTWARE)}")
            raise InputError(f"`runs_on` {quoted(name)}: unknown software; {hint}")
    kept = []
    for line in space.lines:
        able = line.first.strategy.software
        if set(able) & set(runs_on):
            kept.append(line)
            continue
        wanted = listed([title for name, title in SOFTWARE.items() if name in runs_on], "or")
        text = f"{wanted} does not run it unmodified; {software_in_words(able)}"
        way = line.way if line.cut else ""
        space.refused.append(line.refused(text, len(line.candidates), way=way, asked=line.asked))
    space.lines = kept


def _routed(over: Sequence[Axis], counted_by: dict[str, str | Iterable[int] | None]) -> list[Axis]:
    """Return the axes without those of workers and servers, whose values go to their own arguments."""
    left: list[Axis] = []
    for key, values in over:
        argument = key.removeprefix("strategy.")
        if argument != key and argument in counted_by:
            if counted_by[argument] is not None:
                raise InputError(f"`over` {key} and `{argument}` set the same numbers; give one of them")
            counted_by[argument] = ",".join(map(str, values))
        elif any(key == other for other, _ in left):
            raise InputError(f"`over` {key[:80]}: is given twice; write all its values into one `over`, separated by commas")
        else:
            left.append((key, values))
    return left


def _on_cluster(table: Mapping[str, Any], name: str, settings: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Return a scenario's tables on another cluster, without the scenario's own cluster keys but with those of ``settings``."""
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
    """Return the scenario that ranges vary; if its own number of workers is impossible, with another.

    Raises
    ------
    ScenarioError
        The scenario breaks a rule with any number of workers.
    """
    return _base(*table_of(scenario, settings))


def _base(table: Mapping[str, Any], source: str, beside: Path | None) -> Scenario:
    """Return the scenario of some tables, whose own values to be chosen may be impossible."""
    return _first_valid(table, [None, *_sizes(table, _MOST_TRIED)], source, beside)


def _own_replicas(table: Mapping[str, Any], base: Scenario) -> int:
    """Return the replicas of a scenario with its own number of workers."""
    count = table["strategy"].get(base.strategy.count_key)
    return max(base.strategy.with_count(count).layout(base.cluster).replicas, 1) if isinstance(count, int) else base.replicas


def _sizes(table: Mapping[str, Any], most: int) -> list[int]:
    """Yield the fewest workers that the degrees of a strategy allow, and its doubles up to a limit."""
    strategy = table.get("strategy")
    degrees = [strategy.get(key, 1) for key in ("pipeline", "tensor", "context", "expert")] if isinstance(strategy, Mapping) else []
    least = math.prod(degree for degree in degrees if isinstance(degree, int) and degree > 1)
    return doubled(least, max(least, most))


def _first_valid(
    table: Mapping[str, Any], counts: Sequence[int | None], where: str, beside: Path | None, prices: Prices | None = None
) -> Scenario:
    """Return a scenario with the first valid number of workers; None: its own.

    Raises
    ------
    ScenarioError
        The error of the first number, if none is valid.
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
    """Return a workload with a fixed batch per replica, or a fixed global batch, converted by the scenario's own replicas."""
    each, together = workload.batch_per_replica, workload.global_batch
    if scaling == "strong" and each is not None:
        return workload.timed_at(each).replaced({"batch_per_replica": None, "global_batch": each * base_replicas})
    if scaling == "weak" and together is not None:
        own = max(together // base_replicas, 1)
        return workload.timed_at(together).replaced({"batch_per_replica": own, "global_batch": None})
    return workload


# -- ways to pay -----------------------------------------------------------------------


def with_offers(space: Space, *, whole_job: bool) -> Space:
    """Return the space with each line repeated for every price of its cluster, which its name then contains.

    Parameters
    ----------
    whole_job
        Whether a goal is about samples, so that the time of a whole job counts. Otherwise, or without a ``[job]``, no figure includes the
        cost of preemptions, and spot prices are refused.

    Raises
    ------
    ScenarioError
        All prices are refused.
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
    """Return a line's candidates at another price, and refusals: a broken rule, or a spot price without a job.

    Only the time of a whole job includes preemptions; ``whole_job`` tells whether the goal is about one.
    """
    if price.preemption is not None and not (whole_job and line.first.job is not None):
        lacking = "a [job]" if whole_job else "a goal of samples and a [job]"
        return {}, f"only a whole job includes the cost of preemptions, so the spot price {price.called!r} needs {lacking}"
    candidates, why = {}, ""
    for workers, asked in line.candidates.items():
        parts = {**asked.given.sections, "cluster": asked.given.cluster.paid_by(price.called)}
        try:
            candidates[workers] = Asked.of(validated(Scenario, parts, f"paid for as {price.called}"))
        except ScenarioError as error:
            why = error.reasons[0]
    return candidates, why


def fitting(space: Space) -> tuple[list[Line], dict[Line, dict[int, str]]]:
    """Return lines of candidates that fit into device memory, where known, and refusals of the others."""
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
    """Refuse to compare devices with a workload that does not name the device it was measured on.

    Returns
    -------
    list of str
        A note for each assumed device: the cluster's where the workload names none, or the workload's where the cluster names none and
        others do, or the workload was moved already.

    Raises
    ------
    InputError
        A workload without a device is used on clusters with several devices, or one specified factor would move it to several devices.
    """
    pairs = [(scenario.workload, scenario.cluster) for scenario in scenarios]
    unsaid = _kinds((load.name, cluster.device) for load, cluster in pairs if load.moved is None and not load.device and cluster.device)
    by_hand = [(load.name, load.moved) for load, _ in pairs if load.moved is not None and load.moved.applied and load.moved.rule == "given"]
    moved = _kinds(((name, move.factor), move.to_device) for name, move in by_hand)
    for (workload, factor), kinds in moved.items():
        if len(kinds) > 1:
            ends = " to ".join(f"{end:g}" for end in (factor[0], factor[-1]))
            raise InputError(
                f"{source}: workload.moved has one factor ({ends}) for {workload!r}, but the clusters have several devices "
                f"({_quoted(kinds)}); plan for each cluster separately, "
                "with `clusters` and its own factor, or leave workload.moved out to use published factors"
            )
    for workload, kinds in unsaid.items():
        if len(kinds) > 1:
            setting = f'`settings` workload.calibrated={{batch=[1,64],device="{next(iter(kinds.values()))[:60]}"}}'
            raise InputError(
                f"{source}: the workload {workload!r} names no device, but the clusters have several ({_quoted(kinds)}); "
                f"name the device it was measured on, such as {setting}, or plan for one cluster at a time"
            )
    notes = [
        f"the workload {workload!r} names no device; its times are assumed to be those of {name!r}"
        for workload, kinds in unsaid.items()
        for name in kinds.values()
    ]
    some_name_one = any(cluster.device for _, cluster in pairs)
    for load, cluster in pairs:
        is_moved = load.moved is not None and load.moved.applied
        if load.device and not cluster.device and (is_moved or some_name_one):
            notes.append(f"the cluster {cluster.name!r} names no device; it is assumed to have that of the workload, {load.device!r}")
    return list(dict.fromkeys(notes))


def _kinds(devices: Iterable[tuple[KeyT, str]]) -> dict[KeyT, dict[object, str]]:
    """Return one name of each kind of device, by its owner."""
    kinds: dict[KeyT, dict[object, str]] = {}
    for key, device in devices:
        kinds.setdefault(key, {}).setdefault(device_kind_of(device), device)
    return kinds


def _quoted(kinds: Mapping[object, str]) -> str:
    return ", ".join(map(repr, list(kinds.values())[:4]))
