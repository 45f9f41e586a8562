"""A small residual network for 32x32x3 images: a stem, six residual blocks of 16 to 64 filters, dense 10. Needs no download.

It can be cut before and behind each block; the blocks differ in time and in what they hand on.
"""

import keras
from keras import layers


def _block(x, filters, stride, name):
    """Two convolutions beside a shortcut, without normalisation."""
    kept = x
    x = layers.Conv2D(filters, 3, strides=stride, padding="same", activation="relu", name=f"{name}_conv1")(x)
    x = layers.Conv2D(filters, 3, padding="same", name=f"{name}_conv2")(x)
    if stride > 1:
        kept = layers.Conv2D(filters, 1, strides=stride, name=f"{name}_shortcut")(kept)
    return layers.ReLU(name=f"{name}_relu")(layers.Add(name=f"{name}_add")([x, kept]))


def build():
    """Return (model, loss, input specification)."""
    inputs = keras.Input((32, 32, 3))
    x = layers.Conv2D(16, 3, padding="same", activation="relu", name="stem")(inputs)
    for number, (filters, stride) in enumerate(((16, 1), (16, 1), (32, 2), (32, 1), (64, 2), (64, 1)), start=1):
        x = _block(x, filters, stride, f"block{number}")
    x = layers.GlobalAveragePooling2D(name="pool")(x)
    model = keras.Model(inputs, layers.Dense(10, name="classes")(x), name="resnet_small")
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return model, loss, (keras.InputSpec(shape=(32, 32, 3), dtype="float32"), keras.InputSpec(shape=(), dtype="int32"))
