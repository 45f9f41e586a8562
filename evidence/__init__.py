"""Data that predictions are compared with and constants come from: not in the wheel, and nothing imports it.

Published tables and what is fitted to them (:mod:`evidence.published`), studies of real TensorFlow
(:mod:`evidence.studies`), and the estimate of model error (:mod:`evidence.discrepancy`). It writes
``models/*.toml`` and ``evidence/tables``; ``evidence/README.md`` says which command makes what.
"""
