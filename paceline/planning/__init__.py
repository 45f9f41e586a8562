"""Capacity planning: which cluster, how many workers, at what cost, and how sure.

planner.py runs a plan, advice.py an advice. A plan searches a table: space (with ways) makes its rows, configurations judges each by its
bounds and outcome, search refines it. around and improvements vary the answer. answer, sentences and tables present it.
"""

from __future__ import annotations

from paceline.planning.advice import advise, space_to_advise
from paceline.planning.answer import Improvement, Plan
from paceline.planning.goal import Goal, goal_of, length_of
from paceline.planning.planner import plan
from paceline.planning.space import space_of, with_offers

__all__ = [
    "Goal", "Improvement", "Plan", "advise", "goal_of", "length_of", "plan", "space_of", "space_to_advise", "with_offers",
]  # fmt: skip
