"""The emulated device: a step's compute as a sleep on the worker, and the law that it is drawn from.

The sleep is TensorFlow's own (the data set that its tests slow down with): it blocks
neither Python nor a core, and stands in the graph between the last byte of the pull and
the first of the push.
"""

from __future__ import annotations

from typing import Any

import numpy as np


def durations(law: dict[str, Any], mean_s: float, workers: int, steps: int, seed: int) -> np.ndarray:
    """Microseconds of each step of each worker, shape (workers, steps); the same seed gives the same.

    ``law`` is a factor's law with mean 1: constant, exponential, gamma (shape), lognormal
    (sigma), or values (drawn from as they are).
    """
    kind = law.get("kind", "constant")
    streams = [np.random.default_rng(child) for child in np.random.SeedSequence(seed).spawn(workers)]
    drawn = np.empty((workers, steps))
    for worker, stream in enumerate(streams):
        if kind == "constant":
            drawn[worker] = 1.0
        elif kind == "exponential":
            drawn[worker] = stream.exponential(1.0, steps)
        elif kind == "gamma":
            drawn[worker] = stream.gamma(law["shape"], 1.0 / law["shape"], steps)
        elif kind == "lognormal":
            drawn[worker] = stream.lognormal(-(law["sigma"] ** 2) / 2, law["sigma"], steps)
        elif kind == "empirical":
            drawn[worker] = stream.choice(np.asarray(law["values"], dtype=float), steps)
        else:
            raise ValueError(f"law {kind!r}: must be constant, exponential, gamma, lognormal or empirical")
    return np.rint(drawn * mean_s * 1e6).astype(np.int64)


def sleep(tf: Any, microseconds: Any) -> Any:
    """A tensor that is there ``microseconds`` (a scalar int64 tensor) after the op began."""
    from tensorflow.python.data.experimental.ops import testing

    # take(1): else the data set sleeps once more to find its end
    return tf.data.Dataset.from_tensors(microseconds).apply(testing.sleep(microseconds)).take(1).get_single_element()
