"""ResNet-50 for 224x224x3 images with random weights. Needs no download."""

import keras


def build():
    """Return (model, loss, input specification)."""
    model = keras.applications.ResNet50(weights=None, input_shape=(224, 224, 3), classes=1000, classifier_activation=None)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return model, loss, (keras.InputSpec(shape=(224, 224, 3), dtype="float32"), keras.InputSpec(shape=(), dtype="int32"))
