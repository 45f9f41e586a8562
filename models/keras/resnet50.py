"""ResNet-50 for 224x224x3 images with random weights. Needs no download."""

import keras


def build():
    """Return (model, loss, input specification)."""
    import tensorflow as tf

    model = keras.applications.ResNet50(weights=None, input_shape=(224, 224, 3), classes=1000, classifier_activation=None)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return model, loss, (tf.TensorSpec((224, 224, 3), tf.float32), tf.TensorSpec((), tf.int32))
