"""Fits measurement files and profiles: workloads, clusters and input pipelines, with intervals, draws and provenance.

``step`` and ``profile`` make workloads, ``link`` and ``server`` clusters, ``input_pipeline`` input pipelines; the other modules are
parts of these. Nothing is measured here.
"""
