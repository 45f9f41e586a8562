"""Lists a model's trainable variables, from its builder or from what it was saved to; runs in the user's Python.

``--model FILE.py:FUNCTION`` builds a Keras model, ``--checkpoint PATH`` reads a checkpoint of
``tf.train.Checkpoint``, a SavedModel's folder, a checkpoint of TensorFlow 1, or a ``.keras``
file. Writes ``{"variables": [{"name", "shape", "dtype", "size_bytes"}...], "source", "order"}``:
the variables in the order in which the model created them. calibrate/xplane/variables.py reads that.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from typing import Any

from . import training
from .ending import EXIT_FAILED, EXIT_NOT_INSTALLED, EXIT_USAGE, UsageError

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")  # names and shapes need no device


GRAPH_KEY = "_CHECKPOINTABLE_OBJECT_GRAPH"
# what a checkpoint holds besides trainable variables
NOT_TRAINED = re.compile(
    r"(^|/)(moving_(mean|variance|avg)|moving_average|seed_generator_state|global_step|save_counter|iterations?|learning_rate|"
    r"beta\d_power|current_loss_scale|good_steps|total|count|ExponentialMovingAverage)(_\d+)?$"
)


def _row(name: str, shape: Any, dtype: Any) -> dict[str, Any]:
    count = 1
    for one in shape:
        count *= int(one)
    return {"name": name, "shape": [int(one) for one in shape], "dtype": dtype.name, "size_bytes": count * dtype.size}


def of_model(tf: Any, model: Any) -> list[dict[str, Any]]:
    """The trainable variables of a Keras model."""
    names = [str(getattr(one, "path", None) or one.name).split(":")[0] for one in model.trainable_variables]
    return [_row(name, one.shape, tf.as_dtype(one.dtype)) for name, one in zip(names, model.trainable_variables)]


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
        raise UsageError(f"{target}: the model has no variables before it is called; give it an Input, or build() it")
    return of_model(tf, model)


def _prefix(tf: Any, path: str) -> str:
    inside = os.path.join(path, "variables", "variables")
    if os.path.isfile(inside + ".index"):
        return inside
    if os.path.isdir(path):
        latest = tf.train.latest_checkpoint(path)
        if latest is None:
            raise UsageError(f"`checkpoint={path!r}`: holds no checkpoint, no SavedModel; give the folder or prefix that was saved to")
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
        raise UsageError(f"`checkpoint={path!r}`: names no trainable variable among its {len(shapes)} entries; give `model` instead")
    return rows, "object graph" if objects else "alphabetical"


def main() -> int:
    """Write the variables to ``--out``; an error as the last line on stderr."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--model")
    source.add_argument("--checkpoint")
    parser.add_argument("--out", required=True)
    arguments = parser.parse_args()
    try:
        import tensorflow as tf
    except Exception as error:  # whatever a broken installation raises
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return EXIT_NOT_INSTALLED
    try:
        if arguments.model:
            rows, order = built(tf, arguments.model), "creation"
        else:
            rows, order = saved(tf, arguments.checkpoint)
    except UsageError as error:
        print(" ".join(str(error).split()), file=sys.stderr)
        return EXIT_USAGE
    except Exception as error:  # of the user's own code
        print(f"{arguments.model or arguments.checkpoint}: {type(error).__name__}: {' '.join(str(error).split())}", file=sys.stderr)
        return EXIT_FAILED
    with open(arguments.out, "w", encoding="utf-8") as out:
        json.dump({"variables": rows, "source": arguments.model or arguments.checkpoint, "order": order}, out)
    return 0
