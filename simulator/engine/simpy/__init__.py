"""The reference engine: programs on SimPy's event calendar. ``simulator.engine.compiled`` does the same, module by module."""
