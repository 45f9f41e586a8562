"""Makes results of what replications measured: figures, intervals, what limits, what would help, warnings."""
