"""Training steps of a Keras model under JAX: one function, compiled by XLA, as Keras's own trainer makes it.

A compiled step is opaque: it returns all gradients at once. So forward pass, forward with backward pass,
and update are also compiled separately, and give the shares of the passes; every gradient counts as ready at the end.
"""

from __future__ import annotations

import time
from typing import Any, Callable, Iterator

from . import machine, recording
from .training import KerasModel, Step, keras_of


class Jax:
    """JAX on one device.

    Parameters
    ----------
    device
        Such as ``CPU`` or ``GPU:1``; None takes the first GPU, else the CPU.

    Raises
    ------
    NotInstalledError
        This Python has no JAX.
    """

    name = "jax"
    remark = "forward pass, forward with backward pass, and update were compiled separately, because a compiled step shows no parts"

    def __init__(self, device: str | None) -> None:
        self._jax = jax = recording.framework(self.name)
        gpus = [place for place in jax.devices() if place.platform in ("gpu", "cuda", "rocm")]
        self._gpus = len(gpus)
        self.kind, self.index = machine.chosen(device, self._gpus, "JAX")
        self._device = (gpus if self.kind == "GPU" else jax.devices("cpu"))[self.index]
        self._state: Any = None

    def fingerprint(self) -> dict[str, Any]:
        """Everything that a measured time may depend on, as plain data."""
        record = machine.of_machine(self.kind, self.index, self._gpus) | {"backend": self.name, "jax": self._jax.__version__}
        if self.kind == "GPU":
            record["device_name"] = str(self._device.device_kind)
        return record

    def on_device(self) -> Any:
        """Within, arrays are made on the device."""
        return self._jax.default_device(self._device)

    def wait(self, result: Any) -> None:
        """Until what a call has returned is there: JAX hands out arrays before they are computed."""
        self._jax.block_until_ready(result)

    def model_of(self, built: Any, mixed: bool) -> KerasModel:
        """The model that the user's function has built."""
        return KerasModel(keras_of(self.name), built, mixed)

    def step_of(self, made: KerasModel, batch: int) -> Step:
        """A callable that does one step on a batch that already lies on the device; steps of all batch sizes train one state."""
        with self.on_device():
            x, y = made.built_for(batch)
        if self._state is None:
            self._state = _state_of(made)
        passes, optimizer = self._jax.value_and_grad(_forward_of(made), has_aux=True), made.optimizer

        def body(state: Any, x: Any, y: Any) -> Any:
            trainable, others, of_optimizer = state
            (_, (loss, others)), gradients = passes(trainable, others, of_optimizer, x, y)
            trainable, of_optimizer = optimizer.stateless_apply(of_optimizer, gradients, trainable)
            return loss, (trainable, others, of_optimizer)

        # the state is handed over, as Keras's trainer does: no second copy of it is written
        compiled = self._jax.jit(body, donate_argnums=0)

        def run() -> Any:
            with self.on_device():
                loss, self._state = compiled(self._state, x, y)
                return loss, self._state

        return run

    def evaluation_of(self, made: KerasModel, batch: int) -> Step:
        """A callable that computes the loss of a batch, without gradients."""
        with self.on_device():
            x, y = made.batch_of(batch)

        def body(trainable: Any, others: Any, x: Any, y: Any) -> Any:
            outputs, _ = made.model.stateless_call(trainable, others, x, training=False)
            return made.loss_of(y, outputs, [])

        compiled = self._jax.jit(body)

        def run() -> Any:
            with self.on_device():
                trainable, others, _ = self._state
                return compiled(trainable, others, x, y)

        return run

    def peak_bytes(self, step: Step) -> int | None:  # noqa: ARG002
        """None: a peak is counted from the start of the process on, and not by step."""
        return None

    def split_of(self, made: KerasModel | None, batch: int, step: Step) -> Apart:  # noqa: ARG002
        """Tells how the passes share a step."""
        assert made is not None
        with self.on_device():
            x, y = made.batch_of(batch)
        forward, jit = _forward_of(made), self._jax.jit
        passes = self._jax.value_and_grad(forward, has_aux=True)
        return Apart(self, made, (jit(forward), jit(passes), jit(made.optimizer.stateless_apply)), x, y)

    @property
    def state(self) -> Any:
        """Trainable and other variables, and those of the optimizer, as the last step left them."""
        return self._state


class Apart:
    """The parts of a step, each compiled separately."""

    def __init__(self, on: Jax, made: KerasModel, compiled: tuple[Any, Any, Any], x: Any, y: Any) -> None:
        self._on, self._made, self._x, self._y = on, made, x, y
        self._forward, self._passes, self._update = compiled

    def once(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Kinds and fields of the records of one step, ``split`` and ``ready``: all gradients when the backward pass ends."""
        trainable, others, of_optimizer = self._on.state
        with self._on.on_device():
            _, forward_s = self._timed(self._forward, trainable, others, of_optimizer, self._x, self._y)
            (_, gradients), both_s = self._timed(self._passes, trainable, others, of_optimizer, self._x, self._y)
            _, apply_s = self._timed(self._update, of_optimizer, gradients, trainable)
        backward_s = max(both_s - forward_s, 0.0)
        yield "split", {"forward_s": forward_s, "backward_s": backward_s, "apply_s": apply_s}
        yield "ready", {"observed": False, "ready_s": {str(index): backward_s for index in range(len(trainable))}}

    def _timed(self, call: Callable[..., Any], *arguments: Any) -> tuple[Any, float]:
        begun = time.perf_counter()
        result = call(*arguments)
        self._on.wait(result)
        return result, time.perf_counter() - begun

    def variables(self) -> Iterator[dict[str, Any]]:
        """The fields of a ``variable`` record for each trainable variable."""
        for index, variable in enumerate(self._made.model.trainable_variables):
            value = variable.value
            yield {
                "index": index, "name": str(variable.path), "shape": [int(size) for size in value.shape], "dtype": str(value.dtype),
                "size_bytes": int(value.nbytes), "gradient_dtype": str(value.dtype), "sparse_row_bytes": None, "created": index,
            }  # fmt: skip


def _state_of(made: KerasModel) -> Any:
    """Copies of the variables: steps hand theirs over, and the model's own are still to be read."""
    import jax.numpy

    def copies(variables: Any) -> Any:
        return [jax.numpy.array(variable.value, copy=True) for variable in variables]

    return copies(made.model.trainable_variables), copies(made.model.non_trainable_variables), copies(made.optimizer.variables)


def _forward_of(made: KerasModel) -> Any:
    """Scaled loss, and (loss, other variables): the forward pass as a function without side effects."""
    keras, model, optimizer = made.keras, made.model, made.optimizer

    def forward(trainable: Any, others: Any, of_optimizer: Any, x: Any, y: Any) -> Any:
        outputs, others, losses = model.stateless_call(trainable, others, x, training=True, return_losses=True)
        loss = made.loss_of(y, outputs, losses)
        # a loss scale is a variable of the optimizer's
        with keras.StatelessScope(state_mapping=list(zip(optimizer.variables, of_optimizer))):
            scaled = optimizer.scale_loss(loss)
        return scaled, (loss, others)

    return forward
