"""A training step with clocks in it, on plain variables that have the shapes, types and order of a model's.

A step pulls every variable, computes, and pushes a gradient for each. Compute is the model's own passes (real.py), or emulated by a sleep
on the worker; then a variable's own value travels back as its gradient. The sleep is TensorFlow's own (the data set that its tests slow
down with): it blocks neither Python nor a core, and is in the graph between the last byte of the pull and the first of the push. Gradients
are applied with a learning rate of zero: the same bytes, the same kernel on the server.

Workers of ``async`` and ``between-graph`` make :meth:`Model.step`. Those of ``sync`` put another one together in servers.py, in which
SyncReplicasOptimizer applies the gradients; those of ``ring``, ``mirrored`` and ``apart``, which have copies of the variables, use only
:meth:`Model.compute` (ring.py). calibrate/testbed/loading.py names the distributions that :func:`durations` draws from, and
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


FORWARD_SHARE = 1.0 / 3.0
"""Of an emulated step: its forward pass."""


@dataclass(frozen=True)
class VariableSpec:
    """A variable of the model that is trained."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    rows: int | None
    """Rows that a step touches, of a sparse one; all others are dense."""
    ready: float
    """Share of the backward pass after which its gradient is there."""


def session_config(tf: Any, setting: dict[str, Any]) -> Any:
    """Threads of a server; graphs are left as they were written, so that what should travel travels."""
    config = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=setting["threads"])
    if setting["compute"]["kind"] == "emulated":
        rewrite = config.graph_options.rewrite_options
        rewrite.disable_meta_optimizer = True
        config.graph_options.optimizer_options.opt_level = tf.compat.v1.OptimizerOptions.L0
    return config


