"""A small convolutional network for 32x32x3 images: convolutions 32-64-128, dense 128-10. Needs no download."""

import keras
from keras import layers


def build():
    """Return (model, loss, input specification)."""
    model = keras.Sequential(
        [
            keras.Input((32, 32, 3)),
            layers.Conv2D(32, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(64, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(128, 3, activation="relu"),
            layers.Flatten(),
            layers.Dense(128, activation="relu"),
            layers.Dense(10),
        ],
        name="cnn",
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return model, loss, (keras.InputSpec(shape=(32, 32, 3), dtype="float32"), keras.InputSpec(shape=(), dtype="int32"))
