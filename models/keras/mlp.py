"""A multilayer perceptron for 28x28 images: 784-128-10. Needs no download."""

import keras


def build():
    """Return (model, loss, input specification)."""
    import tensorflow as tf

    model = keras.Sequential([keras.Input((784,)), keras.layers.Dense(128, activation="relu"), keras.layers.Dense(10)], name="mlp")
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return model, loss, (tf.TensorSpec((784,), tf.float32), tf.TensorSpec((), tf.int32))
