"""A setting of the testbed from keys, a file or tables, with the model that it names; and its errors from the library."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

import paceline
from calibrate.testbed.loading import load_setting, of_workload
from calibrate.testbed.setting import TestbedSetting, TestbedVariable
from simulator.base.errors import InputError

SMALL = (
    'name = "small"\nforward = {{base = "1 ms", per_sample = "0 s"}}\nbackward = {{base = "2 ms", per_sample = "0 s"}}\n'
    "jitter = {{{jitter}}}\n"
    '[[variables]]\nname = "table"\nsize = "4000 B"\nrows = 100\nsparse_bytes_per_sample = 80\ncreation_index = 0\nready = 1.0\n'
)


def loaded(settings: dict[str, Any] | None = None, setting: Any = None, describe: Any = None) -> TestbedSetting:
    with patch("calibrate.testbed.loading.describe_model", describe or no_function):
        return load_setting(setting, list((settings or {}).items()))


def no_function(target: str, python: str | None, batch: int) -> tuple[TestbedVariable, ...]:
    raise AssertionError((target, batch))


def test_the_default_setting() -> None:
    setting = loaded()
    assert (setting.mode, setting.workers, setting.servers, setting.model) == ("async", 4, 1, "ladder-1mb")
    assert setting.link is not None
    assert (setting.link.bandwidth_bytes_per_s, setting.link.sharing, setting.link.buffer_s) == (50e6, "fair", 0.02)
    assert (setting.compute.kind, setting.compute.law.kind, setting.compute.mean_s) == ("emulated", "exponential", 0.1)


def test_every_key_arrives() -> None:
    link = {"bandwidth_bytes_per_s": 125e6, "sharing": "tcp", "congestion": "reno", "buffer_s": 0.005}
    compute = {"kind": "emulated", "mean_s": 0.08, "law": {"kind": "gamma", "shape": 16.0}}
    plain: dict[str, Any] = {
        "mode": "sync", "workers": 5, "servers": 2, "backup_workers": 1, "batch": 8, "steps": 7, "warm_up": 2, "threads": 3,
        "overlap": True, "gpu_memory_mib": 512, "model": "ladder-4mb/16",
    }  # fmt: skip
    parts = {
        "link.bandwidth": "1 Gbit/s", "link.sharing": "tcp", "link.congestion": "reno", "link.buffer": "5 ms",
        "compute.kind": "emulated", "compute.mean": "80 ms", "compute.law.kind": "gamma", "compute.law.shape": 16,
    }  # fmt: skip
    got = loaded(plain | parts).model_dump()
    assert {name: got[name] for name in plain} == plain
    assert (got["link"], got["compute"], len(got["variables"])) == (link, compute, 16)
    assert loaded({"start_spread": "200 ms"}).start_spread_s == 0.2
    assert loaded({"link": "loopback", "checkpoint_every": 5}).checkpoint_every == 5
    assert {*plain, "link", "compute", "variables", "start_spread_s", "checkpoint_every", "faults"} == set(TestbedSetting.model_fields)


def test_modes_without_servers_or_links() -> None:
    ring = loaded({"mode": "ring"})
    assert ring.servers == 0
    assert ring.link is not None
    mirrored = loaded({"mode": "mirrored", "workers": 2})
    assert (mirrored.servers, mirrored.link) == (0, None)
    apart = loaded({"mode": "apart"})
    assert (apart.servers, apart.link, apart.compute.kind) == (0, None, "real")
    assert loaded({"link": "loopback"}).link is None


def test_keys_are_laid_over_a_file(tmp_path: Path) -> None:
    file = tmp_path / "setting.toml"
    file.write_text(
        'mode = "between-graph"\nworkers = 2\nservers = 2\nmodel = "ladder-4mb"\nstart_spread = "1 s"\n'
        '[link]\nbandwidth = "1 Gbit/s"\nbuffer = "5 ms"\n[compute]\nmean = "7 ms"\n'
    )
    plain = loaded(setting=file)
    assert plain.link is not None
    assert (plain.workers, plain.servers, plain.compute.mean_s, plain.link.buffer_s) == (2, 2, 0.007, 0.005)
    keys = {"workers": 3, "link.buffer_s": 0.009, "compute.law.kind": "exponential", "start_spread": "2 s", "model": "ladder-1mb"}
    changed = loaded(keys, file)
    assert changed.link is not None
    assert (changed.workers, changed.servers, changed.start_spread_s) == (3, 2, 2.0)
    assert (changed.link.bandwidth_bytes_per_s, changed.link.buffer_s) == (125e6, 0.009)
    assert (changed.compute.law.kind, changed.compute.mean_s) == ("exponential", 0.007)
    assert changed.parameter_bytes == 2**20
    assert loaded({"link": "loopback"}, file).link is None
    assert loaded({"workers": 3}, {"mode": "ring", "workers": 2}).workers == 3
    # a loaded setting keeps the variables of its model, unless another is named
    assert loaded({"workers": 4}, changed) == changed.model_copy(update={"workers": 4})
    assert loaded({"model": "ladder-16mb"}, changed).parameter_bytes == 2**24


def test_a_workload_is_trained_with_its_own_variables_and_law(tmp_path: Path) -> None:
    from simulator.base.catalog import entries
    from simulator.catalogue.loading import load_workload

    workload = load_workload(entries("workloads")["cnn-cpu"])
    setting = loaded({"model": "cnn-cpu", "batch": 16})
    assert [variable.name for variable in setting.variables] == [
        variable.name for variable in sorted(workload.variables, key=lambda variable: variable.creation_index)
    ]
    assert setting.parameter_bytes == workload.parameter_bytes
    assert setting.compute.mean_s == pytest.approx(workload.compute_s(16))
    assert setting.compute.law.mean() == pytest.approx(1.0)
    shorter = loaded({"model": "cnn-cpu", "batch": 16, "compute.mean": "5 ms"})
    assert (shorter.compute.law, shorter.compute.mean_s) == (setting.compute.law, 0.005)
    (tmp_path / "w.toml").write_text(SMALL.format(jitter='kind = "lognormal", sigma = 0.2'))
    steady = loaded({"model": str(tmp_path / "w.toml"), "compute.law.kind": "constant"})
    assert (steady.compute.law.kind, steady.compute.mean_s) == ("constant", pytest.approx(0.003))


def test_a_function_is_described_once_all_else_is_sound() -> None:
    asked: list[tuple[str, int]] = []
    variable = TestbedVariable(name="kernel", shape=(3, 4), ready=1.0)

    def describe(target: str, python: str | None, batch: int) -> tuple[TestbedVariable, ...]:
        asked.append((target, batch))
        return (variable,)

    with pytest.raises(InputError, match="ring"):
        loaded({"model": "m.py:build", "mode": "ring", "workers": 1}, describe=describe)
    assert not asked
    setting = loaded({"model": "m.py:build", "batch": 8}, describe=describe)
    assert asked == [("m.py:build", 8)]
    assert (setting.variables, setting.compute.kind) == ((variable,), "real")
    assert loaded({"model": "m.py:build", "compute.mean": "5 ms"}, describe=describe).compute.kind == "emulated"


@pytest.mark.parametrize(("jitter", "cv"), [('kind = "shifted-exponential", tail = 0.5', 0.5 / 1.5), ('kind = "normal", cv = 0.2', 0.2)])
def test_laws_that_the_device_does_not_draw_from_become_quantiles(tmp_path: Path, jitter: str, cv: float) -> None:
    (tmp_path / "w.toml").write_text(SMALL.format(jitter=jitter))
    found = of_workload("w.toml", 10, "model", tmp_path)
    values = found["compute"]["law"]["values"]
    mean = sum(values) / len(values)
    assert mean == pytest.approx(1.0)
    assert (sum((value - mean) ** 2 for value in values) / len(values)) ** 0.5 == pytest.approx(cv, rel=0.03)
    # 10 samples touch 800 bytes: 20 of 100 rows of 40
    assert found["variables"] == [{"name": "table", "shape": (100, 10), "ready": 1.0, "rows": 20}]


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: paceline.testbed(settings={"worker": 2}), "setting: worker: is not a key of this table; did you mean workers?"),
        (lambda: paceline.testbed({"mode": "ring", "workers": 1}), "setting: a ring needs at least 2 workers"),
        (lambda: paceline.testbed(settings={"link.bandwidth": "5"}), "setting: link.bandwidth: '5' must be a bandwidth"),
        (lambda: paceline.testbed("none.toml"), "none.toml: there is no such file"),
        (lambda: paceline.testbed(5), "`setting`: 5 must be a file, or nested tables"),  # type: ignore[arg-type]
        (lambda: paceline.testbed(settings="workers=2"), "`settings`: 'w' must be a key with its value"),  # type: ignore[arg-type]
        (lambda: paceline.testbed(repeats=0), "`repeats`: 0 must be a whole number from 1"),
        (lambda: paceline.testbed(timeout_s=float("inf")), "`timeout_s`: inf must be a number of seconds above 0"),
        (lambda: paceline.testbed(settings={"link": "loopback"}, python="none/python"), "none/python"),
        (lambda: paceline.testbed_read("none.ndjson"), "none.ndjson: there is no such file"),
        (lambda: paceline.testbed_fit([]), "`files`: no file can be fitted"),
        (lambda: paceline.testbed_fit("m.ndjson"), "`files`: 'm.ndjson' must be a list of files"),
        (lambda: paceline.testbed_predict("none.json"), "none.json: there is no such file"),
        (lambda: paceline.testbed_predict("none.json", replications=3), "`replications`: 3 must be a whole number from 19"),
    ],
)
def test_the_library_refuses_with_one_sentence(call: Callable[[], Any], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError) as caught:
        call()
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "--" not in str(caught.value).replace("none/python", "")
    assert not [path for path in tmp_path.iterdir() if path.is_file()]
