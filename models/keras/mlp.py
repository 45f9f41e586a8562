"""A multilayer perceptron for 28x28 images: 784-128-10. Needs no download."""

import keras


def build():
    """Return (model, loss, input specification)."""
    model = keras.Sequential([keras.Input((784,)), keras.layers.Dense(128, activation="relu"), keras.layers.Dense(10)], name="mlp")
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return model, loss, (keras.InputSpec(shape=(784,), dtype="float32"), keras.InputSpec(shape=(), dtype="int32"))
