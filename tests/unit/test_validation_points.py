"""Files of measured points: what is read, and what is refused with line, column, value and rule."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.scenarios import scenario_table

import paceline
from calibrate.validation.points import Setting, compared, read_points, scenarios_at
from simulator import simulate
from simulator.base.errors import InputError, ReadingWarning, ScenarioError


def read(folder: Path, content: str | bytes) -> tuple[Setting, ...]:
    file = folder / "p.csv"
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    return read_points(file)


def test_swapped_columns_are_asked_about(tmp_path):
    with pytest.warns(ReadingWarning, match=r"1,234 workers reach a throughput of 1, .*: are the columns workers and throughput swapped\?"):
        read(tmp_path, "workers,throughput\n1234,1\n2400,2\n")
    for content in ("workers,throughput\n1,1234\n2,2400\n", "workers,throughput\n64,40\n64,40.5\n", "workers,epoch_s\n64,40\n"):
        read(tmp_path, content)  # warnings are errors


def test_rows_of_one_setting_are_repeats_of_it(tmp_path):
    found = read(tmp_path, "workers,servers,throughput,staleness\n8,2,1200.5,6.9\n4,1,700,\n8,2,1250,7.1\n")
    assert found == (
        Setting(workers=8, servers=2, throughput=(1200.5, 1250.0), staleness=(6.9, 7.1), line=2),
        Setting(workers=4, servers=1, throughput=(700.0,), line=3),
    )
    assert [setting.name for setting in found] == ["8 workers, 2 servers", "4 workers, 1 server"]


@pytest.mark.parametrize(
    "content",
    [
        "\ufeffworkers,servers,throughput\r\n8,2,1200\r\n",
        "workers;servers;throughput\n8;2;1200\n",
        "workers\tservers\tthroughput\n8\t2\t1200\n",
        "# my runs\n\n Throughput , WORKERS,servers\n# of May\n1.2e3,8,2\n\n",
        '"workers","servers","throughput"\n"8","2","1200"\n',
        "workers,servers,throughput,batch\n8,2,1200,\n",
    ],
)
def test_the_same_point_in_other_words(tmp_path, content):
    (found,) = read(tmp_path, content)
    assert found.model_copy(update={"line": 2}) == Setting(workers=8, servers=2, throughput=(1200.0,), line=2)


HEAD = "workers,servers,throughput\n"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "p.csv: is empty"),
        (" \n\n", "p.csv: is empty"),
        (HEAD, "p.csv: has column names but no rows"),
        ("8,2,1200\n", "p.csv:1: the first line must name the columns"),
        ("workers,servers\n8,2\n", "p.csv:1: the column throughput"),
        ("servers,throughput\n2,8\n", "p.csv:1: the column workers"),
        ("workers,thruput\n8,2\n", ("p.csv:1: 'thruput'", "did you mean throughput?")),
        ("workers,throughput,gpu\n8,2,1\n", ("p.csv:1: 'gpu'", "workers, servers")),
        ("workers,throughput,\n8,2,\n", "p.csv:1: '' is not a column"),
        ("workers,throughput,workers\n8,2,1\n", "p.csv:1: has the column workers"),
        (HEAD + "8,2,fast\n", "p.csv:2: throughput: 'fast'"),
        (HEAD + "8,2,1200\n\n8,2,\n", "p.csv:4: throughput: an empty value"),
        (HEAD + ",2,1200\n", "p.csv:2: workers: an empty value"),
        (HEAD + "8,2,nan\n", "p.csv:2: throughput: 'nan'"),
        (HEAD + "8,2,inf\n", "p.csv:2: throughput: 'inf'"),
        (HEAD + "8,2,1e999\n", ("p.csv:2: throughput: 1e999", "at most 1e+15")),
        (HEAD + "8,2,0\n", ("p.csv:2: throughput: 0", "above zero")),
        (HEAD + "8,2,-3\n", ("p.csv:2: throughput: -3", "above zero")),
        (HEAD + "0,2,1200\n", ("p.csv:2: workers: 0", "from 1 to 100,000")),
        (HEAD + "2.5,2,1200\n", ("p.csv:2: workers: 2.5", "whole number")),
        (HEAD + "8,-1,1200\n", ("p.csv:2: servers: -1", "from 0")),
        (HEAD + "1e12,2,1200\n", ("p.csv:2: workers: 1e12", "from 1")),
        ("workers,throughput,staleness\n8,1200,-1\n", ("p.csv:2: staleness: -1", "negative")),
        (HEAD + "8,2\n", ("p.csv:2: has 2 values", "3 columns")),
        (HEAD + "8,2,1,200\n", ("p.csv:2: has 4 values", "3 columns", "decimal point")),
        ("workers;throughput\n8;1200,5\n", ("p.csv:2: throughput: '1200,5'", "decimal point")),
        (HEAD + '8,2,"1200\n', "p.csv:2: is not a CSV line"),
        (b"\xff\xfew\x00o\x00", ("p.csv: ", "UTF-8 text (byte 0)")),
        (HEAD + "8,2,1200\n" * 10_001, ("p.csv:10002: ", "10,000 rows")),
        ("x" * 5_000_000, ("p.csv: ", "4 MiB")),
        (HEAD + "8,2," + "9" * 5000 + "\n", "at most 1e+15"),
        (HEAD + "8,2,\u0663\n", "must be a number"),
        (HEAD + "1.000,2,9\n", ("p.csv:2: workers: '1.000'", "1 or 1000")),
        (HEAD + "1,2,950\n2,2,1.900\n", ("p.csv:3: throughput: '1.900', next to 950", "1.9 or 1900")),
        (HEAD + "1,2,1.900\n2,2,2100\n", ("p.csv:2: throughput: '1.900', next to 2100", "1.9 or 1,900")),
        ("workers;throughput\n8;1.200,5\n", ("'1.200,5'", "decimal point", "no separator of thousands")),
    ],
)
def test_bad_files_are_refused_in_one_line(tmp_path, content, says):
    with pytest.raises(InputError) as refused:
        read(tmp_path, content)
    told = str(refused.value)
    for part in [says] if isinstance(says, str) else says:
        assert part in told
    assert "\n" not in told
    assert len(told) < 400


@pytest.mark.parametrize(
    ("cells", "is_warned"),
    [
        (("1.900", "3.700"), True),
        (("1.900", "3.7"), False),
        (("1.900", "0.950"), False),
        (("1.900", "12"), False),
        (("1234.500",), False),
        (("1.9",), False),
    ],
)
def test_three_decimals_are_thousands_for_some_unless_others_show_that_they_are_not(tmp_path, cells, is_warned):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        settings = read(tmp_path, "workers,throughput\n" + "".join(f"{place},{cell}\n" for place, cell in enumerate(cells, start=1)))
    assert [its.throughput for its in settings] == [(float(cell),) for cell in cells]
    said = [str(its.message) for its in caught if its.category is ReadingWarning]
    assert len(said) == is_warned
    if is_warned:
        assert "p.csv:2: throughput: '1.900' means 1.9," in said[0]


def test_what_is_no_file(tmp_path):
    with pytest.raises(InputError, match=r"none\.csv: there is no such file"):
        read_points(tmp_path / "none.csv")
    with pytest.raises(InputError, match="cannot be read: Is a directory"):
        read_points(tmp_path)


@examples(80)
@given(content=st.one_of(st.binary(max_size=200), st.text(alphabet='workersthughpu,;\t\n"#0123456789.-e ', max_size=120).map(str.encode)))
def test_any_bytes_are_read_or_refused(tmp_path, content):
    try:
        found = read(tmp_path, content)
    except InputError as refused:
        told = str(refused)
    else:
        told = f"p.csv: {len(found)} settings"
        assert found
    assert "p.csv" in told


def at(table, content, folder, unit="samples/s"):
    points = read(folder, content)
    scenarios = scenarios_at(table, points, source="s.toml", points=folder / "p.csv", beside=None)
    return scenarios, compared(points, [simulate(scenario) for scenario in scenarios], unit)


def test_workers_servers_and_batch_are_put_into_the_scenario(tmp_path):
    variables = [{"name": name, "size": "1 MB", "creation_index": place, "ready": 1.0} for place, name in enumerate("ab")]
    table = scenario_table(strategy={"kind": "parameter-server", "mode": "async", "servers": 2}, workload={"variables": variables})
    scenarios, rows = at(table, "workers,servers,batch,throughput\n4,1,16,900\n2,,,500\n", tmp_path)
    assert [(scenario.replicas, scenario.servers, scenario.batch) for scenario in scenarios] == [(4, 1, 16), (2, 2, 10)]
    assert rows[0].settings == {"workers": 4.0, "servers": 1.0, "batch": 16.0}
    assert rows[0].name == "4 workers, 1 server, batch 16"
    assert {row.group for row in rows} == {"async PS"}
    mirrored, _ = at(scenario_table(strategy={"kind": "mirrored"}, cluster={"devices_per_node": 4}), "workers,throughput\n3,9\n", tmp_path)
    assert mirrored[0].replicas == 3


def test_updates_are_compared_with_updates(tmp_path):
    table = scenario_table(strategy={"kind": "parameter-server", "mode": "async"})
    _, (samples,) = at(table, "workers,throughput\n2,500\n", tmp_path)
    _, (updates,) = at(table, "workers,throughput\n2,50\n", tmp_path, "updates/s")
    assert samples.predicted.mean == pytest.approx(10 * updates.predicted.mean)
    assert updates.unit == "updates/s"


@pytest.mark.parametrize(
    ("strategy", "content", "says"),
    [
        ({"kind": "single"}, "workers,throughput\n1,5\n2,5\n", r"p\.csv:3: workers: 2 must be 1"),
        ({"kind": "multi-worker-mirrored"}, "workers,servers,throughput\n2,1,5\n", r"p\.csv:2: servers: 1 must be 0"),
        (
            {"kind": "parameter-server", "mode": "async"},
            "workers,servers,throughput\n2,1,5\n2,9,5\n",
            r"p\.csv:3: strategy\.servers \(9\) must be at most 1, ",
        ),
    ],
)
def test_a_setting_that_the_scenario_cannot_have(tmp_path, strategy, content, says):
    points = read(tmp_path, content)
    with pytest.raises((InputError, ScenarioError), match=says):
        scenarios_at(scenario_table(strategy=strategy), points, source="s.toml", points=Path("p.csv"), beside=None)


def test_warnings_that_question_the_figures_come_first(tmp_path):
    """A remark on software follows the assumed network, though a result has it earlier."""
    points = tmp_path / "points.csv"
    points.write_text("workers,throughput\n2,6300\n4,10900\n")
    short = {"run.steps": 6, "run.warmup_steps": 1, "run.replications": 3}
    _, *notes = paceline.validate("ring", points, short).notes
    assumed, software = (next(place for place, note in enumerate(notes) if text in note) for text in ("is assumed", "fit() of Keras"))
    assert assumed < software
