"""One question each about real TensorFlow, measured and predicted; the answers are in docs/."""
