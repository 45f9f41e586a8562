"""Runs the probes that measure a step, a link, a server, an input pipeline or gradients; returns the measurement files. Fits nothing.

``profile_...`` means "measure" here; profiles that TensorFlow wrote (XPlane) are read in ``calibrate/traces``. Arguments become flags
of ``calibrate/probes/step.py``, ``links.py``, ``input_pipeline.py`` and ``noise_scale.py``, which have defaults for what is left out:
change a flag on both sides. ``paceline.api.calibrating`` passes values by the parameter names here, through calibration.py, and has
the options and help that users meet. Errors name arguments in backticks as it does (``at_once``, not ``processes``): the command line
turns them into options. Processes are handled in :mod:`calibrate.probing`.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack, cast

from calibrate.measurements import Load, Plan, new_file, read_measurements
from calibrate.probing import Heard, Progress, keeping, run_probe, run_probes, serve_probe
from simulator.base.errors import CalibrationError, InputError
from simulator.base.process import scratch
from simulator.base.text import counted, did_you_mean, format_bytes, format_rough_seconds, format_seconds, listed, no_such_file
from simulator.base.validation_errors import quoted

BACKENDS = ("tensorflow", "jax", "torch")
"""Of Keras, whose steps are measured."""
DEFAULT_TENSORS = (1, 4, 16, 64)
"""How many variables are pulled and pushed at once."""
DEFAULT_TENSOR_SIZES = (256, 2**14, 2**18, 2**20)
"""Bytes of each of these variables: 256 B to 1 MiB."""
FEWEST_RUNS = 2
"""Processes that a budget leaves, since one does not show how processes differ."""
FEWEST_STEPS = 5
"""Timed steps of a batch size that may be asked for."""
MEASUREMENTS = Path("measurements")
_MOST_BYTES = 2**30
"""Of all variables that a server holds while it is measured; the worker has as many gradients."""


class Running(TypedDict, total=False):
    """Where a probe runs and writes: keywords of every function here.

    Attributes
    ----------
    python
        Path of the user's Python; this one, if None.
    timeout_s
        Seconds after which the probe is stopped.
    folder
        For the measurement file.
    out
        The measurement file itself, which must not exist yet; None makes up a new name.
    progress
        Called while measuring.
    heard
        Called with what the probe tells.
    """

    python: str | None
    timeout_s: float | None
    folder: Path
    out: Path | None
    progress: Progress | None
    heard: Heard | None


class StepOptions(Running, total=False):
    """How steps are measured: keywords of :func:`profile_step`, :func:`profile_runs` and :func:`profile_at_once`.

    Defaults of what is left out are in ``calibrate/probes/step.py``.

    Attributes
    ----------
    custom
        The target is a training step of the user's own.
    batches
        Batch sizes, at least two different ones.
    steps
        Timed steps at each batch size.
    rounds
        Turns over the batch sizes, over which the steps of each size are spread.
    repeats
        How many of them, at most half, are measured again where something else has disturbed them.
    device
        ``CPU``, ``GPU`` or ``GPU:1``; None takes the first GPU, else the CPU.
    keras_backend
        ``tensorflow``, ``jax`` or ``torch``: what the step runs under.
    precision
        A policy of Keras: ``float32``, ``mixed_float16``, ``mixed_bfloat16`` or ``bfloat16``.
    jit
        Compile the step with XLA.
    layers
        Measure each layer of a Keras model too; without XLA, which knows no clocks.
    budget
        Seconds for this process and those after it, ``runs_left`` with it; None takes as long as it takes.
    plain
        Measure nothing but times of steps.
    accept
        Do not wait for calm rounds within the budget: disturbed ones are fitted too.
    """

    custom: bool
    batches: Sequence[int]
    steps: int
    rounds: int
    repeats: int
    device: str | None
    keras_backend: str
    precision: str
    jit: bool
    layers: bool
    budget: float | None
    runs_left: int
    plain: bool
    accept: bool


def profile_step(target: str, name: str, **options: Unpack[StepOptions]) -> Path:
    """Time real training steps of ``target`` in the user's Python; returns the measurement file, whose name begins with ``name``.

    ``target`` is ``FILE.py:FUNCTION``. FUNCTION() returns a Keras model or ``(model, loss, input_spec)``; with ``custom``,
    FUNCTION(batch_size) returns a callable that does one training step.

    Raises
    ------
    InputError
        An argument cannot be used, or the file or function does not exist.
    CalibrationError
        The probe failed; what was measured is kept.
    """
    return _measured("step", "step", _step_arguments(target, options), name, **_running(options))


def _running(options: StepOptions) -> Running:
    """Where the probe runs and writes."""
    return cast(Running, {key: value for key, value in options.items() if key in Running.__annotations__})


def _step_arguments(target: str, options: StepOptions) -> list[str]:
    asked: dict[str, Any] = {key: value for key, value in options.items() if key not in Running.__annotations__}
    custom, backend = asked.pop("custom", False), asked.pop("keras_backend", "tensorflow")
    check_target(target, "`step`" if custom else "`model`")
    if (batches := asked.get("batches")) is not None:
        if bad := [batch for batch in batches if batch < 1]:
            raise InputError(f"`batches=[{bad[0]}]`: must be at least 1")
        if not _different(batches):
            raise InputError(f"`batches={list(batches)}`: must list at least two different batch sizes, better three, such as 16,32,64")
    if asked.get("steps", FEWEST_STEPS) < FEWEST_STEPS:
        raise InputError(f"`steps={asked['steps']}`: must be at least 5, better 50")
    if custom and asked.get("layers"):
        raise InputError(f"`layers`: the layers of your own training step ({target}) are not visible: give a model instead of `step`")
    if backend not in BACKENDS:
        hint = did_you_mean(backend, BACKENDS, f"there are {', '.join(BACKENDS)}")
        raise InputError(f"`keras_backend` {quoted(backend)}: is not a supported Keras backend; {hint}")
    return ["--step" if custom else "--model", target, *_flags(**asked, backend=backend)]


def _flags(**values: Any) -> list[str]:
    """Flags of a probe, those of several values with commas between; none of None, False and empty text."""
    arguments = []
    for name, value in values.items():
        if value is None or value is False or value == "":
            continue
        arguments.append(f"--{name.replace('_', '-')}")
        if value is not True:
            arguments.append(",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value))
    return arguments


def _different(values: Sequence[int]) -> bool:
    """Return whether there are two at least, and none twice."""
    return len(values) > 1 and len(set(values)) == len(values)


def profile_runs(
    target: str, name: str, *, runs: int = 3, remark: Callable[[str], None] | None = None, **options: Unpack[StepOptions]
) -> list[Path]:
    """Time steps several times, each in a process of its own; returns a file for each, of which ``out`` is the first.

    Two processes on the same device differ in speed by more than the rounds of one do
    (memory layout, clocks, neighbours); without repeating, the fit cannot know.

    With a ``budget``, the first process plans what there is time for (``calibrate/probes/pacing.py``), which may be fewer processes;
    the third and later ones are left out where less than half the time of the one before is left, and so is the second where all rounds
    of the first were disturbed, since it could not make them fit for use. ``remark`` is called with the plan, and with what disturbs.
    """
    if runs < 1:
        raise InputError(f"`runs={runs}`: must be at least 1, better 3")
    first, progress, budget_s = _first(name, options), options.get("progress"), options.get("budget")
    begun = _asked_for(target, options, runs, budget_s or math.inf)
    say = None if remark is None else Remarks(remark, begun, accept=options.get("accept", False))
    paths, began, parts = [first], time.monotonic(), None if progress is None else _Parts(progress)

    def hear(told: Mapping[str, Any]) -> None:
        nonlocal runs
        if told["event"] == "plan" and len(paths) == 1:
            runs = int(told["processes"])
        if say is not None:
            say(told)

    def left() -> int:
        return runs - len(paths) + 1

    with keeping(first):
        while True:
            started = time.monotonic()
            own: StepOptions = {**options, "out": paths[-1], "progress": None if parts is None else parts.of_run(left)}
            if budget_s is not None:
                left_s = max(budget_s - (started - began), 1.0)
                own |= {"budget": left_s, "runs_left": left(), "heard": hear}
            profile_step(target, name, **own)
            if len(paths) == 1 and (plan := plan_in(first)) is not None:
                runs, options = plan.processes, {**options, "plain": not plan.whole}
            now = time.monotonic()
            over = budget_s is not None and budget_s - (now - began) < (now - started) / 2
            useless = not options.get("accept") and len(paths) == 1 and over and not _any_calm(first)
            if len(paths) >= runs or useless or (over and len(paths) >= FEWEST_RUNS):
                return paths
            paths.append(first.with_name(f"{first.stem}-run{len(paths) + 1}{first.suffix}"))


def _any_calm(path: Path) -> bool:
    """Return whether any round was undisturbed."""
    rounds = [load for load in read_measurements(path, "step").of(Load) if load.stage == "round"]
    return not rounds or any(not load.why for load in rounds)


def plan_in(path: Path) -> Plan | None:
    """The plan within the budget, by the file of a first process; None where it had none."""
    return next(iter(read_measurements(path, "step").of(Plan)), None)


def _asked_for(target: str, options: StepOptions, runs: int, budget_s: float) -> str:
    """In words, what is to be measured, before anything is known of the steps."""
    sizes, rounds = options.get("batches", (16, 32, 64)), min(options.get("rounds", 10), options.get("steps", 50) // 2)
    asked = f"{counted(len(sizes), 'batch size')}, {counted(runs, 'run')} of {counted(rounds, 'round')}"
    return f"measuring {target} for up to {format_rough_seconds(budget_s)}: {asked}"


class Remarks:
    """Says in words, and once, what a probe of steps tells: how long it takes and why, and that something disturbs.

    Parameters
    ----------
    say
        Called with each remark.
    begun
        The first of them, said when the model has been built.
    accept
        Disturbed rounds are fitted too.
    """

    def __init__(self, say: Callable[[str], None], begun: str = "", *, accept: bool = False) -> None:
        self._say, self._begun, self._accept, self._said = say, begun, accept, set[str]()

    def __call__(self, told: Mapping[str, Any]) -> None:
        """Hear an event."""
        event = told["event"]
        if event not in self._said:
            self._said.add(event)
            self._say(self._begun if event == "begun" else self._planned(**told) if event == "plan" else self._disturbed(**told))

    @staticmethod
    def _planned(
        *, processes: int, rounds: int, whole: bool, begun_s: float, total_s: float, everything_s: float, steps_s: Mapping[str, float],
        fits: bool, **_: Any,
    ) -> str:  # fmt: skip
        seen = f"steps of batch {listed(list(steps_s))} take {listed([format_seconds(seconds, 2) for seconds in steps_s.values()])}"
        left = f"about {format_rough_seconds(total_s - begun_s)} left"
        if whole:
            return f"{seen}; {left}"
        less = f"{counted(processes, 'run')} of {counted(rounds, 'round')}"
        if not fits:
            return f"{seen}; even {less} take longer than the budget, {left}; smaller batch sizes take less"
        return f"{seen}; {less} fit, {left}; `budget={format_rough_seconds(1.1 * everything_s)!r}` fits all"

    def _disturbed(self, *, when: str, why: str, **_: Any) -> str:
        then = "" if self._accept else "; disturbed rounds are repeated within the budget"
        return f"{when} is disturbed: {why}; stop other programs here{then}"


def _first(name: str, options: StepOptions) -> Path:
    """The file of the first of several processes."""
    return options.get("out") or new_file(options.get("folder", MEASUREMENTS), name, "step")


def obstacle_to_at_once(processes: int, device_kind: str) -> str:
    """Why that number of processes cannot be measured at once on this machine without sharing a device; "" if they can."""
    if device_kind != "CPU":
        return "simultaneous processes are measured only on CPUs"
    if not hasattr(os, "sched_getaffinity"):
        return "this system cannot pin processes to cores"
    cores = len(os.sched_getaffinity(0))
    return f"{processes} simultaneous processes need as many cores, and there are {cores}" if cores < processes else ""


def profile_at_once(target: str, name: str, *, processes: int = 2, launches: int = 5, **options: Unpack[StepOptions]) -> list[Path]:
    """Time plain steps in several processes at the same time, again and again; returns a file for each, called after ``out``.

    Each process has cores of its own, as many as the others, and all begin to time their steps when the last has warmed up
    (:func:`obstacle_to_at_once` says whether they can). From the files :func:`calibrate.fit.step.fit_workload` sees how much of the
    spread between processes those of one machine have in common. Progress counts launches; ``timeout_s`` is that of one.
    """
    arguments, first, progress = _step_arguments(target, options), _first(name, options), options.get("progress")
    cores = sorted(os.sched_getaffinity(0))
    each = len(cores) // processes
    paths = []
    for launch in range(1, launches + 1):
        if progress is not None:
            progress(launch - 1, launches, f"launch {launch} of {launches}")
        with scratch() as meeting, keeping(first):
            runs = []
            for process in range(processes):
                own = cores[process * each : (process + 1) * each]
                path = _made(first.with_name(f"{first.stem}-launch{launch}-process{process + 1}{first.suffix}"))
                runs.append((arguments + _flags(launch=launch, cores=own, together=f"{meeting}:{process}:{processes}"), path))
            run_probes("step", runs, options.get("python"), options.get("timeout_s"))
        paths += [path for _, path in runs]
    if progress is not None:
        progress(launches, launches, "measured at once")
    return paths


def counting(things: str, progress: Progress | None) -> Progress | None:
    """Progress that says what is counted, in place of what a probe is at."""
    return None if progress is None else lambda done, total, _: progress(done, total, things)


class _Parts:
    """Progress of runs one after the other, as parts of all of them; those to come count as much as the one that runs."""

    def __init__(self, progress: Progress) -> None:
        self._progress, self._before, self._total = progress, 0, 0

    def of_run(self, left: Callable[[], int]) -> Progress:
        """The progress of the next run; ``left`` says how many there are, with it."""
        self._before, self._total = self._before + self._total, 0

        def advance(done: int, total: int, what: str) -> None:
            self._total = total
            self._progress(self._before + done, self._before + left() * total, what)

        return advance


def profile_link(
    name: str,
    *,
    peer: str | None = None,
    sizes: Sequence[int] | None = None,
    rounds: int = 7,
    logical_devices: int = 0,
    carrier: Literal["grpc", "gloo"] = "grpc",
    **running: Unpack[Running],
) -> Path:
    """Time transfers through TensorFlow's own gRPC transport, and between host and devices; or all-reduces over PyTorch's gloo.

    Parameters
    ----------
    peer
        ``HOST:PORT`` where ``paceline calibrate-link --serve`` runs; None measures between
        two processes of this machine, on the loopback of a network namespace of their own.
    sizes
        Bytes of the messages; None: 1 KiB to 64 MiB.
    logical_devices
        Above 1, on a machine without GPUs: all-reduce between as many logical devices of its
        processor too, which tells ``intra_device``; of TensorFlow alone.
    """
    if peer is not None:
        check_address(peer, "`peer`")
    if sizes is not None and (not _different(sizes) or min(sizes) < 4):
        raise InputError("`sizes` must list at least two different sizes of at least 4 bytes")
    if logical_devices == 1 or logical_devices < 0:
        raise InputError(f"`logical_devices={logical_devices}`: must be at least 2, or left out")
    if carrier == "gloo" and logical_devices:
        raise InputError(f"`logical_devices={logical_devices}`: need TensorFlow, not `carrier='gloo'`: leave it out")
    flags = _flags(sizes=sizes, rounds=rounds, peer=peer, logical_devices=logical_devices or None)
    return _measured("links", "links", ["--carrier", carrier, "links", *flags], name, **running)


def profile_server(
    name: str,
    *,
    peer: str | None = None,
    tensors: Sequence[int] = DEFAULT_TENSORS,
    sizes: Sequence[int] = DEFAULT_TENSOR_SIZES,
    rounds: int = 7,
    **running: Unpack[Running],
) -> Path:
    """Time pulls and pushes between a worker and a parameter server, through TensorFlow's own gRPC transport.

    Parameters
    ----------
    peer
        As for :func:`profile_link`; its host is the server.
    tensors
        How many variables are pulled or pushed at once, at least two different numbers.
    sizes
        Bytes of each variable, multiples of 4, at least two.
    """
    if peer is not None:
        check_address(peer, "`peer`")
    if not _different(tensors) or min(tensors) < 1 or max(tensors) > 1000:
        raise InputError("`tensors` must list at least two different numbers of variables from 1 to 1000")
    if not _different(sizes) or min(sizes) < 4 or any(size % 4 for size in sizes):
        raise InputError("`sizes` must list at least two different sizes of at least 4 bytes, each a multiple of 4")
    if max(tensors) * math.fsum(sizes) > _MOST_BYTES:
        raise InputError(
            f"`tensors`, `sizes`: {max(tensors)} variables of each size need {format_bytes(max(tensors) * math.fsum(sizes))}, more than "
            f"{format_bytes(_MOST_BYTES)}: use fewer or smaller ones"
        )
    arguments = ["servers", *_flags(tensors=tensors, sizes=sizes, rounds=rounds, peer=peer)]
    return _measured("links", "server", arguments, name, **running)


def profile_input(
    target: str,
    name: str,
    *,
    batches: Sequence[int] | None = None,
    calls: Sequence[int] | None = None,
    rounds: int = 5,
    count: int = 50,
    **running: Unpack[Running],
) -> Path:
    """Time the batches of a tf.data pipeline in the user's Python.

    Parameters
    ----------
    target
        ``FILE.py:NAME``: a ``tf.data.Dataset``, or a function that returns one and may take ``num_parallel_calls``,
        ``batch``, ``prefetch`` and ``cache``.
    batches
        Given to a function that takes ``batch``; None: 16, 32 and 64.
    calls
        Parallel calls to measure, or threads where it takes no ``num_parallel_calls``; None: 1, 2, 4 and so on up to the cores.
    count
        Batches of a turn at one setting, which ends after 2 s.
    """
    check_target(target, "`input`", "models/input_examples.py:images")
    for option, values in (("batches", batches), ("calls", calls)):
        if values is not None and (not values or min(values) < 1 or len(set(values)) != len(values)):
            raise InputError(f"`{option}={list(values)}`: must be different numbers of at least 1, such as 1,2,4")
    arguments = _flags(input=target, rounds=rounds, count=count, batches=batches, calls=calls)
    return _measured("input_pipeline", "input", arguments, name, **running)


def profile_noise_scale(
    target: str,
    name: str,
    *,
    batch: int = 16,
    epochs: float = 10.0,
    moments: int = 20,
    seed: int = 0,
    device: str | None = None,
    **running: Unpack[Running],
) -> Path:
    """Measure square norms of gradients at two batch sizes, while a model learns.

    Parameters
    ----------
    target
        ``FILE.py:FUNCTION``. FUNCTION() returns ``(model, (x, y), (x, y))``: a compiled Keras model with data to train on and to
        validate with.
    batch
        Samples of a step, and of the smaller of the two batches.
    moments
        How often gradients are measured, in the middle of equal stretches of the training; progress counts them.
    seed
        Of first values, the order of the data, and the samples of each gradient.
    """
    check_target(target, "`noise_scale`", "my_model.py:build")
    if batch < 1 or moments < 1 or not (math.isfinite(epochs) and epochs > 0):
        raise InputError(f"`batch={batch}`, `epochs={epochs:g}`, `moments={moments}`: must be above 0")
    arguments = _flags(problem=target, batch=batch, epochs=float(epochs), moments=moments, seed=seed, device=device)
    return _measured("noise_scale", "noise_scale", arguments, name, **running)


def _measured(probe: str, kind: str, arguments: list[str], name: str, **running: Unpack[Running]) -> Path:
    path = _made(running.get("out") or new_file(running.get("folder", MEASUREMENTS), name, kind))
    with keeping(path):
        run_probe(probe, arguments, path, running.get("python"), running.get("timeout_s"), running.get("progress"), running.get("heard"))
    return path


def serve_link(
    address: str, python: str | None = None, ready: Callable[[], None] | None = None, carrier: Literal["grpc", "gloo"] = "grpc"
) -> None:
    """Be the other end for ``profile_link(peer=address)`` on another host, until Ctrl-C; ``ready`` is called when it can be reached.

    TensorFlow's gRPC server listens on all interfaces of the host, whatever address it is
    given: use it in a trusted network only.

    Raises
    ------
    InputError
        The address is none, or there is no such Python.
    CalibrationError
        The server could not be started: the port is taken, say.
    """
    check_address(address, "`address`")
    raise CalibrationError(f"`address={address!r}`: {serve_probe('links', ['--carrier', carrier, 'serve', address], python, ready)}")


def check_target(target: str, option: str, example: str = "models/keras/cnn.py:build") -> None:
    """Raise InputError unless ``target`` is FILE:FUNCTION with a file that exists."""
    file, separator, function = target.rpartition(":")
    if not separator or not file or not function.isidentifier():
        raise InputError(f"{option}: {target!r} must be a file and a function in it, such as {example}")
    if not Path(file).is_file():
        raise InputError(f"{option}: {file}: {no_such_file(file)}")


def check_address(address: str, place: str) -> tuple[str, int]:
    """Host and port of ``HOST:PORT``; InputError if it is none."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise InputError(f"{place}: {address!r}: must be HOST:PORT, such as 10.0.0.2:2222")
    return host, int(port)


def _made(path: Path) -> Path:
    """The path, in a folder that is there."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{path.parent}: measurements cannot be stored there: {error.strerror or error}") from None
    if path.exists():
        raise InputError(f"{path}: exists; measurements are never overwritten")
    return path
