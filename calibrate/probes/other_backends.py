"""Measures training steps under JAX or PyTorch, as step.py does under TensorFlow: the same rounds, the same records.

What only TensorFlow has is left out: the cost of parameter servers, ends of ``tf.data`` iterators, operations counted from a graph,
layers, XLA by choice. The frameworks are in on_jax.py and on_torch.py.
"""

from __future__ import annotations

import os
from typing import Any

from . import ending, keras_model, load, overheads, training
from .recorder import progress
from .timing import Step, Timing, wait_for_all

LACKING = "the cost of parameter servers, ends of tf.data iterators and counts of operations are measured under TensorFlow alone"


def made_for(backend: str, wanted: str | None) -> Any:
    """The framework on its device."""
    if backend == "jax":
        from .on_jax import Jax

        return Jax(wanted)
    from .on_torch import Torch

    return Torch(wanted)


class Probe(Timing):
    """One run: builds the steps, then measures them in turn."""

    def __init__(self, arguments: Any, recorder: Any, on: Any, start_up: Any) -> None:
        super().__init__(arguments, recorder)
        self._on = on
        self._start_up = start_up
        self._made: Any = None

    def wait(self, result: Any) -> None:
        """Until the device has done all that was asked of it."""
        self._on.wait(result)

    def _plain_steps(self, keras: Any) -> dict[int, Step]:
        """The step as the user wrote it, for each batch size."""
        if self.arguments.step:
            factory = training.load_function(self.arguments.step)
            return {batch: self._on.custom_step(factory, batch) for batch in self.batches}
        builder = training.load_function(self.arguments.model)
        with self._on.on_device():
            built = builder()
        self._made = keras_model.KerasModel(keras, built, self.arguments.precision == "mixed_float16")
        return {batch: self._on.step_of(self._made, batch) for batch in self.batches}

    def run(self, keras: Any) -> None:
        """Everything, the most valuable first."""
        count, steps_in_all = self.split_steps, len(self.batches) * self.arguments.steps
        total = steps_in_all + len(self.batches) * count
        progress(0, total, "build and warm up")
        steps = self._plain_steps(keras)
        if not self.arguments.together:
            self.recorder.write("startup", seconds=self._start_up.seconds(), of_process=self._start_up.of_process)
        for batch, step in steps.items():
            self.warm_up(batch, step)
        if self.arguments.together:
            wait_for_all(self.arguments.together)
        self.time_plain(steps, total)
        if self.arguments.together:
            return
        for batch, step in steps.items():
            if (peak := self._on.peak_bytes(step)) is not None:
                self.recorder.write("memory", batch=batch, peak_bytes=peak)
        self._split(steps, steps_in_all, total)
        optimizer = type(self._made.optimizer).__name__ if self._made is not None else "the step's own"
        self.recorder.write("note", optimizer=optimizer, split=self._on.remark, lacking=LACKING)
        self._beside_steps()

    def _split(self, steps: dict[int, Step], done: int, total: int) -> None:
        """How forward, backward and update share the time, and when gradients are ready."""
        parts = {batch: self._on.split_of(self._made, batch, step) for batch, step in steps.items()}
        for index in range(-3, self.split_steps):
            for batch, part in parts.items():
                found = part.once()
                if index < 0 or found is None:
                    continue
                shares, ready = found
                self.recorder.write("split", batch=batch, index=index, **shares)
                self.recorder.write("ready", batch=batch, index=index, observed=self._on.observed, ready_s=ready)
                done += 1
            progress(done, total, "forward, backward, apply")
        variables = list(parts[self.batches[0]].variables())
        if not variables:
            raise ValueError("no gradient was seen: the step must compute its gradients with backward()")
        for one in variables:
            self.recorder.write("variable", **one)

    def _beside_steps(self) -> None:
        """First evaluations and checkpoints, where the model is known."""
        if self._made is None:
            overheads.unmeasured("checkpoint", "a step of your own does not tell what it trains", self.recorder)
            return
        batch = self.batches[0]
        overheads.evaluation(self._on.evaluation_of(self._made, batch), self.timed, batch, self.recorder)
        made = self._made
        overheads.checkpoints(made, made.size_bytes, made.copied, self.arguments.out, self.recorder)


def measure(arguments: Any, recorder: Any, start_up: Any, before: Any) -> None:
    """All of a run.

    Raises
    ------
    NotInstalledError
        This Python lacks the framework, or Keras.
    UsageError
        What is asked for is not to be had under it.
    """
    backend = arguments.backend
    if arguments.replicas > 1 or arguments.layers or arguments.jit:
        what = "jit" if arguments.jit else "layers" if arguments.layers else "replicas"
        why = "a step is compiled by XLA in any case" if backend == "jax" and arguments.jit else "goes with TensorFlow alone"
        raise ending.UsageError(f"`{what}`: {why}, and the steps are {backend}'s; leave it out")
    if backend == "jax" and arguments.step:
        raise ending.UsageError(
            "`step`: under JAX a compiled step of your own shows no passes and no gradients; give a Keras model instead"
        )
    os.environ["KERAS_BACKEND"] = backend  # which a step of the user's own may import
    on = made_for(backend, arguments.device)
    keras = keras_model.keras_of(backend) if arguments.model else None
    with start_up.without():
        recorder.write("fingerprint", **on.fingerprint(), keras="" if keras is None else keras.__version__)
        used = load.gpu_used(f"/{on.kind}:{on.index}") if on.kind == "GPU" else None
        why = f"others took {used:.0f}% of the GPU's time" if used is not None and used > load.GPU_LIMIT else ""
        recorder.write("load", stage="before", gpu_percent=used, why=why, **before.end())
    if arguments.precision != "float32":
        if keras is None:
            raise ending.UsageError("`precision`: is a policy of Keras; a step of your own says itself what it computes with: leave it out")
        keras.mixed_precision.set_global_policy(arguments.precision)
    Probe(arguments, recorder, on, start_up).run(keras)
