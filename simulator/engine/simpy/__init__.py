"""The reference engine: programs on SimPy's event calendar."""
