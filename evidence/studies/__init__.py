"""One question each about real TensorFlow, measured and predicted; the answers stand in docs/."""
