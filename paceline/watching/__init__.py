"""A running training beside its prediction: what is recorded of it as it grows, since when and why it is not as predicted.

``verdict`` holds recorded runs against a prediction and says what changed, ``watch`` follows the files and keeps what was said.
Nothing is shown here.
"""

from __future__ import annotations

from calibrate.observations import Predicted
from paceline.watching.verdict import Reason, Stretch, Verdict
from paceline.watching.watch import Watch, Watched

__all__ = ["Predicted", "Reason", "Stretch", "Verdict", "Watch", "Watched"]
