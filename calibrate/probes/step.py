"""Measures real training steps; runs in the user's Python. Here is TensorFlow; steps under JAX and PyTorch are in other_backends.py.

What is measured is either a Keras model (``--model FILE.py:FUNCTION``) or a training
step of the user's own (``--step FILE.py:FUNCTION``).

``--model``: FUNCTION() returns a Keras model, or ``(model, loss, input_spec)``.
    loss: a function of ``(y_true, y_pred)``, or the name of one. Left out: the one given
    to ``compile``, else the mean of the squared outputs. The optimizer is the one given
    to ``compile``, else SGD.
    input_spec, without the batch dimension: a ``tf.TensorSpec`` (or a structure of them)
    for x; or a pair ``(x_spec, y_spec)``; or a function ``batch -> (x, y)``. Left out:
    x from ``model.inputs``, y as the loss needs it. Integers are drawn below the size of
    the smallest embedding (inputs) or below the number of classes (targets).

``--step``: FUNCTION(batch_size) returns a callable without arguments that does one full
    training step (forward, ``tf.GradientTape``, optimizer) on a batch of that size. Let it
    return a tensor of the step, such as the loss.

The batch lies on the device before the clock starts: reading input is not measured.

calibrate/profiling.py gives the flags; calibrate/measurements.py has the records that go to ``--out``.
"""

from __future__ import annotations

import argparse
import os
import time
from typing import Any, Callable

from . import ending, environment, load, mirrored, overheads, training
from .recorder import Recorder, progress
from .timing import Timing, wait_for_all


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    target = parser.add_mutually_exclusive_group(required=True)
    target.add_argument("--model")
    target.add_argument("--step")
    parser.add_argument("--batches", default="16,32,64")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=5, help="disturbed rounds that are measured again, at most")
    parser.add_argument("--together", help="FOLDER:PROCESS:PROCESSES, each beginning to time when all have warmed up; plain steps only")
    parser.add_argument("--launch", type=int, help="number of this launch of several processes at once")
    parser.add_argument("--cores", help="numbers of the cores to run on")
    parser.add_argument("--replicas", type=int, default=1, help="of MirroredStrategy, on as many logical devices; plain steps of a model")
    parser.add_argument(
        "--backend", choices=("tensorflow", "jax", "torch"), default="tensorflow", help="of Keras; the others: other_backends.py"
    )
    parser.add_argument("--device")
    parser.add_argument("--precision", choices=("float32", "mixed_float16", "mixed_bfloat16", "bfloat16"), default="float32")
    parser.add_argument("--jit", action="store_true")
    parser.add_argument("--layers", action="store_true", help="measure each layer of a Keras model too")
    parser.add_argument("--out", required=True)
    return parser.parse_args()


