"""Steps under JAX and PyTorch: what is refused, what files say, and real steps where a Python has them."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.command_line import Answer, refused
from support.needs import needs_backend

from calibrate.fit.link import fit_link
from calibrate.fit.step import fit_workload
from calibrate.measurements import Ready, Split, StepTime, Transfer, VariableRecord, read_measurements
from calibrate.profiling import profile_link, profile_step
from paceline.cli.app import main
from simulator.base.errors import CalibrationError, InputError
from simulator.catalogue.loading import scenario_from_table
from simulator.spec.workload import Workload

ROOT = Path(__file__).parents[2]
CNN, MLP = (f"{ROOT / 'models' / 'keras' / name}.py:build" for name in ("cnn", "mlp"))
DATA = Path(__file__).parent / "data" / "backends"

OTHERS = """
import keras

def no_model():
    return {"weights": 3}

def of_torch():
    import torch
    return torch.nn.Linear(3, 3)

def step(batch):
    import torch
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    x, y = torch.randn(batch, 64), torch.randint(0, 10, (batch,))
    def once():
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss
    return once
"""


@pytest.fixture
def typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Answer]:
    """Runs a command in a folder of its own."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> Answer:
        monkeypatch.setattr(sys, "argv", ["paceline", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return Answer(ended.value.code, printed.out, printed.err)

    return run


@pytest.fixture
def others(tmp_path: Path) -> Path:
    path = tmp_path / "others.py"
    path.write_text(OTHERS)
    return path


# -- without any of them installed ------------------------------------------------------------


@pytest.mark.parametrize("how", ["option", "variable"])
def test_an_unknown_backend_is_refused_in_one_line(
    how: str, typed: Callable[..., Answer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["calibrate", MLP, "--name", "mine"]
    if how == "option":
        arguments += ["--keras-backend", "pytorch"]
    else:
        monkeypatch.setenv("KERAS_BACKEND", "pytorch")
    refused(typed(*arguments), "'pytorch': is not a supported Keras backend", "torch")
    assert not list(tmp_path.rglob("*.ndjson"))


@pytest.mark.parametrize(("backend", "name"), [("torch", "PyTorch"), ("jax", "JAX")])
def test_a_python_without_the_backend_says_what_to_install(backend: str, name: str, tmp_path: Path) -> None:
    if importlib.util.find_spec(backend) is not None:
        pytest.skip(f"this Python has {name}")
    with pytest.raises(CalibrationError, match=rf"cannot import {name} .*pip install 'paceline\[{backend}\]'") as caught:
        profile_step(MLP, "mine", keras_backend=backend, folder=tmp_path, timeout_s=60)
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())
    if backend == "torch":
        with pytest.raises(CalibrationError, match="cannot import PyTorch"):
            profile_link("mine", carrier="gloo", folder=tmp_path, timeout_s=60)


def test_gradients_and_logical_devices_are_tensorflows(typed: Callable[..., Answer], tmp_path: Path) -> None:
    arguments = ["calibrate", "--noise-scale", "digits-mlp", "--name", "mine", "--keras-backend", "jax"]
    refused(typed(*arguments), "are measured only under TensorFlow")
    with pytest.raises(InputError, match=r"logical_devices=2.*carrier='gloo'"):
        profile_link("mine", carrier="gloo", logical_devices=2, folder=tmp_path)


@pytest.mark.parametrize(("backend", "software"), [("torch", "PyTorch 2"), ("jax", "JAX 0")])
def test_a_file_of_another_backend_is_fitted_as_tensorflows_are(backend: str, software: str) -> None:
    """Measured once, and carried: the same laws, intervals and overheads."""
    workload = fit_workload(DATA / f"mlp-{backend}.ndjson", "mine", accept_disturbed=True)
    assert workload.backend == backend
    assert software in workload.description
    assert workload.provenance[backend] in workload.description
    assert "tensorflow" not in workload.provenance
    assert "under TensorFlow alone" in workload.provenance["lacking"]
    assert workload.forward(64) > 0
    assert workload.backward(64) > 0
    assert {"forward.base_s", "backward.per_sample_s"} <= set(workload.fit.intervals_90)
    assert sum(variable.size_bytes for variable in workload.variables) == 4 * (784 * 128 + 128 + 128 * 10 + 10)
    ready = [variable.ready for variable in workload.variables]
    if backend == "torch":  # hooks see each gradient; the last layer's comes first
        assert len(set(ready)) == len(ready)
        assert workload.variables[-1].name.endswith("dense/kernel")
    else:
        assert set(ready) == {1.0}
        assert "at once" in workload.provenance["gradients"]
        assert "compiled each by itself" in workload.provenance["split"]
    overheads = workload.overheads
    assert overheads is not None
    assert None not in (overheads.startup, overheads.tracing, overheads.evaluation_tracing, overheads.snapshot)
    assert overheads.checkpoint_bytes > 4e5
    assert overheads.iterators is None
    assert Workload.model_validate(workload.model_dump()) == workload


def test_a_workload_says_its_backend_only_where_it_is_another() -> None:
    written = fit_workload(DATA / "mlp-torch.ndjson", "mine", accept_disturbed=True).model_dump()
    assert written["backend"] == "torch"
    load = {"use": "cnn-cpu", "batch_per_replica": 32}
    scenario = scenario_from_table({"workload": load, "cluster": {"use": "ethernet-10g"}, "strategy": {"kind": "single"}}, "test")
    assert "backend" not in scenario.workload.model_dump()


# -- real steps -------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_the_same_function_is_measured_under_each_backend(backend: str, tmp_path: Path) -> None:
    python = needs_backend(backend)
    path = profile_step(MLP, "mine", keras_backend=backend, batches=(16, 64), steps=10, python=python, folder=tmp_path, timeout_s=240)
    measured = read_measurements(path)
    assert measured.complete
    assert measured.fingerprint.backend == backend
    assert len({record.batch for record in measured.of(StepTime)}) == 2
    assert all(record.forward_s > 0 for record in measured.of(Split))
    assert {record.observed for record in measured.of(Ready)} == {backend == "torch"}
    assert len(measured.of(VariableRecord)) == 4
    assert not list(tmp_path.glob("*.checkpoints"))
    assert fit_workload(path, "mine", accept_disturbed=True).backend == backend


@pytest.mark.slow
def test_a_step_of_ones_own_is_seen_by_its_backward_pass(others: Path, tmp_path: Path) -> None:
    python = needs_backend("torch")
    path = profile_step(
        f"{others}:step", "mine", custom=True, keras_backend="torch", batches=(16, 64), steps=10, python=python, folder=tmp_path
    )
    workload = fit_workload(path, "mine", accept_disturbed=True)
    assert [variable.size_bytes for variable in workload.variables if variable.size_bytes > 5000] == [4 * 2560, 4 * 16384]
    assert "does not tell what it trains" in workload.provenance["unmeasured"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("backend", "function", "options", "said"),
    [
        ("jax", "no_model", {}, "model of Keras under jax.*not dict"),
        ("torch", "of_torch", {}, "model of Keras under torch.*not Linear of torch.*choose the backend"),
        ("jax", "step", {"custom": True}, "under JAX a compiled step"),
        ("jax", "no_model", {"jit": True}, "compiled by XLA in any case"),
        ("torch", "no_model", {"layers": True}, "`layers`: goes with TensorFlow alone"),
    ],
)
def test_what_is_not_to_be_had_is_refused_in_one_line(
    backend: str, function: str, options: dict[str, bool], said: str, others: Path, tmp_path: Path
) -> None:
    python = needs_backend(backend)
    with pytest.raises(InputError, match=said) as caught:
        profile_step(
            f"{others}:{function}", "mine", keras_backend=backend, python=python, folder=tmp_path / "measured", timeout_s=120, **options
        )
    assert "\n" not in str(caught.value)


@pytest.mark.slow
@pytest.mark.usefixtures("isolated")
def test_a_link_is_measured_by_all_reduces_over_gloo(tmp_path: Path) -> None:
    python = needs_backend("torch")
    path = profile_link("mine", carrier="gloo", sizes=(1024, 65536, 1048576), rounds=4, python=python, folder=tmp_path, timeout_s=120)
    records = read_measurements(path).of(Transfer)
    assert {(record.path, record.size_bytes, record.hops) for record in records} == {
        ("gloo", size / 2, 2 * count) for size in (1024, 65536, 1048576) for count in (1, 5)
    }
    cluster = fit_link(path, "mine")
    assert cluster.transport.software == "given"
    assert cluster.transport.cpu_per_message_s > 0
    assert "gloo" in cluster.description
