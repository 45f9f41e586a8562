"""Linear regression with a known optimum: 20 features, 4,096 samples, noise of variance 0.01. Convex; needs no download."""

import keras
import numpy as np


def build():
    """Return (model, training data, validation data); at the optimum the loss is 0.01."""
    rng = np.random.default_rng(0)
    weights = rng.standard_normal((20, 1))
    x = rng.standard_normal((5120, 20))
    y = x @ weights + 0.1 * rng.standard_normal((5120, 1))
    x, y = x.astype("float32"), y.astype("float32")
    model = keras.Sequential([keras.Input((20,)), keras.layers.Dense(1)], name="linear_regression")
    model.compile(optimizer=keras.optimizers.SGD(0.01), loss="mse")
    return model, (x[:4096], y[:4096]), (x[4096:], y[4096:])
