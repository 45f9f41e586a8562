"""Torture: damaged files, misread values, kills, full disks and crowded files, by the thousand; see docs/development.md.

``make torture`` runs it for an hour. It is drawn from a seed: trial number ``n`` of a seed is always the same,
and ``python -m torture --trial mutants:17`` does it again.
"""
