"""Counts the work of a training step on a device from its graph: floating-point operations, bytes and kernels.

The step is traced once more, with every function inside it written out; nothing runs.

Operations: matrix products and convolutions, forward and backward, a multiplication and an addition being two: ``2 x elements of the
product x length of the sum of each``. Element-wise operations are left out; it costs bytes, not operations.

Bytes: the inputs and outputs of every operation that a device would run, as if none were fused with another: an upper bound. Operations
that only rename a tensor (Identity, Reshape) are free, and in mixed precision so are casts, with all tensors taken in the shorter type, as
kernels that convert what they read find them.

Kernels: those operations, each of which a device must at least be told to start.

The branch that moves more bytes is counted (a loss scale that skips a step).
"""

from __future__ import annotations

import math
from typing import Any, Callable

FREE = frozenset((
    "Assert", "BroadcastGradientArgs", "Cast", "Const", "ExpandDims", "Fill", "Identity", "IdentityN", "NoOp", "OnesLike", "Placeholder",
    "PlaceholderWithDefault", "PreventGradient", "Rank", "ReadVariableOp", "Reshape", "Shape", "ShapeN", "Size", "Squeeze", "StopGradient",
    "VarHandleOp", "ZerosLike",
))  # fmt: skip
"""Operations that move no tensor on the device, or fill one with a constant."""
BRANCHES = ("If", "StatelessIf")
BRANCH_NAMES = ("then_branch", "else_branch")
OPAQUE = ("While", "StatelessWhile", "Case", "StatelessCase", "CudnnRNN", "PyFunc", "EagerPyFunc", "XlaLaunch")
"""Work of these depends on values, or is not visible."""
CONVOLUTIONS = ("Conv2D", "Conv3D", "DepthwiseConv2dNative")


class UncountableError(ValueError):
    """The graph does not say how much is done."""


def count(tf: Any, step: Callable[[], Any], float_bytes: int = 4) -> dict[str, float]:
    """Operations, bytes and kernels of one step.

    Parameters
    ----------
    tf
        The TensorFlow module.
    step
        Does one step; its variables exist already.
    float_bytes
        Size of the numbers that the model computes with: 2 in mixed precision.

    Returns
    -------
    dict
        ``flops``, ``bytes`` and ``kernels`` of a whole step.

    Raises
    ------
    UncountableError
        A loop, or a shape that is not known before it runs.
    """
    before = tf.config.functions_run_eagerly()
    tf.config.run_functions_eagerly(True)  # so that functions inside are written out, not called
    try:
        graph = tf.compat.v1.wrap_function(step, []).graph
    finally:
        tf.config.run_functions_eagerly(before)
    return _totals(tf, graph, float_bytes)


def _totals(tf: Any, graph: Any, float_bytes: int) -> dict[str, float]:
    total = {"flops": 0.0, "bytes": 0.0, "kernels": 0}
    for operation in operations(graph):
        if operation.type in BRANCHES:
            bodies = [body_of(graph, operation.get_attr(name).name) for name in BRANCH_NAMES]
            added = max((_totals(tf, body, float_bytes) for body in bodies), key=lambda each: each["bytes"])
        elif operation.type.startswith(OPAQUE):
            raise UncountableError("what " + operation.type + " does depends on values")
        elif operation.type in FREE or not (size := bytes_of(tf, operation, float_bytes)):
            continue
        else:
            added = {"flops": flops_of(tf, operation), "bytes": size, "kernels": 1}
        for key, value in added.items():
            total[key] += value
    return total


def operations(graph: Any) -> Any:
    """Every operation of a graph that its results need, those of functions it calls included."""
    for operation in needed(graph):
        if operation.type in ("PartitionedCall", "StatefulPartitionedCall"):
            yield from operations(body_of(graph, operation.get_attr("f").name))
        else:
            yield operation


