"""Reads traces as PyTorch's profiler writes them (Kineto's JSON in Chrome's Trace Event Format), plain or compressed.

The format has no specification. Sources, read for PyTorch 2.1 to 2.14: ``libkineto/src/output_json.cpp`` (header, kernels, and the
fields of collectives, which NCCL's kernels take over from the host's ``record_param_comms``), ``torch/csrc/profiler/util.cpp``
(``saveNcclMeta``), ``torch/csrc/autograd/engine.cpp`` (``evaluate_function``) and ``torch/optim/optimizer.py`` (``Optimizer.step#``).
``ts`` and ``dur`` are microseconds. A kernel has the ``correlation`` of the call on the host that launched it; the pass of a step to
which it belongs is the one in which that call lies.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
import math
import re
import zlib
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from calibrate.traces.steps import Readiness
from calibrate.traces.trace import (
    Collective,
    Gradient,
    InputPipeline,
    Marks,
    Op,
    Role,
    Span,
    Trace,
    Window,
    launched_windows,
    whole_number,
    windows_of,
)
from simulator.base.errors import InputError
from simulator.base.files import bytes_of, mistaken
from simulator.base.text import counted

SUFFIXES = (".json", ".json.gz")
HOW_TO_MARK = "profile with torch.profiler.profile(schedule=..., record_shapes=True), and call its step() after each step"
_MOST_S, _MOST_BYTES = 1e7, 1e15
"""No trace is longer (four months), and no buffer larger."""
_OPERATORS = ("cpu_op", "operator")
_MARK = re.compile(r"ProfilerStep#(\d+)")
_NCCL = re.compile(r"nccl|rccl|oneccl", re.IGNORECASE)
_BACKWARD = re.compile(r"Backward\d*$|AccumulateGrad$")
_ACCUMULATE = "torch::autograd::AccumulateGrad"
_EVALUATE = "autograd::engine::evaluate_function"
_NAMES = {
    "reducescatter": "reduce_scatter", "allgather": "all_gather", "allreduce": "all_reduce", "alltoall": "all_to_all",
    "sendrecv": "send", "send": "send", "recv": "recv", "broadcast": "broadcast", "barrier": "barrier",
}  # fmt: skip
"""Names of collectives, as parts of those of c10d, gloo and NCCL's kernels without ``_``."""
_BYTES = {
    "double": 8, "long": 8, "long int": 8, "float": 4, "int": 4, "half": 2, "bfloat16": 2, "short": 2,
    "byte": 1, "char": 1, "bool": 1, "unsigned char": 1, "signed char": 1,
}  # fmt: skip


class _Event(NamedTuple):
    """Something that took a while, in seconds since the first; ``thread`` is that of the host, or a device's stream."""

    name: str
    kind: str
    process: Any
    thread: Any
    start_s: float
    end_s: float
    args: Mapping[str, Any]


def json_of(path: Path, known: str) -> Any:
    """Return the document of a file, compressed or not; ``known`` are the kinds of documents that can be read.

    Raises
    ------
    InputError
        It is not there, or is no JSON. The array of events of a training that was killed may be open.
    """
    content = bytes_of(path)
    try:
        text = (gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content).decode("utf-8-sig").rstrip()
    except EOFError:
        raise InputError(f"{path}: is compressed but cut off: copy it again, or export the trace again") from None
    except (OSError, zlib.error, UnicodeDecodeError):
        raise InputError(f"{path}: is neither text nor compressed text; known are {known}") from None
    if not text:
        raise InputError(f"{path}: is empty; known are {known}")
    for candidate in (text, text.rstrip(",") + "]"):
        with contextlib.suppress(ValueError, RecursionError):
            return json.loads(candidate)
    fault = "begins like JSON but is not valid JSON" if text[0] in "[{" else "is not JSON"
    raise InputError(f"{path}: {mistaken(path) or f'{fault}; known are {known}'}")


