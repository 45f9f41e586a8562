"""The emulated model: plain variables of the same shapes, types and order, and one training step on them.

A step pulls every variable, computes, and pushes a gradient for each. Where nothing real
is computed, a variable's own value is what travels back as its gradient. Gradients are
applied with a learning rate of zero: the same bytes, the same kernel on the server.

Its compute is a sleep on the worker. The sleep is TensorFlow's own (the data set that its tests
slow down with): it blocks neither Python nor a core, and stands in the graph between the last
byte of the pull and the first of the push. calibrate/testbed/loading.py names the same laws of its length, and
calibrate/testbed/scenarios.py has the same share of the forward pass.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from .real import RealCompute


def on(tf: Any, where: Any) -> Any:
    """Place what is built in the block; ``where`` is a device, a function of compat.v1 that chooses one, or None: as it is."""
    return contextlib.nullcontext() if where is None else tf.compat.v1.device(where)


@dataclass(frozen=True)
class Layer:
    """One variable, in the order of creation."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    rows: int | None
    """Rows that a step touches, of a sparse one; all others are dense."""
    ready: float
    """Share of the backward pass after which its gradient is there."""


def layers_of(setting: dict[str, Any]) -> list[Layer]:
    """The variables that a setting names; real compute needs all rows of a sparse one."""
    real = setting["compute"]["kind"] == "real"
    return [
        Layer(one["name"], tuple(one["shape"]), one.get("dtype", "float32"), None if real else one.get("rows"), one.get("ready", 1.0))
        for one in setting["variables"]
    ]


def create(tf: Any, layers: list[Layer], make: Any, model: RealCompute | None = None) -> list[Any]:
    """The variables, zeros or the model's initial values; ``make`` creates one from an initial value and a name."""
    values = [tf.zeros(layer.shape, layer.dtype) for layer in layers] if model is None else [tf.constant(one) for one in model.initial]
    return [make(value, f"v{number}") for number, value in enumerate(values)]


def pull(tf: Any, layer: Layer, variable: Any, where: str | None) -> Any:
    """The variable's value (or the rows that the step touches) on the worker."""
    if layer.rows is None:
        value = variable.read_value()
    else:
        # the gather runs where the variable is, so that only its rows travel
        with on(tf, variable.device):
            value = tf.gather(variable.read_value() if not hasattr(variable, "sparse_read") else variable, tf.range(layer.rows))
    with on(tf, where):
        return tf.identity(value)


def push(tf: Any, layer: Layer, variable: Any, gradient: Any) -> Any:
    """Apply a gradient on the variable's own device; returns the op."""
    with on(tf, variable.device):
        if isinstance(gradient, tf.IndexedSlices):
            return tf.raw_ops.ResourceScatterAdd(resource=variable.handle, indices=gradient.indices, updates=gradient.values * 0)
        if layer.rows is None:
            return tf.raw_ops.ResourceApplyGradientDescent(
                var=variable.handle, alpha=tf.zeros([], layer.dtype), delta=gradient, use_locking=True
            )
        return tf.raw_ops.ResourceScatterAdd(resource=variable.handle, indices=tf.range(layer.rows), updates=gradient * 0)


def compute(
    tf: Any,
    setting: dict[str, Any],
    layers: list[Layer],
    pulled: list[Any],
    microseconds: Any,
    where: str | None,
    model: RealCompute | None,
) -> tuple[list[Any], Any, Any]:
    """What the setting asks for: gradients, and the times of beginning and end."""
    by_layer = bool(setting.get("overlap"))
    if model is not None:
        return compute_real(tf, model, pulled, where, by_layer)
    if by_layer:
        return sleep_by_layer(tf, layers, pulled, microseconds, where)
    return sleep_once(tf, pulled, microseconds, where)


def compute_real(tf: Any, model: RealCompute, pulled: list[Any], where: str | None, by_layer: bool) -> tuple[list[Any], Any, Any]:
    """Compute the model's gradients from what was pulled.

    ``by_layer``: each operation begins when its own inputs are there, and each gradient
    leaves when it is computed; else all wait for the last pull and the last gradient.
    """
    with on(tf, where):
        with tf.control_dependencies(pulled[:1] if by_layer else pulled):
            begun = tf.timestamp()
        if not by_layer:
            with tf.control_dependencies([begun]):
                pulled = [tf.identity(value) for value in pulled]
        gradients, others = model.gradients(tf, pulled)
        with tf.control_dependencies(tf.nest.flatten(gradients, expand_composites=True) + others):
            ended = tf.timestamp()
        if not by_layer:
            with tf.control_dependencies([ended]):
                gradients = [tf.nest.map_structure(tf.identity, one, expand_composites=True) for one in gradients]
    return gradients, begun, ended


