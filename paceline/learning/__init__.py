"""From throughput to convergence: time and cost until a model is good enough, with each strategy.

``learning`` simulates schedules and has them replayed; ``learned`` holds and presents the answer.
"""

from __future__ import annotations

from paceline.learning.learned import Learned, Target
from paceline.learning.learning import Contender, Course, contenders_of, learn, recorded_of

__all__ = ["Contender", "Course", "Learned", "Target", "contenders_of", "learn", "recorded_of"]
