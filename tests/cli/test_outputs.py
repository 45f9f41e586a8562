"""What commands may write: a file is replaced if it is empty or of the very kind that is written there; anything else needs --force."""

from __future__ import annotations

import json
import os
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from support.command_line import Answer, contents, refused
from support.results import STRATEGIES, planned, plausible, scenario_of

from paceline.planning.answer import Plan
from simulator.observing.tensorboard import EVENT_FILE

Runner = Callable[..., Answer]
MINE = "remember the milk\n"
SWEEP = "sweep s.toml --over strategy.workers=1,2 --jobs 1"
PLAN = "plan s.toml --confidence 0.5 --target-throughput '100 samples/s' --workers 1..2 --jobs 1"
POINTS = "workers,servers,throughput\n1,1,1000\n2,1,1900\n"
VALIDATE = "validate s.toml --measured p.csv"
TF_CONFIG = '{"cluster": {"worker": ["h1:2222", "h2:2222"]}}'
BY_HAND = 'name = "x"\nforward = {base = "1 ms"}\nbackward = {base = "2 ms"}\nvariables = [{name = "k", size = "1 MB"}]\n'
LINK_BY_HAND = 'name = "x"\ninter_node = {bandwidth = "1 GB/s", latency = "20 us"}\n'
REPORT = '<!DOCTYPE html>\n<meta name="generator" content="Paceline">\n'

FOREIGN = [
    ("demo --out q.html", "q.html", MINE),
    ("quickstart --out q.html", "q.html", MINE),
    ("quickstart --out q.html", "q.html", REPORT),
    ("quickstart --out q.html", "q.ndjson", MINE),
    ("quickstart --out q.html", "q.workload.toml", BY_HAND),
    (f"{PLAN} --out y.ndjson", "y.plan.json", '{"plan": "mine"}'),
    (f"{PLAN} --report y.html", "y.html", MINE),
    ("simulate s.toml --trace t.json", "t.json", MINE),
    ("simulate s.toml --trace t.json", "t.json", '{"traceEvents":[]}'),
    ("simulate s.toml --trace t.json --tensorboard b", f"b/{EVENT_FILE}", MINE),
    (f"{VALIDATE} --out v.html", "v.html", REPORT),
    (f"{VALIDATE} --markdown m.txt", "m.txt", MINE),
    (f"{VALIDATE} --rows r.csv", "r.csv", POINTS),
    (f"{VALIDATE} --tables b", "b/points.csv", POINTS),
    (f"{VALIDATE} --refit --out-scenario new.toml", "new.toml", MINE),
    ("validate --matrix random:1 --count 1 --list --out-matrix m.toml", "m.toml", MINE),
    ("validate --matrix random:1 --count 1 --out-matrix m.toml --platform p.json", "p.json", "{}"),
    ("testbed fit none.ndjson --out p.json", "p.json", "{}"),
    ("init --step-time 1ms --parameters 1e6 --out new.toml", "new.toml", MINE),
    ("calibrate c.py:build --name x --out x.toml", "x.toml", BY_HAND),
    ("calibrate c.py:build --name x --out x.toml", "x.toml", f"provenance = 5\n{BY_HAND}"),
    ("quickstart --out q.html", "q.workload.toml", f"provenance = 5\n{BY_HAND}"),
    ("calibrate-link --name x --out x.toml", "x.toml", LINK_BY_HAND),
    ("calibrate-server --name x --cluster ethernet-1g --out x.toml", "x.toml", LINK_BY_HAND),
    ("calibrate-input c.py:images --name x --out x.toml", "x.toml", 'work = "mine"\n'),
    ("calibrate --from-tf-config tf.json --name x --batch 8", "x-scenario.toml", MINE),
]


@pytest.fixture
def inputs(folder: Path) -> Path:
    (folder / "p.csv").write_text(POINTS)
    (folder / "c.py").write_text("def build():\n    raise SystemExit\n\n\nimages = None\n")
    (folder / "tf.json").write_text(TF_CONFIG)
    return folder


