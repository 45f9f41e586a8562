"""Speed, as ratios of CPU time within one run: ``make benchmark``.

Prints what each case ran, how fast, and how its figures stand to their aims. ``--json``
prints data, one object a case. Names of cases choose some; ``--quick`` shrinks them so far
that they only show that they work.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from cases import CASES, Report


def as_data(name: str, report: Report, wall_s: float) -> dict[str, object]:
    runs = [{**asdict(ran), "per_s": ran.per_s} for ran in report.runs]
    findings = [{**asdict(its), "met": its.met} for its in report.findings]
    return {"case": name, "runs": runs, "findings": findings, "wall_s": round(wall_s, 1)}


def show(name: str, report: Report, wall_s: float) -> None:
    print(f"\n{name}: {CASES[name].title}  ({wall_s:.0f} s)")
    if report.runs:
        print(f"  {'':28s} {'CPU s':>9s} {'units':>12s} {'a second':>12s} {'us a unit':>10s} {'events':>13s} {'ns an event':>11s}")
    for ran in report.runs:
        events = "" if ran.events is None else f"{ran.events:13,d} {ran.cpu_s / max(ran.events, 1) * 1e9:11.0f}"
        facts = "  ".join(f"{key} {value:.6g}" for key, value in ran.facts.items())
        print(f"  {ran.by:28s} {ran.cpu_s:9.3f} {ran.units:12,d} {ran.per_s:12,.0f} {1e6 / ran.per_s:10.3f} {events:25s}  {facts}")
    for its in report.findings:
        aim = "" if its.least is None else f"at least {its.least:.4g}"
        aim = aim if its.most is None else f"at most {its.most:.4g}"
        state = {None: "", True: "met", False: "MISSED"}[its.met]
        value = "not measured" if its.value is None else f"{its.value:.4g} {its.unit}"
        print(f"  {its.what:74s} {value:>16s}  {aim:18s} {state:7s} {its.note}".rstrip())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"{', '.join(CASES)}; left out: all")
    parser.add_argument("--json", action="store_true", help="print data, one object a case")
    parser.add_argument("--quick", action="store_true", help="small cases that only show that they work")
    chosen = parser.parse_args()
    if unknown := [name for name in chosen.cases if name not in CASES]:
        parser.error(f"there is no case {unknown[0]!r}; there are {', '.join(CASES)}")
    missed = 0
    for name in chosen.cases or CASES:
        begun = time.perf_counter()
        report = CASES[name].run(chosen.quick)
        wall_s = time.perf_counter() - begun
        missed += sum(its.met is False for its in report.findings)
        if chosen.json:
            print(json.dumps(as_data(name, report, wall_s)), flush=True)
        else:
            show(name, report, wall_s)
            sys.stdout.flush()
    if not chosen.json:
        print(f"\nPython {sys.version.split()[0]}, {os.cpu_count()} cores; {missed} aims missed")


if __name__ == "__main__":
    main()
