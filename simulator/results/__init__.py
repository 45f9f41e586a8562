"""What a run means: figures, intervals, what limits, what would help, warnings."""
