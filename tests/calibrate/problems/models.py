"""Models that learn, or go wrong, in tests of replays."""

import keras
import numpy as np


def _data(count):
    rng = np.random.default_rng(7)
    x = rng.standard_normal((count, 6)).astype("float32")
    return x, (x[:, 0] * x[:, 1] > 0).astype("int32")


def _small(optimizer, *layers, metrics=()):
    first = [keras.Input((6,)), keras.layers.Dense(16, activation="relu"), *layers]
    model = keras.Sequential([*first, keras.layers.Dense(2)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=optimizer, loss=loss, metrics=list(metrics))
    return model, _data(192), _data(64)


def sgd():
    return _small(keras.optimizers.SGD(0.1))


def momentum():
    return _small(keras.optimizers.SGD(0.05, momentum=0.9, nesterov=True))


def adam():
    rate = keras.optimizers.schedules.ExponentialDecay(0.01, 10, 0.5)
    return _small(keras.optimizers.Adam(rate, global_clipnorm=0.5), metrics=["accuracy"])


def normalised():
    return _small(keras.optimizers.SGD(0.1), keras.layers.BatchNormalization(), keras.layers.Dropout(0.1))


def diverging():
    return _small(keras.optimizers.SGD(1e12))


def raising():
    class Broken(keras.layers.Layer):
        def call(self, x, training=None):
            if training:
                raise RuntimeError("this layer does not train")
            return x

    return _small(keras.optimizers.SGD(0.1), Broken())


def no_data():
    return _small(keras.optimizers.SGD(0.1))[0]


def not_compiled():
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(2)])
    return model, _data(8), _data(8)


def with_nan():
    model, (x, y), valid = _small(keras.optimizers.SGD(0.1))
    x[3, 2] = np.nan
    return model, (x, y), valid


def of_lists():
    model, data, (x, y) = _small(keras.optimizers.SGD(0.1))
    return model, data, (x.tolist(), y.tolist())


def too_narrow():
    model, data, (x, y) = _small(keras.optimizers.SGD(0.1))
    return model, data, (x[:, :5], y)
