"""Reads TensorBoard's event files: scalars that tell steps/s or a step's time, or else the wall times of the scalars of successive steps.

A file is a chain of records (TFRecord): eight bytes of length, its check sum, the record, its check sum; each record is an ``Event``
(tensorboardX has both the check sum and the protocol buffer). TensorFlow 2 writes a scalar as a tensor, version 1 as a number.
"""

from __future__ import annotations

import itertools
import math
import re
import struct
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from calibrate.recorded.run import Each, Growing, GrowingFile, RecordedRun
from simulator.base.errors import InputError

_HEAD = struct.Struct("<QI")
_CHECKED_BYTES = 4096
"""A record's own check sum is looked at up to this size: larger ones are graphs and images."""
_MOST_RECORD_BYTES = 2**28
_RATES = re.compile(r"(^|[/_])(global_step/sec|steps?/s(ec)?|steps_per_s(ec(ond)?)?)$")
_SECONDS = re.compile(r"(^|/)step_time_s$")
_OF_EPOCHS = re.compile(r"^epoch_|^evaluation_|/evaluation")
_DIRECT = ("batch_steps_per_second", "step_time_s", "global_step/sec")
_HOW_TO = "keras.callbacks.TensorBoard(LOGDIR, update_freq='batch', write_steps_per_second=True) writes them"
_FEWEST = 2


def is_event_file(path: Path) -> bool:
    """Whether a file is named as TensorFlow names event files."""
    return "tfevents" in path.name


class EventFiles:
    """One run's event files, read as they grow: a file, or a folder with those below it.

    Each folder that holds steps is one worker where there are several.

    Parameters
    ----------
    path
        The file or folder.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._streams: dict[Path, _Stream] = {}

    def more(self) -> None:
        """Read what is new, of new files as well.

        Raises
        ------
        InputError
            There is no event file, or one is damaged.
        """
        files = sorted(file for file in self._path.rglob("*") if is_event_file(file)) if self._path.is_dir() else [self._path]
        if not files:
            raise InputError(f"{self._path}: holds no event files (*tfevents*); {_HOW_TO}")
        for file in files:
            if file not in self._streams:
                self._streams[file] = _Stream(file)
            self._streams[file].more()

    def runs(self) -> tuple[RecordedRun, ...]:
        """The runs of those folders that tell most directly how long steps take.

        Raises
        ------
        InputError
            None tells it.
        """
        by_folder: dict[Path, dict[str, list[_Point]]] = defaultdict(lambda: defaultdict(list))
        for file, stream in self._streams.items():
            for tag, points in stream.points.items():
                by_folder[file.parent][tag] += points
        ranked = [(*chosen, folder) for folder, tags in by_folder.items() if (chosen := _chosen(tags)) is not None]
        if not ranked:
            names = sorted({tag for tags in by_folder.values() for tag in tags})
            if not names:
                return (Growing(str(self._path), "event files").run(),)
            some = ", ".join(names[:4]) + (", ..." if len(names) > 4 else "")
            raise InputError(f"{self._path}: has scalars of whole epochs alone ({some}), which tell no step's time; {_HOW_TO}")
        best = min(rank for rank, *_ in ranked)
        kept = [(tag, points, folder) for rank, tag, points, folder in ranked if rank == best]
        return tuple(
            _run(str(self._path), str(folder.relative_to(self._path)) if len(kept) > 1 else "", tag, points) for tag, points, folder in kept
        )


_Point = tuple[int, float, float]
"""Step, wall time in seconds, value."""


class _Stream:
    """The scalars of one file, by their tags."""

    def __init__(self, path: Path) -> None:
        self.points: dict[str, list[_Point]] = {}
        self._file = GrowingFile(path)
        self._path = path
        self._rest = b""
        self._records = 0

    def more(self) -> None:
        from tensorboardX.proto.event_pb2 import Event

        for record in self._new():
            try:
                event = Event.FromString(record)
            except Exception:  # protobuf has no common class for what it raises
                raise InputError(f"{self._path}: record {self._records}: is no event; is this a file of TensorBoard?") from None
            for value in event.summary.value:
                scalar = _scalar(value)
                if scalar is not None:
                    self.points.setdefault(value.tag, []).append((event.step, event.wall_time, scalar))

    def _new(self) -> Iterator[bytes]:
        from tensorboardX.record_writer import masked_crc32c

        while content := self._file.read():
            data = self._rest + content
            place = 0
            while len(data) - place >= _HEAD.size:
                length, check = _HEAD.unpack_from(data, place)
                if masked_crc32c(data[place : place + 8]) != check or length > _MOST_RECORD_BYTES:
                    raise InputError(
                        f"{self._path}: record {self._records + 1}: does not match its check sum (damaged, or no file of TensorBoard)"
                    )
                end = place + _HEAD.size + length + 4
                if end > len(data):
                    break
                record = data[place + _HEAD.size : end - 4]
                self._records += 1
                if length <= _CHECKED_BYTES and masked_crc32c(record) != struct.unpack_from("<I", data, end - 4)[0]:
                    raise InputError(f"{self._path}: record {self._records}: does not match its check sum (damaged)")
                yield record
                place = end
            self._rest = data[place:]


def _scalar(value: object) -> float | None:
    """The number of a summary's value; None where it is none."""
    kind = value.WhichOneof("value")  # type: ignore[attr-defined]
    if kind == "simple_value":
        return float(value.simple_value)  # type: ignore[attr-defined]
    if kind != "tensor":
        return None
    tensor = value.tensor  # type: ignore[attr-defined]
    if tensor.tensor_shape.dim or value.metadata.plugin_data.plugin_name not in ("", "scalars"):  # type: ignore[attr-defined]
        return None
    for field in (tensor.float_val, tensor.double_val, tensor.int64_val, tensor.int_val):
        if len(field) == 1:
            return float(field[0])
    content = tensor.tensor_content
    if len(content) in (4, 8):
        return float(struct.unpack("<f" if len(content) == 4 else "<d", content)[0])
    return None


