"""Real training loops fed by tf.data pipelines, as they were measured once, predicted again from the files of their calibration."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from evidence.studies.input_check import compare, read_loops, summary

ROOT = Path(__file__).parents[2]


def test_loops_that_took_no_part_are_predicted_and_stand_in_the_documents():
    """Batches of 16 samples, one and two calls, three depths of prefetch: calibrated at 8 and 32 samples without prefetch."""
    compared = compare(read_loops())
    off = np.abs([one.error for one in compared])
    assert len(compared) == 36
    assert np.median(off) < 0.03
    assert off.max() < 0.12
    assert summary(compared) in (ROOT / "docs" / "calibrate-input.md").read_text()
    # a plain sum of input and compute, as if nothing were prepared ahead, is wrong where something is
    ahead = [one for one in compared if one.loop.prefetch and one.loop.regime == "compute-bound"]
    assert max(abs(one.error) for one in ahead) < 0.02
