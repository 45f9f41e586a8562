"""What a user's function builds, under any backend of Keras 3: model, loss, optimizer, made-up batches and checkpoints.

The steps themselves are in on_jax.py and on_torch.py. TensorFlow's own path, which knows Keras 2 and ``tf.data`` as well, is training.py.
"""

from __future__ import annotations

import os
from typing import Any

from .ending import NotInstalledError, UsageError

DEFAULT_INTEGER_BOUND = 2


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
        raise NotInstalledError("keras", f"it has Keras {version}, which knows TensorFlow alone")
    return keras


class KerasModel:
    """A model with loss and optimizer; batches are made up as the model's inputs and its loss need them.

    Parameters
    ----------
    keras
        The module.
    built
        What the user's function has returned: a Keras model, or ``(model, loss, input_spec)``.
    mixed
        Whether the optimizer is to scale the loss.
    """

    def __init__(self, keras: Any, built: Any, mixed: bool) -> None:
        self.keras = keras
        model, loss, self._spec = built if isinstance(built, tuple) and len(built) == 3 else (built, None, None)
        if (isinstance(built, tuple) and len(built) != 3) or not isinstance(model, keras.Model):
            raise UsageError(
                f"the function must return a model of Keras under {keras.backend.backend()}, or (model, loss, input_spec), "
                f"not {_whose(model)}: build it with `import keras`, or choose the backend that it is of with `keras_backend`"
            )
        self.model = model
        compiled = getattr(model, "optimizer", None)
        loss = loss if loss is not None else (getattr(model, "loss", None) or None)
        self.loss = keras.losses.get(loss) if isinstance(loss, str) else loss
        if self.loss is not None and not callable(self.loss):
            raise TypeError("the loss must be one function of (y_true, y_pred) or the name of one; add several up in your own")
        optimizer = compiled if compiled is not None else keras.optimizers.SGD(0.01)
        if mixed and type(optimizer).__name__ != "LossScaleOptimizer":
            optimizer = keras.mixed_precision.LossScaleOptimizer(optimizer)
        self.optimizer = optimizer

    def build(self, batch: int) -> None:
        """Make the variables of the model and of its optimizer, where that has not been done."""
        x, _ = self.batch_of(batch)
        if not self.model.built or not self.model.trainable_variables:
            self.model(x, training=False)
        if not self.optimizer.built:
            self.optimizer.build(self.model.trainable_variables)

    def loss_of(self, y: Any, outputs: Any, losses: list[Any]) -> Any:
        """The loss of a batch; ``losses`` are those that layers add."""
        ops = self.keras.ops
        if self.loss is None:
            value = sum(ops.mean(ops.square(ops.cast(one, "float32"))) for one in self.keras.tree.flatten(outputs))
        else:
            value = ops.mean(ops.cast(self.loss(y, outputs), "float32"))
        return sum((ops.cast(one, "float32") for one in losses), value)

    def batch_of(self, batch: int) -> tuple[Any, Any]:
        """Inputs and targets of a batch, as tensors of the backend; no targets where there is no loss."""
        keras, tree = self.keras, self.keras.tree
        spec = self._spec
        if callable(spec):
            pair = spec(batch)
            if not isinstance(pair, (tuple, list)) or len(pair) != 2:
                raise ValueError("input_spec(batch) must return a pair (x, y)")
            return tuple(tree.map_structure(self._tensor, one) for one in pair)
        x_spec, y_spec = spec if isinstance(spec, tuple) and len(spec) == 2 else (spec, None)
        if x_spec is None:
            x_spec = self._inputs()
        bound = self._vocabulary()
        x = tree.map_structure(lambda one: self._filled(one.shape, one.dtype, batch, bound), x_spec)
        if self.loss is None:
            return x, None
        outputs = self.model(x, training=False)
        first = tree.flatten(outputs)[0]
        classes = int(first.shape[-1]) if len(first.shape) and int(first.shape[-1]) > 1 else DEFAULT_INTEGER_BOUND
        if y_spec is not None:
            return x, tree.map_structure(lambda one: self._filled(one.shape, one.dtype, batch, classes), y_spec)
        if _wants_integers(self.loss):
            return x, self._filled(tuple(first.shape)[1:-1], "int32", batch, classes)
        return x, tree.map_structure(lambda one: keras.ops.zeros_like(one), outputs)

    def _inputs(self) -> Any:
        inputs = getattr(self.model, "inputs", None)
        if not inputs:
            raise ValueError("the model does not know its input shapes; build it with keras.Input, or return (model, loss, input_spec)")
        specs = [self.keras.InputSpec(shape=tuple(one.shape)[1:], dtype=one.dtype) for one in inputs]
        return specs[0] if len(specs) == 1 else specs

    def _vocabulary(self) -> int:
        layers = self.model._flatten_layers()
        sizes = [int(one.input_dim) for one in layers if getattr(one, "input_dim", None)]
        return min(sizes) if sizes else DEFAULT_INTEGER_BOUND

    def _filled(self, shape: Any, dtype: Any, batch: int, bound: int) -> Any:
        import numpy as np

        rng = np.random.default_rng(0)  # the same numbers in each run: their values do not change what a step costs
        size = [batch] + [1 if one is None else int(one) for one in shape]
        name = self.keras.backend.standardize_dtype(dtype)
        if "float" in name:
            return self._tensor(rng.standard_normal(size).astype("float32"), name)
        if name == "bool":
            return self._tensor(rng.random(size) < 0.5)
        if "int" in name:
            return self._tensor(rng.integers(0, max(bound, 1), size), name)
        raise ValueError(f"input_spec: cannot make up values of {name}; return a function batch -> (x, y) instead")

    def _tensor(self, value: Any, dtype: str | None = None) -> Any:
        return self.keras.ops.convert_to_tensor(value, dtype=dtype)

    # -- its state, as a checkpoint has it ---------------------------------------------------

    def variables(self) -> list[Any]:
        """All that a checkpoint holds: the model's variables and the optimizer's."""
        return [*self.model.variables, *self.optimizer.variables]

    def copied(self) -> list[Any]:
        """The same as arrays of the host."""
        import numpy

        return [numpy.array(self.keras.ops.convert_to_numpy(one)) for one in self.variables()]

    @property
    def size_bytes(self) -> int:
        """Bytes of all of these."""
        import numpy

        sizes = {"bfloat16": 2}
        total = 0
        for one in self.variables():
            name = self.keras.backend.standardize_dtype(one.dtype)
            total += int(numpy.prod(tuple(one.shape), dtype="int64")) * (sizes.get(name) or numpy.dtype(name).itemsize)
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


def _whose(found: Any) -> str:
    """A class and the package that it is from."""
    kind = type(found)
    package = kind.__module__.partition(".")[0]
    return kind.__name__ if package == "builtins" else f"{kind.__name__} of {package}"


def _wants_integers(loss: Any) -> bool:
    name = getattr(loss, "name", None) or getattr(loss, "__name__", "")
    return "sparse" in str(name).lower()
