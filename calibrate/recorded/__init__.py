"""What was recorded of real runs: step times from files that grow or are whole, and what of them is steady.

``reading`` chooses how a source is read: lines of JSON (``paceline/keras_callback.py``) and tables (CSV) in ``rows``, lines of text in
``log``, TensorBoard's event files, profiles (XPlane) and other documents of JSON in ``reading`` itself; all of them read what is new in
a file by ``growing_file``. All give a
:class:`calibrate.recorded.run.RecordedRun` for each worker, of which ``steadiness`` finds out what is the first step, what is steady,
and what comes every so many steps. Nothing is predicted here.
"""