def read_trace(path: Path) -> Trace:
    """Read one rank's trace.

    Raises
    ------
    InputError
        It cannot be read, is no trace of PyTorch's profiler, or has no marked steps.
    """
    data = json_of(path, "traces that PyTorch's profiler exported")
    if not isinstance(data, dict) or not isinstance(data.get("traceEvents"), list):
        raise InputError(f"{path}: {mistaken(path) or f'is JSON but not a trace; {HOW_TO_MARK}'}")
    if (trace := trace_in(path, data)) is None:
        names = {str(event["args"].get("name")) for event in data["traceEvents"] if _names_process(event)}
        if any(name.startswith(("/host:", "/device:")) for name in names):
            raise InputError(f"{path}: was exported from an XPlane profile: give the .xplane.pb file in its folder")
        raise InputError(f"{path}: has no ProfilerStep#N among its {len(data['traceEvents'])} events; {HOW_TO_MARK}")
    return trace


def _names_process(event: Any) -> bool:
    return isinstance(event, dict) and event.get("name") == "process_name" and isinstance(event.get("args"), dict)


def trace_in(path: Path, data: Mapping[str, Any]) -> Trace | None:
    """Return the trace of a document; None where no step is marked.

    Raises
    ------
    InputError
        It is damaged.
    """
    if not any(isinstance(row, dict) and _MARK.fullmatch(str(row.get("name"))) for row in data["traceEvents"]):
        return None
    try:
        events = _events(data["traceEvents"])
        marks = _marks(events)
        return _Reader(path, data, events, marks).trace() if marks.windows else None
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise InputError(f"{path}: is damaged or not a known kind of trace ({error!r:.80}); export it again") from None


def _events(rows: Iterable[Any]) -> list[_Event]:
    kept = [row for row in rows if isinstance(row, dict) and row.get("ph") == "X" and row.get("cat") != "Trace"]
    read, first_us = [], min((float(row["ts"]) for row in kept), default=0.0)
    for row in kept:
        start_s, seconds = (float(row["ts"]) - first_us) * 1e-6, max(float(row["dur"]) * 1e-6, 0.0)
        _check(start_s + seconds, _MOST_S)
        cat, args = str(row.get("cat", "")).lower(), row.get("args")
        names = args if isinstance(args, dict) else {}
        read.append(_Event(str(row["name"]), cat, row.get("pid"), row.get("tid"), start_s, start_s + seconds, names))
    return sorted(read, key=lambda event: (event.start_s, -event.end_s))


def _marks(events: Iterable[_Event]) -> Marks:
    """The steps that the profiler marks on the host; it repeats them for the device."""
    numbered: dict[int, Window] = {}
    for event in events:
        number = _MARK.fullmatch(event.name)
        if number and "gpu" not in event.kind:
            numbered.setdefault(int(number[1]), Window(int(number[1]), event.start_s, event.end_s))
    windows, pauses = windows_of(numbered.values())
    return Marks("ProfilerStep#N", tuple(windows), pauses=pauses)


class _Spans:
    """Whether a moment of a thread lies in one of some spans."""

    def __init__(self, events: Iterable[_Event]) -> None:
        self._by_thread: dict[Any, list[Span]] = defaultdict(list)
        for event in events:
            own = self._by_thread[event.process, event.thread]
            if own and event.start_s < own[-1][1]:  # within another
                own[-1] = own[-1][0], max(own[-1][1], event.end_s)
            else:
                own.append((event.start_s, event.end_s))

    def __bool__(self) -> bool:
        return bool(self._by_thread)

    def __contains__(self, moment: tuple[Any, Any, float]) -> bool:
        process, thread, time_s = moment
        own = self._by_thread.get((process, thread), [])
        place = bisect_right(own, (time_s, math.inf)) - 1
        return place >= 0 and time_s < own[place][1]