class Probe(Timing):
    """One run: builds the steps, then measures them in turn."""

    def __init__(self, tf: Any, arguments: argparse.Namespace, recorder: Any, device: str, kind: str, start_up: Any) -> None:
        super().__init__(arguments, recorder)
        self.tf = tf
        self.device, self.kind = device, kind
        self.start_up = start_up
        self.model: Any = None
        self.watched_factory: Any = None

    def wait(self, result: Any) -> None:
        """Until the device has done all that was asked of it."""
        sync = getattr(self.tf.test.experimental, "sync_devices", None)
        if sync is not None:
            sync()
        elif tensors := [one for one in self.tf.nest.flatten(result) if hasattr(one, "numpy")]:
            tensors[0].numpy()

    def plain_steps(self) -> dict[int, Callable[[], Any]]:
        """The step as the user wrote it, for each batch size."""
        arguments = self.arguments
        if arguments.step:
            factory = training.load_function(arguments.step)
            return {batch: training.custom_step(self.tf, factory, batch, self.device) for batch in self.batches}
        builder = training.load_function(arguments.model)
        if arguments.replicas > 1:
            return mirrored.steps(self.tf, builder, arguments.precision == "mixed_float16", self.kind, arguments.replicas, self.batches)
        with self.tf.device(self.device):
            built = builder()
        self.model = training.ModelSteps(self.tf, built, arguments.precision == "mixed_float16")
        if arguments.layers:
            with self.tf.device(self.device):
                self.model.batch_of(self.batches[0])  # builds it
            with self.start_up.without():
                from . import layers

                layers.cut(self.model.model)  # what cannot be cut is refused before anything is measured
        return {batch: self.model.step(batch, self.device, arguments.jit) for batch in self.batches}

    def instrumented_step(self, batch: int) -> Callable[[], Any]:
        """A second copy of the step, to be traced while its gradients are watched; without XLA, which knows no clocks."""
        if self.model is not None:
            return self.model.step(batch, self.device, False)
        original = self.tf.function

        def without_xla(*args: Any, **kwargs: Any) -> Any:
            kwargs.pop("jit_compile", None)
            return original(*args, **kwargs)

        self.tf.function = without_xla
        try:
            if self.watched_factory is None:
                self.watched_factory = training.load_function(self.arguments.step, "_instrumented")
            return training.custom_step(self.tf, self.watched_factory, batch, self.device)
        finally:
            self.tf.function = original

    def peak_memory(self, steps: dict[int, Callable[[], Any]]) -> None:
        """Peak bytes of one step, where the device counts them."""
        if self.kind != "GPU":
            return
        name = self.device.lstrip("/")
        for batch, step in steps.items():
            try:
                self.tf.config.experimental.reset_memory_stats(name)
                self.timed(step)
                peak = self.tf.config.experimental.get_memory_info(name)["peak"]
            except (ValueError, AttributeError, KeyError):
                return
            self.recorder.write("memory", batch=batch, peak_bytes=int(peak))

    def count(self, steps: dict[int, Callable[[], Any]]) -> None:
        """What each step asks of a device; last, since tracing runs the user's Python once more. A step that cannot be counted is none."""
        from . import counting

        float_bytes = 4 if self.arguments.precision == "float32" else 2
        for batch, step in steps.items():
            try:
                self.recorder.write("counted", batch=batch, **counting.count(self.tf, step, float_bytes))
            except Exception as error:  # whatever it is, the measurement stands
                self.recorder.write("counted", batch=batch, why=(type(error).__name__ + ": " + str(error))[:500])

    def split(self, done: int, total: int) -> int:
        """Steps with clocks inside: how forward, backward and apply share the time. Returns the largest variable's bytes."""
        from .stamps import Stamps

        # one set of clocks a batch size: a step of the user's own may make new variables for each
        stamps = {batch: Stamps(self.tf, barrier=self.kind == "CPU") for batch in self.batches}
        count = self.split_steps
        steps = {}
        for batch, clocks in stamps.items():
            with clocks.watching():
                steps[batch] = self.instrumented_step(batch)
                for _ in range(3):
                    clocks.reset()
                    self.wait(steps[batch]())
        for index in range(count):
            for batch, clocks in stamps.items():
                clocks.reset()
                with clocks.watching():
                    # the clocks inside the step tell the time since the epoch, so must these
                    start = time.time()
                    self.wait(steps[batch]())
                    end = time.time()
                self._write_split(batch, index, start, end, clocks)
                done += 1
            progress(done, total, "forward, backward, apply")
        return self._variables(stamps[self.batches[0]])

    def _write_split(self, batch: int, index: int, start: float, end: float, clocks: Any) -> None:
        loss, ready, rows = clocks.read()
        if loss is not None and ready:
            last = max(ready.values())
            # without a barrier a gradient may be there before the loss's last operation
            loss = min(loss, *ready.values())
            parts = {"forward_s": max(loss - start, 0.0), "backward_s": max(last - loss, 0.0), "apply_s": max(end - last, 0.0)}
            self.recorder.write("split", batch=batch, index=index, **parts)
            since = {str(key): max(value - loss, 0.0) for key, value in ready.items()}
            self.recorder.write("ready", batch=batch, index=index, observed=not clocks.eager, ready_s=since)
        for key, value in rows.items():
            self.recorder.write("rows", batch=batch, index=index, variable=key, rows=value)

    def layers(self, done: int, total: int) -> None:
        """Each layer of the model: sizes from its graph, times from steps with clocks at the cuts."""
        from . import layers
        from .stamps import Stamps

        count = self.split_steps
        stamps = {batch: Stamps(self.tf, barrier=False) for batch in self.batches}
        passes = layers.Passes(self.tf, self.model)
        passes.write_sizes(self.recorder, self.batches)
        timed = {batch: passes.timed(batch, self.device, stamps[batch]) for batch in self.batches}
        for index in range(-3, count):
            for batch, step in timed.items():
                stamps[batch].reset()
                self.wait(step())
                if index < 0:
                    continue
                forward, backward = passes.seconds(stamps[batch].times())
                self.recorder.write("layers", batch=batch, index=index, forward_s=forward, backward_s=backward)
                done += 1
            progress(done, total, "layers")

    def beside_steps(self, step: Callable[[], Any]) -> None:
        """Ends of iterators; first evaluations, where the model is known; and checkpoints."""
        recorder = self.recorder
        overheads.iterator_ends(self.tf, step, self.timed, recorder)
        if self.model is not None:
            batch = self.batches[0]
            overheads.evaluation(self.model.evaluation(batch, self.device, self.arguments.jit), self.timed, batch, recorder)
            state, variables = self.model.state()
        else:
            try:
                variables = overheads.variables_of_step(self.tf, step)
            except Exception as error:  # it may depend on values, or on being called outside a graph
                overheads.unmeasured("checkpoint", error, recorder)
                return
            state = self.tf.train.Checkpoint(variables=variables)
        import numpy

        size_bytes = overheads.bytes_of(self.tf, variables)
        overheads.checkpoints(state, size_bytes, lambda: [numpy.array(one) for one in variables], self.arguments.out, recorder)

    def _variables(self, stamps: Any) -> int:
        if not stamps.sources:
            raise ValueError("no gradient was seen: the step must compute its gradients with tf.GradientTape")
        order = [id(one) for one in self.model.variables()] if self.model else []
        largest = 4
        for index, source in enumerate(stamps.sources):
            dtype = self.tf.as_dtype(source.dtype)
            shape = [int(size) for size in source.shape]
            size = dtype.size
            for one in shape:
                size *= one
            largest = max(largest, size)
            self.recorder.write(
                "variable",
                index=index,
                name=str(getattr(source, "path", source.name)),
                shape=shape,
                dtype=dtype.name,
                size_bytes=size,
                gradient_dtype=stamps.gradient_dtypes[index],
                sparse_row_bytes=stamps.sparse.get(index),
                created=order.index(id(source)) if id(source) in order else len(order) + index,
            )
        return largest

    def run(self) -> None:
        """Everything, the most valuable first."""
        count = self.split_steps
        total = len(self.batches) * (self.arguments.steps + count * (2 if self.arguments.layers else 1))
        progress(0, total, "build and warm up")
        steps = self.plain_steps()
        if not self.arguments.together:
            self.recorder.write("startup", seconds=self.start_up.seconds(), of_process=self.start_up.of_process)
        for batch, step in steps.items():
            self.warm_up(batch, step)
        if self.arguments.together or self.arguments.replicas > 1:
            if self.arguments.together:
                wait_for_all(self.arguments.together)
            self.time_plain(steps, total)
            return
        self.time_plain(steps, total)
        self.peak_memory(steps)
        largest = self.split(len(self.batches) * self.arguments.steps, total)
        optimizer = self.model.optimizer if self.model else None
        from . import server_cost

        server_cost.measure(self.tf, optimizer, largest, 5, self.recorder)
        name = type(optimizer).__name__ if optimizer is not None else "the step's own; server cost of SGD"
        self.recorder.write("note", optimizer=name, instrumented_without_xla=bool(self.arguments.jit))
        if self.arguments.layers:
            self.layers(len(self.batches) * (self.arguments.steps + count), total)
        self.beside_steps(steps[self.batches[0]])
        self.count(steps)


