"""A quadratic in one unknown: the loss of a sample is (w - y)^2 / 2, so that its gradient is w - y."""

import keras
import numpy as np

RATE, COUNT = 0.1, 1 << 14


def _half_square(y, outputs):
    return keras.ops.mean(keras.ops.square(outputs - y)) / 2.0


def _problem(noise, rate, start=1.0):
    rng = np.random.default_rng(1)
    y = noise * rng.standard_normal((COUNT, 1))
    y = (y - y.mean()).astype("float32")
    x = np.ones((COUNT, 1), "float32")
    layer = keras.layers.Dense(1, use_bias=False, kernel_initializer=keras.initializers.Constant(start))
    model = keras.Sequential([keras.Input((1,)), layer])
    model.compile(optimizer=keras.optimizers.SGD(rate), loss=_half_square)
    return model, (x, y), (np.ones((1, 1), "float32"), np.zeros((1, 1), "float32"))


def exact():
    """No noise at all: what happens is what the theory of delays says."""
    return _problem(0.0, 1.0)


def noisy():
    """A gradient of one sample has variance 1; it begins at the optimum."""
    return _problem(1.0, RATE, start=0.0)


WIDTH = 40


def wide():
    """Forty unknowns from 1 on, the loss of a sample |w - y|^2 / 2: a step is worth a hundredth of the way to 0."""
    rng = np.random.default_rng(2)
    y = rng.standard_normal((COUNT, WIDTH)) * np.linspace(0.5, 2.0, WIDTH)
    y = (y - y.mean(axis=0)).astype("float32")
    layer = keras.layers.Dense(WIDTH, use_bias=False, kernel_initializer="ones")
    model = keras.Sequential([keras.Input((1,)), layer])
    loss = lambda y, outputs: keras.ops.mean(keras.ops.sum(keras.ops.square(outputs - y), axis=-1)) / 2.0  # noqa: E731
    model.compile(optimizer=keras.optimizers.SGD(0.01), loss=loss)
    return model, (np.ones((COUNT, 1), "float32"), y), (np.ones((1, 1), "float32"), np.zeros((1, WIDTH), "float32"))
