"""Engines run a program: SimPy, to be read, and a compiled one, for speed."""
