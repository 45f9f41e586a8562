"""Runs a whole small training with Keras' ``fit``, and writes down when its parts began and ended.

The process is a user's own: it builds the model, compiles it, makes ``tf.data`` pipelines
and fits for some epochs, with an evaluation and a checkpoint after each. With ``--replicas``
it does so under ``tf.distribute.MirroredStrategy``, on logical devices where the machine has
fewer real ones. Times are seconds since the start of the process.

The batches lie ready in memory, so that reading input takes next to nothing.
"""

from __future__ import annotations

import argparse
import os
from typing import Any

from _paceline_probes import machine, overheads, recording, training
from _paceline_probes.machine import Watch
from _paceline_probes.recording import Recorder


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="FILE.py:FUNCTION, as the step probe takes it")
    parser.add_argument("--batch", type=int, required=True, help="samples that each replica takes a step")
    parser.add_argument("--steps", type=int, required=True, help="of an epoch")
    parser.add_argument("--evaluation-steps", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--replicas", type=int, default=1)
    parser.add_argument("--checkpoint", action="store_true", help="write one after each epoch")
    parser.add_argument("--device")
    parser.add_argument("--out", required=True)
    return parser.parse_args()


class Spans:
    """Begin and end of parts of the training."""

    def __init__(self, recorder: Any, clock: Any) -> None:
        self._recorder, self.now = recorder, clock.seconds
        self._open: dict[str, float] = {}
        self.epoch = 0

    def begin(self, what: str) -> None:
        """A part of the training begins."""
        self._open[what] = self.now()

    def end(self, what: str) -> None:
        """The part that was begun last under this name has ended."""
        self.add(what, self._open.pop(what), self.now())

    def add(self, what: str, began_s: float, ended_s: float) -> None:
        """Write down one part."""
        self._recorder.write("span", what=what, epoch=self.epoch, began_s=began_s, ended_s=ended_s)


def _callback(keras: Any, spans: Spans, checkpoint: Any) -> Any:
    class Watch(keras.callbacks.Callback):  # type: ignore[misc, name-defined, unused-ignore]
        def on_epoch_begin(self, epoch: int, *_: Any, **__: Any) -> None:
            spans.epoch = epoch
            spans.begin("epoch")

        def on_train_batch_begin(self, *_: Any, **__: Any) -> None:
            spans.begin("step")

        def on_train_batch_end(self, *_: Any, **__: Any) -> None:
            spans.end("step")

        def on_test_begin(self, *_: Any, **__: Any) -> None:
            spans.begin("evaluation")

        def on_test_batch_begin(self, *_: Any, **__: Any) -> None:
            spans.begin("evaluation step")

        def on_test_batch_end(self, *_: Any, **__: Any) -> None:
            spans.end("evaluation step")

        def on_test_end(self, *_: Any, **__: Any) -> None:
            spans.end("evaluation")

        def on_epoch_end(self, epoch: int, *_: Any, **__: Any) -> None:
            if checkpoint is not None:
                spans.begin("checkpoint")
                checkpoint(epoch)
                spans.end("checkpoint")
            spans.end("epoch")

    return Watch()


def _logical_devices(tf: Any, kind: str, count: int) -> list[str]:
    """Devices for as many replicas: real ones, or logical ones of the first."""
    physical = tf.config.list_physical_devices(kind)
    if len(physical) < count:
        limit = [tf.config.LogicalDeviceConfiguration() for _ in range(count)]
        if kind == "GPU":  # memory is shared out where several stand on one
            limit = [tf.config.LogicalDeviceConfiguration(memory_limit=4096) for _ in range(count)]
        tf.config.set_logical_device_configuration(physical[0], limit)
    return [f"/{kind}:{index}" for index in range(count)]


def _dataset(tf: Any, one: Any, steps: int, replicas: int) -> Any:
    """As many global batches, all of the same numbers, which cost as much as others."""
    repeated = tf.nest.map_structure(lambda tensor: tf.concat([tensor] * replicas, axis=0), one)
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return tf.data.Dataset.from_tensors(repeated).repeat(steps).prefetch(2).with_options(options)


def _fit(tf: Any, arguments: argparse.Namespace, recorder: Any, clock: Any, device: str, kind: str) -> None:
    import keras

    if arguments.replicas > 1:
        scope = tf.distribute.MirroredStrategy(_logical_devices(tf, kind, arguments.replicas)).scope()
    else:
        scope = tf.device(device)
    with scope:
        steps = training.ModelSteps(tf, training.load_function(arguments.model)(), False)
        model = steps.model
        model.compile(optimizer=steps.optimizer, loss=steps.loss or (lambda _, outputs: tf.square(outputs)))
    one = steps.batch_of(arguments.batch)
    spans = Spans(recorder, clock)
    options: dict[str, Any] = {}
    if arguments.evaluation_steps:
        options["validation_data"] = _dataset(tf, one, arguments.evaluation_steps, arguments.replicas)
    with overheads.disk_beside(arguments.out) as folder:
        state = steps.state()

        def write(epoch: int) -> None:
            overheads.write_state(state, os.path.join(folder, str(epoch)))

        watch = _callback(keras, spans, write if arguments.checkpoint else None)
        # a finite data set, of which each epoch has an iterator of its own
        data = _dataset(tf, one, arguments.steps, arguments.replicas)
        model.fit(data, epochs=arguments.epochs, verbose=0, callbacks=[watch], **options)
        spans.add("job", 0.0, clock.seconds())


def main() -> int:
    """Run the training; the exit status tells the parent who is at fault."""
    clock, watch = overheads.StartUp(), Watch()
    arguments = _arguments()

    def measure(recorder: Recorder) -> None:
        tf = recording.framework("tensorflow")
        device, kind = machine.choose_device(tf, arguments.device)
        with clock.without():
            recorder.write("fingerprint", **machine.fingerprint(tf, device, kind))
        _fit(tf, arguments, recorder, clock, device, kind)
        recorder.write("load", stage="rounds", why="", **watch.end())

    return recording.run("job", arguments, measure, arguments.model)
