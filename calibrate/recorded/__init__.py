"""Records of real runs: step times from growing or complete files, and their steady part.

``reading`` chooses how a source is read: lines of JSON (``paceline/keras_callback.py``) and tables (CSV) in ``rows``, lines of text in
``log``, TensorBoard's event files, profiles (XPlane) and other documents of JSON in ``reading`` itself; all of them read what is new in a
file by ``growing_file``. All give a :class:`calibrate.recorded.run.RecordedRun` for each worker, in which ``steadiness`` finds first steps,
the steady part, and periodic long steps. Nothing is predicted here.
"""
