"""A name that nothing has: the nearest is suggested, whatever the name is of, and always in the same words."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.command_line import SCENARIO, Answer, refused

from simulator.base.text import did_you_mean, nearest, no_such_file

Runner = Callable[..., Answer]
PLAN = "plan ring --target-throughput '1 samples/s'"


@pytest.mark.parametrize(
    ("command", "meant"),
    [
        pytest.param("simulte ring", "simulate", id="command"),
        pytest.param("models lst", "list", id="command of a group"),
        pytest.param("simulate ring --tensorbord d", "--tensorboard", id="option"),
        pytest.param("simulate rnig", "ring", id="scenario"),
        pytest.param("simulate s", "s.toml", id="scenario, a file here"),
        pytest.param("simulate ss.toml", "s.toml", id="file"),
        pytest.param("simulate sub/as.toml", "sub/a.toml", id="file in a folder"),
        pytest.param("simulate s.toml --set workload.use=cnn-cpus", "cnn-cpu", id="workload"),
        pytest.param("simulate s.toml --set cluster.use=ethrnet-25g", "ethernet-25g", id="cluster"),
        pytest.param("simulate s.toml --set input.use=cahced-cpu", "cached-cpu", id="input pipeline"),
        pytest.param("simulate ring --set cluster.device=t5", "t4", id="device"),
        pytest.param("models show h200-sxm", "h200-sxm5-141gb", id="any of the catalogue"),
        pytest.param("simulate typo.toml", "workers", id="key in a file"),
        pytest.param("simulate s.toml --set stratgy.workers=2", "strategy", id="section"),
        pytest.param("simulate s.toml --set strategy.wokers=2", "workers", id="key of --set"),
        pytest.param("simulate s.toml --set workers=2", "strategy.workers", id="key without its section"),
        pytest.param("sweep s.toml --over strategy.wokers=1,2", "workers", id="key of --over"),
        pytest.param("simulate s.toml --set strategy.mode=asinc", "'async'", id="choice of a key"),
        pytest.param("simulate s.toml --set strategy.kind=mirored", "'mirrored'", id="kind of a strategy"),
        pytest.param(
            "simulate s.toml --set strategy.kind=rnig", 'kind = "multi-worker-mirrored"', id="kind of a strategy, by its short name"
        ),
        pytest.param("simulate s.toml --set workload.jitter.kind=gama", "'gamma'", id="law"),
        pytest.param("simulate s.toml --set training.optimizer=adm", "'adam'", id="optimizer"),
        pytest.param(f"{PLAN} --strategies rign", "ring", id="short name of a strategy"),
        pytest.param(f"{PLAN} --clusters etherent-25g", "ethernet-25g", id="cluster of a plan"),
        pytest.param(f"{PLAN} --price etherne-25g=1/h", "ethernet-25g", id="cluster of a price"),
        pytest.param(f"{PLAN} --price BUY:4000USD,yeers:4", "years:...", id="part of a price"),
        pytest.param(f"{PLAN} --prefer cheap", "'cheapest'", id="choice of an option"),
        pytest.param("sweep s.toml --over run.seed=1 --backend dsk", "'dask'", id="backend"),
        pytest.param("schema scenari", "'scenario'", id="format of a file"),
        pytest.param("report r.ndjson --figures f --format pgn", "png", id="format of a figure"),
        pytest.param("validate --matrix quikc", "quick", id="matrix"),
        pytest.param("validate s.toml --measured p.csv", "throughput", id="column"),
        pytest.param("validate s.toml --measured rates.csv", "throughput", id="column of a table of results"),
        pytest.param("testbed run --set workrs=3", "workers", id="key of a setting"),
        pytest.param("testbed run --set model=ladder-4m", "ladder-4mb", id="synthetic model"),
        pytest.param("calibrate my_model.py:build --name m --precision float23", "'float32'", id="word of the library"),
        pytest.param("calibrate mymodel.py:build --name m", "my_model.py", id="file of a model"),
        pytest.param("init --step-time 1s --parameters 1e6 --strategy sinc-ps", "sync-ps", id="strategy of init"),
    ],
)
def test_the_nearest_is_suggested(folder: Path, refusal: Callable[..., None], command: str, meant: str) -> None:
    (folder / "typo.toml").write_text(SCENARIO.replace("workers = 2", "wrokers = 2"))
    (folder / "sub").mkdir()
    (folder / "sub" / "a.toml").write_text(SCENARIO)
    (folder / "p.csv").write_text("workers,throughputt\n1,2\n")
    (folder / "rates.csv").write_text("workers,samples_per_s\n1,2\n")
    (folder / "my_model.py").write_text("def build(): ...\n")
    refusal(command, f"did you mean {meant}")


@pytest.mark.parametrize(
    ("command", "names"),
    [
        ("simulate ring --workers 8", ("--workers", "--set", "strategy.workers=VALUE")),
        ("simulate ring --set strategy.workers 8", ("strategy.workers=VALUE",)),
        ("simulate ethernet-25g", ("`paceline simulate ring --set cluster.use=ethernet-25g`",)),
        ("models show ring", ("'ring'", "`paceline simulate ring`")),
        ("simulate s.toml --set cluster.use=resnet-50", ("cluster.use: 'resnet-50'",)),
        ("simulate cnn-cpu", ("`paceline simulate ring --set workload.use=cnn-cpu`",)),
        ("simulate t4", ("`paceline models show t4`",)),
        ("simulate s.toml --set strategy.kind=ring", ("'ring'", '"multi-worker-mirrored"', '"ring"')),
        ("simulate s.toml --set strategy.workers=1..4", ("`paceline sweep --over strategy.workers=1..4`",)),
        ("sweep s.toml --over strategy.workers=1-4", ("`paceline sweep --over strategy.workers=1..4`",)),
        ("simulate ring --set workload.use=", ("workload.use", "`paceline models list workloads`")),
        ("simulate ring --set strategy.workers=", ("strategy.workers", "cluster.nodes", "cluster.available")),
        ("compare ring async-ps", ("'compare'", "`paceline sweep SCENARIO --over KEY=V1,V2`")),
        ("simulate m.py", ("`paceline calibrate m.py:FUNCTION --name NAME`",)),
    ],
)
def test_what_is_something_else_is_told(folder: Path, refusal: Callable[..., None], command: str, names: tuple[str, ...]) -> None:
    (folder / "m.py").write_text("import keras\n")
    refusal(command, *names)


def test_where_nothing_is_near_nothing_is_suggested(folder: Path, paceline: Runner) -> None:
    for command in ("qqq", "simulate ring --qqq", "simulate qqq", "simulate ring --set qqq=1", "models show qqq"):
        answer = paceline(*command.split())
        refused(answer, "qqq")
        assert "did you mean" not in answer.stderr


def test_how_near_is_near(tmp_path: Path) -> None:
    assert nearest("servr", ["servers", "server_placement"]) == ["servers"]
    assert nearest("RING", ["ring", "string"]) == ["ring"]
    assert nearest("ethernet-10", ["ethernet-1g", "ethernet-10g", "ethernet-100g", "p3"]) == ["ethernet-10g"]
    assert nearest("x" * 10_000, ["x"]) == []
    assert nearest("a", []) == []
    assert did_you_mean("resnet", ["resnet-50", "resnet-small"], written="'{}'") == "did you mean 'resnet-50' or 'resnet-small'?"
    (tmp_path / "{0}.toml").write_text("")
    assert no_such_file(tmp_path / "{1}.toml").endswith(f"did you mean {tmp_path}/{{0}}.toml?")
    assert "did you mean" not in no_such_file(tmp_path / "none" / "x.toml")
    assert no_such_file("a\0b", "look").endswith("; look")
