"""``paceline validate`` on a matrix that has been measured before: tables, page, thresholds."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import wraps
from pathlib import Path

import pytest
from support.command_line import Answer, refused
from support.testbed import as_measured

import paceline as package
from calibrate.validation.matrix import read_matrix

pytestmark = pytest.mark.usefixtures("fits_shared")

Runner = Callable[..., Answer]
TEXT = """
repeats = 2
seed = 3

[[fit]]
mode = "between-graph"
workers = 1
servers = 1
link = { bandwidth = "400 Mbit/s" }
model = ["ladder-1mb/16", "ladder-4mb"]
compute = { mean = "20 ms" }
steps = 10

[[held_out]]
group = "servers"
mode = "between-graph"
workers = 2
servers = 1
link = { bandwidth = "1 Gbit/s" }
model = "ladder-1mb"
compute = { mean = "50 ms" }
steps = 10
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mine.toml").write_text(TEXT, encoding="utf-8")
    for setting in read_matrix(tmp_path / "mine.toml").settings:
        as_measured(tmp_path, setting, seed=3)
    return tmp_path


def asked(folder: Path) -> list[str]:
    return ["validate", "--matrix", str(folder / "mine.toml"), "--measurements", str(folder)]


def test_tables_page_and_parameters(paceline: Runner, folder: Path) -> None:
    page, platform = folder / "v.html", folder / "p.json"
    answer = paceline(*asked(folder), "--out", str(page), "--platform", str(platform), "--max-median", "2%")
    assert answer.code == 0, answer.stderr
    assert "between-graph 2 x 1 PS" in answer.stdout
    assert "existing ones are used" in answer.stderr
    assert "between-graph 2 x 1 PS" in page.read_text(encoding="utf-8")
    assert json.loads(platform.read_text(encoding="utf-8"))["parameters"]["wire_bytes_per_byte"]["determined"]


def test_a_missed_threshold_is_exit_3(paceline: Runner, folder: Path) -> None:
    answer = paceline(*asked(folder), "--max-median", "0.0001%", "--json")
    assert answer.code == 3
    assert "above" in answer.stderr
    assert {row["fitted"] for row in json.loads(answer.stdout)["rows"]} == {True, False}


@pytest.mark.parametrize(("name", "said"), [("quikc", "did you mean quick"), ("nowhere.toml", "")])
def test_an_unknown_matrix_is_named(paceline: Runner, name: str, said: str) -> None:
    refused(paceline("validate", "--matrix", name), name, said)


def test_a_gate_does_not_pass_because_there_is_nothing_to_see(paceline: Runner, folder: Path) -> None:
    path = folder / "mine.toml"
    path.write_text(TEXT[: TEXT.index("[[held_out]]")], encoding="utf-8")
    answer = paceline(*asked(folder), "--max-median", "5%")
    assert answer.code == 3
    assert "nothing to judge" in answer.stderr


def test_a_share_above_one_wants_its_percent_sign(paceline: Runner, folder: Path) -> None:
    refused(paceline(*asked(folder), "--max-median", "2"), "2% or 0.02")


@pytest.mark.parametrize("command", ["validate", "fit"])
def test_a_file_of_mine_is_not_replaced(paceline: Runner, folder: Path, command: str) -> None:
    mine = folder / "notes.json"
    mine.write_text('{"keep": 1}', encoding="utf-8")
    runs = sorted(str(path) for path in folder.glob("*-testbed-*.ndjson"))
    answer = (
        paceline(*asked(folder), "--platform", str(mine)) if command == "validate" else paceline("testbed", "fit", *runs, "-o", str(mine))
    )
    refused(answer, "notes.json")
    assert mine.read_text(encoding="utf-8") == '{"keep": 1}'


@pytest.mark.long
@pytest.mark.filterwarnings("default::simulator.base.errors.PacelineWarning")
def test_a_fit_leaves_out_what_cannot_be_read_and_predicts(paceline: Runner, folder: Path) -> None:
    runs = sorted(folder.glob("*-testbed-*.ndjson"))
    cut = folder / "cut.ndjson"
    cut.write_bytes(runs[0].read_bytes()[:2000])
    platform = folder / "machine.json"
    answer = paceline("testbed", "fit", str(cut), *map(str, runs), "-o", str(platform))
    assert answer.code == 0, answer.stderr
    assert "left out" in answer.stderr
    predicted = paceline("testbed", "predict", str(platform), "--set", "workers=3", "--set", "steps=10", "--json")
    assert predicted.code == 0, predicted.stderr
    assert json.loads(predicted.stdout)["updates_per_s"]["mean"] > 0
    assert "dispatch_s" in json.loads(predicted.stdout)["undetermined"]


