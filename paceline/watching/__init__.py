"""A running training beside its prediction: what is recorded of it as it grows, since when and why it is not as predicted.

``verdict`` holds recorded runs against a prediction, ``reasons`` says what changed, ``journal`` keeps what was said, ``watch`` follows
the files. Nothing is shown here.
"""

from __future__ import annotations

from calibrate.observations import Predicted
from paceline.watching.reasons import Reason
from paceline.watching.verdict import Stretch, Verdict
from paceline.watching.watch import Update, Watch, Watched

__all__ = ["Predicted", "Reason", "Stretch", "Update", "Verdict", "Watch", "Watched"]
