"""From throughput to learning: how long until a model is good enough, and what that costs, with each way of training.

``learning`` simulates schedules and has them replayed, ``learned`` is what comes out, with what is said of it.
"""

from __future__ import annotations

from paceline.learning.learned import Learned, Target
from paceline.learning.learning import Contender, Course, contenders_of, learn, recorded_of

__all__ = ["Contender", "Course", "Learned", "Target", "contenders_of", "learn", "recorded_of"]