def needed(graph: Any) -> Any:
    """Operations that results or changes of state depend on; TensorFlow leaves out all others (the gradient of the model's input)."""
    waiting = [tensor.op for tensor in graph.outputs] + list(graph.control_outputs)
    waiting += [operation for operation in graph.get_operations() if operation.op_def.is_stateful]
    seen = set()
    while waiting:
        operation = waiting.pop()
        if operation.name not in seen:
            seen.add(operation.name)
            waiting += [tensor.op for tensor in operation.inputs] + list(operation.control_inputs)
            yield operation


def body_of(graph: Any, name: str) -> Any:
    """The graph of a function that an operation calls."""
    while graph is not None:
        inner = getattr(graph, "_functions", {}).get(name)
        if getattr(inner, "graph", None) is not None:
            return inner.graph
        graph = getattr(graph, "outer_graph", None)
    raise UncountableError("the function " + name + " cannot be looked into")


def bytes_of(tf: Any, operation: Any, float_bytes: int) -> float:
    """Bytes that an operation reads and writes; 0 where it touches no numbers of the model."""
    tensors = [each for each in (*operation.inputs, *operation.outputs) if each.dtype not in (tf.resource, tf.variant, tf.string)]
    if not any(each.dtype.is_floating for each in tensors):
        return 0.0
    touched = list(tensors)
    if operation.type in ("AssignAddVariableOp", "AssignSubVariableOp"):
        touched += 2 * [operation.inputs[1]]  # the variable is read and written
    elif operation.type == "AssignVariableOp":
        touched.append(operation.inputs[1])
    return float(sum(elements(each) * min(each.dtype.size, float_bytes if each.dtype.is_floating else 16) for each in touched))


def flops_of(tf: Any, operation: Any) -> float:
    """Floating-point operations of a matrix product or convolution; 0 for all others."""
    kind = operation.type
    if kind == "MatMul":
        return 2.0 * elements(operation.outputs[0]) * _size(operation.inputs[0].shape[0 if operation.get_attr("transpose_a") else 1])
    if kind.startswith("BatchMatMul"):
        return 2.0 * elements(operation.outputs[0]) * _size(operation.inputs[0].shape[-2 if operation.get_attr("adj_x") else -1])
    if kind == "Einsum":
        return _einsum(operation)
    if not kind.startswith(CONVOLUTIONS):
        return 0.0
    # each element of the result, or of its gradient, meets one window of the filter
    if "BackpropInput" in kind:
        result, window = operation.inputs[2], _shape(operation.inputs[1])
    elif "BackpropFilter" in kind:
        result, window = operation.inputs[2], _filter(tf, operation)
    else:
        result, window = operation.outputs[0], _shape(operation.inputs[1])
    used = window[:-2] if kind.startswith("Depthwise") else window[:-1]
    return 2.0 * elements(result) * math.prod(used)


def _filter(tf: Any, operation: Any) -> Any:
    """Shape of a filter whose gradient is computed."""
    shape = tf.get_static_value(operation.inputs[1])
    return [int(size) for size in shape] if shape is not None else _shape(operation.outputs[0])


def _einsum(operation: Any) -> float:
    equation = operation.get_attr("equation").decode()
    if "." in equation:
        raise UncountableError("the einsum " + equation + " does not name all of its dimensions")
    sizes = {}
    for letters, tensor in zip(equation.split("->")[0].split(","), operation.inputs):
        sizes.update(zip(letters.strip(), _shape(tensor)))
    return (2.0 if len(operation.inputs) > 1 else 0.0) * math.prod(sizes.values())


def elements(tensor: Any) -> int:
    """How many numbers a tensor holds; where its shape is not known before it runs, as many as the largest that it is made of."""
    if tensor.shape.is_fully_defined():
        return math.prod(_shape(tensor))
    if not len(tensor.op.inputs):
        raise UncountableError("the shape of " + tensor.name + " is not known before it runs")
    return max(elements(source) for source in tensor.op.inputs)


def _shape(tensor: Any) -> list[int]:
    if tensor.shape.rank is None:
        raise UncountableError("the shape of " + tensor.name + " is not known before it runs")
    return [_size(size) for size in tensor.shape]


def _size(size: Any) -> int:
    if size is None:
        raise UncountableError("a dimension is not known before it runs")
    return int(size)
