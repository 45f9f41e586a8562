"""Replays of schedules with real gradients, against plain training, and against the theory of SGD with delays."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.linalg import solve_discrete_lyapunov
from support.needs import needs_tensorflow
from support.probes import run_script
from support.waiting import PATIENCE_S

from calibrate.learning import Curve, Phase, ReplayedRun, problem_of, replay, target_of
from simulator.base.errors import CalibrationError, InputError
from simulator.engine.schedule import ALL, Schedule

pytestmark = [pytest.mark.slow, needs_tensorflow, pytest.mark.usefixtures("warm_probes")]

HERE = Path(__file__).parent / "problems"
MODELS, QUADRATIC = HERE / "models.py", HERE / "quadratic.py"


def together(updates: int, workers: int, averaged: int | None = None, every: int = 1, neighbours: int = 0) -> Schedule:
    """All make each update together."""
    none = np.zeros((updates, 0), np.int64)
    averaged = workers if averaged is None else averaged
    return Schedule(workers, averaged, every, neighbours, np.arange(1.0, updates + 1), np.full(updates, ALL), none, none)


def delayed(updates: int, delay: int, servers: int = 1) -> Schedule:
    """Each update is applied after as many others as have been read with it."""
    applied = np.repeat(np.arange(updates)[:, None], servers, 1)
    return Schedule(
        delay + 1, 1, 1, 0, np.arange(1.0, updates + 1), np.arange(updates) % (delay + 1), np.maximum(applied - delay, 0), applied
    )


def learned(problem: str, folder: Path, *runs: tuple[Schedule, int], checkpoints: int = 10, seed: int = 5, **phase) -> tuple[Curve, ...]:
    asked = [ReplayedRun(seed, (Phase(its, len(its), batch, checkpoints=checkpoints, **phase),)) for its, batch in runs]
    return replay(problem, asked, folder)


def losses(curve: Curve) -> list[float]:
    return [point.metrics["loss"] for point in curve.points]


# -- against plain training -----------------------------------------------------------------

PLAIN = """
import importlib.util, json, sys
import keras, numpy as np, tensorflow as tf
tf.config.experimental.enable_op_determinism()
file, name, seed, batch, steps, every = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
spec = importlib.util.spec_from_file_location("models", file)
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
keras.utils.set_random_seed(seed)
model, (x, y), (valid_x, valid_y) = getattr(module, name)()
rng = np.random.default_rng(seed)
order = np.concatenate([rng.permutation(len(x)) for _ in range(steps * batch // len(x) + 1)])
model.optimizer.build(model.trainable_variables)

@tf.function
def step(x, y):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(model.loss(y, model(x, training=True)))
    model.optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))

found = []
for number in range(steps + 1):
    if number % every == 0:
        found.append(float(tf.reduce_mean(model.loss(valid_y, model(valid_x, training=False)))))
    rows = order[number * batch : (number + 1) * batch]
    if number < steps:
        step(tf.gather(x, rows), tf.gather(y, rows))
print(json.dumps(found))
"""


def plain(name: str, *, batch: int, steps: int, every: int, seed: int = 5) -> list[float]:
    """Losses of a plain loop of Keras on one device."""
    done = run_script(PLAIN, str(MODELS), name, str(seed), str(batch), str(steps), str(every), timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", [pytest.param("sgd", marks=pytest.mark.long), pytest.param("momentum", marks=pytest.mark.long), "adam"])
def test_without_staleness_it_is_plain_training_bit_for_bit(name, tmp_path):
    runs = (together(60, 1), 16), (delayed(60, 0), 16), (delayed(60, 0, servers=3), 16), (delayed(60, 0, servers=7), 16)
    curves = learned(f"{MODELS}:{name}", tmp_path, *runs)
    want = plain(name, batch=16, steps=60, every=6)
    assert want[-1] < 0.95 * want[0]
    assert [losses(curve) for curve in curves] == [want] * 4


def test_several_workers_together_are_one_with_as_large_a_batch(tmp_path):
    runs = (together(40, 4), 8), (together(40, 1), 32), (together(40, 4, averaged=2), 8)
    many, one, dropped = learned(f"{MODELS}:momentum", tmp_path, *runs)
    assert losses(many) == pytest.approx(losses(one), rel=1e-5)
    assert [point.samples for point in many.points] == [point.samples for point in one.points]
    # half of the gradients are thrown away: it is another training, of as many samples
    assert losses(dropped)[1:] != pytest.approx(losses(one)[1:], rel=1e-3)
    assert dropped.points[-1].samples == 40 * 32


def test_copies_of_their_own_learn_nearly_the_same(tmp_path):
    runs = (together(30, 4), 8), (together(15, 4, every=2), 8), (together(30, 3, neighbours=2), 8), (together(30, 3), 8)
    sync, local, gossip, three = learned(f"{MODELS}:sgd", tmp_path, *runs)
    assert local.points[-1].samples == sync.points[-1].samples == 960
    assert losses(local)[-1] == pytest.approx(losses(sync)[-1], rel=0.1)
    assert losses(local)[-1] != losses(sync)[-1]
    # three on a circle are each other's neighbours: all have the mean, plus a step of their own, so their mean goes as all together
    assert losses(gossip)[-1] == pytest.approx(losses(three)[-1], rel=0.05)


def test_what_is_normalised_over_a_batch_is_computed_batch_by_batch(tmp_path):
    joined, single = learned(f"{MODELS}:normalised", tmp_path, (together(30, 4), 8), (together(30, 1), 32))
    assert losses(joined) != pytest.approx(losses(single), rel=1e-3)
    assert losses(joined)[-1] == pytest.approx(losses(single)[-1], rel=0.3)


# -- against theory: f(w) = w^2 / 2 --------------------------------------------------------------


def at_rates(problem: str, folder: Path, *runs: tuple[Schedule, float], checkpoints: int, batch: int = 1) -> tuple[Curve, ...]:
    """Curves of schedules, each at a rate of its own."""
    asked = [ReplayedRun(5, (Phase(its, len(its), batch, rate, checkpoints=checkpoints),)) for its, rate in runs]
    return replay(problem, asked, folder)


@pytest.mark.parametrize("delays", [(3,), pytest.param((1, 8), marks=pytest.mark.long)])
def test_stability_with_a_constant_delay(delays, tmp_path):
    """w' = w - q w(t - delay) is stable below q = 2 sin(pi / (2 (2 delay + 1))) (Levin and May 1976)."""
    cases = [(delay, share) for delay in delays for share in (0.95, 1.05)]
    limits = {delay: 2.0 * np.sin(np.pi / (2 * (2 * delay + 1))) for delay, _ in cases}
    runs = [(delayed(600, delay), share * limits[delay]) for delay, share in cases]
    for curve, (delay, share) in zip(at_rates(f"{QUADRATIC}:exact", tmp_path, *runs, checkpoints=600), cases, strict=True):
        root = np.abs(np.roots([1.0, -1.0, *[0.0] * (delay - 1), share * limits[delay]])).max()  # z^(delay + 1) = z^delay - q
        assert (root > 1) == (share > 1)
        # between validations the two roots on either side turn, so that the size of w swings
        windows = np.array(losses(curve)[1:]).reshape(10, -1).max(axis=1)
        assert np.log(windows[-1] / windows[4]) == pytest.approx(2 * np.log(root) * 300, rel=0.1)


def test_a_staleness_aware_rate_is_divided_by_the_staleness(tmp_path):
    asked = [ReplayedRun(5, (Phase(delayed(300, 4), 300, 1, rate, aware, 10),)) for rate, aware in ((0.4, True), (0.1, False))]
    aware, divided = replay(f"{QUADRATIC}:exact", asked, tmp_path)
    # the first updates are less stale, and so larger
    assert losses(aware)[-1] == pytest.approx(0, abs=1e-6)
    assert losses(divided)[-1] == pytest.approx(0, abs=1e-6)
    assert losses(aware) != losses(divided)


def _floor(rate: float, delay: int, batch: int) -> float:
    """Stationary mean of w^2 / 2 for w' = w - rate (w(t - delay) + noise), noise of variance 1 / batch."""
    size = delay + 1
    step = np.eye(size, k=-1)
    step[0, 0] = 1.0
    step[0, -1] -= rate
    noise = np.zeros((size, size))
    noise[0, 0] = rate**2 / batch
    return float(solve_discrete_lyapunov(step, noise)[0, 0]) / 2.0


@pytest.mark.parametrize("cases", [[(0.1, 6)], pytest.param([(0.1, 0), (0.03, 12)], marks=pytest.mark.long)])
def test_noise_floor_against_rate_and_delay(cases, tmp_path):
    assert _floor(0.1, 0, 2) == pytest.approx(0.1 / (2 - 0.1) / 2 / 2)
    runs = [(delayed(30_000, delay), rate / 0.1) for rate, delay in cases]
    for curve, (rate, delay) in zip(at_rates(f"{QUADRATIC}:noisy", tmp_path, *runs, checkpoints=1500, batch=2), cases, strict=True):
        measured, want = np.array(losses(curve)[150:]), _floor(rate, delay, 2)
        blocks = measured[: len(measured) // 20 * 20].reshape(20, -1).mean(axis=1)
        assert abs(measured.mean() - want) < 3.5 * blocks.std(ddof=1) / np.sqrt(20), (rate, delay)
        assert measured.mean() == pytest.approx(want, rel=0.15)


# -- what goes wrong, and what is kept -----------------------------------------------------------------


def test_a_run_that_diverges_is_marked_and_the_others_go_on(tmp_path):
    bad, worse = learned(f"{MODELS}:diverging", tmp_path, (together(40, 1), 16), (delayed(40, 2), 16))
    assert bad.diverged
    assert worse.diverged
    assert len(bad.points) < 11
    assert "loss" not in bad.points[-1].metrics
    assert "loss" in bad.points[0].metrics


def test_runs_are_replayed_once(tmp_path):
    first = learned(f"{MODELS}:sgd", tmp_path, (together(20, 2), 8))
    files = sorted(tmp_path.glob("*.ndjson"))
    again = learned(f"{MODELS}:sgd", tmp_path, (together(20, 2), 8))
    assert again == first
    assert sorted(tmp_path.glob("*.ndjson")) == files
    more = learned(f"{MODELS}:sgd", tmp_path, (together(20, 2), 8), (together(20, 4), 8))
    assert more[0] == first[0]
    assert len(list(tmp_path.glob("*.ndjson"))) == len(files) + 1
    # the same in another process, though several compute at once
    apart = replay(f"{MODELS}:sgd", [ReplayedRun(5, (Phase(together(20, count), 20, 8, checkpoints=10),)) for count in (2, 4)],
                   tmp_path / "other", jobs=2)  # fmt: skip
    assert apart == more


def test_what_was_replayed_before_it_was_killed_is_kept(tmp_path):
    runs = (together(20, 2), 8), (together(20, 4), 8)
    whole = learned(f"{MODELS}:sgd", tmp_path, *runs)
    (file,) = tmp_path.glob("*.ndjson")
    lines = file.read_bytes().splitlines(keepends=True)
    first = next(number for number, line in enumerate(lines) if b'"replayed"' in line)
    file.write_bytes(b"".join(lines[: first + 4]) + lines[first + 4][:20])  # in the middle of the second run's curve
    assert learned(f"{MODELS}:sgd", tmp_path, *runs) == whole
    (added,) = set(tmp_path.glob("*.ndjson")) - {file}
    assert added.read_bytes().count(b'"replayed"') == 1
    assert file.read_bytes().count(b'"replayed"') == 1


def test_one_schedule_after_the_other(tmp_path):
    phases = Phase(together(10, 2), 10, 8, checkpoints=5), Phase(delayed(20, 1), 20, 8, checkpoints=5)
    (both,) = replay(f"{MODELS}:momentum", [ReplayedRun(5, phases)], tmp_path)
    (whole,) = learned(f"{MODELS}:momentum", tmp_path, (together(10, 2), 8), checkpoints=5)
    assert both.points[:6] == tuple(point.model_copy(update={"run": both.points[0].run}) for point in whole.points)
    assert [point.updates for point in both.points] == [0, 2, 4, 6, 8, 10, 14, 18, 22, 26, 30]
    assert [point.time_s for point in both.points][-1] == 30.0
    assert both.points[-1].samples == 10 * 16 + 20 * 8


def test_a_problem_says_what_it_is(tmp_path):
    its = problem_of(f"{MODELS}:adam", tmp_path)
    assert (its.samples, its.validation_samples, its.parameters, its.optimizer) == (192, 64, 6 * 16 + 16 + 34, "Adam")
    assert problem_of(f"{MODELS}:adam", tmp_path) == its
    assert len(list(tmp_path.glob("*.ndjson"))) == 1


@pytest.mark.parametrize(
    ("function", "error", "text"),
    [
        ("no_data", InputError, r"must return \(model, \(x, y\), \(x, y\)\).*not a Sequential"),
        ("not_compiled", InputError, "this model is not compiled with both"),
        ("missing", InputError, "has no function 'missing'"),
        ("raising", CalibrationError, "RuntimeError at .*models.py.*this layer does not train"),
    ],
)
def test_a_problem_that_cannot_be_learned(function, error, text, tmp_path):
    with pytest.raises(error, match=text):
        learned(f"{MODELS}:{function}", tmp_path, (together(4, 1), 8))


def test_an_unknown_metric_or_problem(tmp_path):
    run = ReplayedRun(0, (Phase(together(4, 1), 4, 8),))
    with pytest.raises(InputError, match="has no metric 'f1'; it has loss, accuracy, recall, average_precision"):
        replay(f"{MODELS}:sgd", [run], tmp_path, metric="f1")
    with pytest.raises(InputError, match="did you mean digits-mlp"):
        target_of("digit-mlp")
    with pytest.raises(InputError, match=r"none\.py: there is no such file"):
        problem_of("none.py:build", tmp_path)
