"""A user's model and data as something that learns: gradients with any version of its variables, updates of a share of them, metrics.

A version is a list of tensors, one a variable, of the whole model or of the share that a server holds. ``replay`` says which version is
read when, and which is applied to.
"""

from __future__ import annotations

import functools
from typing import Any, Callable, Sequence

from . import training
from .recording import UsageError, place_in, shortened

WANTED = (
    "the function must return (model, (x, y), (x, y)): a Keras model that is compiled with a loss and an optimizer, data to train on, "
    "and data to validate with"
)
VALIDATION_BATCH = 1024
TRIED_BATCH = 32


class Learner:
    """A compiled Keras model, and its data; the model's own variables are the present version.

    Parameters
    ----------
    tf
        The TensorFlow module.
    built
        What the user's function returned: ``(model, (x, y), (x, y))``.
    """

    def __init__(self, tf: Any, built: Any) -> None:
        import keras
        import numpy as np

        self._tf, self._np = tf, np
        if not hasattr(keras.Model, "stateless_call"):
            raise UsageError(f"this Keras ({keras.__version__}) has no stateless calls; install Keras 3")
        if not isinstance(built, tuple) or len(built) != 3 or not isinstance(built[0], keras.Model):
            raise UsageError(f"{WANTED}, not {_kind(built)}")
        self.model = built[0]
        self.x, self.y = self._pair(built[1], "data to train on")
        self.valid_x, self.valid_y = self._pair(built[2], "data to validate with")
        self.samples, self.valid_samples = _length(tf, self.x), _length(tf, self.valid_x)
        if not getattr(self.model, "optimizer", None) or not getattr(self.model, "loss", None):
            raise UsageError(f"{WANTED}; this model is not compiled with both")
        self._check_compiled()
        self._steps = training.ModelSteps(tf, (self.model, None, None), mixed=False)
        if not self.model.built:
            self.model(self._rows(self.x, [0]), training=False)
        self.variables = list(self.model.trainable_variables)
        if not self.variables:
            raise UsageError("the model has no trainable variables")
        self.sizes = [int(np.prod(variable.shape)) for variable in self.variables]
        self._make_optimizers(self.model.optimizer)
        version, slots, rows = self._specs(self.variables), self._specs(self.slots()), tf.TensorSpec([None, None], tf.int64)
        scale = tf.TensorSpec([], tf.float32)
        self.gradients = self._traced(self._mean_gradients, version, rows)
        self.update = self._traced(self._update, version, rows, scale)
        self.step_of_copy = self._traced(self._step_of_copy, version, slots, version, rows, scale)
        self._appliers: dict[Sequence[int], Callable[..., list[Any]]] = {}
        self._predict = tf.function(lambda x: self.model(x, training=False), reduce_retracing=True)

    def _check_compiled(self) -> None:
        """Refuse a loss that is no mean over samples, and what else would be replayed as something else."""
        model = self.model
        if len(getattr(model, "outputs", None) or [0]) > 1:
            raise UsageError("the model has several outputs, but a replay supports one, with one loss")
        reduction = getattr(model.loss, "reduction", "mean")
        if reduction not in ("sum_over_batch_size", "mean", "mean_with_sample_weight", "auto"):
            raise UsageError(f"the loss is reduced by {reduction!r}; it must be a mean, because gradients of several batches are averaged")
        if (getattr(model, "get_compile_config", dict)() or {}).get("loss_weights"):
            raise UsageError("the model is compiled with loss_weights, which are not replayed: leave them out")
        if type(model.optimizer).__name__ == "LossScaleOptimizer":
            raise UsageError("the model is compiled for mixed_float16, whose loss scaling is not replayed: build it in float32")

    # -- the data --------------------------------------------------------------------------

    def _pair(self, pair: Any, what: str) -> tuple[Any, Any]:
        tf = self._tf
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise UsageError(f"{WANTED}; the {what} must be a pair (x, y), not {_kind(pair)}")
        x, y = (tf.nest.map_structure(tf.convert_to_tensor, part) for part in pair)
        for name, part in (("x", x), ("y", y)):
            for tensor in tf.nest.flatten(part):
                if not tensor.shape.rank:
                    raise UsageError(f"{name} of the {what} is a list of single numbers: make it an array, such as np.asarray({name})")
        if not _length(tf, x) or _length(tf, x) != _length(tf, y):
            raise UsageError(f"the {what} have {_length(tf, x)} inputs and {_length(tf, y)} targets, but need equal numbers of at least 1")
        return x, y

    def _rows(self, data: Any, rows: Any) -> Any:
        return self._tf.nest.map_structure(lambda tensor: self._tf.gather(tensor, rows), data)

    def try_out(self, target: str) -> None:
        """Look at the data, compute one gradient, and validate; all is then as it was.

        Raises
        ------
        UsageError
            The model cannot learn from its data. Errors of the user's own code (FILE.py:FUNCTION) are passed on unchanged.
        """
        tf, state = self._tf, self.state()
        for what, pair in (("data to train on", (self.x, self.y)), ("data to validate with", (self.valid_x, self.valid_y))):
            for name, part in zip("xy", pair):
                if not all(bool(tf.reduce_all(tf.math.is_finite(each))) for each in tf.nest.flatten(part) if each.dtype.is_floating):
                    raise UsageError(f"{name} of the {what} has NaN or infinite numbers: remove them")
        rows = tf.range(min(self.samples, TRIED_BATCH))
        try:
            self.gradients_of(self.values(), rows)
            self.validated()
        except Exception as error:
            if place_in(error, target):
                raise
            raise UsageError(f"the model does not take its data: {shortened(str(error))}") from error
        self.begin(state)

    # -- the present version -----------------------------------------------------------------

    def values(self) -> list[Any]:
        """Values of the variables."""
        return [self._tf.convert_to_tensor(variable.value) for variable in self.variables]

    @property
    def described(self) -> dict[str, Any]:
        """The fields of a ``problem`` record."""
        return {
            "samples": self.samples, "validation_samples": self.valid_samples, "parameters": sum(self.sizes),
            "optimizer": type(self.model.optimizer).__name__, "name": self.model.name,
        }  # fmt: skip

    def slots(self) -> list[Any]:
        """Variables that the optimizer keeps of the model's."""
        return [slot for optimizer in self._optimizers for slot in optimizer.variables]

    def slot_values(self) -> list[Any]:
        """Values of these."""
        return [self._tf.convert_to_tensor(slot.value) for slot in self.slots()]

    def _own(self) -> list[Any]:
        """All that changes while it learns: variables, what the optimizer keeps of each, and what is not trained, as moving means."""
        return [*self.variables, *self.slots(), *self.model.non_trainable_variables]

    def state(self) -> list[Any]:
        """A copy of all that changes while it learns, for :meth:`begin`."""
        return [self._np.array(variable) for variable in self._own()]

    def begin(self, state: Sequence[Any]) -> None:
        """Go back to a state, of this model or of another that the same function has made."""
        assign(self._own(), state)

    @property
    def batches_can_be_joined(self) -> bool:
        """Tell whether the gradient of several batches together is the mean of theirs: nothing is normalised over a batch."""
        return all("seed" in variable.path for variable in self.model.non_trainable_variables)

    def _make_optimizers(self, optimizer: Any) -> None:
        """One for each variable, so that shares of a model are updated separately on their servers."""
        import keras

        config = optimizer.get_config()
        self._clip = config.pop("global_clipnorm", None)
        rate = config.get("learning_rate", 0.01)
        self._rate = keras.optimizers.schedules.deserialize(rate) if isinstance(rate, dict) else float(rate)
        config["learning_rate"] = 1.0  # what it is in an update is put in its place
        self._optimizers = []
        for variable in self.variables:
            self._optimizers.append(type(optimizer).from_config(dict(config)))
            self._optimizers[-1].build([variable])

    # -- gradients and updates, within functions of TensorFlow -----------------------------------

    def gradients_of(self, values: Sequence[Any], rows: Any) -> list[Any]:
        """Gradients of the mean loss of some samples, shape (samples,), with a version of the variables."""
        tf, model = self._tf, self.model
        x, y = self._rows(self.x, rows), self._rows(self.y, rows)
        fixed = [tf.convert_to_tensor(variable.value) for variable in model.non_trainable_variables]
        with tf.GradientTape() as tape:
            tape.watch(values)
            outputs, changed, losses = model.stateless_call(values, fixed, x, training=True, return_losses=True)
            loss = self._steps.loss_of(y, outputs, losses)
        assign(model.non_trainable_variables, changed)
        gradients = tape.gradient(loss, values, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        return [tf.convert_to_tensor(gradient) for gradient in gradients]

    def _mean_gradients(self, values: Sequence[Any], rows: Any) -> list[Any]:
        """The mean of the gradients of several batches, shape (batches, samples)."""
        tf = self._tf
        if self.batches_can_be_joined:
            mean = self.gradients_of(values, tf.reshape(rows, [-1]))
        else:
            batches = tf.shape(rows)[0]
            _, sums = tf.while_loop(
                lambda number, _: number < batches,
                lambda number, sums: (number + 1, [total + more for total, more in zip(sums, self.gradients_of(values, rows[number]))]),
                (tf.constant(0), [tf.zeros(value.shape, value.dtype) for value in values]),
                parallel_iterations=1,
            )
            mean = [total / tf.cast(batches, total.dtype) for total in sums]
        return tf.clip_by_global_norm(mean, self._clip)[0] if self._clip is not None else mean

    def _apply(self, numbers: Sequence[int], gradients: Sequence[Any], scale: Any) -> list[Any]:
        """Apply gradients to some of the variables, by their numbers; their new values. ``scale``: what their rate is multiplied by."""
        tf = self._tf
        for number, gradient in zip(numbers, gradients):
            optimizer = self._optimizers[number]
            rate = self._rate if isinstance(self._rate, float) else self._rate(optimizer.iterations)
            optimizer.learning_rate.assign(tf.cast(rate, tf.float32) * scale)
            optimizer.apply([gradient], [self.variables[number]])
        return [tf.convert_to_tensor(self.variables[number].value) for number in numbers]

    def applier(self, numbers: Sequence[int]) -> Callable[..., list[Any]]:
        """A function that applies gradients of some variables, as :meth:`_apply` does, and takes what their rate is multiplied by."""
        tf = self._tf
        if numbers not in self._appliers:
            specs = self._specs([self.variables[number] for number in numbers])
            self._appliers[numbers] = self._traced(lambda *given: self._apply(numbers, *given), specs, tf.TensorSpec([], tf.float32))
        return self._appliers[numbers]

    def _traced(self, function: Callable[..., Any], *signature: Any) -> Callable[..., Any]:
        """A function of TensorFlow, traced at its first call; arguments are not checked, which takes as long as a small model's update."""
        trace = functools.cache(self._tf.function(function, signature, autograph=False).get_concrete_function)
        return lambda *given: trace()(*given)

    def _specs(self, variables: Sequence[Any]) -> list[Any]:
        return [self._tf.TensorSpec(variable.shape, variable.dtype) for variable in variables]

    def mean(self, versions: Sequence[Sequence[Any]]) -> list[Any]:
        """The mean of several versions."""
        return [self._tf.reduce_mean(self._tf.stack(values), 0) for values in zip(*versions)]

    def _update(self, values: list[Any], rows: Any, scale: Any) -> list[Any]:
        """Apply the mean gradient of several batches, with a version of the variables, to all of them; their new values."""
        return self._apply(range(len(self.variables)), self._mean_gradients(values, rows), scale)

    def _step_of_copy(self, values: list[Any], slots: list[Any], start: list[Any], rows: Any, scale: Any) -> tuple[list[Any], list[Any]]:
        """Make a step with a worker's own copy of the variables and of what the optimizer keeps of them; both as they are then.

        The gradient is that at ``values``; it is applied to ``start``.
        """
        gradients = self._mean_gradients(values, rows)
        assign(self.variables, start)
        assign(self.slots(), slots)
        values = self._apply(range(len(self.variables)), gradients, scale)
        return values, self.slot_values()

    def servers(self, count: int) -> list[tuple[int, ...]]:
        """The variables on each server by their numbers: the largest first, each where there are fewest bytes."""
        held: list[list[int]] = [[] for _ in range(count)]
        loads = [0] * count
        for number in sorted(range(len(self.sizes)), key=lambda number: (-self.sizes[number], number)):
            least = min(range(count), key=lambda server: (loads[server], server))
            held[least].append(number)
            loads[least] += self.sizes[number]
        return [tuple(sorted(numbers)) for numbers in held]

    # -- how good it is ----------------------------------------------------------------------

    def validated(self) -> dict[str, float]:
        """Loss and metrics of the validation data: those that the model was compiled with, and of a classifier three more."""
        tf, np = self._tf, self._np
        outputs = []
        for begin in range(0, self.valid_samples, VALIDATION_BATCH):
            rows = np.arange(begin, min(begin + VALIDATION_BATCH, self.valid_samples))
            outputs.append(self._predict(self._rows(self.valid_x, rows)))
        predicted = outputs[0] if len(outputs) == 1 else tf.nest.map_structure(lambda *parts: tf.concat(parts, 0), *outputs)
        metrics = {"loss": float(self._steps.loss_of(self.valid_y, predicted, []))}
        self.model.reset_metrics()
        own = self.model.compute_metrics(self.valid_x, self.valid_y, predicted)
        metrics.update((name, float(value)) for name, value in own.items() if name != "loss" and not np.ndim(value))
        return metrics | {name: value for name, value in self._of_classes(predicted).items() if name not in metrics}

    def _of_classes(self, predicted: Any) -> dict[str, float]:
        """Accuracy, mean recall of the classes and mean average precision, where the model tells several classes apart."""
        np = self._np
        try:
            from sklearn import metrics
        except ImportError:
            return {}
        if not self._tf.is_tensor(predicted) or not self._tf.is_tensor(self.valid_y):
            return {}
        scores, truth = np.asarray(predicted), np.asarray(self.valid_y)
        if scores.ndim != 2 or scores.shape[1] < 2 or truth.size != len(scores) or not np.issubdtype(truth.dtype, np.integer):
            return {}
        truth = truth.reshape(-1)
        if truth.min() < 0 or truth.max() >= scores.shape[1]:
            return {}
        scores = np.nan_to_num(scores)  # of a model that has diverged, which its loss says
        chosen = scores.argmax(axis=1)
        precisions = [metrics.average_precision_score(truth == number, scores[:, number]) for number in np.unique(truth)]
        return {
            "accuracy": float(metrics.accuracy_score(truth, chosen)),
            "recall": float(metrics.recall_score(truth, chosen, average="macro", zero_division=0)),
            "average_precision": float(np.mean(precisions)),
        }


def assign(variables: Sequence[Any], values: Sequence[Any]) -> None:
    """Put values into variables."""
    for variable, value in zip(variables, values):
        variable.assign(value)


def _length(tf: Any, data: Any) -> int:
    return int(tf.nest.flatten(data)[0].shape[0])


def _kind(value: Any) -> str:
    if isinstance(value, (tuple, list)):
        return f"{len(value)} of {', '.join(type(part).__name__ for part in value)}"
    return f"a {type(value).__name__}"
