"""Validation: predictions compared with measurements, from testbed matrices or a user's own points, and their scores."""
