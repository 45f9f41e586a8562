"""Cuts a Keras model into a chain of layers, and measures each: time, operations, bytes that it hands on, bytes that it keeps.

A model is cut at every tensor through which all paths from its inputs to its outputs pass;
the part between two such tensors (such as a residual block) is one layer. A step is then
written down layer by layer, forward and backward, with two clocks at each cut and a barrier
between them: a layer's time is from the second clock of one cut to the first of the next, so
that what the clocks themselves take counts for no layer.
"""

from __future__ import annotations

from typing import Any, Callable, NamedTuple, Sequence

from . import counting, training
from .recording import UsageError

SHAPE_ONLY = frozenset(("BroadcastGradientArgs", "OnesLike", "Rank", "Shape", "ShapeN", "Size", "ZerosLike"))
"""Operations that need to know of a tensor how large it is, not what is in it."""
RENAMED = frozenset(("ExpandDims", "Identity", "Reshape", "Squeeze", "StopGradient", "PreventGradient"))
"""Operations whose result is their first input under another name: the same bytes."""


class Layer(NamedTuple):
    """One link of the chain: a Keras model of a part of the user's, with one tensor in and one out.

    Attributes
    ----------
    name
        Of the Keras layer; of several the first and the last.
    part
        The Keras model that computes it, on the user's own variables.
    """

    name: str
    part: Any

    @property
    def variables(self) -> list[Any]:
        """Its trainable variables."""
        return list(self.part.trainable_variables)


def cut(model: Any, at_least: int = 2) -> list[Layer]:
    """The layers of a model, in the order of its forward pass.

    Parameters
    ----------
    model
        A built Keras model, Sequential or functional. A model inside that is a layer of
        its own is cut as well.
    at_least
        Fewer layers than that are refused.

    Raises
    ------
    UsageError
        Keras does not know how its layers hang together (a subclass of Model with a ``call`` of its own), or no
        tensor but input and output has all paths through it.
    """
    chain = _chain(model, inside=True)
    if chain is None:
        raise UsageError(
            f"--layers: {model.name} is a {type(model).__name__} whose layers Keras 3 does not see separately: build it with "
            "keras.Sequential or keras.Model(inputs, outputs), or leave --layers out"
        )
    groups = _sharing(chain)
    if any(len({link.graph for link in group}) > 1 for group in groups):  # no model goes from within one to within another
        groups = _sharing(_chain(model, inside=False) or [])
    if len(groups) < at_least:
        raise UsageError(
            f"--layers: {model.name} cannot be split: no inner tensor lies on all paths from input to output with different variables "
            "before and after it; leave --layers out"
        )
    import keras

    layers = []
    for group in groups:
        names = [name for link in group for name in link.names]
        name = names[0] if len(names) == 1 else f"{names[0]}..{names[-1]}"
        layers.append(Layer(name[:200], keras.Model(group[0].start, group[-1].end)))
    return layers


def _graph_of(model: Any) -> Any:
    """The functional model behind it, or None."""
    inner = getattr(model, "_functional", None) or model
    known = all(hasattr(inner, name) for name in ("_nodes_by_depth", "_inputs_struct", "_outputs_struct"))
    # a subclass may build a graph and then not follow it
    own_call = type(inner).call is not _functional_call() if known else True
    return None if own_call else inner


def _functional_call() -> Any:
    import keras

    return type(keras.Sequential([keras.Input((1,)), keras.layers.Flatten()])._functional).call


class Link(NamedTuple):
    """Part between two cuts: names of Keras layers, tensors in and out, trainable variables by identity, whose graph it is."""

    names: list[str]
    start: Any
    end: Any
    variables: set[int]
    graph: int


