"""The library function that makes a first scenario from a few figures.

Its parameters, defaults and docstring are also the options and the help of ``paceline init``. The text of the file is written in
:mod:`paceline.scenario_text`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from paceline.arguments import Amount, Count, File, Force, Quantity, Text, Typed, checked

if TYPE_CHECKING:
    from simulator import Scenario

__all__ = ["new_scenario"]


@checked
def new_scenario(
    workload: Annotated[Text | None, Typed(metavar="NAME")] = None,
    *,
    step_time: Annotated[Quantity | None, Typed(metavar="TIME")] = None,
    parameters: Amount | None = None,
    batch: Annotated[Count, Typed(metavar="N")] = 32,
    tensors: Annotated[Count, Typed(metavar="N")] | None = None,
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
        What ``paceline calibrate --name NAME`` has measured, a name of ``paceline models list``, or a file; left out: your own, from
        ``step_time`` and ``parameters``.
    step_time
        Time of a training step on one device, such as ``"250 ms"``.
    parameters
        Trainable parameters of the model, such as ``25.6e6``.
    batch
        Samples that each device takes in a step.

        ``step_time`` is the time of such a step.
    tensors
        Trainable variables of the model, such as 161 of ResNet-50: hosts of parameter servers work on each; left out: 160.
    measured_with
        What that time holds. device: computing alone; servers: one worker with the parameter servers, whose pull and push are then
        taken out once.
    cluster
        A cluster of ``paceline models list``, or a file; left out: your own, from ``devices``, ``bandwidth``, ``latency`` and ``sort``.
    nodes
        Machines that there are; what a run leaves is not paid for. Left out: 4, or as many as ``workers`` and ``servers`` need.

        They are the most that the scenario then takes (``cluster.available``).
    devices
        GPUs of a machine; 1 where its CPU computes.
    bandwidth
        Of the network between machines.
    latency
        Of the same network.
    sort
        What that bandwidth is. ethernet or rdma: the rate of the port, of which transfers get a share; given: what they get.

        docs/practice.md says which share.
    price
        Of a machine for an hour, such as ``0.40/h``; of one to buy, such as ``BUY:4000USD,years:4``; left out: the cluster's own, if it
        has one.
    strategy
        How it is trained, by a short name.

        ``"single"``, ``"mirrored"``, ``"ring"`` and other all-reduces, ``"sync-ps"``, ``"backup"``, ``"async-ps"`` or ``"ssp"``.
    workers
        Workers; left out: as many as the machines take.
    servers
        Parameter servers, each on a machine of its own.
    epochs
        Passes over the data set, for the time of the whole job.

        None: steps alone are simulated.
    dataset_size
        Samples of the data set, such as ``1.28e6``.
    out
        Scenario file to write.

        None writes none.
    force
        Replace the file if it is there already.

    Returns
    -------
    Scenario
        The scenario, ready for :func:`simulate`.

    Raises
    ------
    InputError
        A figure cannot be read or says nothing, or the file is there already or cannot be written.
    ScenarioError
        There is no workload or cluster of this name, or they do not go together.

    Examples
    --------
    >>> scenario = new_scenario(step_time="250 ms", parameters=25.6e6, batch=64, nodes=4, bandwidth="25 Gbit/s")
    >>> scenario.replicas, scenario.strategy.kind, scenario.workload.name
    (4, 'multi-worker-mirrored', 'own workload')
    """
    from paceline.scenario_text import OWN, Figures, scenario_of, text_of
    from simulator.base.outputs import EDITED, Output

    output = None if out is None else Output(Path(out), EDITED, force=force)
    path = None if output is None else output.path
    figures = Figures(
        workload=OWN if workload is None else workload, step_time=step_time, parameters=parameters, batch=batch,
        tensors=tensors, measured_with=measured_with, cluster=OWN if cluster is None else cluster, nodes=nodes, devices=devices,
        bandwidth=bandwidth, latency=latency, sort=sort, price=price, strategy=strategy, workers=workers, servers=servers,
        epochs=epochs, dataset_size=dataset_size,
    )  # fmt: skip
    text = text_of(figures, "scenario.toml" if path is None else str(path))
    scenario = scenario_of(text, "scenario" if path is None else str(path), None if path is None else path.parent)
    if output is not None:
        output.write(text)
    return scenario
