"""Training steps under TensorFlow: of a Keras model, or of the user's own.

Time stamps inside a step tell when the loss and when each gradient is there. While a step is traced, ``tf.GradientTape.gradient`` is
replaced by a function that adds a clock behind the loss and behind each gradient. A clock takes one element of the tensor copied to the
CPU as its *input*: on a GPU that copy waits for the stream, where a control edge would only wait until the kernel is queued. Each clock
writes to a variable of its own. It sits in a ``PartitionedCall``, an operation without side effects for TensorFlow: ``tf.function`` runs
operations with side effects one after the other in the order in which they were written down, and bare ``tf.timestamp`` operations would
then wait for each other.
"""

from __future__ import annotations

import contextlib
import math
import time
from typing import Any, Iterator

from . import machine, recording, training
from .training import ModelSteps, Step


class TensorFlow:
    """TensorFlow on one device.

    Parameters
    ----------
    arguments
        Of the probe: ``device`` such as ``CPU`` or ``GPU:1``, None for the first GPU, else the CPU; and ``jit``.

    Raises
    ------
    NotInstalledError
        This Python has no TensorFlow.
    """

    name = "tensorflow"

    def __init__(self, arguments: Any) -> None:
        self.tf = tf = recording.framework(self.name)
        self._arguments = arguments
        self.place, self.kind = machine.choose_device(tf, arguments.device)
        self.index = int(self.place.rpartition(":")[2])
        self._watched_factory: Any = None

    def fingerprint(self) -> dict[str, Any]:
        """Everything that a measured time may depend on, as plain data."""
        return machine.fingerprint(self.tf, self.place, self.kind)

    def on_device(self) -> Any:
        """Within, tensors are made on the device."""
        return self.tf.device(self.place)

    def wait(self, _: Any) -> None:
        """Until the device has done all that was asked of it."""
        self.tf.test.experimental.sync_devices()

    def model_of(self, built: Any, mixed: bool) -> ModelSteps:
        """The model that the user's function has built."""
        return ModelSteps(self.tf, built, mixed)

    def step_of(self, made: ModelSteps, batch: int) -> Step:
        """A callable that does one step on a batch that already lies on the device."""
        return made.step(batch, self.place, self._arguments.jit)

    def evaluation_of(self, made: ModelSteps, batch: int) -> Step:
        """A callable that computes the loss of a batch, without gradients."""
        return made.evaluation(batch, self.place, self._arguments.jit)

    def peak_bytes(self, step: Step) -> int | None:
        """Most bytes that a step has on the device; None where the device does not count them."""
        if self.kind != "GPU":
            return None
        name = self.place.lstrip("/")
        try:
            self.tf.config.experimental.reset_memory_stats(name)
            self.wait(step())
            return int(self.tf.config.experimental.get_memory_info(name)["peak"])
        except (ValueError, AttributeError, KeyError):
            return None

    def split_of(self, made: ModelSteps | None, batch: int, _: Step) -> Stamped:
        """Tells how the passes share a step, and when each gradient is ready."""
        return Stamped(self, made, batch)

    def instrumented_step(self, made: ModelSteps | None, batch: int) -> Step:
        """A second copy of the step, to be traced while its gradients are watched; without XLA, which knows no clocks."""
        if made is not None:
            return made.step(batch, self.place, False)
        original = self.tf.function

        def without_xla(*args: Any, **kwargs: Any) -> Any:
            kwargs.pop("jit_compile", None)
            return original(*args, **kwargs)

        self.tf.function = without_xla
        try:
            if self._watched_factory is None:
                self._watched_factory = training.load_function(self._arguments.step, "_instrumented")
            return training.custom_step(self.on_device, self._watched_factory, batch)
        finally:
            self.tf.function = original


