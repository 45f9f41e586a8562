"""Reads what TensorFlow has written, for calibrate/traces: timelines of profiles, and the variables of a model; runs in the user's Python.

Profiles (XPlane protobufs) become lines of JSON, which calibrate/traces/xplane.py reads. The protobuf classes are those that TensorFlow
brings along. Only their one file is loaded, so that TensorFlow itself, with its devices and its seconds, stays out. One line of JSON a
timeline: ``{"plane", "line", "start_ns", "names": [[name, short name]...], "events": [[index of the name, start in ps, duration in ps,
{statistic: value}]...]}``; before them, for each file, ``{"file", "hosts", "planes": {name: {statistic: value}}}``.

``--model FILE.py:FUNCTION`` builds a Keras model, ``--checkpoint PATH`` reads a checkpoint of ``tf.train.Checkpoint``, a SavedModel's
folder, a checkpoint of TensorFlow 1, or a ``.keras`` file. Writes ``{"variables": [{"name", "shape", "dtype", "size_bytes"}...],
"source", "order"}``: the trainable variables in the order in which the model created them. calibrate/traces/variables.py reads that.
"""

from __future__ import annotations

import argparse
import glob
import importlib.util
import json
import math
import os
import re
import sys
from typing import Any, Iterator

from . import training
from .recording import EXIT_FAILED, EXIT_NOT_INSTALLED, EXIT_USAGE, UsageError

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")  # names and shapes need no device

INSTEAD = "profile again, or choose another run with `profile_run`"

# where releases of TensorFlow keep the generated classes, newest first
PLACES = ("tsl/profiler/protobuf/xplane_pb2.py", "core/profiler/protobuf/xplane_pb2.py")

# statistics that say what an event was; the rest (identifiers of threads, sizes of queues) is left out
KEPT = {
    "_r", "annotation", "bytes_transferred", "correlation_id", "device_type_string", "eager_op", "element_size", "hlo_op", "is_func",
    "memcpy_details", "profile_start_time", "shapes", "step_name", "step_num", "tensor_shapes", "tf_function_call", "tf_op",
}  # fmt: skip


def _classes() -> Any:
    """The module of the protobuf classes, without importing TensorFlow."""
    package = importlib.util.find_spec("tensorflow")
    roots = list(package.submodule_search_locations or []) if package is not None else []
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


def _statistics(owner: Any, names: dict[int, str], wanted: set[str] | None = None) -> dict[str, Any]:
    """Statistics by name, those that are wanted or all."""
    kept = {}
    for statistic in owner:
        name = names.get(statistic.metadata_id, "")
        kind = statistic.WhichOneof("value")
        if (wanted is not None and name not in wanted) or kind is None or kind == "bytes_value":
            continue
        value = getattr(statistic, kind)
        kept[name] = names.get(value, "") if kind == "ref_value" else value
    return kept


def _lines(space: Any, path: str) -> Iterator[dict[str, Any]]:
    planes = {}
    for plane in space.planes:
        names = {key: value.name for key, value in plane.stat_metadata.items()}
        planes[plane.name] = _statistics(plane.stats, names)
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
                    raise UsageError(f"{path}: is damaged: an event of the line {line.name!r} has no name; {INSTEAD}")
                label = plane.event_metadata[event.metadata_id]
                if label.name.startswith("$"):  # a call that the Python tracer saw: no operation
                    continue
                if event.metadata_id not in index:
                    index[event.metadata_id] = len(labels)
                    labels.append([label.name, label.display_name])
                statistics = {**shared[event.metadata_id], **_statistics(event.stats, names, KEPT)}
                events.append([index[event.metadata_id], event.offset_ps, event.duration_ps, statistics])
            if events:
                shown = line.display_name or line.name
                yield {"plane": plane.name, "line": shown, "start_ns": line.timestamp_ns, "names": labels, "events": events}


def timelines(classes: Any, files: list[str]) -> Iterator[dict[str, Any]]:
    """The lines of all files."""
    for path in files:
        space = classes.XSpace()
        try:
            with open(path, "rb") as file:
                space.ParseFromString(file.read())
        except OSError as error:
            raise UsageError(f"{path}: cannot be read: {error.strerror or error}; check the path") from None
        except Exception:  # protobuf's DecodeError, under the name of whichever protobuf is installed
            raise UsageError(f"{path}: is not an XPlane protobuf, or was cut off in writing; {INSTEAD}") from None
        yield from _lines(space, path)


# -- a model's variables --------------------------------------------------------------------


GRAPH_KEY = "_CHECKPOINTABLE_OBJECT_GRAPH"
# what a checkpoint holds besides trainable variables
NOT_TRAINED = re.compile(
    r"(^|/)(moving_(mean|variance|avg)|moving_average|seed_generator_state|global_step|save_counter|iterations?|learning_rate|"
    r"beta\d_power|current_loss_scale|good_steps|total|count|ExponentialMovingAverage)(_\d+)?$"
)


def _row(name: str, shape: Any, dtype: Any) -> dict[str, Any]:
    sizes = [int(size) for size in shape]
    return {"name": name, "shape": sizes, "dtype": dtype.name, "size_bytes": math.prod(sizes) * dtype.size}


