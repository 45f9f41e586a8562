"""Turns the user's function into a model, its loss, optimizer and made-up batches, and the steps that train it under TensorFlow.

Steps under JAX and PyTorch are in on_jax.py and on_torch.py; that of a testbed worker is another one, in testbed/emulated_model.py.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from typing import Any, Callable

from .recording import NotInstalledError, UsageError

Step = Callable[[], Any]
DEFAULT_INTEGER_BOUND = 2


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
        raise UsageError(f"{file}: is not a Python file")
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


def keras_of(backend: str) -> Any:
    """Keras with this backend, which must not have been imported before.

    Raises
    ------
    NotInstalledError
        This Python has no Keras, or one that knows no backends.
    """
    os.environ["KERAS_BACKEND"] = backend
    try:
        import keras
    except ImportError as error:
        raise NotInstalledError("keras", str(error)) from error
    version = str(getattr(keras, "__version__", "0"))
    if int(version.partition(".")[0]) < 3:
        raise NotInstalledError("keras", f"it has Keras {version}, which supports only TensorFlow")
    return keras


class KerasModel:
    """A model of Keras 3 with loss and optimizer, under any backend; batches are made up as the model's inputs and its loss need them.

    Parameters
    ----------
    keras
        The module.
    built
        What the user's function has returned: a Keras model, or ``(model, loss, input_spec)``. The specification is None, a structure
        of specifications without batch dimension for x, a pair ``(x_spec, y_spec)``, or a function ``batch -> (x, y)``.
    mixed
        Whether the optimizer is to scale the loss.
    """

    def __init__(self, keras: Any, built: Any, mixed: bool) -> None:
        self.keras, self.mixed = keras, mixed
        model, loss, self._spec = built if isinstance(built, tuple) and len(built) == 3 else (built, None, None)
        if (isinstance(built, tuple) and len(built) != 3) or not isinstance(model, keras.Model):
            raise self._refusal(built, model)
        self.model = model
        loss = loss if loss is not None else (getattr(model, "loss", None) or None)
        self.loss = keras.losses.get(loss) if isinstance(loss, str) else loss
        if self.loss is not None and not callable(self.loss):
            raise TypeError("the loss must be one function of (y_true, y_pred) or the name of one: add several in your own function")
        optimizer = getattr(model, "optimizer", None)
        optimizer = optimizer if optimizer is not None else keras.optimizers.SGD(0.01)
        if mixed and type(optimizer).__name__ != "LossScaleOptimizer":
            optimizer = keras.mixed_precision.LossScaleOptimizer(optimizer)
        self.optimizer = optimizer

    def _refusal(self, _: Any, model: Any) -> Exception:
        kind = type(model)
        package = kind.__module__.partition(".")[0]
        whose = kind.__name__ if package == "builtins" else f"{kind.__name__} of {package}"
        return UsageError(
            f"the function must return a model of Keras under {self.keras.backend.backend()}, or (model, loss, input_spec), not {whose}: "
            "build it with `import keras`, or choose its backend with `keras_backend`"
        )

    def built_for(self, batch: int) -> tuple[Any, Any]:
        """Inputs and targets of a batch, as :meth:`batch_of`, once the variables of the optimizer are there too."""
        x, y = self.batch_of(batch)
        if not self.optimizer.built:
            self.optimizer.build(self.model.trainable_variables)
        return x, y

    def loss_of(self, y: Any, outputs: Any, losses: list[Any]) -> Any:
        """The loss of a batch; ``losses`` are those that layers add."""
        ops = self.keras.ops
        if self.loss is None:
            value = self._total([ops.mean(ops.square(ops.cast(output, "float32"))) for output in self.keras.tree.flatten(outputs)])
        else:
            value = ops.mean(ops.cast(self.loss(y, outputs), "float32"))
        return value + self._total([ops.cast(loss, "float32") for loss in losses]) if losses else value

    def _total(self, values: list[Any]) -> Any:
        return sum(values[1:], values[0])

    def batch_of(self, batch: int) -> tuple[Any, Any]:
        """Inputs and targets of a batch, as tensors of the backend; no targets where there is no loss. Builds the model."""
        x, y = self._made_up(batch)
        if not self.model.built or not self.model.trainable_variables:
            self.model(x, training=False)
        return x, y

    def _made_up(self, batch: int) -> tuple[Any, Any]:
        keras, tree, spec = self.keras, self.keras.tree, self._spec
        if callable(spec) and not hasattr(spec, "shape"):
            pair = spec(batch)
            if not isinstance(pair, (tuple, list)) or len(pair) != 2:
                raise ValueError("input_spec(batch) must return a pair (x, y)")
            return tuple(tree.map_structure(keras.ops.convert_to_tensor, part) for part in pair)
        x_spec, y_spec = spec if isinstance(spec, tuple) and len(spec) == 2 else (spec, None)
        if x_spec is None:
            x_spec = self._inputs()
        sizes = [int(layer.input_dim) for layer in self.model._flatten_layers() if getattr(layer, "input_dim", None)]
        bound = min(sizes, default=DEFAULT_INTEGER_BOUND)
        x = tree.map_structure(lambda each: self._filled(each.shape, each.dtype, batch, bound), x_spec)
        if self.loss is None:
            return x, None
        outputs = self.model(x, training=False)
        first = tree.flatten(outputs)[0]
        classes = int(first.shape[-1] or 0) if len(first.shape) else 0
        classes = classes if classes > 1 else DEFAULT_INTEGER_BOUND
        if y_spec is not None:
            return x, tree.map_structure(lambda each: self._filled(each.shape, each.dtype, batch, classes), y_spec)
        if "sparse" in str(getattr(self.loss, "name", None) or getattr(self.loss, "__name__", "")).lower():
            return x, self._filled(tuple(first.shape)[1:-1], "int32", batch, classes)
        return x, tree.map_structure(keras.ops.zeros_like, outputs)

    def _inputs(self) -> Any:
        inputs = getattr(self.model, "inputs", None)
        if not inputs:
            raise ValueError("the model's input shapes are unknown: build it with keras.Input, or return (model, loss, input_spec)")
        specs = [self.keras.InputSpec(shape=tuple(tensor.shape)[1:], dtype=tensor.dtype) for tensor in inputs]
        return specs[0] if len(specs) == 1 else specs

    def _filled(self, shape: Any, dtype: Any, batch: int, bound: int) -> Any:
        import numpy as np

        tensor = self.keras.ops.convert_to_tensor
        rng = np.random.default_rng(0)  # the same numbers in each run: their values do not change what a step costs
        size = [batch] + [1 if side is None else int(side) for side in shape]
        name = self.keras.backend.standardize_dtype(dtype)
        if "float" in name:
            return tensor(rng.standard_normal(size).astype("float32"), name)
        if name == "bool":
            return tensor(rng.random(size) < 0.5)
        if "int" in name:
            return tensor(rng.integers(0, max(bound, 1), size), name)
        raise ValueError(f"input_spec: cannot generate values of {name}: return a function batch -> (x, y) instead")

    # -- its state, as a checkpoint has it ---------------------------------------------------

    def state_variables(self) -> list[Any]:
        """All that a checkpoint holds: the model's variables and the optimizer's."""
        return [*self.model.variables, *self.optimizer.variables]

    def copied(self) -> list[Any]:
        """The same as arrays of the host."""
        import numpy

        return [numpy.array(self.keras.ops.convert_to_numpy(variable)) for variable in self.state_variables()]

    @property
    def size_bytes(self) -> int:
        """Bytes of all of these."""
        import numpy

        total = 0
        for variable in self.state_variables():
            name = self.keras.backend.standardize_dtype(variable.dtype)
            total += int(numpy.prod(tuple(variable.shape), dtype="int64")) * (2 if name == "bfloat16" else numpy.dtype(name).itemsize)
        return total

    def write(self, prefix: str) -> str:
        """Write a checkpoint, as Keras's ModelCheckpoint does (``save_weights``, with the optimizer's state); returns its path."""
        path = prefix + ".weights.h5"
        self.model.optimizer = self.optimizer  # of a model that was not compiled
        self.model.save_weights(path)
        return path

    def read(self, path: str) -> None:
        """Read it again."""
        self.model.load_weights(path)


class ModelSteps(KerasModel):
    """Training steps of a Keras model under TensorFlow: forward, loss, gradients, optimizer."""

    def __init__(self, tf: Any, built: Any, mixed: bool) -> None:
        import keras

        super().__init__(keras, built, mixed)
        self._tf = tf

    def _refusal(self, built: Any, _: Any) -> Exception:
        return TypeError(f"the function must return a Keras model or (model, loss, input_spec), not {type(built).__name__}")

    def _total(self, values: list[Any]) -> Any:
        return self._tf.add_n(values)

    def variables(self) -> list[Any]:
        """The trainable variables, in the order in which the model created them."""
        return list(self.model.trainable_variables)

    def step(self, batch: int, device: str, jit: bool) -> Step:
        """A callable that does one step on a batch that already lies on the device."""
        tf = self._tf
        with tf.device(device):
            x, y = self.built_for(batch)

        def body(x: Any, y: Any) -> Any:
            with tf.GradientTape() as tape:
                outputs = self.model(x, training=True)
                loss = self.loss_of(y, outputs, self.model.losses)
                target = self.optimizer.scale_loss(loss) if self.mixed else loss
            gradients = tape.gradient(target, self.model.trainable_variables)
            self.optimizer.apply_gradients(zip(gradients, self.model.trainable_variables))
            return loss

        return placed(tf, device, tf.function(body, jit_compile=jit or None), x, y)

    def evaluation(self, batch: int, device: str, jit: bool) -> Step:
        """A callable that does one step of an evaluation: the loss of a batch, without gradients."""
        tf = self._tf
        with tf.device(device):
            x, y = self.batch_of(batch)

        def body(x: Any, y: Any) -> Any:
            return self.loss_of(y, self.model(x, training=False), [])

        return placed(tf, device, tf.function(body, jit_compile=jit or None), x, y)

    def state(self) -> Any:
        """A checkpoint of the model's and the optimizer's variables, as TensorFlow writes it."""
        return self._tf.train.Checkpoint(model=self.model, optimizer=self.optimizer)

    def copied(self) -> list[Any]:
        """All of these variables as arrays of the host."""
        import numpy

        return [numpy.array(variable) for variable in self.state_variables()]


def placed(tf: Any, device: str, function: Callable[..., Any], *arguments: Any) -> Step:
    """A callable that calls a function on a device."""

    def run() -> Any:
        with tf.device(device):
            return function(*arguments)

    return run


def custom_step(on_device: Callable[[], Any], factory: Callable[[int], Any], batch: int) -> Step:
    """The user's own step for a batch size, under what places it on the device."""
    with on_device():
        step = factory(batch)
    if not callable(step):
        raise TypeError(f"the step function must return a callable without arguments, not {type(step).__name__}")

    def run() -> Any:
        with on_device():
            return step()

    return run
