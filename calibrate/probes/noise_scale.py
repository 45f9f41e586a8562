"""Square norms of gradients at two batch sizes, while a model learns; runs in the user's Python.

``--problem FILE.py:FUNCTION`` as for ``replay.py``. The model makes steps at ``--batch`` for ``--epochs``, with its own optimizer. The
steps are divided into ``--moments`` equal stretches; in the middle of each, gradients of the mean loss are taken of ``--draws`` batches of
the same size and of ``--big-draws`` batches of ``--big`` samples. Their samples are drawn with replacement, so that draws are independent
and a batch's noise is that of its samples over their number. Measuring does not change the training.
"""

from __future__ import annotations

from typing import Any

from . import machine, recording, training
from .learner import Learner
from .recording import Recorder, UsageError, progress
from .replay import Stream


def measured(tf: Any, problem: str, asked: Any, recorder: Recorder) -> None:
    """Train, and measure in the middle of each stretch."""
    import keras
    import numpy as np

    build = training.load_function(problem)
    keras.utils.set_random_seed(asked.seed)
    learner = Learner(tf, build())
    learner.try_out(problem)
    recorder.write("problem", **learner.described)
    if learner.samples < 2 * asked.batch:
        raise UsageError(
            f"the training data have {learner.samples} samples, but the noise scale needs at least two batches of {asked.batch}: give a "
            "smaller batch"
        )
    big = asked.big or min(max(32 * asked.batch, 1024), learner.samples)
    steps = max(int(asked.epochs * learner.samples / asked.batch), 1)
    moments = min(asked.moments, steps)
    stream = Stream(np, learner.samples, asked.seed)

    def square_norm(rows: Any) -> Any:
        return tf.add_n([tf.reduce_sum(tf.square(tf.cast(each, tf.float64))) for each in learner.gradients_of(learner.values(), rows)])

    squared = tf.function(square_norm, [tf.TensorSpec([None], tf.int32)], autograph=False)
    values, done = learner.values(), 0
    for moment in range(moments):
        progress(moment, moments, "moments of the training")
        at = (2 * moment + 1) * steps // (2 * moments)
        while done < at:  # plain steps, one batch each
            values = learner.update(values, stream.take(asked.batch)[None], 1.0)
            done += 1
        state, draws = learner.state(), np.random.default_rng([asked.seed, 1, done])
        for batch, count in ((asked.batch, asked.draws), (big, asked.big_draws)):
            squares = [float(squared(rows)) for rows in draws.integers(0, learner.samples, (count, batch), np.int32)]
            if not np.all(np.isfinite(squares)) or max(squares) > 1e100:
                raise UsageError(f"the gradients are not finite after {done} steps at batch {asked.batch}: give a smaller rate")
            recorder.write("gradient_norms", step=done, trained_batch=asked.batch, batch=batch, squares=squares)
        learner.begin(state)
    progress(moments, moments, "moments of the training")


def main() -> int:
    """Run the probe; the exit status tells the parent who is at fault."""
    arguments = recording.asked(
        __doc__,
        problem=None,
        batch=int,
        big=0,  # samples of the larger batch; 0: 32 batches, at least 1,024, at most all
        epochs=float,
        moments=20,
        draws=128,
        big_draws=32,
        seed=0,
        device=None,
    )

    def measure(recorder: Recorder) -> None:
        tf, on_device = machine.tensorflow_alike(recorder, arguments.device)
        with on_device:
            measured(tf, arguments.problem, arguments, recorder)

    return recording.run("noise_scale", arguments, measure, arguments.problem)