def main() -> int:
    """Run the probe; the exit status tells the parent who is at fault."""
    arguments = _arguments()
    if arguments.cores:
        os.sched_setaffinity(0, [int(core) for core in arguments.cores.split(",")])
    start_up, before = overheads.StartUp(), load.Watch()
    recorder = Recorder(arguments.out)
    recorder.header("step", {key: value for key, value in vars(arguments).items() if key != "out"})
    target = arguments.model or arguments.step
    ending.let_import(target)

    def measure() -> None:
        if arguments.backend != "tensorflow":
            from . import other_backends

            other_backends.measure(arguments, recorder, start_up, before)
            return
        tf = ending.tensorflow()
        if arguments.replicas > 1:
            mirrored.split(tf, arguments.replicas)
        device, kind = environment.choose_device(tf, arguments.device)
        with start_up.without():
            recorder.write("fingerprint", **environment.fingerprint(tf, device, kind))
            used = load.gpu_used(device) if kind == "GPU" else None
            why = f"others took {used:.0f}% of the GPU's time" if used is not None and used > load.GPU_LIMIT else ""
            recorder.write("load", stage="before", gpu_percent=used, why=why, **before.end())
        if arguments.precision != "float32":
            import keras

            keras.mixed_precision.set_global_policy(arguments.precision)
        Probe(tf, arguments, recorder, device, kind, start_up).run()

    return ending.recorded(measure, recorder, target)