def _chain(model: Any, inside: bool) -> list[Link] | None:
    """Links between the cuts of a model, and with ``inside`` of models that are layers of it; None where its graph is not known."""
    graph = _graph_of(model)
    if graph is None:
        return None
    import keras

    nodes = [node for depth in sorted(graph._nodes_by_depth, reverse=True) for node in graph._nodes_by_depth[depth] if not node.is_input]
    last_use = {id(tensor): place for place, node in enumerate(nodes) for tensor in node.input_tensors}
    last_use.update((id(tensor), len(nodes)) for tensor in graph._outputs)
    live = {id(tensor): tensor for tensor in graph._inputs}
    links: list[Link] = []
    start, since = graph._inputs_struct, 0
    for place, node in enumerate(nodes):
        live.update((id(tensor), tensor) for tensor in node.outputs)
        live = {key: tensor for key, tensor in live.items() if last_use.get(key, -1) > place}
        whole = place == len(nodes) - 1
        if len(live) > 1 and not whole:
            continue
        end = graph._outputs_struct if whole else next(iter(live.values()))
        among = [node.operation for node in nodes[since : place + 1]]
        within = _chain(among[0], inside) if inside and len(among) == 1 and isinstance(among[0], keras.Model) else None
        if within is not None and len(within) > 1:
            links += within
        else:
            variables = {id(variable) for each in among for variable in getattr(each, "trainable_variables", ())}
            links.append(Link([each.name for each in among], start, end, variables, id(graph)))
        start, since = end, place + 1
    return links


def _sharing(links: list[Link]) -> list[list[Link]]:
    """Links in groups: those that share a variable, and all between them, are one layer."""
    first: dict[int, int] = {}
    reach = list(range(len(links)))
    for place, link in enumerate(links):
        for variable in link.variables:
            begin = first.setdefault(variable, place)
            reach[begin] = max(reach[begin], place)
    groups: list[list[Link]] = []
    end = -1
    for place, link in enumerate(links):
        if place > end:
            groups.append([])
        groups[-1].append(link)
        end = max(end, reach[place])
    return groups


