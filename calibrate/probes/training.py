"""Turns the user's function into a callable that does one full training step, with made-up batches where it gives none.

The step of a testbed worker is another one, in testbed/training.py.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from typing import Any, Callable

from .ending import UsageError

Step = Callable[[], Any]


def load_module(target: str, suffix: str = "") -> tuple[Any, str]:
    """Import the file of FILE:NAME under a module name of its own; the module, and NAME.

    ``suffix`` tells a second copy of the module from the first: a module that keeps a
    ``tf.function`` at its top would otherwise hand out the one already traced.
    """
    file, separator, name = target.rpartition(":")
    if not separator or not file or not name:
        raise UsageError(f"{target!r} must be FILE.py:NAME")
    if not os.path.isfile(file):
        raise UsageError(f"{file}: there is no such file")
    module_name = os.path.splitext(os.path.basename(file))[0] + suffix
    spec = importlib.util.spec_from_file_location(module_name, file)
    if spec is None or spec.loader is None:
        raise UsageError(f"{file}: is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    spec.loader.exec_module(module)
    return module, name


def load_function(target: str, suffix: str = "") -> Callable[..., Any]:
    """The function of FILE:FUNCTION; ``suffix`` as for :func:`load_module`."""
    module, name = load_module(target, suffix)
    function = getattr(module, name, None)
    if not callable(function):
        file = target.rpartition(":")[0]
        known = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        more = ", ..." if len(known) > 10 else ""
        raise UsageError(f"{file} has no function {name!r}; it has {', '.join(known[:10]) or 'none'}{more}")
    return function


DEFAULT_INTEGER_BOUND = 2


def _rng() -> Any:
    import numpy as np

    # the same numbers in each run: their values do not change what a step costs
    return np.random.default_rng(0)


def _filled(tf: Any, spec: Any, batch: int, bound: int) -> Any:
    shape = [batch] + [1 if size is None else int(size) for size in spec.shape]
    dtype = tf.as_dtype(spec.dtype)
    if dtype.is_floating or dtype.is_complex:
        return tf.cast(_rng().standard_normal(shape).astype("float32"), dtype)
    if dtype == tf.bool:
        return tf.constant(_rng().random(shape) < 0.5)
    if dtype.is_integer:
        return tf.cast(_rng().integers(0, max(bound, 1), shape), dtype)
    raise ValueError(f"input_spec: cannot make up values of {dtype.name}; return a function batch -> (x, y) instead")


def _layers(model: Any) -> list[Any]:
    flat = getattr(model, "_flatten_layers", None)
    return list(flat()) if flat is not None else list(getattr(model, "layers", []))


def _vocabulary(model: Any) -> int:
    sizes = [int(layer.input_dim) for layer in _layers(model) if hasattr(layer, "input_dim") and layer.input_dim]
    return min(sizes) if sizes else DEFAULT_INTEGER_BOUND


def _input_specs(tf: Any, model: Any) -> Any:
    inputs = getattr(model, "inputs", None)
    if not inputs:
        raise ValueError("the model does not know its input shapes; build it with keras.Input, or return (model, loss, input_spec)")
    specs = [tf.TensorSpec(tensor.shape[1:], tensor.dtype) for tensor in inputs]
    return specs[0] if len(specs) == 1 else specs


def _wants_integers(loss: Any) -> bool:
    name = loss if isinstance(loss, str) else getattr(loss, "name", None) or getattr(loss, "__name__", "")
    return "sparse" in str(name).lower()


def _classes(outputs: Any) -> int:
    size = outputs.shape[-1] if len(outputs.shape) else None
    return int(size) if size and int(size) > 1 else DEFAULT_INTEGER_BOUND


def make_batch(tf: Any, model: Any, loss: Any, spec: Any, batch: int) -> tuple[Any, Any]:
    """Inputs and targets for one batch, as tensors.

    Parameters
    ----------
    tf
        The TensorFlow module.
    model
        The Keras model.
    loss
        Loss function, or None where the model needs no targets.
    spec
        None, a structure of TensorSpec without batch dimension for x, a pair
        ``(x_spec, y_spec)``, or a function ``batch -> (x, y)``.
    batch
        Samples.

    Returns
    -------
    (x, y)
        ``y`` is None where there is no loss.
    """
    if callable(spec) and not isinstance(spec, tf.TypeSpec):
        pair = spec(batch)
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise ValueError("input_spec(batch) must return a pair (x, y)")
        return tf.nest.map_structure(tf.convert_to_tensor, pair[0]), tf.nest.map_structure(tf.convert_to_tensor, pair[1])
    x_spec, y_spec = spec if isinstance(spec, tuple) and len(spec) == 2 else (spec, None)
    if x_spec is None:
        x_spec = _input_specs(tf, model)
    bound = _vocabulary(model)
    x = tf.nest.map_structure(lambda one: _filled(tf, one, batch, bound), x_spec)
    if loss is None:
        return x, None
    outputs = model(x, training=False)
    first = tf.nest.flatten(outputs)[0]
    if y_spec is not None:
        return x, tf.nest.map_structure(lambda one: _filled(tf, one, batch, _classes(first)), y_spec)
    if _wants_integers(loss):
        return x, _filled(tf, tf.TensorSpec(first.shape[1:-1], tf.int32), batch, _classes(first))
    return x, tf.nest.map_structure(lambda one: tf.zeros(one.shape, one.dtype), outputs)


class ModelSteps:
    """Training steps of a Keras model: forward, loss, gradients, optimizer."""

    def __init__(self, tf: Any, built: Any, mixed: bool) -> None:
        import keras

        self._tf = tf
        model, loss, self._spec = built if isinstance(built, tuple) and len(built) == 3 else (built, None, None)
        if (isinstance(built, tuple) and len(built) != 3) or not isinstance(model, keras.Model):
            raise TypeError(f"the function must return a Keras model or (model, loss, input_spec), not {type(built).__name__}")
        self.model = model
        compiled = getattr(model, "optimizer", None)
        loss = loss if loss is not None else (getattr(model, "loss", None) or None)
        self.loss = keras.losses.get(loss) if isinstance(loss, str) else loss
        if self.loss is not None and not callable(self.loss):
            raise TypeError("the loss must be one function of (y_true, y_pred) or the name of one; add several up in your own")
        optimizer = compiled if compiled is not None else keras.optimizers.SGD(0.01)
        if (mixed and not hasattr(optimizer, "scale_loss")) or (type(optimizer).__name__ != "LossScaleOptimizer" and mixed):
            optimizer = keras.mixed_precision.LossScaleOptimizer(optimizer)
        self.optimizer = optimizer
        self._mixed = mixed

    def variables(self) -> list[Any]:
        """The trainable variables, in the order in which the model created them."""
        return list(self.model.trainable_variables)

    def loss_of(self, y: Any, outputs: Any, losses: list[Any]) -> Any:
        """The loss of a batch; ``losses`` are those that layers add."""
        tf = self._tf
        if self.loss is None:
            value = tf.add_n([tf.reduce_mean(tf.square(tf.cast(one, tf.float32))) for one in tf.nest.flatten(outputs)])
        else:
            value = tf.reduce_mean(tf.cast(self.loss(y, outputs), tf.float32))
        extra = [tf.cast(one, tf.float32) for one in losses]
        return value + tf.add_n(extra) if extra else value

    def batch_of(self, batch: int) -> tuple[Any, Any]:
        """Inputs and targets of a batch; builds the model where that has not been done."""
        x, y = make_batch(self._tf, self.model, self.loss, self._spec, batch)
        if not self.model.built or not self.model.trainable_variables:
            self.model(x, training=False)
        return x, y

    def step(self, batch: int, device: str, jit: bool) -> Step:
        """A callable that does one step on a batch that already lies on the device."""
        tf = self._tf
        with tf.device(device):
            x, y = self.batch_of(batch)
            build = getattr(self.optimizer, "build", None)
            if build is not None and not getattr(self.optimizer, "built", False):
                build(self.model.trainable_variables)

        def body(x: Any, y: Any) -> Any:
            with tf.GradientTape() as tape:
                outputs = self.model(x, training=True)
                loss = self.loss_of(y, outputs, self.model.losses)
                target = self.optimizer.scale_loss(loss) if self._mixed else loss
            gradients = tape.gradient(target, self.model.trainable_variables)
            self.optimizer.apply_gradients(zip(gradients, self.model.trainable_variables))
            return loss

        traced = tf.function(body, jit_compile=True) if jit else tf.function(body)

        def run() -> Any:
            with tf.device(device):
                return traced(x, y)

        return run

    def evaluation(self, batch: int, device: str, jit: bool) -> Step:
        """A callable that does one step of an evaluation: the loss of a batch, without gradients."""
        tf = self._tf
        with tf.device(device):
            x, y = self.batch_of(batch)

        def body(x: Any, y: Any) -> Any:
            return self.loss_of(y, self.model(x, training=False), [])

        traced = tf.function(body, jit_compile=True) if jit else tf.function(body)

        def run() -> Any:
            with tf.device(device):
                return traced(x, y)

        return run

    def state(self) -> tuple[Any, list[Any]]:
        """What a checkpoint holds, and its variables: the model's and the optimizer's."""
        of_optimizer = self.optimizer.variables
        variables = [*self.model.variables, *(of_optimizer() if callable(of_optimizer) else of_optimizer)]
        return self._tf.train.Checkpoint(model=self.model, optimizer=self.optimizer), variables


def custom_step(tf: Any, factory: Callable[[int], Any], batch: int, device: str) -> Step:
    """The user's own step for a batch size, placed on the device."""
    with tf.device(device):
        step = factory(batch)
    if not callable(step):
        raise TypeError(f"the step function must return a callable without arguments, not {type(step).__name__}")

    def run() -> Any:
        with tf.device(device):
            return step()

    return run
