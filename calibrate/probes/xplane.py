"""Turns profiles (XPlane protobufs) into lines of JSON, which calibrate/xplane/reading.py reads; runs in the user's Python.

The protobuf classes are those that TensorFlow brings along. Only their one file is loaded,
so that TensorFlow itself, with its devices and its seconds, stays out. One line of JSON a
timeline: ``{"plane", "line", "start_ns", "names": [[name, short name]...], "events":
[[index of the name, start in ps, duration in ps, {statistic: value}]...]}``; before them,
for each file, ``{"file", "hosts", "planes": {name: {statistic: value}}}``.
"""

from __future__ import annotations

import argparse
import glob
import importlib.util
import json
import os
import sys
from typing import Any, Iterator

from .ending import EXIT_NOT_INSTALLED, EXIT_USAGE

INSTEAD = "profile again, or name another run with `profile_run`"

# where releases of TensorFlow keep the generated classes, newest first
PLACES = ("tsl/profiler/protobuf/xplane_pb2.py", "core/profiler/protobuf/xplane_pb2.py")

# statistics that say what an event was; the rest (identifiers of threads, sizes of queues) is left out
KEPT = {
    "_r", "annotation", "bytes_transferred", "correlation_id", "device_type_string", "eager_op", "element_size", "hlo_op", "is_func",
    "memcpy_details", "profile_start_time", "shapes", "step_name", "step_num", "tensor_shapes", "tf_function_call", "tf_op",
}  # fmt: skip


class DamagedError(Exception):
    """A profile that is a protobuf, but refers to what is not in it."""


def _classes() -> Any:
    """The module of the protobuf classes, without importing TensorFlow."""
    found = importlib.util.find_spec("tensorflow")
    roots = list(found.submodule_search_locations or []) if found is not None else []
    for root in roots:
        for place in PLACES:
            for path in glob.glob(os.path.join(root, place)):
                spec = importlib.util.spec_from_file_location("_paceline_xplane_pb2", path)
                assert spec is not None
                assert spec.loader is not None
                module = importlib.util.module_from_spec(spec)
                spec.loader.exec_module(module)
                return module
    raise ImportError("no TensorFlow with tsl/profiler/protobuf/xplane_pb2.py")


def _statistics(owner: Any, names: dict[int, str], wanted: Any) -> dict[str, Any]:
    found = {}
    for one in owner:
        name = names.get(one.metadata_id, "")
        kind = one.WhichOneof("value")
        if name not in wanted or kind is None or kind == "bytes_value":
            continue
        value = getattr(one, kind)
        found[name] = names.get(value, "") if kind == "ref_value" else value
    return found


class _Everything:
    def __contains__(self, _: object) -> bool:
        return True


def _lines(space: Any, path: str) -> Iterator[dict[str, Any]]:
    planes = {}
    for plane in space.planes:
        names = {key: value.name for key, value in plane.stat_metadata.items()}
        planes[plane.name] = _statistics(plane.stats, names, _Everything())
    yield {"file": path, "hosts": list(space.hostnames), "planes": planes}
    for plane in space.planes:
        names = {key: value.name for key, value in plane.stat_metadata.items()}
        shared = {key: _statistics(value.stats, names, KEPT) for key, value in plane.event_metadata.items()}
        for line in plane.lines:
            index: dict[int, int] = {}
            labels: list[list[str]] = []
            events = []
            for event in line.events:
                if event.metadata_id not in shared:
                    raise DamagedError("an event of the line %r has no name" % line.name)
                label = plane.event_metadata[event.metadata_id]
                if label.name.startswith("$"):  # a call that the Python tracer saw: no operation
                    continue
                if event.metadata_id not in index:
                    index[event.metadata_id] = len(labels)
                    labels.append([label.name, label.display_name])
                statistics = {**shared[event.metadata_id], **_statistics(event.stats, names, KEPT)}
                events.append([index[event.metadata_id], event.offset_ps, event.duration_ps, statistics])
            if events:
                yield {
                    "plane": plane.name,
                    "line": line.display_name or line.name,
                    "start_ns": line.timestamp_ns,
                    "names": labels,
                    "events": events,
                }


def main() -> int:
    """Write the timelines of the files to ``--out``; an error as the last line on stderr."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+")
    parser.add_argument("--out", required=True)
    arguments = parser.parse_args()
    try:
        classes = _classes()
    except Exception as error:  # whatever a broken installation raises
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return EXIT_NOT_INSTALLED
    with open(arguments.out, "w", encoding="utf-8") as out:
        for path in arguments.files:
            space = classes.XSpace()
            try:
                with open(path, "rb") as file:
                    space.ParseFromString(file.read())
            except OSError as error:
                print(f"{path}: cannot be read: {error.strerror or error}; check the path", file=sys.stderr)
                return EXIT_USAGE
            except Exception:  # protobuf's DecodeError, under the name of whichever protobuf is installed
                print(f"{path}: is no XPlane protobuf, or was cut off in writing; {INSTEAD}", file=sys.stderr)
                return EXIT_USAGE
            try:
                for line in _lines(space, path):
                    out.write(json.dumps(line) + "\n")
            except DamagedError as error:
                print(f"{path}: is damaged: {error}; {INSTEAD}", file=sys.stderr)
                return EXIT_USAGE
    return 0
