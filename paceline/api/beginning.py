"""Library functions to begin with: a first scenario, the catalogue, the schemas of file formats, and the live page.

A scenario is made from a few figures (:mod:`paceline.scenario_text`) or from the cluster of a ``TF_CONFIG`` (``calibrate.tf_config``).
Parameters, defaults and docstrings are also the options and the help of ``paceline init``, ``schema`` and ``serve``.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from paceline.arguments import (
    NOT_TYPED,
    Amount,
    Count,
    File,
    Force,
    Format,
    Jobs,
    MustBe,
    Quantity,
    Settings,
    Stages,
    Text,
    TfConfig,
    Typed,
    checked,
    output_of,
)

if TYPE_CHECKING:
    from calibrate.tf_config import TfCluster
    from paceline.catalogue import Catalogue
    from simulator import Scenario
    from simulator.base.files import Output

Ready: TypeAlias = Annotated[Callable[[str], None] | None, MustBe("a function of the link"), NOT_TYPED]
"""Called with the link, once the page answers."""


@checked
def new_scenario(
    workload: Annotated[Text | None, Typed(metavar="NAME")] = None,
    *,
    step_time: Annotated[Quantity | None, Typed(metavar="TIME")] = None,
    parameters: Amount | None = None,
    batch: Annotated[Count, Typed(metavar="N")] = 32,
    tensors: Annotated[Count, Typed(metavar="N")] | None = None,
    largest: Annotated[Amount, Typed(metavar="SHARE")] | None = None,
    optimizer: Annotated[Text, Typed(metavar="NAME")] = "adam",
    measured_with: Annotated[Text, Typed(metavar="NAME")] = "device",
    cluster: Annotated[Text | None, Typed(metavar="NAME")] = None,
    nodes: Annotated[Count, Typed(metavar="N")] | None = None,
    devices: Annotated[Count, Typed(metavar="N")] = 1,
    bandwidth: Annotated[Quantity, Typed(metavar="RATE")] = "10 Gbit/s",
    latency: Annotated[Quantity, Typed(metavar="TIME")] = "50 us",
    sort: Annotated[Text, Typed(metavar="NAME")] = "ethernet",
    price: Annotated[Text | None, Typed(metavar="PRICE")] = None,
    strategy: Annotated[Text, Typed(metavar="NAME")] = "ring",
    workers: Annotated[Count, Typed(metavar="N")] | None = None,
    servers: Annotated[Count, Typed(metavar="N")] = 1,
    epochs: Amount | None = None,
    dataset_size: Amount | None = None,
    out: Annotated[File | None, Typed(short="-o", metavar="FILE.toml")] = None,
    force: Force = False,
) -> Scenario:
    """Make a first scenario from a few figures; with ``out``, also write its file, with a comment on each key.

    Parameters
    ----------
    workload
        A workload: the NAME of a calibration, a name of ``paceline models list``, or a file. Default: your own model, from
        ``step_time`` and ``parameters``.
    step_time
        Time of a training step on one device, such as ``"250 ms"``.
    parameters
        Trainable parameters of the model, such as ``25.6e6``.
    batch
        Samples per device and step.

        ``step_time`` is the time of such a step.
    tensors
        Number of trainable variables, such as 161 of ResNet-50. Hosts of parameter servers spend time on each. Default: 160.
    largest
        Share of the parameters in the largest variable, such as 0.98 for one large dense kernel. Default: as in most networks.

        One server holds the whole of a variable that is not cut.
    optimizer
        sgd, momentum, adam, ...: parameter servers update its slots with each gradient.
    measured_with
        What the step time includes. device: compute only; servers: one worker with parameter servers, whose pull and push are
        subtracted once.
    cluster
        A cluster of ``paceline models list``, or a file. Default: your own, from ``devices``, ``bandwidth``, ``latency`` and ``sort``.
    nodes
        Machines that you have; those that a run does not use cost nothing. Default: 4, or as many as ``workers`` and ``servers`` need.

        The scenario cannot use more (``cluster.available``).
    devices
        GPUs per machine; 1 if its CPU computes.
    bandwidth
        Bandwidth of the network between machines, such as ``"25 Gbit/s"``.
    latency
        Latency of that network, such as ``"30 us"``.
    sort
        Kind of that bandwidth. ethernet or rdma: the rate of the port, of which transfers achieve a share; given: the rate of transfers.

        docs/numbers.md has the shares.
    price
        Price of a machine per hour, such as ``0.40/h``, or to buy, such as ``BUY:4000USD,years:4``. Default: that of the cluster, if
        it has one.
    strategy
        Strategy, by its short name, such as ring or async-ps.

        ``"single"``, ``"mirrored"``, ``"ring"`` and other all-reduces, ``"sync-ps"``, ``"backup"``, ``"async-ps"`` or ``"ssp"``.
    workers
        Workers. Default: as many as the machines take.
    servers
        Parameter servers, each on its own machine.
    epochs
        Passes over the data set, to predict the whole job.

        None: only steps are simulated.
    dataset_size
        Samples in the data set, such as ``1.28e6``.
    out
        Scenario file to write.

        None writes none.
    force
        Replace the file if it exists.

    Returns
    -------
    Scenario
        The scenario, ready for :func:`simulate`.

    Raises
    ------
    InputError
        A figure cannot be read or has no effect, or the file exists already or cannot be written.
    ScenarioError
        No workload or cluster has this name, or they are incompatible.

    Examples
    --------
    >>> scenario = new_scenario(step_time="250 ms", parameters=25.6e6, batch=64, nodes=4, bandwidth="25 Gbit/s")
    >>> scenario.replicas, scenario.strategy.kind, scenario.workload.name
    (4, 'multi-worker-mirrored', 'own workload')
    """
    given = dict(locals())  # the arguments are the figures
    from paceline.scenario_text import Figures, text_of
    from simulator.base.files import EDITED

    figures = Figures(**{name: value for name, value in given.items() if name not in ("out", "force") and value is not None})
    output = output_of(out, EDITED, force=force)
    return _scenario_of(text_of(figures, "scenario.toml" if output is None else str(output.path)), output, "scenario")


@checked
def read_tf_config(tf_config: Text) -> TfCluster:
    """Read a cluster from a ``TF_CONFIG`` or a ``ClusterSpec``.

    Parameters
    ----------
    tf_config
        ``"env"`` for the environment variable ``TF_CONFIG``; or JSON that begins with a brace; or the path
        of a file with such JSON. The JSON is a ``TF_CONFIG`` or only its ``ClusterSpec``.

    Returns
    -------
    TfCluster
        ``jobs``: the addresses of its tasks, by job; ``strategy``: the strategy that such a cluster runs.

    Raises
    ------
    InputError
        The text is not JSON or not a cluster, an address is wrong or used twice, or no task trains.

    Examples
    --------
    >>> read_tf_config('{"cluster": {"worker": ["h1:2222", "h2:2222"], "ps": ["h3:2222"]}}').strategy
    'parameter-server'
    """
    from calibrate.tf_config import read_tf_config as read

    return read(tf_config)


@checked
def scenario_of_tf_config(
    tf_config: TfConfig,
    *,
    workload: Text,
    batch: Count,
    cluster: Annotated[Text, Typed(metavar="NAME")] = "ethernet-25g",
    devices_per_worker: Count = 1,
    out: File | None = None,
    force: Force = False,
) -> Scenario:
    """Make a scenario for the cluster of a ``TF_CONFIG``.

    Parameters
    ----------
    tf_config
        As for :func:`read_tf_config`.

        Or its result.
    workload
        A workload of the catalogue, or the path of its file.
    batch
        Samples per replica and step.
    cluster
        Hardware and links of that scenario: a name of ``paceline models list``, or a file.

        A ``TF_CONFIG`` does not contain them.
    devices_per_worker
        Devices that each worker drives.

        Each is a replica.
    out
        A scenario file to write too, with remarks on what a ``TF_CONFIG`` does not determine.
    force
        Replace an existing file.

    Returns
    -------
    Scenario
        The scenario, ready for :func:`simulate`.

    Raises
    ------
    InputError
        The ``TF_CONFIG`` cannot be used, a number is below 1, or ``out`` exists already or cannot be written.
    ScenarioError
        The scenario breaks a rule, or names a workload or cluster that does not exist.

    Examples
    --------
    >>> scenario = scenario_of_tf_config('{"cluster": {"worker": ["h1:2222", "h2:2222"]}}', workload="cnn-cpu", batch=32)
    >>> scenario.replicas, scenario.strategy.kind
    (2, 'multi-worker-mirrored')
    """
    from calibrate.tf_config import scenario_text
    from simulator.base.files import EDITED

    output = output_of(out, EDITED, force=force)
    tasks = read_tf_config(tf_config) if isinstance(tf_config, str) else tf_config
    return _scenario_of(scenario_text(tasks, workload, batch, cluster, devices_per_worker), output, "`tf_config`")


def _scenario_of(text: str, output: Output | None, source: str) -> Scenario:
    """Return the validated scenario of a text, and the file to write, if any; messages name ``source`` without one."""
    import tomllib

    from simulator.catalogue.loading import scenario_from_table

    table = tomllib.loads(text)
    if output is None:
        return scenario_from_table(table, source)
    scenario = scenario_from_table(table, str(output.path), output.path.parent)
    output.write(text)
    return scenario


@checked
def models() -> Catalogue:
    """List the workloads, clusters, input pipelines, devices and faults that a scenario can name.

    Returns
    -------
    Catalogue
        A sequence of entries, each with its ``kind``, ``name`` and ``file``; ``[name]`` returns one.

    Examples
    --------
    >>> found = models()
    >>> found["ethernet-25g"].kind, found["ethernet-25g"].file.name
    ('cluster', 'ethernet-25g.toml')
    """
    from paceline.catalogue import Catalogue

    return Catalogue()


@checked
def schema(format: Annotated[Format, Typed(place=True, metavar="FORMAT")] | None = None) -> dict[str, Any]:  # noqa: A002
    """Return the JSON Schema of a file format, or those of all formats.

    A quantity may be given as text with a unit under its short name (``latency = "20 us"``),
    or as a number under its full name (``latency_s = 2e-5``).

    Parameters
    ----------
    format
        Format of the schema. Default: all.

    Returns
    -------
    dict
        The schema; of all formats, the schemas by the formats' names.

    Examples
    --------
    >>> sorted(schema()), schema("cluster")["title"]
    (['cluster', 'device', 'faults', 'input', 'result', 'scenario', 'testbed-setting', 'workload'], 'Cluster')
    """
    from paceline.catalogue import schema_of, schemas

    return schemas() if format is None else schema_of(format)


@checked
def serve(
    scenario: Annotated[str | Path, MustBe("a file, or a name such as 'ring'"), Typed(place=True, metavar="[SCENARIO]")] = "async-ps",
    settings: Settings = (),
    *,
    host: Annotated[Text, MustBe("a name or address of this machine"), Typed(metavar="ADDRESS")] | None = None,
    port: Annotated[int, MustBe("a whole number from 0 to 65535", least=0, most=65535), Typed(metavar="PORT")] = 0,
    jobs: Jobs = 0,
    ready: Ready = None,
    progress: Stages = None,
) -> None:
    """Serve a page that shows the effect of changes to a scenario at once, until this process is interrupted.

    Parameters
    ----------
    scenario
        A scenario file, or the name of an example, that the page begins with.
    settings
        Change a key of the scenario, such as strategy.workers=64.
    host
        Address to serve at, such as 0.0.0.0 for all of this machine's. Anyone with the link can then use the page, without encryption:
        serve only on a network that you trust. Default: only this machine can reach the page, and the link opens it once.
    port
        Port to serve at; 0: a free one.
    jobs
        Processes that answer, at least two; 0: two per core. Half of them do only lengthy work.
    ready
        Called with the link, once the page answers.
    progress
        Called with the number of ready processes, their total, and ``"processes"``.

    Raises
    ------
    InputError
        Starlette or uvicorn is not installed, or the address cannot be used.
    ScenarioError
        The scenario cannot be read.
    """
    from paceline.api.predicting import plan
    from paceline.serving.question import served_of
    from paceline.serving.server import serve as serve_page

    serve_page(served_of(scenario, settings), plan, host=host, port=port, jobs=jobs, ready=ready, progress=progress)
