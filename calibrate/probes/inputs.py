"""Makes a batch of input for a model from what is known of its shapes."""

from __future__ import annotations

from typing import Any

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