def everything(folder: Path) -> dict[str, bytes | None]:
    return {str(path): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (f"{SWEEP} --out c.csv", "--out 'c.csv': is written as lines of JSON, not as a table (CSV); name it 'c.ndjson', from which"),
        (f"{SWEEP} --out c.html", "--out 'c.html': is written as lines of JSON, not as a page (HTML); name it 'c.ndjson', from which"),
        (f"{PLAN} --out c.json", "--out 'c.json': is written as lines of JSON, not as JSON; name it 'c.ndjson', from which"),
        (
            "advise s.toml --out deep/c.CSV",
            "--out 'deep/c.CSV': is written as lines of JSON, not as a table (CSV); name it 'deep/c.ndjson'",
        ),
        (f"{PLAN} --report c.pdf", "--report 'c.pdf': is written as a page (HTML), not as PDF; name it 'c.html'"),
        ("simulate s.toml --trace c.csv", "--trace 'c.csv': is written as JSON, not as a table (CSV); name it 'c.json'"),
        (f"{VALIDATE} --out c.pdf", "--out 'c.pdf': is written as a page (HTML), not as PDF; name it 'c.html'"),
        (f"{VALIDATE} --markdown c.html", "--markdown 'c.html': is written as Markdown, not as a page (HTML); name it 'c.md'"),
        (f"{VALIDATE} --rows c.xlsx", "--rows 'c.xlsx': is written as a table (CSV), not as a workbook; name it 'c.csv'"),
        ("quickstart --out c.csv", "--out 'c.csv': is written as a page (HTML), not as a table (CSV); name it 'c.html'"),
        ("init --step-time 1ms --parameters 1e6 --out c.json", "--out 'c.json': is written as TOML, not as JSON; name it 'c.toml'"),
        ("testbed fit none.ndjson --out c.toml", "--out 'c.toml': is written as JSON, not as TOML; name it 'c.json'"),
        ("calibrate c.py:build --name x --out c.json", "--out 'c.json': is written as TOML, not as JSON; name it 'c.toml'"),
    ],
)
def test_a_name_that_promises_another_format_is_refused_before_the_work(inputs: Path, paceline: Runner, command: str, said: str) -> None:
    before = everything(inputs)
    answer = paceline(*shlex.split(command), "--force")
    assert answer.code == 2
    assert answer.stderr.startswith(f"paceline: {said}")
    assert answer.stderr.count("\n") == 1
    assert everything(inputs) == before


@pytest.mark.parametrize("name", ["results.ndjson", "results.jsonl", "results.txt", "results", "run.1"])
def test_a_name_that_promises_no_other_format_will_do(folder: Path, paceline: Runner, name: str) -> None:
    assert paceline(*shlex.split(SWEEP), "--out", name).code == 0
    assert len((folder / name).read_text().splitlines()) == 2


@pytest.mark.parametrize(("command", "name", "content"), FOREIGN, ids=[f"{command}: {name}" for command, name, _ in FOREIGN])
def test_a_foreign_file_is_refused_before_the_work_and_nothing_is_written(
    inputs: Path, refusal: Callable[..., None], command: str, name: str, content: str
) -> None:
    (inputs / name).parent.mkdir(exist_ok=True)
    (inputs / name).write_text(content)
    before = everything(inputs)
    refusal(command, name, "--force")
    assert everything(inputs) == before


@pytest.mark.parametrize(
    ("command", "name"),
    [
        *((f"{PLAN} --out y.ndjson --report", name) for name in ("y.ndjson", "y.plan.json")),
        ("quickstart --out", "y.ndjson"),
        (f"{VALIDATE} --tables . --rows", "points.csv"),
    ],
)
def test_no_file_is_written_twice(inputs: Path, refusal: Callable[..., None], command: str, name: str) -> None:
    refusal(f"{command} {name}", name)


def test_a_quickstart_leaves_results_of_another_sweep_alone_also_of_its_own_workload(inputs: Path, paceline: Runner) -> None:
    scenario = scenario_of(STRATEGIES[0], 2)
    workload = scenario.workload.model_copy(update={"provenance": {"command": "paceline quickstart"}})
    for swept in (scenario, scenario.model_copy(update={"workload": workload})):
        (inputs / "q.ndjson").write_text(plausible(swept).to_json() + "\n")
        before = everything(inputs)
        refused(paceline("quickstart", "--out", "q.html"), "'q.ndjson'", "--force")
        assert everything(inputs) == before


