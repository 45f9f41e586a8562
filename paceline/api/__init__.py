"""Paceline as a library: what a script, a notebook and the command line call.

Each function checks its arguments, does one thing, and returns a frozen object. Most of these objects
have ``to_frame()`` (a pandas table) and are shown as tables in notebooks. A function prints nothing:
progress goes to a function that you pass, and remarks go to :mod:`warnings`. If a function cannot do
its work, it raises a :class:`simulator.base.errors.PacelineError` with one sentence, which names
arguments in backticks: `` `out` ``, `` `force=True` ``.

Figures of results are in seconds, bytes, bytes per second, samples per second and US dollars; the
suffix of a name gives the unit (``_s``, ``_bytes``, ``_bytes_per_s``, ``_samples_per_s``, ``_usd``).

:mod:`paceline.arguments` explains the types of arguments that several functions share, such as
:data:`~paceline.arguments.Source` and :data:`~paceline.arguments.Settings`.
"""

from __future__ import annotations

from paceline.api.beginning import models, new_scenario, read_tf_config, scenario_of_tf_config, schema, serve
from paceline.api.calibrating import (
    calibrate,
    calibrate_input,
    calibrate_link,
    calibrate_profile,
    calibrate_server,
    calibrate_traced_links,
    read_profiles,
    serve_link,
)
from paceline.api.diagnosing import watch, why
from paceline.api.learning import learn, plan_to_target
from paceline.api.predicting import advise, compare, load, memory, observe, plan, preview, report, simulate, sweep, unmet
from paceline.api.validating import read_matrix, refit, testbed, testbed_fit, testbed_predict, testbed_read, validate, validate_matrix

__all__ = [
    "advise", "calibrate", "calibrate_input", "calibrate_link", "calibrate_profile", "calibrate_server", "calibrate_traced_links",
    "compare", "learn", "load", "memory", "models", "new_scenario", "observe", "plan", "plan_to_target", "preview", "read_matrix",
    "read_profiles", "read_tf_config", "refit", "report", "scenario_of_tf_config", "schema", "serve", "serve_link", "simulate", "sweep",
    "testbed", "testbed_fit", "testbed_predict", "testbed_read", "unmet", "validate", "validate_matrix", "watch", "why",
]  # fmt: skip