class Passes:
    """A training step written down layer by layer.

    Parameters
    ----------
    tf
        The TensorFlow module.
    steps
        The ``ModelSteps`` of the user's model, which is built.

    Attributes
    ----------
    layers
        From :func:`cut`.
    first
        The first layer with variables, where the backward pass ends.
    """

    def __init__(self, tf: Any, steps: Any) -> None:
        self._tf = tf
        self._steps = steps
        self.layers = cut(steps.model)
        trains = [bool(layer.variables) for layer in self.layers]
        self.first = trains.index(True) if any(trains) else len(trains) - 1

    def results(self, x: Any, y: Any, at_cut: Callable[[str, int, list[Any]], list[Any]]) -> list[Any]:
        """Loss and all gradients of :meth:`body`, since what only clocks wait for is left out of a graph."""
        loss, by_layer = self.body(x, y, at_cut)
        return [loss, *(gradient for gradients in by_layer for gradient in _dense(self._tf, gradients))]

    def body(self, x: Any, y: Any, at_cut: Callable[[str, int, list[Any]], list[Any]]) -> Any:
        """Forward and backward pass; returns loss and gradients by layer.

        ``at_cut(phase, index, tensors)`` is called when the tensors that end a layer's pass
        are there, ``forward`` or ``backward``, before the next one begins; it returns what takes the
        place of these tensors.
        """
        tf = self._tf
        tapes, ins, outs = [], [], []
        value = tf.nest.pack_sequence_as(x, at_cut("begin", 0, tf.nest.flatten(x)))
        last = len(self.layers) - 1
        for index, layer in enumerate(self.layers):
            with tf.GradientTape() as tape:
                ins.append(value)
                if index > self.first:
                    tape.watch(value)
                value = layer.part(value, training=True)
                if index == last:
                    value = self._steps.loss_of(y, value, layer.part.losses)
                    targets = [value]
                else:
                    targets = [value, *(tf.cast(loss, tf.float32) for loss in layer.part.losses)]
            tapes.append(tape)
            outs.append(targets)
            flat = at_cut("forward", index, tf.nest.flatten(value))
            value = tf.nest.pack_sequence_as(value, flat)
        by_layer: list[list[Any]] = [[] for _ in self.layers]
        with tf.control_dependencies([value]):  # gradients that do not need the loss's value are not to run before it is there
            flowing = [tf.identity(tf.ones_like(value))]
        for index in range(last, self.first - 1, -1):
            sources = [*([ins[index]] if index > self.first else []), *self.layers[index].variables]
            above = [*flowing, *(tf.ones_like(out) for out in outs[index][1:])]
            gradients = tapes[index].gradient(outs[index], sources, output_gradients=above)
            if index > self.first:
                back, gradients = gradients[0], gradients[1:]
                if back is None:  # nothing flows further: what stands before it learns nothing from this loss
                    back = tf.zeros_like(ins[index])
                flowing = at_cut("backward", index, [back, *_dense(tf, gradients)])[:1]
            else:
                at_cut("backward", index, _dense(tf, gradients))
            by_layer[index] = gradients
        return value, by_layer

    def timed(self, batch: int, device: str, stamps: Any) -> Callable[[], Any]:
        """A callable that does the step once, with clocks of ``stamps`` at the cuts."""
        tf = self._tf
        with tf.device(device):
            x, y = self._steps.batch_of(batch)

        def at_cut(phase: str, index: int, tensors: list[Any]) -> list[Any]:
            if not tensors:
                return tensors
            ended = stamps.stamp(_gated(tf, tensors, tensors)[0], phase + "-end", index)
            begun = stamps.stamp(_gated(tf, tensors[:1], [ended])[0], phase + "-begin", index)
            return _gated(tf, tensors, [begun])

        return training.placed(tf, device, tf.function(lambda x, y: self.results(x, y, at_cut)), x, y)

    def seconds(self, times: dict[tuple[str, int], float]) -> tuple[list[float], list[float]]:
        """Forward and backward seconds of each layer, from the clocks of one step."""
        count = len(self.layers)
        forward = [
            times["forward-end", index] - times[("forward-begin", index - 1) if index else ("begin-begin", 0)] for index in range(count)
        ]
        backward = [0.0] * count
        for index in range(self.first, count):
            before = ("backward-begin", index + 1) if index < count - 1 else ("forward-begin", index)
            if ("backward-end", index) in times:
                backward[index] = times["backward-end", index] - times[before]
        return [max(seconds, 0.0) for seconds in forward], [max(seconds, 0.0) for seconds in backward]

    def sizes(self, batch: int) -> list[dict[str, float | None]]:
        """Of each layer, for a batch: bytes that it hands on, bytes kept for its backward pass, operations.

        Nothing runs: the step is traced. *Kept* are the results of the forward pass that operations of
        the backward pass read, each once: a tensor that both of two layers read is the later
        one's, which takes it in. Variables are not counted, nor what has another name for the
        same bytes. Operations are counted as :mod:`.counting` does; None where they cannot be.
        """
        tf = self._tf
        x, y = self._steps.batch_of(batch)
        marks: list[tuple[str, int, int]] = []
        handed: list[float] = [0.0] * len(self.layers)

        def at_cut(phase: str, index: int, tensors: list[Any]) -> list[Any]:
            marks.append((phase, index, len(tf.compat.v1.get_default_graph().get_operations())))
            if phase == "forward" and index < len(self.layers) - 1:
                handed[index] = float(sum(counting.elements(tensor) * tensor.dtype.size for tensor in tensors))
            return tensors

        specs = [tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in tf.nest.flatten((x, y)) if tensor is not None]

        def body(*flat: Any) -> Any:
            left = iter(flat)
            own_x, own_y = tf.nest.map_structure(lambda part: None if part is None else next(left), (x, y))
            return self.results(own_x, own_y, at_cut)

        before = tf.config.functions_run_eagerly()
        tf.config.run_functions_eagerly(True)  # so that functions inside are written out, not called
        try:
            # the batch as arguments: a small one would become constants, which are no activations
            graph = tf.compat.v1.wrap_function(body, specs).graph
        finally:
            tf.config.run_functions_eagerly(before)
        owner = self._owners(graph, marks)
        kept = self._kept(tf, graph, owner)
        flops: list[float | None] = [0.0] * len(self.layers)
        for operation in counting.needed(graph):
            if operation.name in owner:
                index = owner[operation.name][1]
                try:
                    flops[index] = None if flops[index] is None else flops[index] + _flops(tf, graph, operation)
                except ValueError:
                    flops[index] = None
        return [{"output_bytes": handed[index], "kept_bytes": kept[index], "flops": flops[index]} for index in range(len(self.layers))]

    def write_sizes(self, recorder: Any, batches: Sequence[int]) -> None:
        """A record of each layer at the smallest and at the largest batch size."""
        order = {id(variable): place for place, variable in enumerate(self._steps.variables())}
        for batch in (min(batches), max(batches)):
            for index, (layer, sizes) in enumerate(zip(self.layers, self.sizes(batch))):
                created = sorted(order[id(variable)] for variable in layer.variables)
                recorder.write("layer", index=index, name=layer.name, batch=batch, variables=created, **sizes)

    @staticmethod
    def _owners(graph: Any, marks: list[tuple[str, int, int]]) -> dict[str, tuple[str, int]]:
        """Phase and layer of each operation, by the marks between which it was written down."""
        names = [operation.name for operation in graph.get_operations()]
        owners: dict[str, tuple[str, int]] = {}
        since = 0
        for phase, index, until in marks:
            owners.update((name, (phase, index)) for name in names[since:until] if phase != "begin")
            since = until
        return owners

    def _kept(self, tf: Any, graph: Any, owner: dict[str, tuple[str, int]]) -> list[float]:
        readers: dict[str, tuple[Any, int]] = {}
        for operation in counting.needed(graph):
            phase, index = owner.get(operation.name, ("", -1))
            if phase != "backward" or operation.type in SHAPE_ONLY:
                continue
            for read in operation.inputs:
                tensor = _itself(read)
                made_in = owner.get(tensor.op.name, ("forward", -1))[0]
                if (
                    made_in == "forward"
                    and tensor.dtype not in (tf.resource, tf.variant)
                    and tensor.op.type not in ("Const", "ReadVariableOp")
                ):
                    known = readers.get(tensor.name, (tensor, -1))[1]
                    readers[tensor.name] = (tensor, max(index, known))
        kept = [0.0] * len(self.layers)
        for tensor, index in readers.values():
            kept[index] += counting.elements(tensor) * tensor.dtype.size
        return kept


def _dense(tf: Any, gradients: Sequence[Any]) -> list[Any]:
    return [gradient.values if isinstance(gradient, tf.IndexedSlices) else gradient for gradient in gradients if gradient is not None]


def _gated(tf: Any, tensors: Sequence[Any], until: Sequence[Any]) -> list[Any]:
    """The tensors, not before all of others are there."""
    with tf.control_dependencies(list(until)):
        return [tf.identity(tensor) for tensor in tensors]


def _itself(tensor: Any) -> Any:
    while tensor.op.type in RENAMED:
        tensor = tensor.op.inputs[0]
    return tensor


def _flops(tf: Any, graph: Any, operation: Any) -> float:
    if operation.type in counting.BRANCHES or operation.type.startswith(counting.OPAQUE):
        raise ValueError("what " + operation.type + " does depends on values")
    if operation.type in ("PartitionedCall", "StatefulPartitionedCall"):
        return float(
            sum(counting.flops_of(tf, each) for each in counting.operations(counting.body_of(graph, operation.get_attr("f").name)))
        )
    return float(counting.flops_of(tf, operation))