def sleep_once(tf: Any, pulled: list[Any], microseconds: Any, where: str | None) -> tuple[list[Any], Any, Any]:
    """Sleep once, when all has been pulled: gradients, and the times of beginning and end."""
    with on(tf, where):
        with tf.control_dependencies(pulled):
            begun = tf.timestamp()
        with tf.control_dependencies([begun]):
            slept = sleep(tf, microseconds)
        with tf.control_dependencies([slept]):
            ended = tf.timestamp()
        with tf.control_dependencies([ended]):
            return [tf.identity(value) for value in pulled], begun, ended


def sleep_by_layer(tf: Any, layers: list[Layer], pulled: list[Any], microseconds: Any, where: str | None) -> tuple[list[Any], Any, Any]:
    """Sleep layer by layer: a layer's forward sleep waits for its variable, its gradient leaves after its backward sleep.

    A third of the step is its forward pass, in equal parts; the backward pass goes the
    other way, by the variables' ``ready``.
    """
    count = len(layers)
    total = tf.cast(microseconds, tf.float64)
    gradients: list[Any] = [None] * count
    with on(tf, where):
        before: Any = None
        begun: Any = None
        for value in pulled:
            with tf.control_dependencies([value] + ([before] if before is not None else [])):
                if begun is None:
                    begun = tf.timestamp()
                    with tf.control_dependencies([begun]):
                        part = tf.cast(total / (3.0 * count), tf.int64)
                else:
                    part = tf.cast(total / (3.0 * count), tf.int64)
            before = sleep(tf, part)
        done = 0.0
        for number in sorted(range(count), key=lambda index: layers[index].ready):
            share = layers[number].ready - done
            done = layers[number].ready
            if share > 0:
                with tf.control_dependencies([before]):
                    part = tf.cast(total * (2.0 / 3.0) * share, tf.int64)
                before = sleep(tf, part)
            with tf.control_dependencies([before]):
                gradients[number] = tf.identity(pulled[number])
        with tf.control_dependencies([before]):
            ended = tf.timestamp()
    return gradients, begun, ended


# -- the emulated device -----------------------------------------------------------------------


def durations(setting: dict[str, Any], workers: int, steps: int, seed: int) -> np.ndarray:
    """Microseconds of each step of each worker, shape (workers, steps); the same seed gives the same.

    The setting's law is a factor's, with mean 1: constant, exponential, gamma (shape), lognormal
    (sigma), or values (drawn from as they are). With the chance ``persistence`` a step takes
    what the one before took.
    """
    law = setting["compute"].get("law", {})
    kind, mean_s = law.get("kind", "constant"), setting["compute"].get("mean_s", 0.0)
    streams = [np.random.default_rng(child) for child in np.random.SeedSequence(seed).spawn(workers)]
    drawn = np.empty((workers, steps))
    for worker, stream in enumerate(streams):
        if kind == "constant":
            drawn[worker] = 1.0
        elif kind == "exponential":
            drawn[worker] = stream.exponential(1.0, steps)
        elif kind == "gamma":
            drawn[worker] = stream.gamma(law["shape"], 1.0 / law["shape"], steps)
        elif kind == "lognormal":
            drawn[worker] = stream.lognormal(-(law["sigma"] ** 2) / 2, law["sigma"], steps)
        elif kind == "empirical":
            drawn[worker] = stream.choice(np.asarray(law["values"], dtype=float), steps)
        else:
            raise ValueError(f"law {kind!r}: must be constant, exponential, gamma, lognormal or empirical")
        persistence = law.get("persistence", 0.0)
        if persistence:
            renewed = stream.random(steps) >= persistence
            drawn[worker] = drawn[worker][np.maximum.accumulate(np.where(renewed, np.arange(steps), 0))]
    return np.rint(drawn * mean_s * 1e6).astype(np.int64)


def sleep(tf: Any, microseconds: Any) -> Any:
    """A tensor that is there ``microseconds`` (a scalar int64 tensor) after the op began."""
    from tensorflow.python.data.experimental.ops import testing

    # take(1): else the data set sleeps once more to find its end
    return tf.data.Dataset.from_tensors(microseconds).apply(testing.sleep(microseconds)).take(1).get_single_element()
