"""Handwritten digits: the 1,797 images of 8 x 8 pixels that come with scikit-learn, learned by an MLP or a small CNN. No download."""

import keras
import numpy as np


def _data():
    """Return four fifths to train on and one to validate with, always the same."""
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(x))
    x, y = (x[order] / 16.0).astype("float32"), y[order].astype("int32")
    return (x[:1437], y[:1437]), (x[1437:], y[1437:])


def mlp():
    """Return (model, training data, validation data): 64-64-10, SGD with momentum."""
    model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(64, activation="relu"), keras.layers.Dense(10)], name="digits_mlp")
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=keras.optimizers.SGD(0.05, momentum=0.9), loss=loss)
    return (model, *_data())


def cnn():
    """Return (model, training data, validation data): two convolutions and a dense layer, SGD with momentum."""
    layers = [
        keras.Input((64,)),
        keras.layers.Reshape((8, 8, 1)),
        keras.layers.Conv2D(16, 3, padding="same", activation="relu"),
        keras.layers.MaxPooling2D(2),
        keras.layers.Conv2D(32, 3, padding="same", activation="relu"),
        keras.layers.Flatten(),
        keras.layers.Dense(10),
    ]
    model = keras.Sequential(layers, name="digits_cnn")
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=keras.optimizers.SGD(0.05, momentum=0.9), loss=loss)
    return (model, *_data())
