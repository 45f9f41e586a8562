"""The report of 1,000 scenarios: how large its file is, how long it takes to write, and until its figures are drawn.

Simulates a grid of four strategies over replicas, bandwidth and batch, writes its report
some times, and opens that in headless Chromium, a new browser each time. Times in the
browser count from the beginning of the navigation: until the first figure is drawn (the
page marks it ``first-figure``), and until all are. ``--json`` prints data.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from selenium import webdriver
from selenium.webdriver.support.ui import WebDriverWait

from paceline.reporting.content import content_of
from paceline.reporting.exporting import find_browser
from paceline.reporting.render import render
from paceline.reporting.report import tables_of
from paceline.sweeping import Runner
from simulator.base.catalog import scenario_file
from simulator.base.files import read_toml
from simulator.catalogue.loading import apply_settings, scenario_from_table
from simulator.results.results import Result

STRATEGIES = (
    {"kind": "multi-worker-mirrored"},
    {"kind": "parameter-server", "mode": "sync"},
    {"kind": "parameter-server", "mode": "async"},
    {"kind": "parameter-server", "mode": "ssp", "bound": 3},
)
WORKERS = (1, 2, 4, 8, 16)
GBIT_PER_S = (1, 2.5, 5, 10, 25)
BATCHES = (16, 20, 24, 28, 32, 40, 44, 48, 56, 64)
MOST_BYTES, MOST_FIRST_S = 3e6, 2.0

# notes when the page says that all is drawn
WATCH = """
new MutationObserver(() => {
  if (document.documentElement && document.documentElement.dataset.drawn === "yes") { performance.mark("all-figures"); }
}).observe(document, {subtree: true, attributes: true, attributeFilter: ["data-drawn"]});
"""


def simulated(jobs: int) -> list[Result]:
    """A thousand results, as a sweep gives them."""
    file = scenario_file("async-ps")
    table = read_toml(file)
    scenarios = []
    for strategy in STRATEGIES:
        for workers in WORKERS:
            for rate in GBIT_PER_S:
                for batch in BATCHES:
                    settings = [
                        ("cluster.inter_node.bandwidth", f"{rate} Gbit/s"),
                        ("workload.batch_per_replica", batch),
                        ("run.steps", 12),
                        ("run.replications", 5),
                        ("run.grouping", "per-server"),
                    ]
                    own = {**table, "strategy": {**strategy, "workers": workers}}
                    scenarios.append(scenario_from_table(apply_settings(own, settings, "benchmark: "), "benchmark", file.parent))
    outcomes = list(Runner(jobs=jobs).run(scenarios))
    assert all(isinstance(outcome, Result) for outcome in outcomes), "a scenario failed"
    return outcomes


def opened(page: Path) -> dict[str, float]:
    """Seconds from the navigation's beginning to the first figure and to all, in a new browser."""
    options = webdriver.ChromeOptions()
    options.binary_location = find_browser()
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1440,1200"):
        options.add_argument(argument)
    with webdriver.Chrome(options=options) as driver:
        driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": WATCH})
        driver.get(page.resolve().as_uri())
        WebDriverWait(driver, 120).until(lambda _: driver.execute_script("return document.documentElement.dataset.drawn === 'yes'"))
        figures = driver.find_elements("css selector", ".js-plotly-plot")
        marks = driver.execute_script(
            "return ['first-figure', 'all-figures'].map((name) => performance.getEntriesByName(name)[0].startTime / 1000)"
        )
        version = driver.capabilities["browserVersion"]
    return {"first_s": marks[0], "all_s": marks[1], "figures": len(figures), "chromium": version}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="where to leave the page")
    chosen = parser.parse_args()
    results = simulated(chosen.jobs)
    with tempfile.TemporaryDirectory() as folder:
        page = chosen.keep or Path(folder) / "report.html"
        written = []
        for _ in range(chosen.repeats):
            begun = time.perf_counter()
            page.write_text(render(content_of(results)), encoding="utf-8")
            written.append(time.perf_counter() - begun)
        seen = [opened(page) for _ in range(chosen.repeats)]
        size = page.stat().st_size
    tables = sum(len(table.to_csv()) for table in tables_of(content_of(results)))
    report = {
        "scenarios": len(results),
        "bytes": size,
        "bytes_of_tables": tables,
        "write_s": round(statistics.median(written), 2),
        "first_figure_s": round(statistics.median(one["first_s"] for one in seen), 2),
        "first_figure_worst_s": round(max(one["first_s"] for one in seen), 2),
        "all_figures_s": round(statistics.median(one["all_s"] for one in seen), 2),
        "figures": seen[0]["figures"],
        "chromium": seen[0]["chromium"],
        "cores": os.cpu_count(),
        "python": sys.version.split()[0],
    }
    report["within_limits"] = size < MOST_BYTES and report["first_figure_worst_s"] < MOST_FIRST_S
    if chosen.json:
        print(json.dumps(report))
        return
    print(f"report of {report['scenarios']:,} scenarios, {report['figures']} figures, in Chromium {report['chromium']}")
    print(f"  size           {size / 1e6:8.2f} MB   (limit {MOST_BYTES / 1e6:g} MB); its tables as CSV {tables / 1e6:.2f} MB")
    print(f"  to write       {report['write_s']:8.2f} s")
    first = f"{report['first_figure_s']:8.2f} s    (worst {report['first_figure_worst_s']} s; limit {MOST_FIRST_S:g} s)"
    print(f"  first figure   {first}")
    print(f"  all figures    {report['all_figures_s']:8.2f} s")


if __name__ == "__main__":
    main()