class _Reader:
    """Finds in the events of a trace what :class:`Trace` has."""

    def __init__(self, path: Path, data: Mapping[str, Any], events: Sequence[_Event], marks: Marks) -> None:
        self._path, self._data, self._marks = path, data, marks
        self._host = [event for event in events if "gpu" not in event.kind and event.kind != "kernel"]
        working = [event for event in events if event.kind in ("kernel", "gpu_memcpy", "gpu_memset")]
        self._devices = Counter(event.args.get("device", event.process) for event in working)
        self._device = max(self._devices, key=lambda device: (self._devices[device], str(device))) if self._devices else None
        self._kernels = [event for event in working if event.args.get("device", event.process) == self._device]
        self._calls = {
            int(event.args["correlation"]): event
            for event in self._host
            if event.kind.endswith(("_runtime", "_driver")) and "correlation" in event.args
        }
        self._called = {
            event.args["External id"]: event for event in self._host if event.kind in _OPERATORS and "External id" in event.args
        }
        spread = data.get("distributedInfo") or {}
        self._rank, self._world = whole_number(spread.get("rank")), whole_number(spread.get("world_size"))
        self._groups = {str(group["pg_name"]): _ranks(group.get("ranks")) for group in spread.get("pg_config") or ()}
        self._lacks: dict[str, str] = {}
        self._find_passes()

    def _find_passes(self) -> None:
        def spans(*begins: str) -> _Spans:
            return _Spans(event for event in self._host if event.name.startswith(begins))

        self._input = spans("enumerate(DataLoader)")
        self._optimizer = spans("Optimizer.step#")
        self._backward = spans(_EVALUATE) or _Spans(event for event in self._host if _BACKWARD.search(event.name))
        main = next((event.thread for event in self._host if _MARK.fullmatch(event.name)), None)
        if not self._backward and len({call.thread for call in self._calls.values()}) == 2:
            # autograd has a thread of its own for each device
            self._backward = _Spans(call for call in self._calls.values() if call.thread != main)

    def _pass_of(self, event: _Event) -> Role:
        moment = event.process, event.thread, event.start_s
        if moment in self._optimizer:
            return "optimizer"
        return "gradient" if moment in self._backward else "input" if moment in self._input else "forward"

    def trace(self) -> Trace:
        properties = self._data.get("deviceProperties") or []
        gpu = self._device is not None
        device, host = f"/device:GPU:{self._device}" if gpu else "/host:CPU", str(self._data.get("host_name") or "")
        ops = sorted(self._device_ops() if gpu else self._host_ops(), key=lambda op: (op.start_s, op.end_s))
        if gpu:
            steps = launched_windows(self._path, device, self._marks, ops, HOW_TO_MARK)
            *others, last = steps
            if others:  # nothing says when the last one ends: it idles as long as others
                tail_s = median(own.end_s - max(op.end_s for op in steps[own]) for own in others)
                steps[last._replace(end_s=last.end_s + max(tail_s, 0.0))] = steps.pop(last)
        else:
            starts = [op.start_s for op in ops]
            steps = {own: ops[bisect_left(starts, own.start_s) : bisect_left(starts, own.end_s)] for own in self._marks.windows}
        named = [str(each["name"]) for each in properties if each.get("id") in (None, self._device)] if gpu else []
        fetched = [event for event in self._host if event.name.startswith("enumerate(DataLoader)")]
        counts = [sum(own.start_s <= event.start_s < own.end_s for event in fetched) for own in self._marks.windows]
        prefetched = any("MultiProcessing" in event.name for event in fetched)
        gradients = self._gradients(steps)
        self._say_what_lacks(steps, ops, gradients, properties)
        return Trace(
            path=self._path,
            sha256=hashlib.sha256(self._path.read_bytes()).hexdigest(),
            host=host,
            started="",
            device=device,
            device_name=" of ".join(filter(None, [named[0] if named else device.rpartition("/")[2].partition(":")[2], host])),
            devices=tuple(str(each["name"]) for each in properties) or tuple(f"GPU:{each}" for each in sorted(self._devices, key=str)),
            marks=self._marks,
            steps=steps,
            waits=[(event.start_s, event.end_s) for event in fetched] if prefetched else [],
            input=InputPipeline(prefetched=prefetched, batches_a_step=max(int(median(counts)), 1)),
            backend="torch",
            by_launch=True,
            gradients=gradients,
            rank=self._rank,
            world_size=self._world,
            node_devices=len(properties) or None,
            lacks=self._lacks,
        )

    def _device_ops(self) -> Iterator[Op]:
        for event in self._kernels:
            call = self._calls.get(event.args.get("correlation", -1))
            phase = self._pass_of(call) if call is not None else "forward"
            operator = self._called.get(event.args.get("External id"))
            path, kind = "" if operator is None else operator.name, event.name.partition("(")[0].strip()
            # older versions leave the fields of a collective with the operator
            args = event.args if operator is None else {**operator.args, **event.args}
            moves = "Collective name" in event.args or _NCCL.search(event.name)
            collective = self._collective(event._replace(args=args)) if moves else None
            role: Role = "communication" if collective is not None else "copy" if event.kind == "gpu_memcpy" else phase
            moved = collective.size_bytes if collective is not None else _check(float(event.args.get("bytes") or 0.0), _MOST_BYTES)
            kind = kind if collective is not None or event.kind != "kernel" else path or kind
            launched_s = None if call is None else call.start_s
            yield Op(path, kind, role, event.start_s, event.end_s, moved, None, launched_s, phase, collective)

    def _host_ops(self) -> Iterator[Op]:
        """The outermost operators inside what only calls them, and what gloo does in threads of its own."""
        ends: dict[Any, float] = {}
        calls: list[_Event] = []
        moved: list[_Event] = []
        for event in self._host:
            if event.name.startswith("gloo:"):
                moved.append(event)
            elif event.name.startswith("c10d::"):
                calls.append(event)
            elif event.kind in _OPERATORS and event.start_s >= ends.get(event.thread, 0.0) and not _calls_only(event.name):
                ends[event.thread] = event.end_s
                role = self._pass_of(event)
                yield Op(event.name, event.name, role, event.start_s, event.end_s, launched_s=event.start_s, phase=role)
        # gloo's threads take calls in their order
        launched = calls if len(calls) == len(moved) else moved
        for event, call in zip(moved, launched, strict=True):
            collective, phase = self._collective(event), self._pass_of(call)
            size = collective.size_bytes
            yield Op("", event.name, "communication", event.start_s, event.end_s, size, None, call.start_s, phase, collective)

    def _collective(self, event: _Event) -> Collective:
        args = event.args
        plain = str(args.get("Collective name") or event.name).lower().replace("_", "")
        name = next((name for part, name in _NAMES.items() if part in plain), plain)
        group = str(args.get("Process Group Name", ""))
        if event.name.startswith("gloo:"):
            shapes, types = args.get("Input Dims") or [], args.get("Input type") or []
            elements = math.fsum(math.prod(shape) for shape in shapes if shape and isinstance(shape[0], int))
            dtype, ranks = str(types[0]) if types else "", next(iter(self._groups.values()), ()) if len(self._groups) == 1 else ()
            size = len(ranks) or self._world or 0
        else:
            elements = max(float(args.get("In msg nelems") or 0), float(args.get("Out msg nelems") or 0))
            dtype, size = str(args.get("dtype", "")), int(args.get("Group size") or 0)
            ranks = self._groups.get(group) or _ranks(args.get("Process Group Ranks"))
        plain = dtype.lower().removeprefix("c10::")
        each = 1 if plain.startswith("float8") else _BYTES.get(plain, 0)
        return Collective(name, _check(elements * each, _MOST_BYTES), dtype, group, size, ranks)

    def _gradients(self, steps: Mapping[Window, Sequence[Op]]) -> tuple[Gradient, ...]:
        """Gradients in the order in which they are accumulated, of the last backward pass of each step."""
        marked = {window.number: window for window in self._marks.windows}
        ended = [event for event in self._host if event.name == _ACCUMULATE and _shape(event)]
        starts = [event.start_s for event in ended]
        each: list[list[Gradient]] = []
        for window, ops in steps.items():
            host, ready = marked[window.number], Readiness(ops)
            own = ended[bisect_left(starts, host.start_s) : bisect_left(starts, host.end_s)]
            own = own[-(len(own) // max(ready.passes, 1)) :]
            each.append([_gradient(event, len(own) - place, ready) for place, event in enumerate(own, 1)])
        usual = Counter(tuple(own.shape for own in same) for same in each).most_common(1)[0][0] if each else ()
        kept = [own for own in each if tuple(gradient.shape for gradient in own) == usual]
        return tuple(same[0]._replace(ready=median(own.ready for own in same)) for same in zip(*kept, strict=True))

    def _say_what_lacks(
        self, steps: Mapping[Window, Sequence[Op]], ops: Sequence[Op], gradients: Sequence[Gradient], properties: Sequence[Any]
    ) -> None:
        lacks, moves = self._lacks, [op for op in ops if op.collective is not None]
        if self._device is None:
            why = "ProfilerActivity.CUDA was not recorded" if properties else "only the CPU was profiled"
            lacks["kernels"] = f"the trace has no kernels ({why}): times are those of operators on the host"
        if self._rank is None and moves:
            lacks["rank"] = (
                "the trace lacks the rank and the number of ranks (distributedInfo): initialise the process group before profiling"
            )
        if unknown := sum(op.collective is not None and op.collective.name != "barrier" and not op.size_bytes for op in moves):
            why = "sizes are not recorded (record_shapes=True records gloo's; coalesced collectives have none)"
            lacks["sizes"] = f"{unknown} of {counted(len(moves), 'collective')} cannot be used for links: {why}"
        if not gradients:
            lacks["shapes"] = "the trace has no shapes of gradients (record_shapes=True records them)"
        if len(steps) == 1:
            lacks["one_step"] = "the trace has one step, so nothing is known of how steps differ: profile 10 or more"
        groups = {(op.collective.group, op.collective.size) for op in moves if op.collective is not None and op.collective.size}
        if len(groups) > 1:
            sizes = sorted({size for _, size in groups})
            lacks["groups"] = (
                f"collectives of {len(groups)} groups, of {', '.join(map(str, sizes))} ranks: if the model is cut over devices, "
                "computation is that of one rank's part"
            )


def _calls_only(name: str) -> bool:
    """It calls operators and does nothing else."""
    return name.startswith(_EVALUATE) or (_BACKWARD.search(name) is not None and name != _ACCUMULATE)


def _shape(event: _Event) -> tuple[int, ...]:
    """Shape of an accumulated gradient; () where it is not recorded."""
    shape = tuple(int(length) for length in next(iter(event.args.get("Input Dims") or []), []))
    return shape if all(length > 0 for length in shape) else ()


def _gradient(event: _Event, created: int, ready: Readiness) -> Gradient:
    shape = _shape(event)
    types = event.args.get("Input type") or ["float"]
    size = math.prod(shape) * _BYTES.get(str(types[0]).lower().removeprefix("c10::"), 4)
    return Gradient(shape, _check(float(size), _MOST_BYTES), created, ready.share(ready.at(event.end_s)))


def _check(value: float, most: float) -> float:
    if not 0.0 <= value <= most:
        raise ValueError(f"{value:g} is not between 0 and {most:g}")
    return value


def _ranks(value: Any) -> tuple[int, ...]:
    """Ranks of a group; () where they are not listed in full."""
    if isinstance(value, str):
        value = json.loads(value) if value.startswith("[") and "..." not in value else []
    return tuple(int(rank) for rank in value or ())
