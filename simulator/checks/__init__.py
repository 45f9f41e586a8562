"""Invariants of every run, whatever the scenario."""
