"""Makes results from measurements of replications: figures, intervals, limits, suggested changes and warnings."""
