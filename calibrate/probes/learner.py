"""A user's model and data as something that learns: gradients with any version of its variables, updates of a share of them, metrics.

Versions that somebody has read lie as rows of one table, so that whole stretches of a replay run in one function of TensorFlow.
``replay`` says which row is read and written when; ``noise_scale`` needs the gradients alone.
"""

from __future__ import annotations

from typing import Any, Sequence

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
        self._made: dict[Any, Any] = {}
        self._predict = tf.function(lambda x: self.model(x, training=False), reduce_retracing=True)

    def _check_compiled(self) -> None:
        """Refuse a loss that is no mean over samples, and what else would be replayed as something else."""
        model = self.model
        if len(getattr(model, "outputs", None) or [0]) > 1:
            raise UsageError("the model has several outputs; what is replayed has one, with one loss")
        reduction = getattr(model.loss, "reduction", "mean")
        if reduction not in ("sum_over_batch_size", "mean", "mean_with_sample_weight", "auto"):
            raise UsageError(f"the loss is reduced by {reduction!r}; gradients of several batches are averaged, so it must be a mean")
        if (getattr(model, "get_compile_config", dict)() or {}).get("loss_weights"):
            raise UsageError("the model is compiled with loss_weights, which are not replayed; leave them out")
        if type(model.optimizer).__name__ == "LossScaleOptimizer":
            raise UsageError("the model is compiled for mixed_float16, whose loss scaling is not replayed; build it in float32")

    # -- the data --------------------------------------------------------------------------

    def _pair(self, pair: Any, what: str) -> tuple[Any, Any]:
        tf = self._tf
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise UsageError(f"{WANTED}; the {what} are no pair (x, y) but {_kind(pair)}")
        x, y = (tf.nest.map_structure(tf.convert_to_tensor, part) for part in pair)
        for name, part in (("x", x), ("y", y)):
            for tensor in tf.nest.flatten(part):
                if not tensor.shape.rank:
                    raise UsageError(f"{name} of the {what} is a list of single numbers; make an array of it, such as np.asarray({name})")
        if not _length(tf, x) or _length(tf, x) != _length(tf, y):
            raise UsageError(f"the {what} have {_length(tf, x)} inputs and {_length(tf, y)} targets; they need as many, and one at least")
        return x, y

    def _rows(self, data: Any, rows: Any) -> Any:
        return self._tf.nest.map_structure(lambda tensor: self._tf.gather(tensor, rows), data)

    def try_out(self, target: str) -> None:
        """Look at the data, compute one gradient, and validate; all is then as it was.

        Raises
        ------
        UsageError
            The model cannot learn from its data. What the user's own code, of FILE.py:FUNCTION, raises stays what it is.
        """
        tf, state = self._tf, self.state()
        for what, pair in (("data to train on", (self.x, self.y)), ("data to validate with", (self.valid_x, self.valid_y))):
            for name, part in zip("xy", pair):
                if not all(bool(tf.reduce_all(tf.math.is_finite(each))) for each in tf.nest.flatten(part) if each.dtype.is_floating):
                    raise UsageError(f"{name} of the {what} has numbers that are not finite, NaN or infinity; take them out")
        rows = tf.range(min(self.samples, TRIED_BATCH))
        try:
            self._gradients(self.values(), rows)
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
        """What the optimizer keeps of the variables."""
        return [slot for optimizer in self._optimizers for slot in optimizer.variables]

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
        """Whether the gradient of several batches together is the mean of theirs: nothing is normalised over a batch."""
        return all("seed" in variable.path for variable in self.model.non_trainable_variables)

    def _make_optimizers(self, optimizer: Any) -> None:
        """One for each variable, so that shares of a model are updated each by itself, on whatever server they lie."""
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

    def _gradients(self, values: Sequence[Any], rows: Any) -> list[Any]:
        """Of the mean loss of some samples, shape (samples,), with a version of the variables."""
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
            mean = self._gradients(values, tf.reshape(rows, [-1]))
        else:
            batches = tf.shape(rows)[0]
            _, sums = tf.while_loop(
                lambda number, _: number < batches,
                lambda number, sums: (number + 1, [total + more for total, more in zip(sums, self._gradients(values, rows[number]))]),
                (tf.constant(0), [tf.zeros(value.shape, value.dtype) for value in values]),
                parallel_iterations=1,
            )
            mean = [total / tf.cast(batches, total.dtype) for total in sums]
        return tf.clip_by_global_norm(mean, self._clip)[0] if self._clip is not None else mean

    def _apply(self, which: Sequence[int], gradients: Sequence[Any], scale: Any) -> None:
        """Apply gradients to some of the variables; ``scale`` is what their rate is multiplied by."""
        tf = self._tf
        for number, gradient in zip(which, gradients):
            optimizer = self._optimizers[number]
            rate = self._rate if isinstance(self._rate, float) else self._rate(optimizer.iterations)
            optimizer.learning_rate.assign(tf.cast(rate, tf.float32) * scale)
            optimizer.apply([gradient], [self.variables[number]])

    def _flat(self, which: Sequence[int], values: Sequence[Any]) -> Any:
        tf = self._tf
        parts = [tf.reshape(tf.cast(values[number], tf.float32), [-1]) for number in which]
        return tf.concat(parts, 0) if parts else tf.zeros([0])

    def _shaped(self, which: Sequence[int], flat: Any) -> list[Any]:
        """The variables of a row, in the order of their numbers."""
        tf = self._tf
        if not which:  # a server without any
            return []
        parts = tf.split(flat, [self.sizes[number] for number in which])
        shaped = {
            number: tf.cast(tf.reshape(part, self.variables[number].shape), self.variables[number].dtype)
            for number, part in zip(which, parts)
        }
        return [shaped[number] for number in sorted(which)]

    def servers(self, count: int) -> list[tuple[int, ...]]:
        """The variables on each server by their numbers: the largest first, each where there are fewest bytes."""
        held: list[list[int]] = [[] for _ in range(count)]
        loads = [0] * count
        for number in sorted(range(len(self.sizes)), key=lambda number: (-self.sizes[number], number)):
            least = min(range(count), key=lambda server: (loads[server], server))
            held[least].append(number)
            loads[least] += self.sizes[number]
        return [tuple(sorted(numbers)) for numbers in held]

    def on_servers(self, count: int, kept: Sequence[int], pending: int) -> OnServers:
        """The same, its variables spread over servers; see :class:`OnServers`."""
        servers: OnServers = self._made.get(("servers", count)) or OnServers(self, count)
        self._made["servers", count] = servers
        servers.begin(kept, pending)
        return servers

    def copies(self, workers: int, neighbours: int) -> Copies:
        """The same, with a copy for each worker; see :class:`Copies`."""
        copies: Copies = self._made.get(("copies", neighbours)) or Copies(self, neighbours)
        self._made["copies", neighbours] = copies
        copies.begin(workers)
        return copies

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