# --- settings that are drawn, and matrices that are checked first --------------------------------


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        ("--matrix random", ("seed",)),
        ("--matrix random:one", ("seed",)),
        ("--matrix random:-1", ("seed",)),
        ("--matrix random:1 --count 0", ("--count 0", "200")),
        ("--matrix random:1 --count 10000", ("--count 10000", "200")),
        ("--matrix quick --count 3", ("--count",)),
        ("--matrix quick --out-matrix drawn.toml", ("--out-matrix",)),
        ("--matrix model.toml", ("model.toml", "'resnet'")),
        ("--matrix function.toml", ("function.toml", "'none.py:build'")),
        ("--matrix law.toml", ("law.toml", "compute.law.kind: 'normal'")),
        ("--matrix real.toml", ("ladder-1mb", "batch 32")),
        ("--matrix ring.toml", ()),
        ("--matrix long.toml", ()),
        ("--matrix mine.toml --python none/python", ("--python 'none/python'",)),
    ],
)
def test_what_is_wrong_is_one_line_and_nothing_is_measured(
    refusal: Callable[..., None], folder: Path, monkeypatch: pytest.MonkeyPatch, arguments: str, names: tuple[str, ...]
) -> None:
    monkeypatch.chdir(folder)
    held_out = TEXT[TEXT.index("[[held_out]]") :]
    files = {
        "model": TEXT.replace('["ladder-1mb/16", "ladder-4mb"]', '"resnet"'),
        "function": TEXT.replace('["ladder-1mb/16", "ladder-4mb"]', '"none.py:build"'),
        "law": TEXT.replace('mean = "20 ms"', 'mean = "20 ms", law = { kind = "normal", cv = 0.1 }'),
        "real": TEXT.replace(held_out, held_out.replace('mean = "50 ms"', 'kind = "real"')),
        "ring": TEXT.replace(held_out, held_out.replace("between-graph", "ring").replace("servers = 1\n", "")),
        "long": TEXT.replace(held_out, held_out.replace("steps = 10", "steps = 500000")),
    }
    for name, text in files.items():
        (folder / f"{name}.toml").write_text(text.replace("seed = 3", "seed = 4"), encoding="utf-8")
    (folder / "mine.toml").write_text(TEXT.replace("seed = 3", "seed = 4"), encoding="utf-8")
    # whatever this machine can do: what is told of the matrix is told anywhere
    monkeypatch.setattr("calibrate.testbed.running.obstacle_to_shaped_links", lambda _: None)
    refusal(f"validate {arguments} --measurements .", *names)


def test_drawn_settings_are_listed_and_written_without_a_run(paceline: Runner, folder: Path) -> None:
    out = folder / "drawn.toml"
    ask = ["validate", "--matrix", "random:1", "--count", "2"]
    answer = paceline(*ask, "--list", "--out-matrix", str(out))
    assert answer.code == 0, answer.stderr
    assert "PS, fair links" in answer.stdout
    assert "2 held out" in answer.stdout
    data = json.loads(paceline(*ask, "--list", "--json").stdout)
    assert data["drawn_by"] == 1
    held_out = [one["setting"] for one in data["settings"] if one["group"] != "fit"]
    assert [one.setting.model_dump(mode="json") for one in read_matrix(out).held_out] == held_out
    again = paceline(*ask, "--list", "--out-matrix", str(out))
    refused(again, "drawn.toml", "--force")


def test_listing_runs_no_file_that_the_matrix_names(paceline: Runner, folder: Path) -> None:
    marker = folder / "marker"
    (folder / "net.py").write_text(f"open({str(marker)!r}, 'w')\ndef build(): ...\n", encoding="utf-8")
    text = TEXT.replace('"ladder-4mb"]', '"net.py:build"]')
    (folder / "own.toml").write_text(text, encoding="utf-8")
    ask = ["validate", "--matrix", str(folder / "own.toml")]
    answer = paceline(*ask, "--list")
    assert answer.code == 0, answer.stderr
    assert "net.py:build" in answer.stdout
    assert "without 1 setting" in " ".join(answer.stdout.split())
    known, unknown, held_out = json.loads(paceline(*ask, "--list", "--json").stdout)["settings"]
    assert (known["guessed_s"] > 0, unknown["guessed_s"], held_out["guessed_s"] > 0) == (True, None, True)
    assert ["variables" in one["setting"] for one in (known, unknown, held_out)] == [True, False, True]
    assert not marker.exists()
    # whoever measures has it built
    assert paceline(*ask, "--measurements", str(folder)).code != 0
    assert marker.exists()


def test_what_takes_long_is_asked_about(paceline: Runner, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("calibrate.validation.matrix.check_matrix", lambda *_, **__: None)
    answer = paceline("validate", "--matrix", "random:1", "--count", "200", "--measurements", str(folder), "--json")
    refused(answer, "random-1-200: ", "--yes")


@pytest.mark.long
def test_a_drawn_matrix_has_a_section_of_its_own_that_names_the_seed(
    paceline: Runner, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from calibrate.validation.matrix import matrix_of
    from simulator.base.files import read_toml

    # the settings of the file stand in for those that a seed would draw
    table = read_toml(folder / "mine.toml")
    monkeypatch.setattr(
        "calibrate.validation.random_matrix.random_matrix",
        lambda seed, count, **_: matrix_of({**table, "name": f"random-{seed}-{count}"}, "random").model_copy(update={"drawn_by": seed}),
    )
    document = folder / "fidelity.md"
    for seed in ("20", "21"):
        answer = paceline("validate", "--matrix", f"random:{seed}", "--measurements", str(folder), "--markdown", str(document))
        assert answer.code == 0, answer.stderr
        assert "all measured already" in answer.stderr
    text = document.read_text(encoding="utf-8")
    assert "begin paceline validate: testbed-random-20-12 " in text
    assert "begin paceline validate: testbed-random-21-12 " in text
    assert "drawn at random with seed 20 " in text
    assert "named before anything was measured" not in text


@pytest.mark.parametrize("measured", [True, False])
def test_what_was_measured_is_kept_where_it_is_stopped(
    paceline: Runner, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, measured: bool
) -> None:
    @wraps(package.validate_matrix)
    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("paceline.api.validate_matrix", stopped)
    where = folder if measured else tmp_path / "nothing"
    answer = paceline("validate", "--matrix", str(folder / "mine.toml"), "--measurements", str(where))
    refused(answer, "interrupted", code=130)
    assert (str(where) in answer.stderr) is measured
