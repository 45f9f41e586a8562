"""Rows that a discrepancy is estimated from: what a prediction rests on, and such rows as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path

from calibrate.validation.comparison import Compared, Reached
from simulator.discrepancy import Doubt
from simulator.errors import InputError
from simulator.figures import Estimate
from simulator.intervals import prediction_interval
from simulator.results import Result

__all__ = ["drawn_interval", "reached_of", "rows_from_csv", "rows_to_csv"]


def reached_of(doubt: Doubt | None, drawn: Estimate, *, source: str = "", series: str = "") -> Reached | None:
    """How far a prediction reaches; none where it has no discrepancy.

    Parameters
    ----------
    doubt
        Of the prediction.
    drawn
        Its interval without that.
    source, series
        As :class:`~calibrate.validation.comparison.Reached` has them.
    """
    if doubt is None:
        return None
    return Reached(
        regime=doubt.regime,
        source=source,
        series=series,
        reach=doubt.reach,
        compute=doubt.compute,
        communication=doubt.communication,
        low=drawn.low,
        high=drawn.high,
    )


def drawn_interval(result: Result, unit: str = "samples/s", mean: float | None = None) -> Estimate:
    """The interval of a result's throughput by chance and draws alone, widened to hold a mean that is told in place of its own."""
    rate = result.throughput_samples_per_s
    per_sample = result.updates_per_s.mean / rate.mean if unit == "updates/s" else 1.0
    drawn = prediction_interval(result.throughput_of_each_replication)
    told = rate.mean * per_sample if mean is None else mean
    return Estimate(mean=told, low=min(drawn.low * per_sample, told), high=max(drawn.high * per_sample, told))


_OWN = ("name", "group", "unit", "predicted", "measured", "staleness_predicted", "staleness_measured")
_WORDS = ("regime", "source", "series")
_COLUMNS = (*_OWN, *Reached.model_fields)


def rows_to_csv(rows: Iterable[Compared]) -> str:
    """Rows that took no part in a fit and have what an estimate needs; repeats of one row are separated by spaces."""
    text = io.StringIO()
    writer = csv.DictWriter(text, _COLUMNS, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        if row.reached is None or row.fitted:
            continue
        own = {
            "name": row.name,
            "group": row.group,
            "unit": row.unit,
            "predicted": _digits([row.predicted.mean]),
            "measured": _digits(row.measured),
            "staleness_predicted": _digits([] if row.staleness_predicted is None else [row.staleness_predicted]),
            "staleness_measured": _digits(row.staleness_measured),
        }
        told = row.reached.model_dump()
        writer.writerow(own | {key: _digits([value]) if isinstance(value, float) else value for key, value in told.items()})
    return text.getvalue()


def _digits(values: Sequence[float]) -> str:
    return " ".join(f"{value:.6g}" for value in values)


def rows_from_csv(path: Path) -> list[Compared]:
    """The rows of a file as :func:`rows_to_csv` writes it.

    Raises
    ------
    InputError
        It cannot be read, or a line has no such row.
    """
    try:
        lines = list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read: {error}; give a file that `paceline validate --rows` has written") from None
    rows = []
    for number, line in enumerate(lines, start=2):
        try:
            predicted = float(line["predicted"])
            told = {key: line[key] for key in Reached.model_fields}
            reached = Reached.model_validate(
                {key: value if key in ("regime", "source", "series") else float(value) for key, value in told.items()}
            )
            stale = _numbers(line["staleness_predicted"])
            rows.append(
                Compared(
                    name=line["name"],
                    group=line["group"],
                    unit=line["unit"],
                    predicted=Estimate(mean=predicted, low=reached.low, high=reached.high),
                    measured=_numbers(line["measured"]),
                    staleness_predicted=stale[0] if stale else None,
                    staleness_measured=_numbers(line["staleness_measured"]),
                    reached=reached,
                )
            )
        except (KeyError, TypeError, ValueError) as error:
            what = str(error).splitlines()[0]
            raise InputError(f"{path}:{number}: is no row of predictions: {what}; write it with `paceline validate --rows`") from None
    return rows


def _numbers(text: str) -> tuple[float, ...]:
    return tuple(float(word) for word in text.split())
