"""Reads steps from files that are one JSON document: Chrome traces, Horovod's timeline, and the state of Hugging Face's Trainer.

Formats: the Trace Event Format of Chrome (``ts`` and ``dur`` in microseconds); Kineto's marks ``ProfilerStep#N``, ``distributedInfo`` and
``deviceProperties`` (``output_json.cpp``); ``timeline.json`` of TensorFlow 1 (``tensorflow/python/client/timeline.py``), which is of one
``session.run``; Horovod's ``timeline.cc``, in which each tensor is a process of its own; ``TrainerState`` of transformers.
"""

from __future__ import annotations

import gzip
import itertools
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

from calibrate.recorded.growing_file import GrowingFile
from calibrate.recorded.run import Facts, Growing, RecordedRun
from simulator.base.errors import InputError
from simulator.base.files import mistaken

_KNOWN = (
    "the Chrome trace of PyTorch's profiler with ProfilerStep#N (call step() of the profiler), the timeline of TensorFlow 1, Horovod's "
    "timeline, trainer_state.json of Hugging Face, and the files of paceline.keras_callback.RecordSteps"
)
_MARK = re.compile(r"ProfilerStep#(\d+)")


class JsonRecord:
    """A file that is one JSON document; it does not grow.

    Parameters
    ----------
    path
        The file; compressed where its name ends in ``.gz``, as Chrome traces often are.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._run: RecordedRun | None = None

    def more(self) -> None:
        """Read it, once.

        Raises
        ------
        InputError
            It is no JSON, or none of those that hold times of steps.
        """
        if self._run is not None:
            return
        data = self._parsed()
        events = data.get("traceEvents") if isinstance(data, dict) else data
        if isinstance(events, list):
            events = [event for event in events if isinstance(event, dict) and "ph" in event]
        try:
            if events:
                self._run = self._of_trace(data if isinstance(data, dict) else {}, events)
            elif isinstance(data, dict) and isinstance(data.get("log_history"), list):
                self._run = self._of_trainer(data)
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
            raise InputError(f"{self._path}: is damaged, or no trace of a kind that is known ({error!r:.80}); known are {_KNOWN}") from None
        if self._run is None:
            raise InputError(f"{self._path}: {mistaken(self._path) or f'is JSON, but no record of steps; known are {_KNOWN}'}")

    def runs(self) -> tuple[RecordedRun, ...]:
        """The one run."""
        return (Growing(str(self._path), "profile").run() if self._run is None else self._run,)

    def _parsed(self) -> Any:
        content = b"".join(iter(GrowingFile(self._path).read, b""))
        try:
            text = (gzip.decompress(content) if self._path.suffix == ".gz" else content).decode("utf-8-sig").rstrip()
        except (OSError, EOFError, UnicodeDecodeError):
            raise InputError(
                f"{self._path}: is no text, and no compressed text; give a Chrome trace, a table, a log, or event files"
            ) from None
        # a training that was killed, or is not over, leaves the array of its events open
        for candidate in (text, text.rstrip(",") + "]"):
            try:
                return json.loads(candidate)
            except (ValueError, RecursionError):
                continue
        said = mistaken(self._path) or f"begins as JSON, and is none; known are {_KNOWN}"
        raise InputError(f"{self._path}: {said}")

    def _of_trace(self, data: dict[str, Any], events: list[dict[str, Any]]) -> RecordedRun:
        for read in (_profiler_steps, _all_reduces, _session_run):
            run = Growing(str(self._path), "profile", ended=True)
            read(run, data, events)
            if len(run):
                return run.run()
        raise InputError(f"{self._path}: is a Chrome trace, and nothing in it marks steps; known are {_KNOWN}")

    def _of_trainer(self, data: dict[str, Any]) -> RecordedRun:
        """A mean over the whole run, which the last entry has."""
        run = Growing(str(self._path), "log", each="interval", ended=True)
        for entry in data["log_history"]:
            if "train_runtime" not in entry:
                continue
            steps = int(entry.get("step") or data["global_step"])
            rates = entry.get("train_samples_per_second"), entry.get("train_steps_per_second")
            batch = round(rates[0] / rates[1]) if all(rates) else None
            run.facts = Facts(global_batch=batch)
            run.add(steps, float(entry["train_runtime"]) / steps, count=steps)
        if not len(run):
            raise InputError(f"{self._path}: the Trainer's state has no times before the training ends (train_runtime); give it then")
        run.remark("the Trainer tells one mean over the whole training, with all that lies between steps")
        return run.run()


def _profiler_steps(run: Growing, data: dict[str, Any], events: list[dict[str, Any]]) -> None:
    """The steps that PyTorch's profiler marks on the host; it repeats them for the device."""
    marks: dict[int, dict[str, Any]] = {}
    for event in events:
        number = _MARK.fullmatch(str(event.get("name")))
        if number and event["ph"] == "X" and "gpu" not in str(event.get("cat")):
            marks.setdefault(int(number[1]), event)
    several = data.get("distributedInfo") or {}
    devices = data.get("deviceProperties") or []
    run.worker = str(several["rank"]) if several.get("world_size", 1) > 1 else ""
    run.facts = Facts(devices_in_all=several.get("world_size"), devices=tuple(str(device["name"]) for device in devices))
    run.remark("steps of a profile are somewhat longer than others, since recording takes time")
    for step, event in sorted(marks.items()):
        run.add(step, float(event["dur"]) * 1e-6, end_s=(float(event["ts"]) + float(event["dur"])) * 1e-6)


def _all_reduces(run: Growing, _: dict[str, Any], events: list[dict[str, Any]]) -> None:
    """From each all-reduce of a tensor to its next: of one that is reduced as often as most are, which is once a step."""
    names = {event["pid"]: str(event["args"]["name"]) for event in events if event["ph"] == "M" and event.get("name") == "process_name"}
    starts: dict[str, list[float]] = {}
    for event in events:
        if event["ph"] == "B" and event.get("name") == "ALLREDUCE":
            starts.setdefault(names.get(event["pid"], str(event["pid"])), []).append(float(event["ts"]) * 1e-6)
    if not starts:
        return
    usual = Counter(len(times) for times in starts.values()).most_common(1)[0][0]
    tensor = min(name for name, times in starts.items() if len(times) == usual)
    run.remark(f"steps are those between the all-reduces of {tensor} in Horovod's timeline")
    for step, (before_s, start_s) in enumerate(itertools.pairwise(starts[tensor]), 1):
        run.add(step, start_s - before_s, end_s=start_s)


def _session_run(run: Growing, _: dict[str, Any], events: list[dict[str, Any]]) -> None:
    """One call of ``session.run``, of which the timeline of TensorFlow 1 has the operations."""
    spans = [
        (float(event["ts"]), float(event["ts"]) + float(event["dur"]))
        for event in events
        if event["ph"] == "X" and event.get("cat") == "Op"
    ]
    if spans:
        begun, ended = min(spans)[0], max(end for _, end in spans)
        run.remark("the step is the span of the operations of one session.run")
        run.add(1, (ended - begun) * 1e-6, end_s=ended * 1e-6)
