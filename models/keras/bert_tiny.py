"""A tiny BERT-like masked language model: 2 layers, width 128, vocabulary 30522. Needs no download.

The output projection has its own weights, so that the gradient of the embedding stays
sparse (``tf.IndexedSlices``): only the rows of the tokens in the batch are touched.
"""

import keras
from keras import layers

VOCABULARY = 30522
SEQUENCE = 32
WIDTH = 128
HEADS = 2
MASKED_SHARE = 0.15
MASK_TOKEN = 103


def _encoder_block(inputs, index):
    attention = layers.MultiHeadAttention(HEADS, WIDTH // HEADS, name=f"attention_{index}")(inputs, inputs)
    normed = layers.LayerNormalization(name=f"attention_norm_{index}")(inputs + attention)
    hidden = layers.Dense(4 * WIDTH, activation="gelu", name=f"expand_{index}")(normed)
    hidden = layers.Dense(WIDTH, name=f"contract_{index}")(hidden)
    return layers.LayerNormalization(name=f"output_norm_{index}")(normed + hidden)


class Positions(layers.Layer):
    """Adds a trained vector for each position."""

    def build(self, input_shape):
        """Create the vectors."""
        self.vectors = self.add_weight(shape=input_shape[1:], name="vectors")

    def call(self, inputs):
        """Add them."""
        return inputs + self.vectors


def batch_of(size):
    """Tokens drawn at random with a share of them masked, and the tokens to be found again."""
    import numpy as np

    rng = np.random.default_rng(0)
    tokens = rng.integers(1000, VOCABULARY, (size, SEQUENCE)).astype("int32")
    masked = np.where(rng.random(tokens.shape) < MASKED_SHARE, MASK_TOKEN, tokens).astype("int32")
    return masked, tokens


def build():
    """Return (model, loss, function from a batch size to one batch)."""
    inputs = keras.Input((SEQUENCE,), dtype="int32")
    hidden = layers.Embedding(VOCABULARY, WIDTH, name="tokens")(inputs)
    hidden = Positions(name="positions")(hidden)
    for index in range(2):
        hidden = _encoder_block(hidden, index)
    model = keras.Model(inputs, layers.Dense(VOCABULARY, name="to_vocabulary")(hidden), name="bert_tiny")
    return model, keras.losses.SparseCategoricalCrossentropy(from_logits=True), batch_of
