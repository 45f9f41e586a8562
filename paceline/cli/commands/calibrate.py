"""``paceline calibrate``: fit a workload to real training steps, measurements or profiles, or write the scenario of a TF_CONFIG.

It calls ``calibrate``, ``calibrate_profile`` and ``scenario_of_tf_config`` of ``paceline.api``. ``_LEFT_OPEN`` names keys of the
provenance that ``calibrate/fit/profile.py`` writes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from paceline.arguments import Typed
from paceline.cli.options import Given, calling, command_line, numbers_of
from simulator.base.errors import InputError

if TYPE_CHECKING:
    from calibrate.traces.profiles import Profiled
    from simulator.scenario import Scenario
    from simulator.spec.cluster import Cluster
    from simulator.spec.job import Overheads
    from simulator.spec.training import NoiseScale
    from simulator.spec.workload import Workload

_OF_RUNS = ("step", "steps", "runs", "budget", "at_once", "launches", "device", "keras_backend", "layers", "measurements")
"""Parameters that say how steps are run."""

_OF_GRADIENTS = ("device", "keras_backend", "measurements", "batches", "timeout_s")
"""Parameters that say how gradients are measured, with or without steps."""

_LEFT_OPEN = (
    "undetermined", "batch", "split", "gradients", "jitter", "communication", "steps_per_execution", "sparse", "intervals",
    "kernels", "rank", "sizes", "shapes", "one_step", "groups",
)  # fmt: skip
"""Keys of the provenance that name what profiles do not determine."""


@calling(
    "calibrate", "calibrate_profile", "scenario_of_tf_config",
    without=("workload", "batch"),
    left_out={"out": "models/workloads/NAME.toml; NAME-scenario.toml"},
    only={"calibrate_profile": "With --from-profile", "scenario_of_tf_config": "With --from-tf-config"},
    hints={
        "model": "With --from-profile it gives only the sizes of variables; it is not run.",
        "batches": "With --from-profile: one for each profile. --noise-scale without steps needs only one.",
        "out": "With --from-tf-config: the scenario file.",
        "noise_scale": "Without MODEL.py:FUNCTION, --step or --from-measurements, it is added to the existing workload NAME.",
    },
    common={
        "What to measure": ("name", "batches", "budget", "layers", "step", "python"),
        "Instead of measuring": ("from_measurements", "profiles", "tf_config"),
        "Output": ("out", "force", "json"),
    },
)  # fmt: skip
def calibrate(
    given: Given,
    *,
    profiles: Annotated[list[str] | None, Typed("--from-profile", metavar="LOGDIR|TRACE[@BATCH]")] = None,
    tf_config: Annotated[str | None, Typed("--from-tf-config", metavar="FILE|JSON|env")] = None,
    json: bool = False,
) -> None:
    """Measure your model's steps, and write a workload file.

    Example: `paceline calibrate my_model.py:build --name mine --batch 16,32,64`,
    then `paceline simulate ring --set workload.use=mine`

    Example: `paceline calibrate --name mine --from-profile logs16@16 --from-profile logs32@32 --checkpoint ckpt/
    --from-tf-config env --out mine.toml`

    Your model runs in its own process, in your own Python. Steps are timed at each batch size and split into forward pass, backward
    pass and update, and the time at which each gradient is ready is measured. The batch is on the device already:
    `paceline calibrate-input` measures the input pipeline. Start-up, tracing and a few checkpoints are timed too; these are written
    into the folder of --measurements.

    It takes at most --budget. Where steps are long, it measures fewer rounds, and intervals are wider. Rounds that other processes
    disturb are repeated within the budget. If too few are undisturbed, nothing is fitted: the measurements are kept, and a command to
    copy accepts them.

    `--noise-scale` also trains a model with its data, and measures the noise of its gradients: how far larger batches save steps.
    Without MODEL.py:FUNCTION it adds that to a workload:

    Example: `paceline calibrate --noise-scale my_model.py:with_data --name mine --batch 32`

    `--from-profile` fits what the profiler wrote during a training of yours. From a trace of PyTorch with collectives it also writes a
    cluster, with what its links achieved. `--from-tf-config` writes a scenario of your cluster.

    Example: `paceline calibrate --name mine --from-profile trace.json.gz@32`

    Parameters
    ----------
    profiles
        Fit what a profiler wrote, without measuring: log directories and .xplane.pb files of TensorFlow and JAX, one rank's .json or
        .json.gz of PyTorch's. BATCH is the samples of a step. Give one for each batch size: from a single one, all time counts as time
        per sample.
    tf_config
        Write a scenario for the cluster that a TF_CONFIG or ClusterSpec describes. With env it is read from the variable TF_CONFIG. The
        workload is NAME, which the same call fits or which exists already.
    json
        Print what was fitted as JSON.
    """
    from paceline import api
    from paceline.cli.terminal import measuring, note, remark, warning_loudly
    from simulator.base.files import EDITED, Output

    model, step, name, out = given.get("model"), given.get("step"), given["name"], given.get("out")
    from_measurements, batches, noise_scale = given.get("from_measurements"), given.text("batches"), given.get("noise_scale")
    sources = model, step, profiles, from_measurements, noise_scale
    if (model is not None and step is not None) or not (any(sources) or tf_config is not None):
        raise InputError(
            "calibrate: give either MODEL.py:FUNCTION or --step FILE.py:FUNCTION, "
            "or --from-profile, --from-measurements, --from-tf-config or --noise-scale"
        )
    measured = not profiles and (model is not None or step is not None)
    kept = _OF_GRADIENTS if noise_scale is not None else ()
    if from_measurements:
        of_steps = ("model", "profiles", "batches", "jit", "timeout_s", *_OF_RUNS)
        given.useless("--from-measurements", [name for name in of_steps if name not in kept])
    elif profiles:
        given.useless("--from-profile", ("noise_scale", "jit", "accept_disturbed", *_OF_RUNS))
    elif not measured:
        given.needs("MODEL.py:FUNCTION or --step", [name for name in ("jit", "accept_disturbed", *_OF_RUNS) if name not in kept])
        given.needs("MODEL.py:FUNCTION, --step or --from-profile", [name for name in ("timeout_s",) if name not in kept])
    if noise_scale is None:
        given.needs("--noise-scale", ["epochs"])
    if step is not None:
        given.useless("--step", ["layers"])
    if given["at_once"] == 1:
        given.needs("--at-once", ["launches"])
    if not profiles:
        given.needs("--from-profile", ("profile_run", "checkpoint", "variables"))
    if tf_config is None:
        given.needs("--from-tf-config", ("cluster", "devices_per_worker"))
    result = out if out is not None and tf_config is None else Path("models/workloads") / f"{name}.toml"
    scenario_file = None if tf_config is None else Output(out or Path(f"{name}-scenario.toml"), EDITED, force=given["force"]).path
    tasks = None if tf_config is None else api.read_tf_config(tf_config)

    workload: Workload | None = None
    fitted: dict[str, Any] = {"out": result, "command": command_line()}
    if profiles:
        places = _places(profiles, batches)
        profiled = api.read_profiles(places, **given.of(api.read_profiles))
        _show_profiles(profiled, as_json=json, alone=not ({"model", "checkpoint", "variables"} & {*given} or profiled.sized))
        workload = api.calibrate_profile(profiled, **{**given.of(api.calibrate_profile), **fitted})
        for key in filter(workload.provenance.__contains__, _LEFT_OPEN):
            note(f"paceline: {key}: {workload.provenance[key]}")
        raw = next(iter(places.values()))[0]
        links = result.with_name(f"{name}-cluster.toml") if out is not None else Path("models/clusters") / f"{name}.toml"
        traced = api.calibrate_traced_links(profiled, name=name, out=links, force=given["force"], command=command_line())
        if traced is not None:
            _show_links(traced, links, as_json=json)
    elif any(sources):
        with warning_loudly() if from_measurements else measuring() as progress:
            workload = api.calibrate(**{**given.of(api.calibrate), **fitted}, progress=progress, remark=remark)
        if from_measurements:
            raw = from_measurements[0]
        elif measured:
            raw = given["measurements"] / workload.provenance["measurements"].split()[0]
    if workload is not None and (profiles or from_measurements or measured):
        _show(workload, result, raw, as_json=json, with_scenario=tasks is not None)
    elif workload is not None:
        _show_noise_scale_alone(workload, result, as_json=json)
    if tasks is not None and scenario_file is not None:
        batch = _one_batch(batches) if workload is None or workload.fit is None else max(point.batch for point in workload.fit.points)
        described = {**given.of(api.scenario_of_tf_config), "workload": name, "batch": batch, "out": scenario_file}
        scenario = api.scenario_of_tf_config(tasks, **described)
        _show_scenario(scenario, scenario_file, as_json=json and workload is None)


def _places(logdirs: Sequence[str], batches: str | None) -> dict[int, list[Path]]:
    """Return log directories by batch size, given as ``LOGDIR@BATCH`` or by ``--batch`` in the same order.

    Raises
    ------
    InputError
        A profile has no batch size, or a batch size no profile.
    """
    pairs = [logdir.rpartition("@") for logdir in logdirs]
    with_batch = [at == "@" and size.isdigit() and not Path(logdir).exists() for logdir, (_, at, size) in zip(logdirs, pairs, strict=True)]
    if all(with_batch):
        if batches is not None:
            raise InputError(f"--batch {batches}: each --from-profile already has its batch size; leave --batch out")
        logdirs, sizes = [place for place, _, _ in pairs], [int(size) for *_, size in pairs]
    elif any(with_batch):
        raise InputError("--from-profile: some lack a batch size; write LOGDIR@BATCH for each, or use --batch for all")
    elif batches is None:
        raise InputError(f"--batch is missing: a profile does not contain it; give --batch 32, or {logdirs[0]}@32")
    else:
        sizes = numbers_of(batches, "--batch")
    if len(sizes) != len(logdirs):
        raise InputError(
            f"--batch {batches}: has {len(sizes)} sizes for {len(logdirs)} profiles; give one for each --from-profile, in the same order"
        )
    places: dict[int, list[Path]] = {}
    for logdir, size in zip(logdirs, sizes, strict=True):
        places.setdefault(size, []).append(Path(logdir))
    return places


def _one_batch(text: str | None) -> int:
    """Return the batch size of a scenario whose workload exists already."""
    if text is None:
        raise InputError("--batch is missing: a TF_CONFIG does not contain it; give the samples per replica and step, such as --batch 32")
    sizes = numbers_of(text, "--batch")
    if len(sizes) != 1:
        raise InputError(f"--batch {text}: a scenario has one batch size; give one, such as --batch {sizes[-1]}")
    return sizes[0]


def _show_profiles(profiled: Profiled, *, as_json: bool, alone: bool) -> None:
    """Print the steps found in profiles; as JSON only if no workload is fitted."""
    from paceline.cli.terminal import display, note, say, show_json

    if as_json:
        if alone:
            show_json({"profiles": [report.to_dict() for report in profiled.reports]})
        return
    for read in profiled.profiles:
        note(f"read {read.trace.path}: {len(read.steps)} steps, marked by {read.trace.marks.name!r}")
    for table in profiled.tables():
        if table.rows:
            display(table.without_empty_columns(), "")
    for report in profiled.reports:
        if report.gradients:
            first, last = report.gradients[0][0], report.gradients[-1][0]
            say(f"batch {report.batch}: {len(report.gradients)} operations compute gradients, from {first} to {last}")


def _show_links(cluster: Cluster, path: Path, *, as_json: bool) -> None:
    from paceline.cli.terminal import note, say

    if not as_json:
        say(f"links under load: {cluster.description}")
    for key in ("intra_node", "inter_node", "node", "waiting"):
        if key in cluster.provenance:
            note(f"paceline: {key}: {cluster.provenance[key]}")
    note(f"wrote {path}: use it with --set cluster.use={cluster.name}")


def _show(workload: Workload, path: Path, raw: Path, *, as_json: bool, with_scenario: bool) -> None:
    """Print the fitted workload, as text or JSON, and the next command unless a scenario follows."""
    from paceline.cli.terminal import display, labelled, note, note_of_file, note_of_measurements, print_fitted, say
    from paceline.server_load import ServerLoad
    from simulator.base.table import Column, Table
    from simulator.base.text import format_bytes

    note_of_measurements(workload.provenance)
    if as_json:
        print_fitted(workload, path, raw, exclude_none=False, parameter_server=ServerLoad.of(workload).to_dict())
        return
    fitted = workload.fit
    intervals = fitted.intervals_90 if fitted else {}
    parts = {
        "forward.base_s": ("forward, per step", workload.forward.base_s),
        "forward.per_sample_s": ("forward, per sample", workload.forward.per_sample_s),
        "backward.base_s": ("backward, per step", workload.backward.base_s),
        "backward.per_sample_s": ("backward, per sample", workload.backward.per_sample_s),
        "apply_s": ("update, per step", workload.apply_s),
    }
    columns = (
        Column("part", "text", "part of a step"),
        Column("fitted_s", "seconds", "time"),
        Column("low_s", "seconds", "90% from"),
        Column("high_s", "seconds", "to"),
    )
    rows = tuple((label, value, *intervals.get(key, (None, None))) for key, (label, value) in parts.items())
    for line in _measured_steps(workload):
        say(line)
    say()
    say(f"fitted: {workload.name}, {len(workload.variables)} variables, {format_bytes(workload.parameter_bytes)}, {workload.description}")
    display(Table("", columns, rows))
    if intervals and len(intervals.keys() & parts) < len(parts):
        say("  –: the measurements do not determine it")
    display("", labelled(_remarks(workload)))
    beside = f"{'fitted to' if 'profiles' in workload.provenance else 'raw measurements in'} {raw}"
    if with_scenario:
        note(f"wrote {path}; {beside}")
    else:
        note_of_file(path, "workload", beside=beside)


def _remarks(workload: Workload) -> Iterator[tuple[str, str]]:
    """Yield the other fitted figures and their basis: labels with texts."""
    from paceline.cli.options import in_options
    from paceline.server_load import ServerLoad
    from simulator.base.text import format_share

    facts = workload.provenance
    alone = "parts of one profile" if "profiles" in facts else "rounds of one run (--runs 3 shows more)"
    between = "runs" if facts.get("runs", "1") != "1" else alone
    stays = getattr(workload.jitter, "persistence", 0.0)
    jitter = workload.jitter.kind + (f", {format_share(stays)} of steps are as slow or fast as the one before" if stays else "")
    yield "scatter", f"{jitter}; {format_share(workload.run_to_run_cv)} between {between}"
    if workload.fit:
        yield "fit", f"largest relative residual {format_share(workload.fit.relative_residual)}"
    if "load" in facts:
        yield "load", facts["load"]
    if "budget" in facts:
        yield "budget", in_options(facts["budget"])
    if workload.overheads is not None:
        yield "outside steps", _besides_steps(workload.overheads)
    if workload.layers:
        yield f"{len(workload.layers)} layers", facts["layers"]
    if workload.noise_scale is not None:
        yield "noise scale", _noise_scale(workload.noise_scale, facts)
    for key in filter(facts.__contains__, ("lacking", "split") if workload.backend != "tensorflow" else ()):
        yield key, facts[key]
    if workload.backend == "tensorflow" and (load := ServerLoad.of(workload)).hosts_limit:
        yield "servers", f"{load.against_network}; measure yours with paceline calibrate-server"


def _measured_steps(workload: Workload) -> Iterator[str]:
    """Yield a sentence for each batch size: mean step, samples per second, and half the 90% interval of the mean."""
    import numpy as np

    from simulator.base.text import format_seconds, format_share, format_throughput

    known = workload.uncertainty
    drawn = [workload.replaced(dict(zip(known.parameters, draw, strict=True))) for draw in known.draws] if known else []
    for point in workload.fit.points if workload.fit else ():
        mean_s = float(point.mean_s)
        words = f"batch {point.batch}: {format_seconds(mean_s)}, {format_throughput(point.batch / mean_s)} samples/s"
        if drawn:
            low_s, high_s = np.quantile([load.compute_s(point.batch) + load.apply_s for load in drawn], [0.05, 0.95]).tolist()
            words += f", ±{format_share((high_s - low_s) / 2 / mean_s)}"
        yield words


def _noise_scale(scale: NoiseScale, provenance: Mapping[str, str]) -> str:
    """Return a sentence on the gradient noise scale and its basis."""
    from simulator.base.text import format_number

    high = "with no upper limit: the gradient may be all noise" if scale.high is None else f"to {format_number(scale.high)}"
    measured = f"; {provenance['noise_scale']}" if "noise_scale" in provenance else ""
    return f"{format_number(scale.samples)} samples (90%: {format_number(scale.low)} {high}){measured}"


def _show_noise_scale_alone(workload: Workload, path: Path, *, as_json: bool) -> None:
    from paceline.cli.terminal import note, say, show_json

    assert workload.noise_scale is not None
    if as_json:
        noise, text = workload.noise_scale.model_dump(mode="json"), workload.provenance["noise_scale"]
        show_json({"name": workload.name, "noise_scale": noise, "measured": text, "file": str(path)})
        return
    say(f"{workload.name}: gradient noise scale {_noise_scale(workload.noise_scale, workload.provenance)}")
    note(f"wrote {path}")


def _besides_steps(overheads: Overheads) -> str:
    """Return a sentence on the time that a job spends outside steps."""
    from simulator.base.text import format_bytes, format_rate, format_seconds

    durations = {
        "start-up": overheads.startup,
        "tracing": overheads.tracing,
        "tracing of an evaluation": overheads.evaluation_tracing,
    }
    parts = [f"{name} {format_seconds(duration.value_s)}" for name, duration in durations.items() if duration is not None]
    size, write, restore = overheads.checkpoint_bytes, overheads.write_bytes_per_s, overheads.restore_bytes_per_s
    if size is not None and write is not None and restore is not None:
        speeds = f"written in {format_seconds(size / write)} ({format_rate(write)}) and read in {format_seconds(size / restore)}"
        copied = f", copied in {format_seconds(overheads.snapshot.value_s)}" if overheads.snapshot is not None else ""
        parts.append(f"a checkpoint of {format_bytes(size)} {speeds}{copied}")
    if (ends := overheads.iterators) is not None:
        parts.append(f"{ends.waited} of {ends.ended} tf.data iterators blocked when they ended")
    return ", ".join(parts)


def _show_scenario(scenario: Scenario, path: Path, *, as_json: bool) -> None:
    from paceline.cli.terminal import note, show_json
    from simulator.base.text import counted

    kind, batch = scenario.strategy.kind, scenario.batch
    if as_json:
        counts = {"replicas": scenario.replicas, "servers": scenario.servers, "nodes": scenario.nodes_needed, "batch_per_replica": batch}
        show_json({"file": str(path), "strategy": kind, **counts})
    sizes = f"{counted(scenario.replicas, 'replica')}, {counted(scenario.servers, 'server')}, batch {batch}"
    note(f"wrote {path}: {kind}, {sizes}; next: paceline simulate {path}")
