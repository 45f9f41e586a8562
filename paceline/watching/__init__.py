"""A running training compared with its prediction: when and why it deviates.

``verdict`` compares recorded runs with a prediction; ``watch`` follows the files and keeps reported events. Nothing is printed here.
"""

from __future__ import annotations

from calibrate.observations import Predicted
from paceline.watching.verdict import Reason, Stretch, Verdict
from paceline.watching.watch import Watch, Watched

__all__ = ["Predicted", "Reason", "Stretch", "Verdict", "Watch", "Watched"]
