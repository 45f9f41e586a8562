"""Says in a sentence what bounds a step: its critical path added up by kind and place.

The sentence stands on the terminal, in traces and in reports; names of messages come from the program's operations.
"""

from __future__ import annotations

import math
from collections import defaultdict

from simulator.base.records import Service
from simulator.base.text import format_seconds, format_share
from simulator.observing.critical_path import CriticalPath, Segment

_SMALLEST_SHARE = 0.005
_MOST_NAMED = 6


def bound_of_step(path: CriticalPath) -> str:
    """What bounds a step, in words.

    Such as ``Step 12 of worker 3 took 412 ms: 52% pull from server 0, 24% compute on
    worker 3, 20% push to server 1, 4% service at server 1; the pull from server 0 bounds it.``
    """
    duration_s = path.step.end_s - path.step.start_s
    took = f"Step {path.number} of {path.name} took {format_seconds(duration_s)}"
    spent: dict[str, float] = defaultdict(float)
    kinds: dict[str, str] = {}
    for segment in path.segments:
        phrase = _phrase(segment, path)
        spent[phrase] += segment.end_s - segment.start_s
        kinds[phrase] = segment.kind
    if not spent:
        return f"{took}; nothing bounds it."
    order = sorted(spent, key=lambda phrase: -round(spent[phrase] / duration_s, 9))
    named = [phrase for phrase in order if spent[phrase] >= _SMALLEST_SHARE * duration_s][:_MOST_NAMED]
    shares = [f"{format_share(spent[phrase] / duration_s)} {phrase}" for phrase in named]
    rest = 1 - math.fsum(spent[phrase] for phrase in named) / duration_s
    if rest >= _SMALLEST_SHARE:
        shares.append(f"{format_share(rest)} other")
    bound = order[0] if kinds[order[0]] == "compute" else f"the {order[0]}"
    return f"{took}: {', '.join(shares)}; {bound} bounds it."


def _phrase(segment: Segment, path: CriticalPath) -> str:
    """Kind and place of a segment; those with the same words are added up."""
    if segment.kind == "compute":
        return f"compute on {segment.where}"
    if segment.kind == "service":
        work = segment.record
        queued = isinstance(work, Service) and work.name == "apply" and work.worker not in (-1, path.step.replica)
        return f"{'queue' if queued else 'service'} at {segment.where}"
    if segment.kind == "transfer":
        return _message(segment, path)
    if segment.kind == "all-reduce":
        return segment.name if path.place.name else segment.kind
    return f"{segment.what} of {segment.where}"


def _message(segment: Segment, path: CriticalPath) -> str:
    source, target = segment.places[0], segment.places[-1]
    if source.name:
        return f"{segment.name} between stages"
    if {source.kind, target.kind} <= {"device", "replica"}:  # of a replica itself, that it still sends
        return "messages between devices"
    whose = "" if path.place in (source, target) else f" of {source if target.kind == 'server' else target}"
    if target.kind == "server":
        return f"{segment.name}{whose} to {target}"
    if source.kind == "server":
        return f"{segment.name}{whose} from {source}"
    return f"transfer from {source} to {target}"
