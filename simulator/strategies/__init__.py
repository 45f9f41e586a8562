"""Strategies: the ways in which a training is distributed; each says what happens in a step (its program)."""
