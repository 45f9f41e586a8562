"""Real model parallelism compared with predictions, for estimating discrepancies.

    python -m evidence.studies.model_parallel models/workloads/resnet-small-cpu.toml

predicts every setting of ``models/measured/model-parallel.toml`` that has been measured and
writes ``models/validated/model-parallel.csv``.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from calibrate.validation.comparison import Compared, drawn_interval, reached_of, rows_to_csv
from evidence.rows import rows_in
from evidence.studies.staged_runs import StagedSetting, read_settings, scenario_of
from simulator import simulate
from simulator.base import catalog
from simulator.base.files import EDITED, Output, read_toml


def compared_rows(settings: Sequence[StagedSetting], rows: Sequence[Mapping[str, str]], workload: Mapping[str, Any]) -> list[Compared]:
    """Each measured setting with its prediction, for estimating discrepancies."""
    found = []
    for setting in settings:
        measured = tuple(setting.batch / float(row["step_s"]) for row in rows if row["name"] == setting.name)
        if not measured:
            continue
        result = simulate(scenario_of(setting, workload))
        series = "one process" if setting.one_process else "two processes"
        found.append(
            Compared(
                name=setting.name,
                group=f"model parallelism, {series}",
                unit="samples/s",
                measured=measured,
                predicted=result.throughput_samples_per_s,
                reached=reached_of(result.discrepancy, drawn_interval(result), source="one EPYC, model parallelism", series=series),
            )
        )
    return found


def main() -> None:
    """Predict, and write the rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workload", type=Path, help="of the model that was run, with layers, measured on one core")
    models = catalog.own_file("discrepancy.toml").parent
    rows = rows_in(models / "measured" / "model-parallel.csv")
    found = compared_rows(read_settings(models / "measured" / "model-parallel.toml"), rows, read_toml(parser.parse_args().workload))
    Output(models / "validated" / "model-parallel.csv", EDITED._replace(ending=".csv"), force=True).write(rows_to_csv(found))


if __name__ == "__main__":
    main()