class OnServers:
    """A model whose variables are spread over servers, each of which applies gradients to its own.

    Of each server's share, versions that are still to be read are rows of a table. A gradient is computed when it is first applied
    anywhere, and kept until it is applied everywhere.
    """

    def __init__(self, learner: Learner, count: int) -> None:
        tf = learner._tf
        self._tf, self._learner = tf, learner
        self._which = learner.servers(count)
        self._order = [number for which in self._which for number in which]
        self._widths = [sum(learner.sizes[number] for number in which) for which in self._which]
        self._kept = [tf.Variable(tf.zeros([1, width]), shape=[None, width], trainable=False) for width in self._widths]
        self._pending = tf.Variable(tf.zeros([1, sum(self._widths)]), shape=[None, sum(self._widths)], trainable=False)
        whole = tf.TensorSpec([None], tf.int32)
        signature = [whole, whole, tf.TensorSpec([None, count], tf.int32), whole, tf.TensorSpec([None, None, None], tf.int32),
                     tf.TensorSpec([None], tf.float32)]  # fmt: skip
        self.go_on = tf.function(self._in_turn, input_signature=signature, autograph=False)

    def begin(self, kept: Sequence[int], pending: int) -> None:
        """Make room for as many versions of each server's share, and pending gradients; the present version is the first of each."""
        tf, values = self._tf, self._learner.values()
        for which, table, rows in zip(self._which, self._kept, kept):
            row = self._learner._flat(which, values)
            table.assign(tf.concat([row[None], tf.zeros([rows - 1, row.shape[0]])], 0))
        self._pending.assign(tf.zeros([pending, sum(self._widths)]))

    def apply_in_turn(self, batches: Any, rate: float) -> None:
        """Apply mean gradients of batches, shape (n, batches, samples), each of the version before it, on one server."""
        np = self._learner._np
        none = np.zeros(len(batches), np.int32)
        self.go_on(none, none - 1, none[:, None], none, batches, np.full(len(batches), rate, np.float32))

    def _in_turn(self, server: Any, gradient: Any, read: Any, write: Any, batches: Any, scale: Any) -> None:
        """Apply gradients, one after the other.

        Parameters
        ----------
        server
            To whose variables each is applied, shape (n,).
        gradient
            In which row it is kept, where it was computed before; else below 0: it is computed now, and kept in row -1 - n.
        read
            With which row of each server's versions it is computed, shape (n, servers).
        write
            Which row of its server's versions the new one becomes, shape (n,).
        batches
            Numbers of the samples of the batches whose mean gradient it is, shape (n, batches, samples).
        scale
            What the rate is multiplied by, shape (n,).
        """
        tf, count = self._tf, self._tf.shape(server)[0]

        def update(number: Any) -> tuple[Any]:
            computed = self._gradient(gradient[number], read[number], batches[number])
            cases = [lambda of=of: self._applied(of, computed, write[number], scale[number]) for of in range(len(self._which))]
            if len(cases) == 1:
                cases[0]()
            else:
                tf.switch_case(server[number], cases)
            return (number + 1,)

        tf.while_loop(lambda number: number < count, update, (tf.constant(0),), parallel_iterations=1)

    def _gradient(self, kept_in: Any, read: Any, batches: Any) -> Any:
        tf, learner = self._tf, self._learner

        def compute() -> Any:
            rows = [tf.gather(table, read[server]) for server, table in enumerate(self._kept)]
            values = learner._shaped(self._order, tf.concat(rows, 0))
            flat = learner._flat(self._order, learner._mean_gradients(values, batches))
            return tf.ensure_shape(flat, [sum(self._widths)])

        if len(self._which) == 1:
            return compute()

        def compute_and_keep() -> Any:
            computed = compute()
            self._pending.scatter_nd_update([[-1 - kept_in]], [computed])
            return computed

        return tf.cond(kept_in < 0, compute_and_keep, lambda: tf.gather(self._pending, kept_in))

    def _applied(self, server: int, gradient: Any, write: Any, scale: Any) -> Any:
        learner, which = self._learner, self._which[server]
        if not which:  # it has nothing to update
            return self._tf.constant(0)
        begin = sum(self._widths[:server])
        learner._apply(which, learner._shaped(which, gradient[begin : begin + self._widths[server]]), scale)
        flat = learner._flat(which, learner.values())
        self._kept[server].scatter_nd_update([[write]], [flat])
        return self._tf.constant(0)


