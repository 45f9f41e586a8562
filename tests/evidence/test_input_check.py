"""Real training loops fed by tf.data pipelines, as they were measured once, predicted again from the files of their calibration."""

from __future__ import annotations

import numpy as np

from evidence.studies.input_check import compare, read_loops


def test_loops_that_took_no_part_are_predicted():
    """Batches of 16 samples, one and two calls, three depths of prefetch: calibrated at 8 and 32 samples without prefetch."""
    compared = compare(read_loops())
    off = np.abs([one.error for one in compared])
    assert len(compared) == 36
    assert np.median(off) < 0.03
    assert off.max() < 0.12
    # a plain sum of input and compute, as if nothing were prepared ahead, is wrong where something is
    ahead = [one for one in compared if one.loop.prefetch and one.loop.regime == "compute-bound"]
    assert max(abs(one.error) for one in ahead) < 0.02
