"""The workloads that Paceline brings along as measured are what their measurements say."""

from __future__ import annotations

from pathlib import Path

import pytest

import calibrate
from calibrate.fit.step import fit_workload
from simulator.catalogue.loading import load_workload

ROOT = Path(calibrate.__file__).parent.parent


MEASURED = pytest.mark.parametrize(("name", "folder"), [("cnn-cpu", ""), ("resnet-small-cpu", "resnet-small-cpu")])


@MEASURED
def test_the_example_is_fitted_from_its_measurements(name: str, folder: str) -> None:
    example = load_workload(ROOT / "models" / "workloads" / f"{name}.toml")
    files = [ROOT / "tests" / "calibrate" / "data" / folder / file for file in example.provenance["measurements"].split()]
    fitted = fit_workload(files, example.name)
    assert fitted.provenance["measurements_sha256"] == example.provenance["measurements_sha256"]
    # the examples were written before columns of matrices were noted
    assert tuple(its.model_copy(update={"columns": None}) for its in fitted.variables) == example.variables
    assert fitted.layers == example.layers
    assert fitted.jitter.kind == example.jitter.kind
    # other releases of scipy may end an iteration elsewhere
    assert fitted.compute_s(32) == pytest.approx(example.compute_s(32), rel=1e-4)
    assert fitted.apply_s == pytest.approx(example.apply_s, rel=1e-6)
    for fit, point in zip(fitted.fit.points, example.fit.points, strict=True):
        assert fit.mean_s == pytest.approx(point.mean_s, rel=1e-6)


@pytest.mark.parametrize("name", ["cnn-cpu", "resnet-small-cpu"])
def test_the_example_describes_its_measured_means(name: str) -> None:
    example = load_workload(ROOT / "models" / "workloads" / f"{name}.toml")
    for point in example.fit.points:
        assert example.compute_s(point.batch) + example.apply_s == pytest.approx(point.mean_s, rel=0.05)
    assert example.fit.relative_residual < 0.05