def of_model(tf: Any, model: Any) -> list[dict[str, Any]]:
    """The trainable variables of a Keras model."""
    names = [str(getattr(variable, "path", None) or variable.name).split(":")[0] for variable in model.trainable_variables]
    return [_row(name, variable.shape, tf.as_dtype(variable.dtype)) for name, variable in zip(names, model.trainable_variables)]


def built(tf: Any, target: str) -> list[dict[str, Any]]:
    """The trainable variables of the model that a builder returns."""
    try:
        returned = training.load_function(target)()
    except ValueError as error:
        raise UsageError(str(error)) from None
    model = returned[0] if isinstance(returned, tuple) else returned
    if not hasattr(model, "trainable_variables"):
        raise UsageError(f"{target}: must return a Keras model or (model, loss, input_spec), not {type(model).__name__}")
    if not model.trainable_variables:
        raise UsageError(f"{target}: the model has no variables before it is called: give it an Input, or build() it")
    return of_model(tf, model)


def _prefix(tf: Any, path: str) -> str:
    inside = os.path.join(path, "variables", "variables")
    if os.path.isfile(inside + ".index"):
        return inside
    if os.path.isdir(path):
        latest = tf.train.latest_checkpoint(path)
        if latest is None:
            raise UsageError(f"`checkpoint={path!r}`: has no checkpoint or SavedModel: give the saved folder or prefix")
        return str(latest)
    return path[: -len(".index")] if path.endswith(".index") else path


def _full_names(reader: Any) -> list[tuple[str, str]]:
    """Keys of an object-based checkpoint with the variables' own names, in the order of the object graph."""
    from tensorflow.core.protobuf import trackable_object_graph_pb2

    graph = trackable_object_graph_pb2.TrackableObjectGraph()
    graph.ParseFromString(reader.get_tensor(GRAPH_KEY))
    slots = {slot.slot_variable_node_id for node in graph.nodes for slot in node.slot_variables}
    rows = [
        (attribute.checkpoint_key, attribute.full_name)
        for number, node in enumerate(graph.nodes)
        for attribute in node.attributes
        if attribute.name == "VARIABLE_VALUE" and number not in slots
    ]
    # Keras 3's optimizer lists the variables that it trains
    trained = [row for row in rows if "optimizer/_trainable_variables/" in row[0]]
    if trained:
        return sorted(trained, key=lambda row: int(row[0].split("/_trainable_variables/")[1].split("/")[0]))
    return [row for row in rows if not re.match(r"(.*/)?(optimizer|_optimizer|keras_api)/", row[0])]


def _named(shapes: dict[str, Any]) -> list[tuple[str, str]]:
    """Keys of a checkpoint of TensorFlow 1: the variables' names; an optimizer's slots are called VARIABLE/SLOT."""
    return [(name, name) for name in sorted(shapes) if name.rpartition("/")[0] not in shapes]


def saved(tf: Any, path: str) -> tuple[list[dict[str, Any]], str]:
    """The trainable variables of a checkpoint, and what their order is."""
    if path.endswith(".keras"):
        import keras

        return of_model(tf, keras.saving.load_model(path, compile=False)), "creation"
    prefix = _prefix(tf, path)
    try:
        reader = tf.train.load_checkpoint(prefix)
    except (ValueError, tf.errors.OpError) as error:
        raise UsageError(f"`checkpoint={path!r}`: {str(error).splitlines()[0]}") from None
    shapes, dtypes = reader.get_variable_to_shape_map(), reader.get_variable_to_dtype_map()
    objects = GRAPH_KEY in shapes
    rows, seen = [], set()
    for key, name in _full_names(reader) if objects else _named(shapes):
        name = name or key.split("/.ATTRIBUTES")[0]
        if key not in shapes or name in seen or not dtypes[key].is_floating or NOT_TRAINED.search(name):
            continue
        seen.add(name)
        rows.append(_row(name, shapes[key], dtypes[key]))
    if not rows:
        raise UsageError(f"`checkpoint={path!r}`: has no trainable variable among its {len(shapes)} entries: give `model` instead")
    return rows, "object graph" if objects else "alphabetical"


def main() -> int:
    """Write timelines of files, or variables, to ``--out``; an error as the last line on stderr."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*")
    parser.add_argument("--model")
    parser.add_argument("--checkpoint")
    parser.add_argument("--out", required=True)
    arguments = parser.parse_args()
    source = arguments.model or arguments.checkpoint

    def variables(tf: Any) -> Iterator[dict[str, Any]]:
        rows, order = (built(tf, source), "creation") if arguments.model else saved(tf, source)
        yield {"variables": rows, "source": source, "order": order}

    try:
        reader: Any = importlib.import_module("tensorflow") if source else _classes()
    except Exception as error:  # whatever a broken installation raises
        return _failed(EXIT_NOT_INSTALLED, f"{type(error).__name__}: {error}")
    try:
        with open(arguments.out, "w", encoding="utf-8") as out:
            for line in variables(reader) if source else timelines(reader, arguments.files):
                out.write(json.dumps(line) + "\n")
    except UsageError as error:
        return _failed(EXIT_USAGE, " ".join(str(error).split()) if source else str(error))
    except Exception as error:
        if not source:
            raise
        return _failed(EXIT_FAILED, f"{source}: {type(error).__name__}: {' '.join(str(error).split())}")  # of the user's own code
    return 0


def _failed(status: int, message: str) -> int:
    print(message, file=sys.stderr)
    return status
