"""Predictions beside what was measured, and how good they are."""
