"""Rates of faults that others have published, as files that a scenario can ``use``: ``python -m evidence.published.fault_rates``.

It writes ``models/faults`` from ``models/published``: interruptions.csv, machine_lifetimes.csv and availability.csv.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tomlkit
from scipy import optimize, stats

from evidence.published.rented import WATCHED, fitted, lifetimes
from evidence.published.tables import data_file
from evidence.rows import rows_in

FOLDER = Path(__file__).parents[2] / "models" / "faults"
_DAY_H = 24.0
_GPUS_OF_A_NODE = 8
_AT_90 = float(stats.norm.ppf(0.95))
_ASSUMED_REPLACEMENT = "2 min"


def files() -> dict[str, dict[str, Any]]:
    """Every file by its name, as its keys."""
    found = {**_clusters(), **_trainings(), **dict(_machines())}
    return {name: {"name": name, **keys} for name, keys in found.items()}


def _clusters() -> dict[str, dict[str, Any]]:
    """Two research clusters, and their jobs.

    Of jobs two mean times to failure are known, of 1 and of 128 nodes. A part a of each node and a part b of the job would be the
    solution of a + b and 128 a + b, whose b is below 0: failures grow by more than the nodes. So b is left out, and a is the mean
    of both, of logarithms.
    """
    per_1000 = {name: _published(name)["failures_per_1000_node_days"] for name in ("RSC-1", "RSC-2")}
    hours = {gpus: _published("RSC jobs")[f"hours_to_failure_of_{gpus}_gpus"] for gpus in (8, 1024)}
    node_h = [between_h * gpus / _GPUS_OF_A_NODE for gpus, between_h in hours.items()]
    rates = [per_1000["RSC-2"] / per_1000["RSC-1"], 1000 * _DAY_H / node_h[-1] / per_1000["RSC-1"]]
    source = "Kokolis et al., Revisiting Reliability in Large-Scale Machine Learning Research Clusters, HPCA 2025 (arXiv 2410.21680)"
    mean_h = math.sqrt(math.prod(node_h))
    found = {
        name.lower(): {
            "description": f"Meta's research cluster {name} of A100, eight per node: faults attributed to nodes",
            "source": f"{source}: {per_1000[name]:.2f} failures per 1,000 node-days. The interval reaches from the difference between "
            "the two clusters to the higher fault rate of jobs of 1,024 GPUs",
            "node_mtbf": _hours(1000 * _DAY_H / per_1000[name]),
            "rates_90": _rounded(rates),
        }
        for name in per_1000
    }
    found["rsc-jobs"] = {
        "description": "Jobs of 8 to 1,024 GPUs on Meta's research clusters: failures of any cause, including their own code and data",
        "source": f"{source}: jobs of 8 GPUs fail every 47.7 days and those of 1,024 every 7.9 h. A common part per job would be below "
        "0, so there is none; the rate per node is the mean of both, and the interval includes both. Larger jobs, for which "
        "only node faults are known, failed less often (rsc-1)",
        "node_mtbf": _hours(mean_h),
        "rates_90": _rounded(sorted(mean_h / each for each in node_h)),
    }
    return found


def _trainings() -> dict[str, dict[str, Any]]:
    """Two trainings of one model each. Intervals are those of the counts (Garwood 1936)."""
    llama, opt = _published("Llama 3"), _published("OPT-175B")
    hours, nodes, bugs = llama["days"] * _DAY_H, llama["nodes"], llama["of_them_software_bugs"]
    # up for M hours between faults, and down for M (exp(D / M) - 1) with each: faults may come while it is down (Daly 2006)
    mean_h = opt["days"] * _DAY_H / opt["restarts"]
    down_h = mean_h * math.log1p((opt["days"] - opt["days_of_compute"]) / opt["days_of_compute"])
    return {
        "llama-3": {
            "description": "Pre-training of Llama 3 405B on 2,048 nodes of eight H100: an interruption every 3.1 h",
            "source": "Grattafiori et al., The Llama 3 Herd of Models, 2024 (arXiv 2407.21783), table 5: 419 unexpected interruptions in "
            "54 days. 54 of them, software bugs, are attributed to the job; the others, four in five of them hardware, to its "
            "nodes",
            "node_mtbf": _hours(hours * nodes / (llama["unexpected_interruptions"] - bugs)),
            "job_mtbf": _hours(hours / bugs),
            "rates_90": _of_count(llama["unexpected_interruptions"]),
        },
        "opt-175b": {
            "description": "Training of OPT-175B on 128 nodes of eight A100: 56 days for 33 of compute. Each fault costs 7.9 h, which "
            "includes work lost since the last checkpoint; your own checkpoints add to it",
            "source": "facebookresearch/metaseq@f2cd3679 projects/OPT/chronicles: about 90 restarts. The time of each follows from 56 "
            "days for 33 of compute, with faults during downtime too. Most were hardware faults; all are attributed to nodes",
            "node_mtbf": _hours(mean_h * opt["nodes"]),
            "replacement": _hours(down_h),
            "rates_90": _of_count(opt["restarts"]),
        },
    }


def _machines() -> Iterator[tuple[str, dict[str, Any]]]:
    """Machines that are taken away."""
    watched = [each for each in lifetimes() if each.kind in WATCHED]
    law = fitted(watched)
    zones, taken = Counter(each.zone for each in watched), Counter(each.zone for each in watched if each.taken)
    shares = [taken[zone] / zones[zone] for zone in zones]
    # zones differ, and the law is that of all: so many times as many are taken, 1 in the mean, and in a day as the rate to the power of
    # the shape
    deviation = float(stats.sem(shares)) / (sum(shares) / len(shares))
    times = [math.exp((sign * _AT_90 * deviation - deviation**2 / 2) / law.shape) for sign in (-1, 1)]
    yield (
        "gce-k80-preemptible",
        {
            "description": "Machines with one K80, 2019: lifetimes follow a Weibull distribution, with at most 24 h",
            "source": "cake-lab/transient-deep-learning@87c6717e: 64 machines in four zones, of which "
            + ", ".join(str(taken[zone]) for zone in sorted(zones))
            + " of 16 were preempted, which gives the interval. A replacement after two minutes is assumed",
            "preemption": {
                "mtbf": _hours(law.mean_h), "rates_90": _rounded(times), "shape": law.shape, "most": "24 h", "notice": "30 s",
                "replacement": _ASSUMED_REPLACEMENT,
            },
        },
    )  # fmt: skip
    for row in rows_in(data_file("availability.csv")):
        zone = row["zone_instance"].removesuffix("_v100_1")
        mean_h, median_h, spells = (float(row[key]) for key in ("mean_all_up_h", "median_all_up_h", "all_up_spells"))
        shape = _shape_of(median_h / mean_h)
        variance = math.gamma(1 + 2 / shape) / math.gamma(1 + 1 / shape) ** 2 - 1
        there, days, away_h = (float(row[key]) for key in ("fraction_all_up", "days", "mean_not_all_up_h"))
        yield (
            f"aws-v100-{zone}",
            {
                "description": f"One machine with a V100 on Amazon EC2 in {zone}, from February to April 2023",
                "source": f"{row['source'].partition(' (')[0]}: it was there {there:.0%} of {days:.0f} days, {spells:.0f} times for "
                f"{mean_h:g} h in the mean and {median_h:g} h in the median, which give the shape, and then away for {away_h:g} h. The "
                "interval is that of the mean. Machines that are asked for together may go together; that one is there two minutes after "
                "it is to be had is assumed",
                "preemption": {
                    "mtbf": _hours(mean_h), "rates_90": _of_deviation(math.sqrt(variance / spells)), "shape": round(shape, 2),
                    "notice": "2 min", "wait": _hours(away_h), "replacement": _ASSUMED_REPLACEMENT,
                },
            },
        )  # fmt: skip


def _shape_of(ratio: float) -> float:
    """Shape of the Weibull distribution with this ratio of median to mean: log(2)^(1/k) / Gamma(1 + 1/k)."""
    return float(optimize.brentq(lambda shape: math.log(2) ** (1 / shape) / math.gamma(1 + 1 / shape) - ratio, 0.2, 3.0))


def _published(of: str) -> dict[str, float]:
    return {row["figure"]: float(row["value"]) for row in rows_in(data_file("interruptions.csv")) if row["of"] == of}


def _hours(hours: float) -> str:
    return f"{hours:.4g} h"


def _rounded(values: list[float]) -> list[float]:
    return [float(f"{value:.3g}") for value in values]


def _of_count(count: float) -> list[float]:
    """The interval of a rate from a number of observed events."""
    return _rounded([float(stats.chi2.ppf(0.05, 2 * count)) / 2 / count, float(stats.chi2.ppf(0.95, 2 * count + 2)) / 2 / count])


def _of_deviation(deviation: float) -> list[float]:
    return _rounded([math.exp(-_AT_90 * deviation), math.exp(_AT_90 * deviation)])


def text_of(keys: dict[str, Any]) -> str:
    """A file."""
    document = tomlkit.document()
    document.add(tomlkit.comment("Written by `python -m evidence.published.fault_rates` from models/published."))
    for key, value in keys.items():
        document.add(key, value)
    return tomlkit.dumps(document)


def main() -> None:
    """Rewrite all of them."""
    FOLDER.mkdir(exist_ok=True)
    for name, keys in files().items():
        (FOLDER / f"{name}.toml").write_text(text_of(keys), encoding="utf-8")


if __name__ == "__main__":
    main()
