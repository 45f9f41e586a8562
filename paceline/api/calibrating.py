"""Library functions that calibrate: from real steps, transfers and profiles to workloads and clusters.

Parameters, defaults and docstrings are also the options and the help of the ``calibrate`` commands. ``calibrate`` measures and fits; this
module checks arguments, places files, and raises doubts of the provenance as warnings (``_HINTS``).
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

from paceline.arguments import (
    Address,
    Carrying,
    Command,
    Count,
    File,
    Folder,
    Force,
    Function,
    KerasBackend,
    MustBe,
    Name,
    Numbers,
    Precision,
    Problem,
    ProfilePlaces,
    Profiles,
    Python,
    Quantity,
    Remarks,
    Stages,
    Text,
    Timeout,
    Typed,
    checked,
    path_of,
)
from simulator.base.errors import CalibrationError, InputError

if TYPE_CHECKING:
    from calibrate.traces.profiles import Profiled
    from simulator.base.files import Output
    from simulator.spec.cluster import Cluster
    from simulator.spec.input_pipeline import InputPipeline
    from simulator.spec.workload import Workload

FittedT = TypeVar("FittedT", "Workload", "InputPipeline", "Cluster")

_HINTS = {
    "warning": "install the CUDA libraries (`pip install 'paceline[tensorflow-cuda]'`), or check the driver with nvidia-smi",
    "disturbed": "stop what else runs here and calibrate again",
    "weak": "badly determined: measure more `rounds`, on a quiet machine",
    "no_latency": "give cluster.inter_node.latency, half of what `ping` shows, or take a table of message sizes, such as osu_latency's",
    "unmeasured": "the workload lacks it; a scenario can give it in [job]",
}
"""Remedies for the parts of a provenance that are warned about."""


@checked
def calibrate(
    model: Annotated[Function, Typed(place=True, metavar="MODEL.py:FUNCTION")] = None,
    *,
    name: Name,
    step: Function = None,
    from_measurements: Annotated[Sequence[str | Path], MustBe("a list of measurement files"), Typed(reads="files")] = (),
    batches: Annotated[Numbers, MustBe("a list of batch sizes, such as [16, 32, 64]"), Typed("--batch")] = (16, 32, 64),
    steps: Count = 50,
    runs: Count = 3,
    at_once: Annotated[int, MustBe("a whole number from 1 on", least=1)] = 1,
    launches: Annotated[int, MustBe("a whole number from 2 on", least=2)] = 5,
    budget: Annotated[Quantity, MustBe("a number of seconds, or text with a unit, such as '3 min'"), Typed(metavar="TIME")] = "3 min",
    accept_disturbed: bool = False,
    python: Python = None,
    device: Annotated[str, MustBe("text such as 'CPU' or 'GPU:1'")] | None = None,
    keras_backend: KerasBackend = None,
    precision: Precision = "float32",
    jit: bool = False,
    layers: bool = False,
    noise_scale: Problem | None = None,
    epochs: Annotated[float, MustBe("a number above 0", holds=lambda value: math.isfinite(value) and value > 0), Typed(metavar="N")] = 10.0,
    measurements: Folder = "measurements",
    timeout_s: Timeout = 1800.0,
    out: Annotated[File | None, Typed(short="-o")] = None,
    force: Force = False,
    command: Command = "",
    progress: Stages = None,
    remark: Remarks = None,
) -> Workload:
    """Measure real training steps on this device and fit a workload; or fit earlier measurements.

    The model runs in child processes. Raw measurements are kept, and never overwritten. A warning reports
    doubtful times: a GPU that the framework does not see, or disturbed measurements that were accepted.

    Parameters
    ----------
    model
        Your model: ``FUNCTION()`` returns a Keras model, or (model, loss, input_spec). There input_spec is a tf.TensorSpec (or a
        structure of them) for x, without the batch dimension; a pair (x_spec, y_spec); or a function batch -> (x, y).
    name
        Name of the workload, which scenarios use. Letters, digits and ``. _ + -``.
    step
        Your own training step, instead of a model. ``FUNCTION(batch_size)`` returns a function without arguments that runs one whole
        step (tf.GradientTape and optimizer) and returns its loss. Under torch it calls ``backward()``; jax is not supported.
    from_measurements
        Fit all measurement files of an earlier calibration again, without measuring.
    batches
        Batch sizes to measure, in samples: at least two, better three.
    steps
        Steps timed at each batch size in each process.
    runs
        Processes to measure in, one after the other. Speed differs more between processes than between steps.
    at_once
        Also measure in this many processes at the same time, each on its own cores. This shows how much of the variation between processes
        those of one machine share (run_to_run_shared), and how much longer a step takes while other cores are busy
        (busy_core_slowdown). CPUs only.

        1: none. On other devices it is skipped, with a warning.
    launches
        Number of launches of the processes of ``at_once``. Fewer than 5 give little information.
    budget
        Wall time for the runs. Long steps leave time for fewer rounds, so intervals widen. Disturbed rounds are repeated within it.

        Two runs of two rounds are measured even if they take longer. Processes of ``at_once`` and ``noise_scale`` come on top.
    accept_disturbed
        Fit measurements that other load disturbed, or whose processes differ too much. A warning replaces the refusal.

        ``provenance["disturbed"]`` keeps the warning.
    python
        A Python with your model's packages and its backend. Default: the one that runs Paceline.
    device
        Device: CPU, GPU or GPU:INDEX. Default: the first GPU, else the CPU.
    keras_backend
        Backend of Keras to measure under. Default: the variable KERAS_BACKEND, else tensorflow. input_spec may be a keras.InputSpec
        under each. Layers, jit and noise_scale need tensorflow.
    precision
        Precision of the numbers in a step: float32, mixed_float16, mixed_bfloat16 or bfloat16.
    jit
        Compile the step with XLA.
    layers
        Also measure each layer, as pipelines and other strategies that cut a model need. Time, operations, outputs and memory of each.
        The model is cut at tensors through which all of its paths pass.
    noise_scale
        Also measure the gradient noise scale of a problem: how far larger batches save steps. It says how many samples a target takes
        with other batches (arXiv:1812.06162). PROBLEM is digits-mlp, digits-cnn, linear-regression, or your own FILE.py:FUNCTION, where
        FUNCTION() returns (model, (x, y), (x, y)): a compiled Keras model, data to train on, and data to validate with. It learns at
        the smallest of ``batches``.

        Without a model, step or measurements, it is added to the existing workload of this name.
    epochs
        Passes over the training data for ``noise_scale``, as in the training to predict.
    measurements
        Folder for raw measurements; each process adds a file.
    timeout_s
        Seconds after which one process, or reading a profile, is stopped.
    out
        Workload file to write.

        Such as ``models/workloads/NAME.toml``, which scenarios then ``use``; None writes none. An earlier fit is replaced.
    force
        Replace the file at ``out``, whatever it is.
    command
        Command that makes the workload, for ``provenance["command"]``; empty: this call.
    progress
        Called with the finished and total number, and what is counted: steps, then launches.
    remark
        Called with the expected duration and its reason, and after the first disturbed round with the disturbance.

    Returns
    -------
    Workload
        Times in seconds: ``forward``, ``backward`` and ``apply_s``, with the distribution of their jitter, draws of fit uncertainty,
        and the model's variables.

    Raises
    ------
    InputError
        An argument cannot be used, or the file or function does not exist.
    ScenarioError
        ``noise_scale`` is given without steps, and there is no workload of this name.
    MeasurementsError
        A file of ``from_measurements`` is damaged, given twice, or too small to be fitted.
    CalibrationError
        The child process failed, or its measurements cannot be fitted or trusted.
    KeyboardInterrupt
        Ctrl-C; its text says which measurements are kept, and where.

    Examples
    --------
    >>> calibrate("no_such_file.py:build", name="mine")
    Traceback (most recent call last):
        ...
    simulator.base.errors.InputError: `model`: no_such_file.py: there is no such file; check the path
    """
    from calibrate.calibration import calibrate_again, calibrate_noise_scale, calibrate_step, with_noise_scale
    from calibrate.fit.runs import DisturbedError
    from paceline.scenario_text import quantity_of
    from simulator.base.validation_errors import quoted

    target = step if model is None else model
    sources = sum((model is not None, step is not None, bool(from_measurements)))
    if sources != 1 and (sources or noise_scale is None):
        raise InputError("give one of `model`, `step` and `from_measurements`: new or earlier measurements")
    if from_measurements and at_once > 1:
        raise InputError(f"`at_once={at_once}`: has no effect with `from_measurements`; leave it out")
    if layers and model is None:
        raise InputError("`layers=True`: needs `model`, since layers are not visible in `step` or in measurements")
    backend = keras_backend or os.environ.get("KERAS_BACKEND") or "tensorflow"
    if noise_scale is not None and backend != "tensorflow":
        raise InputError(
            f"`noise_scale`: gradients are measured only under TensorFlow, and the backend is {quoted(backend)}; leave one of them out"
        )
    budget_s = quantity_of(budget, "time", "budget")
    output = _target(out, "workload", force=force)
    made_by = command or f"paceline.calibrate({target or [str(file) for file in from_measurements] or noise_scale!r}, name={name!r})"
    known = _known_workload(name, output) if not sources else None
    noise = None
    if noise_scale is not None:
        noise = calibrate_noise_scale(
            noise_scale, name, batch=min(batches), epochs=epochs, device=device, python=python, timeout_s=timeout_s,
            folder=Path(measurements), progress=progress,
        )  # fmt: skip
    try:
        if known is not None:
            workload = known.model_copy(update={"provenance": {"command": made_by, **known.provenance}})
        elif target is None:
            workload = calibrate_again([Path(file) for file in from_measurements], name, made_by, accept_disturbed=accept_disturbed)
        else:
            workload = calibrate_step(
                target, name, command=made_by, custom=model is None, batches=sorted(batches), steps=steps, runs=runs, at_once=at_once,
                launches=launches, accept_disturbed=accept_disturbed, device=device, keras_backend=backend, precision=precision, jit=jit,
                layers=layers, python=python, timeout_s=timeout_s, folder=Path(measurements), budget=budget_s, progress=progress,
                remark=remark,
            )  # fmt: skip
    except DisturbedError as error:
        refusal = CalibrationError(f"{error}, or accept the measurements:")
        refusal.copyable = _accepting(error.files, name, out, as_command=bool(command))
        raise refusal from None
    workload = workload if noise is None else with_noise_scale(workload, noise)
    return _written(workload, output)


@checked
def calibrate_input(
    input: Annotated[Function, Typed(place=True, metavar="FILE.py:DATASET")] = None,  # noqa: A002
    *,
    name: Name,
    from_measurements: File | None = None,
    batches: Annotated[Numbers, MustBe("a list of batch sizes, such as [16, 32, 64]"), Typed("--batch")] | None = None,
    calls: Annotated[Numbers, MustBe("a list of numbers of parallel calls, such as [1, 2, 4]"), Typed(example="1,2,4")] | None = None,
    rounds: Annotated[int, MustBe("a whole number from 1 on", least=1)] = 5,
    count: Annotated[int, MustBe("a whole number from 8 on", least=8)] = 50,
    python: Python = None,
    measurements: Folder = "measurements",
    timeout_s: Timeout = 1800.0,
    out: File | None = None,
    force: Force = False,
    command: Command = "",
    progress: Stages = None,
) -> InputPipeline:
    """Time the batches of a ``tf.data`` pipeline, and fit an input pipeline that a scenario can use.

    TensorFlow runs in a child process. Raw measurements are kept, and never overwritten. A warning names badly determined parts.

    Parameters
    ----------
    input
        A tf.data.Dataset in your Python file, or a function that returns one. The function may take ``num_parallel_calls``, ``batch``,
        ``prefetch`` and ``cache``, which are then varied.
    name
        Name of the pipeline. Letters, digits and ``. _ + -``.
    from_measurements
        Fit the measurement file of an earlier call again, without measuring.
    batches
        Batch sizes to measure, if the function takes ``batch``. Default: ``16,32,64``.
    calls
        Numbers of parallel calls to measure, such as ``1,2,4`` or ``1..4``. Numbers of threads, if there is no ``num_parallel_calls``.
        Default: 1, 2, 4 and so on up to the cores.
    rounds
        Number of rounds; each measures all settings.
    count
        Batches of each setting in a round. A pipeline that caches is measured in whole epochs.
    python
        A Python with TensorFlow. Default: the one that runs Paceline.
    measurements
        Folder for raw measurements; each call adds a file.
    timeout_s
        Seconds after which measuring is stopped.
    out
        Input file to write.

        Such as ``models/inputs/NAME.toml``, which scenarios then ``use``; None writes none. An earlier fit is replaced.
    force, command, progress
        As for :func:`calibrate`.

    Returns
    -------
    InputPipeline
        Time of a batch in seconds on one core: its serial and parallel part, in the first and in later epochs.

    Raises
    ------
    InputError
        An argument cannot be used, or the object does not exist, is not a data set, is empty, or raises.
    MeasurementsError
        ``from_measurements`` is damaged, or is not a measurement file of an input pipeline.
    CalibrationError
        The child process failed.
    KeyboardInterrupt
        Ctrl-C; its text says which measurements are kept, and where.

    Examples
    --------
    >>> calibrate_input("no_such_file.py:images", name="mine")
    Traceback (most recent call last):
        ...
    simulator.base.errors.InputError: `input`: no_such_file.py: there is no such file; check the path
    """
    from calibrate.fit.input_pipeline import fit_input
    from calibrate.profiling import counting, profile_input

    if (input is None) == (from_measurements is None):
        raise InputError("give one of `input` and `from_measurements`: new or earlier measurements")
    output = _target(out, "input", force=force)
    if input is None:
        file = Path(str(from_measurements))
    else:
        file = profile_input(
            input, name, batches=batches, calls=calls, rounds=rounds, count=count, python=python, timeout_s=timeout_s,
            folder=Path(measurements), progress=counting("settings", progress),
        )  # fmt: skip
    call = f"paceline.calibrate_input({'' if input is None else f'{input!r}, '}name={name!r})"
    pipeline = fit_input(file, name, command or call)
    return _written(pipeline, output)


@checked
def read_profiles(
    profiles: ProfilePlaces, *, profile_run: Text | None = None, python: Python = None, timeout_s: Timeout = 1800.0
) -> Profiled:
    """Read profiles of TensorFlow, JAX or PyTorch, and split them into the parts of a training step.

    Parameters
    ----------
    profiles
        Their paths by samples per step (``{32: "logs"}``): a TensorBoard log directory, the folder of one run, an
        ``.xplane.pb`` file, a trace of one rank that PyTorch's profiler exported (JSON, compressed or not), or a list of these.
    profile_run
        Profiling run to read in each log directory. Default: the newest.
    python
        A Python with TensorFlow, which reads XPlane files. Default: the one that runs Paceline.
    timeout_s
        Seconds after which reading is stopped.

    Returns
    -------
    Profiled
        ``reports``: for each batch size the parts of a step, in seconds; ``to_frame()`` has a row for each.

    Raises
    ------
    InputError
        There is no profile, or it cannot be read.
    CalibrationError
        The profile has no steps, or that Python has no TensorFlow.

    Examples
    --------
    >>> read_profiles({32: "no/such/folder"})
    Traceback (most recent call last):
        ...
    simulator.base.errors.InputError: `profiles`: 'no/such/folder': there is no such file or folder; check the path
    """
    from calibrate.traces.profiles import read_steps

    listed = {batch: [places] if isinstance(places, (str, Path)) else places for batch, places in profiles.items()}
    return read_steps([(Path(place), batch) for batch, places in listed.items() for place in places], profile_run, python, timeout_s)


@checked
def calibrate_profile(
    profiles: Profiles,
    *,
    name: Name,
    model: Function = None,
    checkpoint: Annotated[File | None, Typed(metavar="PATH")] = None,
    variables: Annotated[File | None, Typed(metavar="FILE.json")] = None,
    profile_run: Annotated[Text | None, Typed(metavar="NAME")] = None,
    precision: Precision = "float32",
    python: Python = None,
    timeout_s: Timeout = 1800.0,
    out: File | None = None,
    force: Force = False,
    command: Command = "",
) -> Workload:
    """Fit a workload to profiles of an earlier training, without measuring.

    XPlane profiles do not contain the sizes of the model's variables. Give one of ``model``, ``checkpoint`` and ``variables``. Traces of
    PyTorch have them with ``record_shapes=True``; otherwise each bucket of gradients counts as a variable.

    Parameters
    ----------
    profiles
        As for :func:`read_profiles`.

        Or its result. With a single batch size, all time counts as time per sample.
    model
        ``FILE.py:FUNCTION`` that returns the Keras model; it is built, not run.
    checkpoint
        File with the sizes of the variables: a checkpoint, a SavedModel or a .keras file.
    variables
        The variables as a list, in order of creation. Such as ``[{"name": "dense/kernel", "shape": [784, 10],
        "dtype": "float32"}, ...]``.
    profile_run, python, timeout_s
        As for :func:`read_profiles`.
    precision
        Precision of the numbers in a step, which profiles do not contain either.
    name, out, force, command
        As for :func:`calibrate`.

    Returns
    -------
    Workload
        As for :func:`calibrate`. Its ``provenance`` says, by subject, what the profiles do not determine.

    Raises
    ------
    InputError
        A profile cannot be used, or the sizes of the variables are missing.
    CalibrationError
        The profiles have no steps, or ``python`` could not read them or build the model.

    Examples
    --------
    >>> calibrate_profile({32: "no/such/folder"}, name="mine", variables="variables.json")
    Traceback (most recent call last):
        ...
    simulator.base.errors.InputError: `profiles`: 'no/such/folder': there is no such file or folder; check the path
    """
    from calibrate.fit.profile import fit_profiles
    from calibrate.fit.writing import fitted_text
    from calibrate.traces.variables import variables_of

    output = _target(out, "workload", force=force)
    profiled = (
        read_profiles(profiles, profile_run=profile_run, python=python, timeout_s=timeout_s) if isinstance(profiles, Mapping) else profiles
    )
    sizes = variables_of(model, path_of(checkpoint), path_of(variables), python, timeout_s)
    made_by = command or f"paceline.calibrate_profile(..., name={name!r})"
    workload = fit_profiles(profiled, sizes, name, made_by, precision=precision)
    if output is not None:
        output.write(fitted_text(workload))
    return workload


@checked
def calibrate_traced_links(
    profiles: Profiles, *, name: Name, out: File | None = None, force: Force = False, command: Command = ""
) -> Cluster | None:
    """Fit the links of a cluster to the collectives in traces of PyTorch: what they achieved under the load of a training.

    Parameters
    ----------
    profiles
        As for :func:`calibrate_profile`.
    name, force, command
        As for :func:`calibrate`.
    out
        Cluster file to write; None writes none.

    Returns
    -------
    Cluster or None
        ``inter_node`` and ``intra_node``, as far as groups of ranks lie between or inside nodes; None if no collective has a size.

    Raises
    ------
    InputError
        A profile cannot be used, or the file cannot be written.
    """
    from calibrate.fit.traced_links import fit_traced_links

    output = _target(out, "cluster", force=force)
    profiled = read_profiles(profiles) if isinstance(profiles, Mapping) else profiles
    cluster = fit_traced_links(profiled, name, command or f"paceline.calibrate_traced_links(..., name={name!r})")
    return None if cluster is None else _written(cluster, output)


@checked
def calibrate_link(
    name: Name,
    *,
    peer: Address | None = None,
    from_table: Annotated[File | None, Typed("--from", metavar="FILE")] = None,
    ranks: Annotated[int, MustBe("a whole number from 2 on", least=2)] | None = None,
    sizes: Annotated[Numbers, MustBe("a list of message sizes in bytes, such as [1024, 1048576]"), Typed(example="1024,65536,1048576")]
    | None = None,
    rounds: Annotated[int, MustBe("a whole number from 2 on", least=2)] = 7,
    logical_devices: Annotated[int, MustBe("a whole number from 2 to 64", least=2, most=64)] | None = None,
    carrier: Carrying = "grpc",
    python: Python = None,
    measurements: Folder = "measurements",
    timeout_s: Timeout = 900.0,
    out: File | None = None,
    force: Force = False,
    command: Command = "",
    progress: Stages = None,
) -> Cluster:
    """Measure a link through TensorFlow's own gRPC transport or PyTorch's gloo, and fit its latency and bandwidth.

    Parameters
    ----------
    name
        Name of the cluster. Letters, digits and ``. _ + -``.
    peer
        Measure the link to the host that serves at this address. It must be able to connect back to this host. Default: a second
        process of this machine.

        :func:`serve_link` serves. Processes of this machine are in a network namespace that nobody else can reach; with GPUs also
        copies between host and device, and all-reduces, are measured.
    from_table
        Fit the output of another tool, without measuring. nccl-tests, osu_latency, osu_bw, osu_allreduce, gloo's benchmark, or iperf3
        (with or without --json).
    ranks
        Processes of the collective in that file, if the file does not say (osu_allreduce).
    sizes
        Message sizes in bytes, at least two, such as ``1024,65536,1048576``. Default: 1 KiB to 64 MiB in nine steps.
    rounds
        Number of rounds; each measures all sizes.
    logical_devices
        Without GPUs: also measure an all-reduce between this many logical devices of the processor, for cluster.intra_device.

        It measures the memory that replicas on one device share.
    carrier
        Transport: grpc of TensorFlow, or gloo of PyTorch's DDP on CPUs. With gloo two processes all-reduce, which counts
        as two messages of half the size.
    python, measurements, timeout_s
        As for :func:`calibrate_input`.
    out
        Cluster file to write.

        Such as ``models/clusters/NAME.toml``, which scenarios then ``use``; None writes none. An earlier fit is replaced.
    force, command
        As for :func:`calibrate`.
    progress
        Called with the finished and total number of transfers, and ``"transfers"``.

    Returns
    -------
    Cluster
        ``inter_node`` with latency in seconds and bandwidth in bytes per second, and their 90% intervals in ``fit``.

    Raises
    ------
    InputError
        An argument cannot be used.
    CalibrationError
        The peer cannot be reached, a process failed, or too little was measured to be fitted.
    KeyboardInterrupt
        Ctrl-C; its text says which measurements are kept, and where.

    Examples
    --------
    >>> calibrate_link("lab", from_table="all_reduce.txt")  # doctest: +SKIP
    >>> calibrate_link("lab", peer="10.0.0.2")
    Traceback (most recent call last):
        ...
    simulator.base.errors.InputError: `peer`: '10.0.0.2': must be HOST:PORT, such as 10.0.0.2:2222
    """
    from calibrate.fit.link import fit_link, fit_link_table
    from calibrate.profiling import counting, profile_link

    output = _target(out, "cluster", force=force)
    if from_table is not None:
        measuring = {"peer": peer, "sizes": sizes, "logical_devices": logical_devices}
        if idle := next((key for key, value in measuring.items() if value is not None), None):
            raise InputError(f"`{idle}`: has no effect with `from_table`; leave it out")
        made_by = command or f"paceline.calibrate_link({name!r}, from_table={str(from_table)!r})"
        cluster = fit_link_table(Path(from_table), name, made_by, ranks=ranks)
    elif ranks is not None:
        raise InputError("`ranks` describes a collective timed by another tool; give `from_table` too")
    else:
        file = profile_link(
            name, peer=peer, sizes=sizes, rounds=rounds, logical_devices=logical_devices or 0, carrier=carrier,
            python=python, timeout_s=timeout_s, folder=Path(measurements), progress=counting("transfers", progress),
        )  # fmt: skip
        cluster = fit_link(file, name, command or f"paceline.calibrate_link({name!r})")
    return _written(cluster, output)


@checked
def calibrate_server(
    name: Name,
    *,
    cluster: Annotated[Text | None, Typed(metavar="NAME|FILE")] = None,
    peer: Address | None = None,
    tensors: Annotated[Numbers, MustBe("a list of numbers of variables, such as [1, 16]"), Typed(example="1,16,64")] | None = None,
    sizes: Annotated[Numbers, MustBe("a list of sizes of variables in bytes, such as [256, 1048576]"), Typed(example="256,16384,1048576")]
    | None = None,
    rounds: Annotated[int, MustBe("a whole number from 2 on", least=2)] = 7,
    python: Python = None,
    measurements: Folder = "measurements",
    timeout_s: Timeout = 900.0,
    out: File | None = None,
    force: Force = False,
    command: Command = "",
    progress: Stages = None,
) -> Cluster:
    """Measure the host cost of each tensor and byte over TensorFlow's gRPC, for workers and servers, and write it into a cluster.

    A worker pulls variables from a server and pushes gradients to it, few and many, small and large ones.
    Both hosts are assumed to be equally fast.

    Parameters
    ----------
    cluster
        Cluster with the link and the machines: a name of the catalogue, or a file. Default: ``models/clusters/NAME.toml``, as
        ``paceline calibrate-link`` wrote it.

        Its measured link includes the hosts' work on a message, which is subtracted from latency and time per byte.
    peer
        Server host, where ``paceline calibrate-link --serve HOST:PORT`` runs. It must be able to connect back to this host.
        Default: a second process of this machine.
    tensors
        Numbers of variables moved at once, at least two. Default: ``1,4,16,64``.
    sizes
        Bytes of each variable, multiples of 4, at least two. Default: ``256,16384,262144,1048576``.
    name, rounds, python, measurements, timeout_s, out, force, command
        As for :func:`calibrate_link`.
    progress
        Called with the finished and total number of pulls and pushes, and ``"pulls and pushes"``.

    Returns
    -------
    Cluster
        ``transport`` with ``cpu_per_message_s``, seconds of each host per tensor, and ``copy_per_byte_s``, per byte (0 if the
        link is slower than the hosts and hides it); separate values for pulls and pushes and 90% intervals are in ``fit_hosts``.

    Raises
    ------
    InputError
        An argument cannot be used, or the cluster is missing.
    CalibrationError
        The peer cannot be reached, a process failed, or too little was measured to be fitted.
    KeyboardInterrupt
        Ctrl-C; its text says which measurements are kept, and where.

    Examples
    --------
    >>> calibrate_server("lab", cluster="ethernet-10g", peer="10.0.0.2")
    Traceback (most recent call last):
        ...
    simulator.base.errors.InputError: `peer`: '10.0.0.2': must be HOST:PORT, such as 10.0.0.2:2222
    """
    from calibrate.fit.server import fit_server
    from calibrate.profiling import DEFAULT_TENSOR_SIZES, DEFAULT_TENSORS, counting, profile_server

    output = _target(out, "cluster", force=force)
    base = _base_of(name, cluster)
    file = profile_server(
        name, peer=peer, tensors=tensors or DEFAULT_TENSORS, sizes=sizes or DEFAULT_TENSOR_SIZES, rounds=rounds,
        python=python, timeout_s=timeout_s, folder=Path(measurements), progress=counting("pulls and pushes", progress),
    )  # fmt: skip
    measured = fit_server(file, name, base, command or f"paceline.calibrate_server({name!r})")
    return _written(measured, output)


@checked
def serve_link(
    address: Address,
    *,
    carrier: Carrying = "grpc",
    python: Python = None,
    ready: Annotated[Callable[[], None] | None, MustBe("a function")] = None,
) -> None:
    """Answer :func:`calibrate_link` of another host, until Ctrl-C. It never returns.

    Use it only on a trusted network: TensorFlow's server listens on all interfaces of the host, whatever
    the address, and whoever reaches it can run code.

    Parameters
    ----------
    address
        ``HOST:PORT`` of this host, as seen by the other host.
    carrier, python
        As for :func:`calibrate_link`.
    ready
        Called once the server answers.

    Raises
    ------
    InputError
        The address is invalid, or the Python does not exist.
    CalibrationError
        The server could not be started, for example because the port is taken.
    KeyboardInterrupt
        Ctrl-C; the server is stopped first.

    Examples
    --------
    >>> serve_link("10.0.0.2")
    Traceback (most recent call last):
        ...
    simulator.base.errors.InputError: `address`: '10.0.0.2': must be HOST:PORT, such as 10.0.0.2:2222
    """
    from calibrate.profiling import serve_link as serve

    serve(address, python, ready, carrier)


def _accepting(files: Sequence[Path], name: str, out: str | Path | None, *, as_command: bool) -> str:
    """Return the call, or the command to copy, that fits disturbed measurements."""
    import shlex

    if not as_command:
        more = "" if out is None else f", out={str(out)!r}"
        return f"paceline.calibrate(name={name!r}, from_measurements={[str(file) for file in files]!r}, accept_disturbed=True{more})"
    given = [("--name", name), *(("--from-measurements", file) for file in files)]
    if out is not None and Path(out) != Path(f"models/workloads/{name}.toml"):
        given.append(("--out", out))
    return " ".join(["paceline calibrate", *(f"{option} {shlex.quote(str(value))}" for option, value in given), "--accept-disturbed"])


def _target(out: str | Path | None, kind: str, *, force: bool) -> Output | None:
    """Return the output file of a fit, checked before the work; errors as in :class:`simulator.base.files.Output`."""
    from calibrate.fit.writing import REPLACEABLE
    from simulator.base.files import Output

    return None if out is None else Output(Path(out), REPLACEABLE[kind], force=force)


def _known_workload(name: str, output: Output | None) -> Workload:
    """Return the workload that a noise scale is added to: that of the output file, else of the catalogue."""
    from simulator.base.catalog import find
    from simulator.catalogue.loading import load_workload

    return load_workload(output.path if output is not None and output.path.is_file() else find("workloads", name, "`name`"))


def _base_of(name: str, cluster: str | None) -> Cluster:
    """Return the cluster that server costs are written into; errors as in :func:`calibrate_server`."""
    from simulator.base.catalog import find
    from simulator.catalogue.loading import load_cluster

    if cluster is not None:
        return load_cluster(find("clusters", cluster, "`cluster`"))
    path = Path("models/clusters") / f"{name}.toml"
    if not path.is_file():
        raise InputError(
            f"`cluster`: {path} does not exist; measure the link first with `paceline calibrate-link --name {name}`, "
            'or name a cluster, such as "ethernet-10g"'
        )
    return load_cluster(path)


def _written(fitted: FittedT, output: Output | None) -> FittedT:
    """Write and return a fit; warn of an unused GPU and of disturbed measurements."""
    import warnings

    from calibrate.fit.writing import fitted_text
    from simulator.base.errors import CalibrationWarning

    for key, hint in _HINTS.items():
        if key in fitted.provenance:
            warnings.warn(f"{fitted.provenance[key]}; {hint}", CalibrationWarning, stacklevel=4)  # through the check of the arguments
    if output is not None:
        output.write(fitted_text(fitted))
    return fitted