class Copies:
    """A model of which each worker has a copy, and keeps what the optimizer keeps of it; its present version is the mean of all.

    Without neighbours each makes steps by itself, and then all take the mean (local SGD). With neighbours each applies its gradient to
    the mean of its copy and theirs, on a circle (D-PSGD).
    """

    def __init__(self, learner: Learner, neighbours: int) -> None:
        tf = learner._tf
        self._tf, self._learner, self._neighbours = tf, learner, neighbours
        self._which = range(len(learner.variables))
        self._optimizer = learner.slots()
        self._slot_sizes = [max(int(learner._np.prod(slot.shape)), 1) for slot in self._optimizer]
        widths = sum(learner.sizes), sum(self._slot_sizes)
        self._values, self._slots = (tf.Variable(tf.zeros([1, width]), shape=[None, width], trainable=False) for width in widths)
        signature = [tf.TensorSpec([None, None, None, None], tf.int32), tf.TensorSpec([None], tf.float32)]
        self.go_on = tf.function(self._in_turn, input_signature=signature, autograph=False)

    def begin(self, workers: int) -> None:
        """All copies are the present version."""
        tf = self._tf
        flat = self._learner._flat(self._which, self._learner.values())
        self._values.assign(tf.tile(flat[None], [workers, 1]))
        self._slots.assign(tf.tile(self._flat_slots()[None], [workers, 1]))

    def _flat_slots(self) -> Any:
        tf = self._tf
        return tf.concat([tf.reshape(tf.cast(slot.value, tf.float32), [-1]) for slot in self._optimizer], 0)

    def _in_turn(self, batches: Any, scale: Any) -> None:
        """Make rounds: of local steps and a mean, or of one step of each with its neighbours.

        Parameters
        ----------
        batches
            Numbers of samples, shape (rounds, steps, workers, samples).
        scale
            What the rate is multiplied by, shape (rounds,).
        """
        tf, learner = self._tf, self._learner
        shape = tf.shape(batches)
        rounds, steps, workers = shape[0], shape[1], shape[2]

        def one_round(number: Any) -> tuple[Any]:
            values = self._values.read_value()
            base = self._beside(values) if self._neighbours else values

            def one_step(at: Any) -> tuple[Any]:
                worker = at % workers
                own = tf.gather(self._values, worker)
                gradients = learner._mean_gradients(learner._shaped(self._which, own), batches[number, at // workers, worker][None])
                start = tf.gather(base, worker) if self._neighbours else own
                assign(learner.variables, learner._shaped(self._which, start))
                self._put_slots(tf.gather(self._slots, worker))
                learner._apply(self._which, gradients, scale[number])
                new = learner._flat(self._which, learner.values())
                self._values.scatter_nd_update([[worker]], [new])
                self._slots.scatter_nd_update([[worker]], [self._flat_slots()])
                return (at + 1,)

            (ended,) = tf.while_loop(lambda at: at < steps * workers, one_step, (tf.constant(0),), parallel_iterations=1)
            with tf.control_dependencies([ended]):
                mean = tf.reduce_mean(self._values.read_value(), 0)
                if not self._neighbours:
                    self._values.assign(tf.tile(mean[None], [workers, 1]))
            assign(learner.variables, learner._shaped(self._which, mean))
            return (number + 1,)

        tf.while_loop(lambda number: number < rounds, one_round, (tf.constant(0),), parallel_iterations=1)

    def _beside(self, values: Any) -> Any:
        """Of each worker, the mean of its copy and its neighbours'."""
        tf = self._tf
        if self._neighbours == 1:
            return (values + tf.roll(values, 1, 0)) / 2.0
        return (values + tf.roll(values, 1, 0) + tf.roll(values, -1, 0)) / 3.0

    def _put_slots(self, flat: Any) -> None:
        tf = self._tf
        parts = zip(self._optimizer, tf.split(flat, self._slot_sizes))
        assign(self._optimizer, [tf.cast(tf.reshape(part, slot.shape), slot.dtype) for slot, part in parts])


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
