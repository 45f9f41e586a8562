"""A probe that goes wrong: one clear line, the right kind of error, and nothing lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from support.needs import needs_tensorflow
from support.waiting import PATIENCE_S, until

import calibrate
from calibrate import probing
from calibrate.fit.step import fit_workload
from calibrate.measurements import StepTime, read_measurements
from calibrate.profiling import profile_step
from simulator.base.errors import CalibrationError, InputError

pytestmark = [needs_tensorflow, pytest.mark.usefixtures("warm_probes")]

ROOT = Path(calibrate.__file__).parent.parent

BROKEN = """
import tensorflow as tf

def raises():
    raise ValueError("no weights\\nfor this model")

def nothing():
    return None

def dies():
    import os
    os.kill(os.getpid(), 9)

def midway(batch):
    x, w = tf.ones([batch, 8]), tf.Variable(tf.ones([8, 1]))
    done = [0]
    @tf.function
    def once():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.matmul(x, w))
        w.assign_sub(tape.gradient(loss, [w])[0])
        return loss
    def step():
        done[0] += 1
        if batch == 4 and done[0] > 150:  # longer than any warm-up
            raise RuntimeError("the data ran out")
        return once()
    return step

def no_tape(batch):
    x = tf.ones([batch, 8])
    return lambda: tf.reduce_sum(x)

def no_callable(batch):
    return batch

def leaves(batch_size=1):
    raise SystemExit(3)
"""


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    path = tmp_path / "broken.py"
    path.write_text(BROKEN)
    return path


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.ndjson"))


@pytest.mark.parametrize(
    ("function", "custom", "said"),
    [
        ("raises", False, "ValueError at .*broken.py:5: no weights for this model; nothing had been measured"),
        ("nothing", False, "TypeError: the function must return a Keras model or .*not NoneType"),
        ("no_callable", True, "TypeError: the step function must return a callable .*not int"),
        ("no_tape", True, "no gradient was seen.*tf.GradientTape; the measured part is kept in"),
        ("dies", False, "was killed by signal 9"),
        ("leaves", False, "SystemExit at .*broken.py:[0-9]+: your code ended the process, with 3"),
    ],
)
def test_what_the_users_code_did_is_said_in_one_line(broken: Path, tmp_path: Path, function: str, custom: bool, said: str) -> None:
    with pytest.raises(CalibrationError, match=said) as caught:
        profile_step(f"{broken}:{function}", "broken", custom=custom, batches=(2, 4), steps=5, folder=tmp_path, timeout_s=PATIENCE_S)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("no such\nfile", "no such file"),
        (
            "in user code:\n\n    File \"a.py\", line 3, in call\n        x = y\n\n    ValueError: Bad input\n\n"
            "    Arguments received by Dense.call():\n      • inputs=tf.Tensor\n      • kwargs=<class 'inspect._empty'>",
            "ValueError: Bad input",
        ),
        (
            "Graph execution error:\n\nDetected at node while/cond defined at (most recent call):\n  File \"<frozen runpy>\", line 198\n"
            "...\n  File \"b.py\", line 3\nReceived a label value of 7 outside of [0, 3)\n\t [[{{node while/cond}}]] [Op:__inference_7]",
            "Received a label value of 7 outside of [0, 3)",
        ),
        ("Graph execution error:\n\nDetected at node x", "Graph execution error:"),
        ("{{function_node __wrapped__Cast_device_/job:localhost}} Cast string to float is not supported [Op:Cast] name: ",
         "Cast string to float is not supported"),
        ("\x1b[1mInput 0 is incompatible.\x1b[0m\n\nArguments received by Model.call():\n  • x", "Input 0 is incompatible."),
    ],
)  # fmt: skip
def test_what_tensorflow_and_keras_say_is_cut_down_to_what_was_wrong(message: str, said: str) -> None:
    assert probing._one_line(message) == said


def test_the_last_line_is_none_that_tensorflow_always_logs() -> None:
    logged = b"I0000 00:00:1 1 cudart_stub.cc:31] Could not find cuda drivers\n2026-01-01 00:00:00.1 W tensorflow/core: no GPU\n"
    assert probing._last_line(b"it broke\n" + logged, "nothing") == "it broke"
    assert probing._last_line(logged, "nothing") == "nothing"


def test_what_was_measured_before_a_failure_is_kept(broken: Path, tmp_path: Path) -> None:
    with pytest.raises(CalibrationError, match=r"RuntimeError at .*: the data ran out; the measured part is kept in"):
        profile_step(f"{broken}:midway", "midway", custom=True, batches=(2, 4), steps=200, folder=tmp_path, timeout_s=PATIENCE_S)
    (path,) = _files(tmp_path)
    measured = read_measurements(path)
    assert not measured.complete
    assert len(measured.of(StepTime)) >= 10
    with pytest.raises(CalibrationError, match="no step split"):
        fit_workload(path, "midway", accept_disturbed=True)


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("{}:absent", "has no function 'absent'; it has .*raises"),
        ("{}", "must be a file and a function in it"),
        ("nowhere.py:build", "there is no such file"),
        ("{}:not-a-name", "must be a file and a function in it"),
    ],
)
def test_a_target_that_is_not_there(broken: Path, tmp_path: Path, target: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        profile_step(target.format(broken), "absent", batches=(2, 4), folder=tmp_path, timeout_s=PATIENCE_S)
    assert not _files(tmp_path)


def test_a_device_that_is_not_there(broken: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"`device`: 'GPU:99'.*TensorFlow sees \d+ GPU"):
        profile_step(f"{broken}:midway", "gpu", custom=True, batches=(2, 4), device="GPU:99", folder=tmp_path, timeout_s=PATIENCE_S)


def test_a_python_without_tensorflow(broken: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bare-python"
    # isolated and without site-packages: TensorFlow cannot be found
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "$@"\n')
    bare.chmod(0o755)
    with pytest.raises(CalibrationError, match=r"cannot import TensorFlow .*pip install 'paceline\[tensorflow\]'"):
        profile_step(f"{broken}:raises", "bare", batches=(2, 4), python=str(bare), folder=tmp_path, timeout_s=PATIENCE_S)


@pytest.mark.parametrize("python", ["/no/such/python", "/etc/hostname"])
def test_a_python_that_is_none(broken: Path, tmp_path: Path, python: str) -> None:
    with pytest.raises(InputError, match=r"`python`: .* cannot be run"):
        profile_step(f"{broken}:raises", "none", batches=(2, 4), python=python, folder=tmp_path, timeout_s=PATIENCE_S)


@pytest.mark.parametrize("batches", [(16,), (16, 16), (0, 16), (-1, 2), ()])
def test_batches_that_give_no_curve(broken: Path, tmp_path: Path, batches: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="`batches="):
        profile_step(f"{broken}:raises", "few", batches=batches, folder=tmp_path)


def test_ctrl_c_stops_the_child_and_keeps_the_file(broken: Path, tmp_path: Path) -> None:
    over = threading.Event()

    def interrupt_when_measuring() -> None:
        until(lambda: over.is_set() or any('"kind": "step"' in path.read_text() for path in _files(tmp_path)))
        if not over.is_set():
            os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt_when_measuring, daemon=True).start()
    options: dict[str, Any] = {"custom": True, "batches": (2, 8), "steps": 100_000, "folder": tmp_path, "timeout_s": PATIENCE_S}
    try:
        with pytest.raises(KeyboardInterrupt):
            profile_step(f"{broken}:midway", "ctrl-c", **options)
    finally:
        over.set()
    (path,) = _files(tmp_path)
    running = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert str(path) not in running
    assert not read_measurements(path).empty
