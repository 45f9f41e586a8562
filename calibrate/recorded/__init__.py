"""What was recorded of real runs: step times from files that grow or are whole, and what of them is steady.

``reading`` chooses among the readers: ``steps_file`` (``paceline/keras_callback.py``), ``table`` (CSV), ``event_files`` (TensorBoard),
``log`` (lines of text), ``traces`` (JSON) and ``profile`` (XPlane). All give a :class:`calibrate.recorded.run.RecordedRun` for each
worker, of which ``steadiness`` finds out what is the first step, what is steady, and what comes every so many steps. Nothing is
predicted here.
"""