class Stamped:
    """Steps with clocks inside, one set a batch size: a step of the user's own may make new variables for each."""

    def __init__(self, on: TensorFlow, made: ModelSteps | None, batch: int) -> None:
        self._on, self._made = on, made
        self._clocks = Stamps(on.tf, barrier=on.kind == "CPU")
        with self._clocks.watching():
            self._step = on.instrumented_step(made, batch)

    def once(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Kinds and fields of the records of one step: ``split``, ``ready`` and ``rows``; nothing where no gradient was seen."""
        clocks = self._clocks
        clocks.reset()
        with clocks.watching():
            # the clocks inside the step tell the time since the epoch, so must these
            start = time.time()
            self._on.wait(self._step())
            end = time.time()
        loss, ready, rows = clocks.read()
        if loss is not None and ready:
            last = max(ready.values())
            # without a barrier a gradient may be there before the loss's last operation
            loss = min(loss, *ready.values())
            yield "split", {"forward_s": max(loss - start, 0.0), "backward_s": max(last - loss, 0.0), "apply_s": max(end - last, 0.0)}
            since = {str(key): max(value - loss, 0.0) for key, value in ready.items()}
            yield "ready", {"observed": not clocks.eager, "ready_s": since}
        for variable, count in rows.items():
            yield "rows", {"variable": variable, "rows": count}

    def variables(self) -> Iterator[dict[str, Any]]:
        """The fields of a ``variable`` record for each variable whose gradient was seen."""
        clocks = self._clocks
        order = [id(variable) for variable in self._made.variables()] if self._made else []
        for index, source in enumerate(clocks.sources):
            dtype, shape = self._on.tf.as_dtype(source.dtype), [int(size) for size in source.shape]
            yield {
                "index": index, "name": str(getattr(source, "path", source.name)), "shape": shape, "dtype": dtype.name,
                "size_bytes": math.prod(shape) * dtype.size, "gradient_dtype": clocks.gradient_dtypes[index],
                "sparse_row_bytes": clocks.sparse.get(index),
                "created": order.index(id(source)) if id(source) in order else len(order) + index,
            }  # fmt: skip


class Stamps:
    """Clocks at the loss and at each gradient, for as many steps as are run."""

    def __init__(self, tf: Any, barrier: bool) -> None:
        """``barrier`` makes the backward pass wait for the loss.

        On a CPU gradients that do not need the loss's value may otherwise run before it,
        and the two passes could not be told apart. A GPU already runs them in order.
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
                        output_gradients = tf.nest.map_structure(lambda loss: tf.identity(tf.ones_like(loss)), target)
            result = original(tape, target, sources, output_gradients, *args, **kwargs)
            for source, value in zip(tf.nest.flatten(sources), tf.nest.flatten(result)):
                if value is not None and hasattr(source, "trainable"):
                    self._observe(source, value)
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

    def _last(self) -> Iterator[tuple[str, int, float]]:
        """Kind, index and value of each slot of the last step; others belong to traces that were not run."""
        for (kind, _, index), slot in self._slots.items():
            value = float(self._tf.raw_ops.ReadVariableOp(resource=slot, dtype=self._tf.float64))
            if not math.isnan(value):
                yield kind, index, value

    def times(self) -> dict[tuple[str, int], float]:
        """Times that clocks of :meth:`stamp` showed in the last step, by kind and index."""
        return {(kind, index): value for kind, index, value in self._last()}

    def read(self) -> tuple[float | None, dict[int, float], dict[int, float]]:
        """Read of the last step the time of the loss, of each variable's gradient, and rows touched.

        Times are seconds since the epoch; where a variable has several gradients a step,
        the last one's time counts, and their rows add up.
        """
        losses: list[float] = []
        ready: dict[int, float] = {}
        rows: dict[int, float] = {}
        for kind, index, value in self._last():
            if kind == "loss":
                losses.append(value)
            elif kind == "gradient":
                ready[index] = max(value, ready.get(index, value))
            else:
                rows[index] = rows.get(index, 0.0) + value
        return min(losses, default=None), ready, rows
