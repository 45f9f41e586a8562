"""Real compute: forward and backward pass of the user's model, on values pulled from variables that replace its own.

The model is built in the process that traces the step, traced once through Keras 3's
stateless call, and kept as a graph without variables and devices: values of the trainable
variables go in, gradients come out. So the same graph runs on a worker of any strategy,
in a ``tf.function`` or in a session of compat.v1.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import training
from ..recording import UsageError, let_import
from .hub import CannotComputeError, Task

OTHERWISE = "choose emulated compute for it"


class RealCompute:
    """Compute of a worker between pull and push.

    Parameters
    ----------
    builder
        FILE.py:FUNCTION, as ``paceline calibrate`` takes it.
    batch
        Samples; made once, held as constants of the graph, so that they lie on the worker.

    Attributes
    ----------
    initial
        Values of the trainable variables, in the order of creation.
    names
        Names of these variables.
    sparse
        By position of a variable with a sparse gradient: rows that a batch looks up, repeated ones counted.
    """

    def __init__(self, tf: Any, builder: str, batch: int) -> None:
        let_import(builder)
        function = training.load_function(builder)
        import keras

        steps = training.ModelSteps(tf, function(), False)
        if not hasattr(steps.model, "stateless_call"):
            raise CannotComputeError(f"this Keras ({keras.__version__}) has no stateless calls; install Keras 3, or {OTHERWISE}")
        x, y = steps.batch_of(batch)
        self.initial = [np.asarray(variable.numpy()) for variable in steps.variables()]
        self.names = [str(getattr(variable, "path", variable.name)) for variable in steps.variables()]
        self.sparse: dict[int, int] = {}
        self._trace(tf, steps, x, y)

    def _trace(self, tf: Any, steps: Any, x: Any, y: Any) -> None:
        rest = [variable.numpy() for variable in steps.model.non_trainable_variables]
        held = [None if part is None else part.numpy() for part in tf.nest.flatten((x, y))]

        def gradients(*values: Any) -> Any:
            # a default is no constant: nothing that follows from the batch alone is computed beforehand
            flat = [None if part is None else tf.compat.v1.placeholder_with_default(tf.constant(part), part.shape) for part in held]
            own_x, own_y = tf.nest.pack_sequence_as((x, y), flat)
            with tf.GradientTape() as tape:
                tape.watch(values)
                outputs, changed, losses = steps.model.stateless_call(
                    list(values), [tf.constant(value) for value in rest], own_x, training=True, return_losses=True
                )
                loss = steps.loss_of(own_y, outputs, losses)
            computed = tape.gradient(loss, values, unconnected_gradients=tf.UnconnectedGradients.ZERO)
            return list(computed), [tf.convert_to_tensor(value) for value in changed]

        traced = tf.function(gradients).get_concrete_function(*[tf.TensorSpec(value.shape, value.dtype) for value in self.initial])
        computed, changed = traced.structured_outputs
        graph = traced.graph
        self._inputs = [tensor.name for tensor in graph.inputs[: len(self.initial)]]
        self._captured = {}
        for outside, inside in graph.captures:
            if outside.dtype == tf.resource:
                raise CannotComputeError(f"it reads a variable that is not the model's own ({inside.name}); {OTHERWISE}")
            self._captured[inside.name] = outside.numpy()
        self._outputs: list[tuple[str, ...]] = []
        for number, gradient in enumerate(computed):
            if isinstance(gradient, tf.IndexedSlices):
                self.sparse[number] = int(np.prod(gradient.indices.shape.as_list()))
                self._outputs.append((gradient.values.name, gradient.indices.name))
            else:
                self._outputs.append((gradient.name,))
        self._changed = [tensor.name for tensor in changed]
        self._graph = graph.as_graph_def()
        for nodes in (self._graph.node, *(function.node_def for function in self._graph.library.function)):
            for node in nodes:
                node.device = ""

    def gradients(self, tf: Any, values: list[Any]) -> tuple[list[Any], list[Any]]:
        """Add the passes to the graph that is being built: gradients (sparse ones as IndexedSlices), and all else that they compute."""
        inputs = {**dict(zip(self._inputs, values)), **{name: tf.constant(value) for name, value in self._captured.items()}}
        wanted = [name for names in self._outputs for name in names] + self._changed
        results = iter(tf.compat.v1.import_graph_def(self._graph, input_map=inputs, return_elements=wanted, name="model"))
        gradients = []
        for number, names in enumerate(self._outputs):
            if len(names) == 1:
                gradients.append(next(results))
            else:
                gradients.append(tf.IndexedSlices(next(results), next(results), tf.constant(self.initial[number].shape, tf.int64)))
        return gradients, list(results)


def load(tf: Any, task: Task) -> RealCompute | None:
    """The setting's model, if its compute is real; the file of measurements says what it computes.

    Raises
    ------
    CannotComputeError
        It cannot be built or traced, or is another model than the setting's variables were taken from.
    """
    setting = task.setting
    if setting["compute"]["kind"] != "real":
        return None
    builder = setting["builder"]
    try:
        model = RealCompute(tf, builder, setting["batch"])
    except CannotComputeError as error:
        raise CannotComputeError(f"{builder}: {error}") from error
    except UsageError:
        raise
    except Exception as error:
        said = " ".join(str(error).split())[:300]
        raise CannotComputeError(f"{builder}: cannot be computed on pulled values ({type(error).__name__}: {said}); {OTHERWISE}") from error
    asked = [tuple(variable["shape"]) for variable in setting["variables"]]
    built = [value.shape for value in model.initial]
    if asked != built:
        raise CannotComputeError(
            f"{builder}: its variables are {_shapes(built)}, but the setting has {_shapes(asked)}: describe the model again"
        )
    if task.index == 0:
        dense = [model.names[number] for number in sorted(model.sparse)]
        task.line.say("note", compute="real", builder=builder, batch=setting["batch"], pulled_dense=dense)
    return model


def _shapes(shapes: list[tuple[int, ...]]) -> str:
    shown = ", ".join("x".join(str(side) for side in shape) or "scalar" for shape in shapes[:4])
    return f"{len(shapes)} ({shown}{', ...' if len(shapes) > 4 else ''})"


def describe(tf: Any, recorder: Any, builder: str, batch: int) -> None:
    """Write a model's variables, in the order of creation, and the rows that a batch touches of sparse ones."""
    model = RealCompute(tf, builder, batch)
    for index, (name, value) in enumerate(zip(model.names, model.initial)):
        dtype = tf.as_dtype(value.dtype).name
        row_bytes = value[0].nbytes + np.dtype(np.int64).itemsize if index in model.sparse else None
        recorder.write(
            "variable", index=index, name=name, shape=list(value.shape), dtype=dtype, size_bytes=value.nbytes, gradient_dtype=dtype,
            sparse_row_bytes=row_bytes, created=index,
        )  # fmt: skip
        if index in model.sparse:
            recorder.write("rows", batch=batch, index=0, variable=index, rows=model.sparse[index])