class Model:
    """Model of a setting, as operations of the graph or function being built.

    Parameters
    ----------
    specs
        The variables in the order of creation, such as :func:`specs_of` gives them.
    real
        What is computed; None where compute is emulated.
    where
        Device of the worker; None leaves it to a strategy.
    by_layer
        Whether a layer waits only for its own variable, and its gradient is sent when ready.

    Attributes
    ----------
    variables
        TensorFlow's, once :meth:`create` has made them.
    """

    def __init__(
        self, tf: Any, specs: list[VariableSpec], real: RealCompute | None, where: str | None = None, by_layer: bool = False
    ) -> None:
        self._tf, self.specs, self.real, self._where, self._by_layer = tf, specs, real, where, by_layer
        self.variables: list[Any] = []

    @classmethod
    def of(cls, tf: Any, setting: dict[str, Any], real: RealCompute | None, where: str | None = None) -> Model:
        """The model of a setting; real compute needs all rows of a sparse variable."""
        whole = {"rows": None} if real is not None else {}
        specs = [VariableSpec(**{**each, "shape": tuple(each["shape"]), **whole}) for each in setting["variables"]]
        return cls(tf, specs, real, where, setting["overlap"])

    def create(self, make: Any = None, *, initial: bool = True) -> list[Any]:
        """Make the variables by ``make``, of a value and a name: zeros, or the initial values of a model that is computed."""
        tf = self._tf
        make = make or (lambda value, name: tf.Variable(value, name=name))
        if self.real is not None and initial:
            values = [tf.constant(value) for value in self.real.initial]
        else:
            values = [tf.zeros(spec.shape, spec.dtype) for spec in self.specs]
        self.variables = [make(value, f"v{number}") for number, value in enumerate(values)]
        return self.variables

    def step(self, version: Any) -> Any:
        """A function of the step's duration in microseconds, which makes the step; real compute takes the time that it takes.

        It returns float64 [pull begins, pull ended, compute ended, all applied, version read,
        version after its own update]. Times are the worker's wall clock.
        """
        tf = self._tf

        def step(microseconds: Any) -> Any:
            asked, read, pulled = self.pull(version)
            gradients, begun, ended = self.compute(pulled, microseconds)
            applied = [self._push(*each) for each in zip(self.specs, self.variables, gradients)]
            with tf.control_dependencies([done for done in applied if done is not None]), on(tf, version.device):
                written = tf.raw_ops.AssignAddVariableOp(resource=version.handle, value=tf.ones([], tf.int64))
                with tf.control_dependencies([written]):
                    after = version.read_value()
            return self.row(asked, begun, ended, read, after)

        return step

    def pull(self, version: Any) -> tuple[Any, Any, list[Any]]:
        """The beginning of a step: when it began, the version that it reads, and the value of each variable on the worker."""
        tf = self._tf
        with on(tf, self._where):
            asked = tf.timestamp()
        with tf.control_dependencies([asked]), on(tf, version.device):
            read = version.read_value()
        pulled = []
        for spec, variable in zip(self.specs, self.variables):
            # on the version's server it is read first; elsewhere at the same time
            with tf.control_dependencies([read] if variable.device == version.device else [asked]):
                if spec.rows is None:
                    value = variable.read_value()
                else:
                    # the gather runs where the variable is, so that only its rows travel
                    with on(tf, variable.device):
                        source = variable if hasattr(variable, "sparse_read") else variable.read_value()
                        value = tf.gather(source, tf.range(spec.rows))
                with on(tf, self._where):
                    pulled.append(tf.identity(value))
        return asked, read, pulled

    def _push(self, spec: VariableSpec, variable: Any, gradient: Any) -> Any:
        """Apply a gradient on the variable's own device; returns the op."""
        tf, handle = self._tf, variable.handle
        with on(tf, variable.device):
            if isinstance(gradient, tf.IndexedSlices):
                return tf.raw_ops.ResourceScatterAdd(resource=handle, indices=gradient.indices, updates=gradient.values * 0)
            if spec.rows is None:
                rate = tf.zeros([], spec.dtype)
                return tf.raw_ops.ResourceApplyGradientDescent(var=handle, alpha=rate, delta=gradient, use_locking=True)
            return tf.raw_ops.ResourceScatterAdd(resource=handle, indices=tf.range(spec.rows), updates=gradient * 0)

    def row(self, asked: Any, begun: Any, ended: Any, read: Any, after: Any) -> Any:
        """The end of a step: its row, once the version after it has come back to the worker."""
        tf = self._tf
        with on(tf, self._where):
            after = tf.identity(after)
            with tf.control_dependencies([after]):
                done = tf.timestamp()
            return tf.stack([asked, begun, ended, done, tf.cast(read, tf.float64), tf.cast(after, tf.float64)])

    def compute(self, pulled: list[Any], microseconds: Any) -> tuple[list[Any], Any, Any]:
        """Compute as the setting asks: gradients, and the times of beginning and end."""
        with on(self._tf, self._where):
            if self.real is not None:
                return self._compute_real(pulled)
            return self._sleep_by_layer(pulled, microseconds) if self._by_layer else self._sleep_once(pulled, microseconds)

    def _compute_real(self, pulled: list[Any]) -> tuple[list[Any], Any, Any]:
        """Compute the model's gradients from what was pulled.

        By layer each operation begins when its own inputs are there, and each gradient
        leaves when it is computed; else all wait for the last pull and the last gradient.
        """
        tf, by_layer = self._tf, self._by_layer
        with tf.control_dependencies(pulled[:1] if by_layer else pulled):
            begun = tf.timestamp()
        if not by_layer:
            with tf.control_dependencies([begun]):
                pulled = [tf.identity(value) for value in pulled]
        gradients, others = self.real.gradients(tf, pulled)
        with tf.control_dependencies(tf.nest.flatten(gradients, expand_composites=True) + others):
            ended = tf.timestamp()
        if not by_layer:
            with tf.control_dependencies([ended]):
                gradients = [tf.nest.map_structure(tf.identity, each, expand_composites=True) for each in gradients]
        return gradients, begun, ended

    def _sleep_once(self, pulled: list[Any], microseconds: Any) -> tuple[list[Any], Any, Any]:
        """Sleep once, when all has been pulled: gradients, and the times of beginning and end."""
        tf = self._tf
        with tf.control_dependencies(pulled):
            begun = tf.timestamp()
        with tf.control_dependencies([begun]):
            slept = sleep(tf, microseconds)
        with tf.control_dependencies([slept]):
            ended = tf.timestamp()
        with tf.control_dependencies([ended]):
            return [tf.identity(value) for value in pulled], begun, ended

    def _sleep_by_layer(self, pulled: list[Any], microseconds: Any) -> tuple[list[Any], Any, Any]:
        """Sleep layer by layer: a layer's forward sleep waits for its variable, its gradient leaves after its backward sleep.

        Variables have equal parts of the forward pass; the backward pass goes the other way, by their ``ready``.
        """
        tf, count = self._tf, len(self.specs)
        total = tf.cast(microseconds, tf.float64)
        gradients: list[Any] = [None] * count
        with tf.control_dependencies(pulled[:1]):
            begun = before = tf.timestamp()
        for value in pulled:
            with tf.control_dependencies([value, before]):
                part = tf.cast(total * (FORWARD_SHARE / count), tf.int64)
            before = sleep(tf, part)
        done = 0.0
        for number in sorted(range(count), key=lambda index: self.specs[index].ready):
            share = self.specs[number].ready - done
            done = self.specs[number].ready
            if share > 0:
                with tf.control_dependencies([before]):
                    part = tf.cast(total * (1.0 - FORWARD_SHARE) * share, tf.int64)
                before = sleep(tf, part)
            with tf.control_dependencies([before]):
                gradients[number] = tf.identity(pulled[number])
        with tf.control_dependencies([before]):
            return gradients, begun, tf.timestamp()


# -- the emulated device -----------------------------------------------------------------------


def durations(setting: dict[str, Any], workers: int, steps: int, seed: int) -> np.ndarray:
    """Microseconds of each step of each worker, shape (workers, steps); the same seed gives the same.

    The setting's distribution is that of a factor with mean 1: constant, exponential, gamma (shape), lognormal
    (sigma), or empirical (values). With the chance ``persistence`` a step takes what the one before took.
    """
    law, mean_s = setting["compute"]["law"], setting["compute"]["mean_s"]
    kind = law["kind"]
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
            raise ValueError(f"compute.law.kind: {kind!r} is not a distribution of the emulated device")
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