def test_own_files_and_empty_ones_are_replaced_and_force_replaces_the_rest(inputs: Path, paceline: Runner) -> None:
    command = "simulate", "s.toml", "--trace", "t.json", "--tensorboard", "b"
    (inputs / "t.json").touch()
    assert paceline(*command).code == 0
    first = (inputs / "t.json").read_bytes()
    assert json.loads(first)["otherData"]["written_by"] == "Paceline"
    (inputs / "b" / EVENT_FILE).touch()
    assert paceline(*command).code == 0
    assert (inputs / "t.json").read_bytes() == first
    (inputs / "t.json").write_text(MINE)
    (inputs / "b" / EVENT_FILE).write_text(MINE)
    refused(paceline(*command), "--force")
    assert paceline(*command, "--force").code == 0
    assert (inputs / "t.json").read_bytes() == first


@pytest.mark.parametrize(
    "command", ["simulate s.toml --trace FILE", "simulate s.toml --tensorboard FILE", "init --workload cnn-cpu --out FILE --force"]
)
def test_a_file_is_read_by_those_whom_its_user_lets_read(inputs: Path, paceline: Runner, command: str) -> None:
    file = inputs / "f"
    words = shlex.split(command.replace("FILE", str(file)))
    before = os.umask(0o077)
    try:
        assert paceline(*words).code == 0
    finally:
        os.umask(before)
    written = file / EVENT_FILE if file.is_dir() else file
    assert written.stat().st_mode & 0o777 == 0o600
    written.chmod(0o640)
    assert paceline(*words).code == 0
    assert written.stat().st_mode & 0o777 == 0o640


def test_a_plan_replaces_the_answer_of_a_plan(inputs: Path, paceline: Runner) -> None:
    result = plausible(scenario_of(STRATEGIES[0], 2))
    (inputs / "y.plan.json").write_text(planned([result], "before").to_json())
    assert paceline(*shlex.split(PLAN), "--out", "y.ndjson").code == 0
    assert Plan.model_validate_json((inputs / "y.plan.json").read_bytes()).chosen.name != "before"
    (inputs / "y.plan.json").write_text(MINE)
    refused(paceline(*shlex.split(PLAN), "--out", "y.ndjson"), "y.plan.json", "--force")
    assert paceline(*shlex.split(PLAN), "--out", "y.ndjson", "-f").code == 0
    Plan.model_validate_json((inputs / "y.plan.json").read_bytes())


def test_advice_replaces_what_is_there_when_told_to(inputs: Path, paceline: Runner) -> None:
    advise = "advise", "s.toml", "--machines", "1", "--out", "y.ndjson"
    (inputs / "y.ndjson").write_text(MINE)
    refused(paceline(*advise), "y.ndjson: ", "--force")
    assert paceline(*advise, "-f").code == 0
    assert (inputs / "y.ndjson").read_text().startswith('{"schema_version":1,')


def test_tables_replace_tables_of_the_same_heading_alone(inputs: Path, paceline: Runner) -> None:
    result = plausible(scenario_of(STRATEGIES[0], 2))
    (inputs / "r.ndjson").write_text(result.to_json() + "\n")
    command = "report", "r.ndjson", "--no-simulate", "--tables", "t"
    assert paceline(*command).code == 0
    assert paceline(*command).code == 0
    (inputs / "t" / "results.csv").write_text(POINTS)
    (inputs / "r.html").unlink()
    before = everything(inputs)
    refused(paceline(*command), "--tables 't/results.csv'", "--force")
    assert everything(inputs) == before
    # what is simulated is known by its heading before it is there
    (inputs / "t" / "results.csv").unlink()
    (inputs / "t" / "timeline.csv").write_text(POINTS)
    refused(paceline("report", "r.ndjson", "--tables", "t"), "t/timeline.csv", "--force")
    assert not (inputs / "r.html").exists()
    assert paceline(*command, "--force").code == 0
    # a file that is read
    (inputs / "t" / "measured.csv").write_text("workers,throughput\n2,1000\n")
    refused(paceline(*command, "--measured", "t/measured.csv", "--force"), "t/measured.csv")


def test_tables_of_a_validation_that_pass_the_check_are_written_whatever_their_further_columns(inputs: Path, paceline: Runner) -> None:
    command = (*VALIDATE.split(), "--out", "v.html", "--rows", "r.csv", "--markdown", "m.md", "--tables", "t")
    assert paceline(*command).code == 0
    table = inputs / "t" / "points.csv"
    first = table.read_bytes()
    table.write_bytes(b"\n".join(line + b",more" for line in first.splitlines()))
    assert paceline(*command).code == 0
    assert table.read_bytes() == first


