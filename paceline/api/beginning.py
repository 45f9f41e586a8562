"""The first scenario of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from paceline.arguments import Count, File, Quantity, Text, checked

if TYPE_CHECKING:
    from simulator import Scenario

__all__ = ["new_scenario"]


@checked
def new_scenario(
    workload: Text | None = None,
    *,
    step_time: Quantity | None = None,
    parameters: float | None = None,
    batch: Count = 32,
    tensors: Count | None = None,
    measured_with: Text = "device",
    cluster: Text | None = None,
    nodes: Count | None = None,
    devices: Count = 1,
    bandwidth: Quantity = "10 Gbit/s",
    latency: Quantity = "50 us",
    sort: Text = "ethernet",
    price: Text | None = None,
    strategy: Text = "ring",
    workers: Count | None = None,
    servers: Count = 1,
    epochs: float | None = None,
    dataset_size: float | None = None,
    out: File | None = None,
    force: bool = False,
) -> Scenario:
    """Make a first scenario from a few figures; with ``out``, also write its file, with a comment on each key.

    Parameters
    ----------
    workload
        A workload of the catalogue, or the path of its file; None: ``step_time`` and ``parameters`` describe one.
    step_time
        Time of a training step on one device, with its unit, such as ``"250 ms"``.
    parameters
        Number of trainable parameters of the model.
    batch
        Samples that each replica takes per step; ``step_time`` is the time of such a step.
    tensors
        Number of trainable variables of the model, such as 161 of ResNet-50: hosts of parameter servers work on each. None: 160.
    measured_with
        What ``step_time`` holds: ``"device"``, computing alone, or ``"servers"``, one worker with the parameter servers, whose pull
        and push are then taken out once.
    cluster
        A cluster of the catalogue, or the path of its file; None: ``devices``, ``bandwidth``,
        ``latency`` and ``sort`` describe one.
    nodes
        Number of machines that there are, the most that the scenario then takes (``cluster.available``); None: as many as ``workers`` and
        ``servers`` need, or 4.
    devices
        Devices per machine, where ``cluster`` does not say it.
    bandwidth, latency
        Of the network between machines, where ``cluster`` does not say it.
    sort
        What that bandwidth is: ``"ethernet"`` or ``"rdma"``, the rate of the port, of which transfers get a share
        (docs/practice.md); ``"given"``, what transfers get.
    price
        Price of a machine per hour in US dollars, such as ``"0.40/h"``, or of one to buy, such as ``"BUY:4000USD,years:4"``;
        None: the cluster's own, if it has one.
    strategy
        A short name: ``"single"``, ``"mirrored"``, ``"ring"`` and other all-reduces, ``"sync-ps"``, ``"backup"``, ``"async-ps"`` or
        ``"ssp"``.
    workers
        Number of workers; None: as many as the machines take.
    servers
        Number of parameter servers, each on a machine of its own.
    epochs, dataset_size
        Epochs of the whole job, and samples of one epoch; None: steps alone are simulated.
    out
        The file to write; None: none is written.
    force
        Replace a file that is there already.

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
