"""Capacity planning: which cluster, how many workers, at what cost, and how sure."""
