"""Peak memory of a training step on the CPU, of one batch size in one process; runs in the user's Python and knows only TensorFlow.

A process has one peak, and what an allocator has once taken it keeps, so each batch size needs
a process of its own. One line of JSON on stdout:

``before_bytes``
    Resident memory when the model, the optimizer's slots and the batch are there.
``peak_bytes``
    The most that was resident (VmHWM of Linux) in some steps.
``variables_bytes``, ``outputs_bytes_per_sample``
    Of the model: all of its trainable variables, and what all of its layers hand on.
``xla_temporary_bytes``
    With ``--jit``: what XLA's buffer assignment sets aside for all that a step computes on its way, by its own report.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import glob
import json
import os
import re
import tempfile
from typing import Any

from _paceline_probes import training

STEPS = 3
_TEMPORARY = re.compile(r"^allocation \d+: size (\d+), preallocated-temp", re.MULTILINE)


def resident_bytes(which: str) -> int:
    """Of this process, now (``VmRSS``) or at most (``VmHWM``)."""
    with open("/proc/self/status", encoding="ascii") as file:
        for line in file:
            if line.startswith(which + ":"):
                return int(line.split()[1]) * 1024
    raise OSError("/proc/self/status has no " + which)


def settle() -> None:
    """Give back what was taken to build the model and the batch, and count the most from here on."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")  # proc(5): the peak becomes what is resident now


def temporary_bytes(folder: str) -> int:
    """The largest buffer of temporaries of any program that XLA has written of."""
    sizes = [0]
    for path in glob.glob(os.path.join(folder, "*buffer-assignment.txt")):
        with open(path, encoding="utf-8", errors="replace") as file:
            sizes += [int(size) for size in _TEMPORARY.findall(file.read())]
    return max(sizes)


def outputs_bytes(model: Any) -> float:
    """Bytes per sample of what all layers hand on, four each; 0 of a model that does not say its shapes."""
    total = 0.0
    for layer in model.layers:
        try:
            shape = layer.output.shape
        except AttributeError:
            continue
        size = 4.0
        for one in shape[1:]:
            size *= one or 1
        total += size
    return total


def main() -> int:
    """Build, step a few times, tell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, metavar="FILE.py:FUNCTION")
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--jit", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as dumped:
        if arguments.jit:
            os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_dump_hlo_as_text --xla_dump_to=" + dumped
        import tensorflow as tf

        built = training.load_function(arguments.model)()
        steps = training.ModelSteps(tf, built, False)
        # a model that is called with the batch to see what its targets must be would have taken as much as a step
        one = steps.batch_of(1)
        steps.batch_of = lambda batch: tf.nest.map_structure(lambda its: tf.repeat(its, batch, axis=0), one)
        step = steps.step(arguments.batch, "/CPU:0", arguments.jit)
        settle()
        before = resident_bytes("VmRSS")
        for _ in range(STEPS):
            step()
        found = {
            "batch": arguments.batch,
            "jit": arguments.jit,
            "onednn": os.environ.get("TF_ENABLE_ONEDNN_OPTS", "1") != "0",
            "optimizer": type(steps.optimizer).__name__,
            "before_bytes": before,
            "peak_bytes": resident_bytes("VmHWM"),
            "variables_bytes": sum(4 * int(one.shape.num_elements()) for one in steps.variables()),
            "outputs_bytes_per_sample": outputs_bytes(steps.model),
            "xla_temporary_bytes": temporary_bytes(dumped) if arguments.jit else None,
        }
    print(json.dumps(found))
    return 0
