"""``paceline calibrate-input``, ``calibrate-link`` and ``calibrate-server``: measure an input pipeline, a link, or a server's host.

They call the functions of the same names of ``paceline.api``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, TypeVar

from paceline.arguments import Typed
from paceline.cli.options import Given, calling
from simulator.base.errors import InputError

if TYPE_CHECKING:
    from paceline.arguments import Carrying
    from simulator.spec.input_pipeline import InputPipeline, InputWork

PointT = TypeVar("PointT")

_EXAMPLE = (161, 102e6)
"""Tensors and bytes of ResNet-50, the example in the summary of a server."""


@calling(
    "calibrate_input",
    left_out={"out": "models/inputs/NAME.toml"},
    common={"What to measure": ("name", "batches", "calls", "python"), "Output": ("measurements", "out", "force", "json")},
)
def calibrate_input(given: Given, *, json: bool = False) -> None:
    """Time your tf.data pipeline, and write an input file.

    Example: `paceline calibrate-input train.py:images --name images`, then
    `paceline simulate ring --set input.use=images --set input.prefetch=4`

    Your file runs in its own process, which takes batches as fast as they come, with 1, 2, 4... parallel calls. A function such as
    images(num_parallel_calls=4, batch=32) lets batch sizes and calls vary; for a finished tf.data.Dataset only the threads vary. A
    pipeline that caches is measured in whole epochs: use take(1000) of a large data set.

    The input file has the time of a batch by calls and batch size, in the first epoch and in later ones. A scenario can then change
    input.parallel_calls, input.prefetch and the batch.

    Parameters
    ----------
    json
        Print what was fitted as JSON.
    """
    from paceline import api
    from paceline.cli.terminal import note_of_file, note_of_measurements, print_fitted, run_measured, say
    from simulator.base.text import counted, format_seconds, format_throughput

    pipeline, path, raw = run_measured(api.calibrate_input, given, "inputs")
    note_of_measurements(pipeline.provenance)
    if json:
        print_fitted(pipeline, path, raw)
        return
    points = pipeline.fit.points if pipeline.fit is not None else ()
    for epoch in ("first", "later"):
        for batch in sorted({point.batch for point in points if point.epoch == epoch}):
            best = min((point for point in points if (point.epoch, point.batch) == (epoch, batch)), key=lambda point: point.mean_s)
            when = "" if pipeline.cached is None else f", {epoch} epoch{'s' if epoch == 'later' else ''}"
            speed = f"{format_seconds(float(best.mean_s))}, {format_throughput(batch / float(best.mean_s))} samples/s"
            say(f"batch {batch:g}{when}: {speed} with {counted(best.parallel_calls, 'parallel call')}")
    say()
    say(f"fitted: {pipeline.name}, {pipeline.description}")
    say(f"  {pipeline.provenance.get('pipeline', '')}")
    say(f"  parallel calls {pipeline.parallel_calls}, prefetch {pipeline.prefetch}, shuffle buffer {pipeline.shuffle_buffer:,} samples")
    _show_work("each epoch" if pipeline.cached is None else "first epoch", "work", pipeline.work, pipeline)
    if pipeline.cached is not None:
        _show_work("later epochs", "cached", pipeline.cached, pipeline)
    if points:
        say("  epoch  batch  calls    measured      fitted")
    for point in points:
        work = pipeline.cached if point.epoch == "later" and pipeline.cached is not None else pipeline.work
        fitted_s = max(work.serial(point.batch), work.parallel(point.batch) / point.parallel_calls)
        times = f"{format_seconds(float(point.mean_s)):>10}  {format_seconds(fitted_s):>10}"
        say(f"  {point.epoch:<5}  {point.batch:>5g}  {point.parallel_calls:>5}  {times}")
    note_of_file(path, "input", beside=f"raw measurements in {raw}", init=False)


def _show_work(label: str, place: str, work: InputWork, pipeline: InputPipeline) -> None:
    from paceline.cli.terminal import say
    from simulator.base.text import format_bytes, format_seconds

    intervals = pipeline.fit.intervals_90 if pipeline.fit else {}
    for part, cost in (("serial", work.serial), ("parallel", work.parallel)):
        for key, words in (("base_s", "a batch"), ("per_sample_s", "a sample")):
            value = float(getattr(cost, key))
            low, high = intervals.get(f"{place}.{part}.{key}", (value, value))
            if value or high:
                say(f"  {label:<13}{part:<9}{format_seconds(value):>10} {words}   90%: {format_seconds(low)} to {format_seconds(high)}")
    if work.read_bytes_per_sample:
        say(f"  {label:<13}reads    {format_bytes(work.read_bytes_per_sample):>10} a sample")


@calling(
    "calibrate_link",
    optional=("name",),
    left_out={"out": "models/clusters/NAME.toml"},
    common={"What to measure": ("name", "peer", "address", "from_table", "carrier", "python"), "Output": ("out", "force", "json")},
)
def calibrate_link(
    given: Given, *, address: Annotated[str | None, Typed("--serve", metavar="HOST:PORT")] = None, json: bool = False
) -> None:
    """Measure the network, and write a cluster file.

    Example: `paceline calibrate-link --serve 10.0.0.2:2222` on one host, then
    `paceline calibrate-link --peer 10.0.0.2:2222 --name lab` on the other, then
    `paceline simulate ring --set cluster.use=lab`

    It sends messages between two hosts through TensorFlow's gRPC, and fits latency and bandwidth. Without --peer it measures between two
    processes of this machine, in a network namespace that nobody else can reach; with GPUs also copies between host and device, and
    all-reduce. With --carrier gloo, on both hosts, it all-reduces over PyTorch's gloo, as DDP on CPUs does.

    Parameters
    ----------
    address
        Be the other end: serve at this address of this host until Ctrl-C. TensorFlow's server listens on all interfaces, and whoever
        reaches it can run code here: use it only on a network that you trust.
    json
        Print what was fitted as JSON.
    """
    from paceline import api
    from paceline.cli.terminal import note_of_file, print_fitted, run_measured, say
    from simulator.base.text import format_bytes, format_rate, format_seconds, format_share

    if address is not None:
        if "peer" in given:
            raise InputError("calibrate-link: --serve and --peer exclude each other; give --serve on one host and --peer on the other")
        _serve(address, given.get("python"), given["carrier"])
        return
    if "name" not in given:
        raise InputError("calibrate-link: --name is missing; name the cluster, such as --name lab")
    cluster, path, raw = run_measured(api.calibrate_link, given, "clusters")
    if json:
        print_fitted(cluster, path, raw)
        return
    intervals = cluster.fit.intervals_90 if cluster.fit else {}
    for point in _some(cluster.fit.points if cluster.fit else ()):
        median_s, half = float(point.median_s), (float(point.p95_s) - float(point.p5_s)) / 2 / float(point.median_s)
        rate = format_rate(point.size_bytes / median_s)
        say(f"message of {format_bytes(point.size_bytes)}: {format_seconds(median_s)}, {rate}, 90% of messages ±{format_share(half)}")
    say()
    say(f"fitted: {cluster.name}, {cluster.description}")
    for label, key, value, written in (
        ("latency", "latency_s", cluster.inter_node.latency_s, format_seconds),
        ("bandwidth", "bandwidth_bytes_per_s", cluster.inter_node.bandwidth_bytes_per_s, format_rate),
    ):
        low, high = intervals.get(f"inter_node.{key}", (value, value))
        say(f"  {label:<10} {written(value):>12}   90%: {written(low)} to {written(high)}")
    note_of_file(path, "cluster", beside=f"raw measurements in {raw}")


def _some(points: Sequence[PointT]) -> Sequence[PointT]:
    """Return the first, the middle and the last item."""
    return points if len(points) < 4 else [points[0], points[len(points) // 2], points[-1]]


def _serve(address: str, python: str | None, carrier: Carrying) -> None:
    """Serve a link measurement until Ctrl-C."""
    from paceline import api
    from paceline.cli.ending import serving
    from paceline.cli.terminal import note

    warning = "TensorFlow's server listens on ALL interfaces of this host, and whoever reaches the port can run code here"
    then = f"`paceline calibrate-link --peer {address} --name NAME`"
    then += ", and `paceline calibrate-server --peer {address}` to measure the hosts' cost of messages"
    if carrier == "gloo":
        warning = "PyTorch's store and gloo accept every connection: serve only on a network that you trust"
        then = f"`paceline calibrate-link --carrier gloo --peer {address} --name NAME`"
    note(f"serving at {address}; {warning}. Ctrl-C ends it.")
    with serving():
        api.serve_link(address, python=python, carrier=carrier, ready=lambda: note(f"ready: on the other host run {then}"))


@calling(
    "calibrate_server",
    left_out={"out": "models/clusters/NAME.toml"},
    common={"What to measure": ("name", "cluster", "peer", "python"), "Output": ("measurements", "out", "force", "json")},
)
def calibrate_server(given: Given, *, json: bool = False) -> None:
    """Measure what messages cost a parameter server's host.

    Example: `paceline calibrate-server --name lab --cluster ethernet-10g`, then
    `paceline simulate async-ps --set cluster.use=lab`

    The cost of each tensor and byte is written into a cluster file. For about half a minute a worker pulls variables from a server and
    pushes gradients to it, through TensorFlow's gRPC. Without --peer both are processes of this machine, in a network namespace that
    nobody else can reach. The link is that of --cluster, or what calibrate-link wrote under this name.

    Parameters
    ----------
    json
        Print what was fitted as JSON.
    """
    from paceline import api
    from paceline.cli.terminal import display, labelled, note_of_file, note_of_measurements, print_fitted, run_measured, say
    from paceline.server_load import ServerLoad
    from simulator.base.table import Column, Table
    from simulator.base.text import format_number, format_share
    from simulator.spec.constants import constants

    cluster, path, raw = run_measured(api.calibrate_server, given, "clusters")
    assert cluster.fit_hosts is not None
    fit, transport = cluster.fit_hosts, cluster.transport
    tensor, byte = "transport.cpu_per_message_s", "transport.copy_per_byte_s"
    known = {tensor: constants()["grpc_tensor_s"], byte: constants()["grpc_byte_s"]}
    load = ServerLoad(*_EXAMPLE, transport.cpu_per_message_s, transport.copy_per_byte_s or known[byte].value)
    note_of_measurements(cluster.provenance)
    if json:
        print_fitted(cluster, path, raw, parameter_server=load.to_dict())
        return
    say(f"ResNet-50, {load.as_rate}")
    say()
    say(f"fitted: {cluster.name}, {cluster.description}")
    columns = (
        Column("work", "text", "host time"), Column("fitted", "text"), Column("interval", "text", "90%"),
        Column("pull", "text"), Column("push", "text"), Column("practice", "text", "usual"),
    )  # fmt: skip

    def row(label: str, key: str, factor: float, unit: str, *values: float | None) -> tuple[str, ...]:
        def written(*values: float | None) -> str:
            numbers = [format_number(value * factor) for value in values if value is not None]
            return f"{' to '.join(numbers)} {unit}" if numbers else "–"

        usual = known[key]
        fitted, pull, push = map(written, values)
        interval = written(*fit.intervals_90.get(key, (None,)))
        return label, fitted, interval, pull, push, f"{written(usual.value)} ({written(usual.low, usual.high)})"

    rows = (
        row("per tensor", tensor, 1e6, "µs", transport.cpu_per_message_s, fit.pull.per_tensor_s, fit.push.per_tensor_s),
        row("per byte", byte, 1e9, "ns", transport.copy_per_byte_s or None, fit.pull.per_byte_s, fit.push.per_byte_s),
    )
    display(Table("", columns, rows))
    if not transport.copy_per_byte_s:
        say(f"–: {cluster.provenance['bytes']}")
    distances = sorted(abs(point.fitted_s / point.median_s - 1.0) for point in fit.points)
    half = distances[len(distances) // 2] if distances else 0.0
    remarks = [("fit", f"error of pulls and pushes: median {format_share(half)}, largest {format_share(fit.relative_residual)}")]
    if "link" in cluster.provenance:
        remarks.append(("link", cluster.provenance["link"]))
    display("", labelled(remarks))
    note_of_file(path, "cluster", beside=f"raw measurements in {raw}", scenario="async-ps")
