"""Time stamps inside a training step: when the loss and when each gradient is there.

While a step is traced, ``tf.GradientTape.gradient`` is replaced by a function that adds
a clock behind the loss and behind each gradient. A clock takes one element of the tensor
copied to the CPU as its *input*: on a GPU that copy waits for the stream, where a control
edge would only wait until the kernel is queued. Each clock writes to a variable of its own.

The clock sits in a ``PartitionedCall``, an operation without side effects for TensorFlow:
``tf.function`` runs operations with side effects one after the other in the order in which
they were written down, and bare ``tf.timestamp`` operations would then wait for each other.
"""

from __future__ import annotations

import contextlib
import math
from typing import Any, Iterator


class Stamps:
    """Clocks at the loss and at each gradient, for as many steps as are run."""

    def __init__(self, tf: Any, barrier: bool) -> None:
        """``barrier`` makes the backward pass wait for the loss.

        On a CPU gradients that do not need the loss's value may otherwise run before it,
        and the two passes could not be told apart. A GPU runs them in order by itself.
        """
        self._tf = tf
        self._barrier = barrier
        self._clocks: dict[Any, Any] = {}
        self._slots: dict[tuple[str, int, int], Any] = {}
        self._index_of: dict[int, int] = {}
        self._call = 0
        with tf.device("/CPU:0"):
            self._empty = tf.constant(math.nan, tf.float64)
        self.sources: list[Any] = []
        """Variables in the order in which gradients were asked for."""
        self.sparse: dict[int, int] = {}
        """Variables with sparse gradient -> bytes of one touched row and its index."""
        self.gradient_dtypes: dict[int, str] = {}
        self.eager = False
        """Gradients were computed outside any ``tf.function``: their order in time cannot be seen."""

    def _clock(self, dtype: Any) -> Any:
        tf = self._tf
        if dtype not in self._clocks:

            def now(element: Any) -> Any:
                with tf.device("/CPU:0"), tf.control_dependencies([element]):
                    return tf.timestamp()

            with tf.init_scope():
                self._clocks[dtype] = tf.function(now, autograph=False).get_concrete_function(tf.TensorSpec([None], dtype))
        return self._clocks[dtype]

    def _keep(self, kind: str, index: int, value: Any) -> None:
        tf = self._tf
        key = (kind, self._call, index)
        if key not in self._slots:
            # the bare operation: tf.function forbids tf.Variable in any but its first trace
            with tf.init_scope(), tf.device("/CPU:0"):
                name = f"paceline_stamp_{id(self)}_{len(self._slots)}"
                self._slots[key] = tf.raw_ops.VarHandleOp(dtype=tf.float64, shape=[], shared_name=name)
                tf.raw_ops.AssignVariableOp(resource=self._slots[key], value=self._empty)
        with tf.device("/CPU:0"):
            tf.raw_ops.AssignVariableOp(resource=self._slots[key], value=value)

    def stamp(self, tensor: Any, kind: str, index: int) -> Any:
        """A clock behind a tensor: its time, since the epoch in seconds, as a tensor that is there when the clock was read."""
        tf = self._tf
        element = tf.reshape(tensor, [-1])[:1]
        with tf.device("/CPU:0"):
            element = tf.identity(element)
            if tf.executing_eagerly():
                element.numpy()
                time = tf.timestamp()
            else:
                time = tf.raw_ops.PartitionedCall(args=[element], Tout=[tf.float64], f=self._clock(element.dtype))[0]
            self._keep(kind, index, time)
        return time

    def _observe(self, source: Any, gradient: Any) -> None:
        tf = self._tf
        if id(source) not in self._index_of:
            self._index_of[id(source)] = len(self.sources)
            self.sources.append(source)
        index = self._index_of[id(source)]
        dense = gradient
        if isinstance(gradient, tf.IndexedSlices):
            dense = gradient.values
            row = math.prod(int(size) for size in source.shape[1:])
            self.sparse[index] = row * dense.dtype.size + gradient.indices.dtype.size
            rows = tf.cast(tf.shape(gradient.indices)[0], tf.float64)
            with tf.device("/CPU:0"):
                rows = tf.identity(rows)
            self._keep("rows", index, rows)
        self.gradient_dtypes[index] = dense.dtype.name
        self.stamp(dense, "gradient", index)

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Within, each gradient that is traced or computed gets its clock."""
        tf = self._tf
        original = tf.GradientTape.gradient

        def gradient(tape: Any, target: Any, sources: Any, output_gradients: Any = None, *args: Any, **kwargs: Any) -> Any:
            self.eager = self.eager or tf.executing_eagerly()
            losses = tf.nest.flatten(target)
            if losses:
                time = self.stamp(losses[0], "loss", 0)
                if self._barrier and output_gradients is None:
                    with tf.control_dependencies([time]):
                        output_gradients = tf.nest.map_structure(lambda one: tf.identity(tf.ones_like(one)), target)
            result = original(tape, target, sources, output_gradients, *args, **kwargs)
            flat_sources, flat_result = tf.nest.flatten(sources), tf.nest.flatten(result)
            for source, one in zip(flat_sources, flat_result):
                if one is not None and hasattr(source, "trainable"):
                    self._observe(source, one)
            self._call += 1
            return result

        tf.GradientTape.gradient = gradient
        try:
            yield
        finally:
            tf.GradientTape.gradient = original

    def reset(self) -> None:
        """Before each step: forget the last one's times."""
        self._call = 0
        for slot in self._slots.values():
            self._tf.raw_ops.AssignVariableOp(resource=slot, value=self._empty)

    def times(self) -> dict[tuple[str, int], float]:
        """What clocks of :meth:`stamp` showed in the last step, by kind and index."""
        read = self._tf.raw_ops.ReadVariableOp
        found = {(kind, index): float(read(resource=slot, dtype=self._tf.float64)) for (kind, _, index), slot in self._slots.items()}
        return {key: value for key, value in found.items() if not math.isnan(value)}

    def read(self) -> tuple[float | None, dict[int, float], dict[int, float]]:
        """Of the last step: time of the loss, of each variable's gradient, and rows touched.

        Times are seconds since the epoch; where a variable has several gradients a step,
        the last one's time counts, and their rows add up.
        """
        losses: list[float] = []
        ready: dict[int, float] = {}
        rows: dict[int, float] = {}
        for (kind, _, index), slot in self._slots.items():
            value = float(self._tf.raw_ops.ReadVariableOp(resource=slot, dtype=self._tf.float64))
            if math.isnan(value):  # belongs to a trace that was not run
                continue
            if kind == "loss":
                losses.append(value)
            elif kind == "gradient":
                ready[index] = max(value, ready.get(index, value))
            else:
                rows[index] = rows.get(index, 0.0) + value
        return (min(losses) if losses else None), ready, rows
