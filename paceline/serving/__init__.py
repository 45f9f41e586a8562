"""A local page on which a scenario is changed and answers at once: the report, drawn again while sliders move.

A question (question.py) is what the page asks: a scenario as text, changes of it, what to compare it with. It is answered in parts, the
quickest first (answers.py): errors at their fields, bounds, a first look, then everything. Each part is worked out by a function in a
process that stands ready (processes.py). server.py lets nobody else in. The page is
``paceline/reporting/templates/live.html``; the report inside of it is the very one that ``paceline report`` writes.
"""

from __future__ import annotations

__all__: list[str] = []