def _chosen(tags: dict[str, list[_Point]]) -> tuple[int, str, list[_Point]] | None:
    """What tells most directly how long steps take: how directly, from 0 on, the tag and its points."""
    for rank, tag in enumerate(_DIRECT):
        if len(tags.get(tag, ())):
            return rank, tag, tags[tag]
    rates = [tag for tag in tags if _RATES.search(tag) or _SECONDS.search(tag)]
    if rates:
        tag = max(rates, key=lambda name: (not name.startswith("epoch_"), len(tags[name])))
        return len(_DIRECT) + tag.startswith("epoch_"), tag, tags[tag]
    others = {tag: points for tag, points in tags.items() if not _OF_EPOCHS.search(tag) and len({step for step, *_ in points}) >= _FEWEST}
    if not others:
        return None
    tag = max(sorted(others), key=lambda name: len(others[name]))
    return len(_DIRECT) + 2, tag, others[tag]


def _run(source: str, worker: str, tag: str, points: list[_Point]) -> RecordedRun:
    if not (_RATES.search(tag) or _SECONDS.search(tag)):
        return _by_wall_times(source, worker, tag, points)
    each: Each = "epoch" if tag.startswith("epoch_") or tag == "steps_per_s" else "step" if tag.startswith("batch_") else "interval"
    run = Growing(source, "event files", worker, each=each)
    run.remark(f"steps are those of the scalar {tag}" + (", a mean over each epoch" if each == "epoch" else ""))
    before = None
    for step, wall_s, value in points:
        if before is not None and step <= before:
            run.mark("restart")
        count = step - before if each == "interval" and before is not None and step > before else 1
        inverse = 1 / value if value > 0 else math.inf
        duration_s = value if _SECONDS.search(tag) else inverse
        run.add(step, duration_s, count=count, end_s=wall_s)
        before = step
    return run.run()


def _by_wall_times(source: str, worker: str, tag: str, points: list[_Point]) -> RecordedRun:
    """Time between the scalars of successive steps, over the steps between them."""
    run = Growing(source, "event files", worker, each="interval")
    run.remark(f"no scalar tells steps/s: times are those between the points of {tag}, and hold what lies between steps too")
    for (before, began_s, _), (step, wall_s, _) in itertools.pairwise(points):
        if step <= before:
            if step < before:
                run.mark("restart")
            continue
        run.add(step, (wall_s - began_s) / (step - before), count=step - before, end_s=wall_s)
    return run.run()