def test_a_validation_looks_at_the_tables_alone_that_it_can_write(inputs: Path, paceline: Runner) -> None:
    (inputs / "points-may.csv").write_text(POINTS)
    (inputs / "points-june.csv").write_text("remember,the,milk\n")
    answer = paceline("validate", "s.toml", "--measured", "points-may.csv", "--tables", ".")
    assert answer.code == 0, answer.stderr
    assert (inputs / "points-may.csv").read_text() == POINTS
    assert (inputs / "points-june.csv").read_text() == "remember,the,milk\n"
    assert (inputs / "points.csv").exists()


def test_a_report_with_a_bad_byte_is_one_like_any_other(inputs: Path, paceline: Runner) -> None:
    (inputs / "q.html").write_bytes(REPORT.encode() + b"\xff")
    refused(paceline("quickstart", "--out", "q.html"), "'q.html'", "--force")


def test_a_validation_never_replaces_what_it_reads(inputs: Path, paceline: Runner) -> None:
    (inputs / "points.csv").write_text(POINTS)
    before = contents(inputs)
    for force in ((), ("--force",)):
        refused(paceline("validate", "s.toml", "--measured", "points.csv", "--tables", ".", *force), "points.csv")
    assert contents(inputs) == before


def test_a_page_of_a_validation_is_no_report(inputs: Path, paceline: Runner) -> None:
    (inputs / "r.ndjson").write_text(plausible(scenario_of(STRATEGIES[0], 2)).to_json() + "\n")
    assert paceline(*VALIDATE.split(), "--out", "v.html", "--tables", "t").code == 0
    assert paceline(*VALIDATE.split(), "--out", "v.html", "--tables", "t").code == 0
    refused(paceline("report", "r.ndjson", "--no-simulate", "--out", "v.html"), "v.html", "--force")


@pytest.mark.long
def test_a_refit_writes_all_that_is_asked_for(inputs: Path, paceline: Runner) -> None:
    answer = paceline(*VALIDATE.split(), "--refit", "--out-scenario", "new/s.toml", "--rows", "new/r.csv", "--markdown", "new/m.md")
    assert answer.code == 0, answer.stderr
    assert sorted(path.name for path in (inputs / "new").iterdir()) == ["m.md", "r.csv", "s.toml"]


def test_a_working_folder_cannot_stand_in_for_code_that_comes_along(
    inputs: Path, paceline: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in (
        ("models/keras/cnn.py", "raise SystemExit('mine')\n"),
        ("models/keras/ladder.py", "raise SystemExit('mine')\n"),
        ("models/matrices/quick.toml", "repeats = 1\n"),
        ("models/matrices/mine.toml", "repeats = 1\n"),
        ("models/published/speeds.csv", "mine\n"),
    ):
        (inputs / name).parent.mkdir(parents=True, exist_ok=True)
        (inputs / name).write_text(text)
    profiled: list[str] = []

    def calibrate(model: str, **_: object) -> None:
        profiled.append(model)
        raise KeyboardInterrupt

    monkeypatch.setattr("paceline.api.calibrate", calibrate)
    assert paceline("quickstart", "--out", "q.html").code == 130
    (file,) = (Path(model.removesuffix(":build")) for model in profiled)
    assert file.is_absolute()
    assert not file.is_relative_to(inputs)
    from calibrate.testbed.loading import builder_of
    from evidence.published.tables import data_file
    from simulator.resolve.published_throughputs import load_published_throughputs

    assert not Path(builder_of("ladder-1mb").partition(":")[0]).is_relative_to(inputs)
    assert Path(builder_of("ladder-1mb").partition(":")[0]).is_absolute()
    assert data_file("speeds.csv").read_text() != "mine\n"
    load_published_throughputs()
    assert paceline("validate", "--matrix", "quick", "--list").code == 0
    refused(paceline("validate", "--matrix", "mine", "--list"), "'mine'")


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_folder_that_may_not_be_written_is_told_before_the_work(inputs: Path, paceline: Runner) -> None:
    (inputs / "shut").mkdir(mode=0o500)
    refused(paceline("simulate", "s.toml", "--trace", "shut/below/t.json"), "shut/below/t.json", "Permission denied")
    shutil.rmtree(inputs / "shut")
