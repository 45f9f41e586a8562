"""Records the steps of a Keras training, one line per step, for ``paceline watch`` and ``paceline validate``.

>>> from paceline.keras_callback import RecordSteps  # doctest: +SKIP
>>> model.fit(data, epochs=5, callbacks=[RecordSteps("run.ndjson", batch=32)])  # doctest: +SKIP

It runs in your Python (3.9 or newer) and needs only Keras; you can also copy the file next to your script.
``calibrate/recorded/rows.py`` reads the lines; names of fields and the version must agree.

Lines (JSON), in order of time; seconds come from one monotonic clock that starts with the header:

``header``
    Describes the training and the machine. A restarted training adds another header to the same file.
``step``
    ``step`` (the optimizer's count), ``end_s``, ``duration_s`` from Keras' begin to its end of the batch, input waiting included,
    ``between_s`` since the previous step without the time of marks, ``cpu_s`` of this process and ``sent_bytes``, ``received_bytes`` of
    the machine's network interfaces since the previous step. ``steps`` if one call runs several (``steps_per_execution``).
``machine``
    About once a second: how long the cores that this process may use were busy (``busy_s``), and busy with this process (``own_s``),
    since the previous line.
``mark``
    ``epoch``, ``evaluation``, ``checkpoint``, or your own name: an event between steps, with ``end_s`` and ``duration_s``.
``end``
    The training ended.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import platform
import socket
import statistics
import sys
import time

try:
    import keras
except ImportError:  # TensorFlow up to 2.15 may have Keras inside
    from tensorflow import keras

FORMAT = "paceline-steps"
SCHEMA_VERSION = 1
_COUNTERS = "/proc/net/dev"
_MACHINE_EACH_S = 1.0


class RecordSteps(keras.callbacks.Callback):
    """Write a line for each step of ``model.fit``; a killed training loses at most its current step.

    Parameters
    ----------
    path
        The file (NDJSON); lines are added to an existing file. None writes none.
    workers
        Worker processes of the training; None: those of TF_CONFIG, or one.
    batch
        Samples per worker and step; None: unknown.
    worker
        Index of this process among the workers, from 0; None: as TF_CONFIG says. Each worker needs its own file.
    points
        A table (CSV) that gets the line ``workers,batch,throughput`` when the training ends; of several workers only the chief needs it.

    Attributes
    ----------
    rates
        Steps/s of each finished epoch, without its first step, which traces the graph or fills the input pipeline.
    """

    def __init__(self, path=None, workers=None, batch=None, worker=None, points=None):
        super().__init__()
        if path is None and points is None:
            raise ValueError("RecordSteps: give a path, or points, or both")
        if points is not None and batch is None:
            raise ValueError("RecordSteps: points needs batch, the samples of a worker's step")
        self.path, self.points = path, points
        of_all, own = _of_tf_config()
        self.workers, self.batch = of_all if workers is None else workers, batch
        self.worker = own if worker is None else worker
        self.rates = []
        self._file = self._net = None
        self._nesting = 0
        self._wrapped = []

    # -- what Keras calls

    def on_train_begin(self, logs=None):
        """Open the file, and write the header."""
        self.rates = []
        self._begun = self._ended = time.perf_counter()
        self._step = _iterations(self.model)
        self._last_batch = -1
        self._away = self._inside = self._nesting = 0
        self._cpu, self._bytes = time.process_time(), (0, 0)
        if self.path is None:
            return
        self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        with contextlib.suppress(OSError):  # only Linux tells
            self._net = os.open(_COUNTERS, os.O_RDONLY)
        self._bytes, interfaces = self._counters()
        self._looked, self._busy, self._own = self._begun, _busy_s(), self._cpu
        self._write(_header(self.model, interfaces, workers=self.workers, batch=self.batch, worker=self.worker), begin=True)
        self._wrap("save")
        self._wrap("save_weights")

    def on_epoch_begin(self, epoch, logs=None):
        """Reset the count of the epoch's steps."""
        self._last_batch, self._first = -1, None
        self._mark("epoch", 0.0)

    def on_train_batch_begin(self, batch, logs=None):
        """Record the begin of a step."""
        self._inside = 0.0
        self._started = time.perf_counter()

    def on_train_batch_end(self, batch, logs=None):
        """Record the end of a step, or of the steps of one call."""
        now = time.perf_counter()
        steps = max(batch - self._last_batch, 1)
        self._last_batch = batch
        self._step += steps
        if self._first is None:
            self._first = (batch, now)
        self._last = (batch, now)
        if self._file is not None:
            cpu, ((sent, received), _) = time.process_time(), self._counters()
            line = {
                "kind": "step",
                "step": self._step,
                "end_s": round(now - self._begun, 7),
                "duration_s": round(now - self._started - self._inside, 7),
                "between_s": round(max(self._started - self._ended - (self._away - self._inside), 0.0), 7),
                "cpu_s": round(cpu - self._cpu, 6),
                "sent_bytes": sent - self._bytes[0],
                "received_bytes": received - self._bytes[1],
            }
            if steps > 1:
                line["steps"] = steps
            self._write(line)
            self._cpu, self._bytes = cpu, (sent, received)
            if now - self._looked >= _MACHINE_EACH_S:
                self._look(now, cpu)
        self._ended, self._away = now, 0.0

    def on_epoch_end(self, epoch, logs=None):
        """Record the epoch's rate."""
        if self._first is None:  # without data
            return
        (first, began), (last, ended) = self._first, self._last
        if last > first:
            self.rates.append((last - first) / (ended - began))
            summary = getattr(sys.modules.get("tensorflow"), "summary", None)
            if summary is not None:  # nothing is written unless the training has a default writer
                summary.scalar("steps_per_s", self.rates[-1], step=epoch)

    def on_test_begin(self, logs=None):
        """Record the begin of an evaluation."""
        self._tested = time.perf_counter()

    def on_test_end(self, logs=None):
        """Record the end of an evaluation."""
        if self._file is not None:
            self._mark("evaluation", time.perf_counter() - self._tested)

    def on_train_end(self, logs=None):
        """Record the end of the training, and add the line of the run."""
        if self._file is not None:
            for name in self._wrapped:
                self.model.__dict__.pop(name, None)
            self._write({"kind": "end", "end_s": round(time.perf_counter() - self._begun, 7)})
            os.close(self._file)
            if self._net is not None:
                os.close(self._net)
            self._file, self._net, self._wrapped = None, None, []
        if self.points is not None and self.rates:
            throughput = statistics.harmonic_mean(self.rates) * self.workers * self.batch
            with open(self.points, "a", encoding="utf-8") as file:
                file.write("" if file.tell() else "workers,batch,throughput\n")
                file.write(f"{self.workers},{self.batch},{throughput}\n")

    # -- what a custom training may call

    @contextlib.contextmanager
    def between(self, what):
        """Mark the block as time between steps, such as ``with recorder.between("checkpoint"): ...``."""
        begun = time.perf_counter()
        self._nesting += 1
        try:
            yield
        finally:
            self._nesting -= 1
            if self._file is not None and not self._nesting:
                self._mark(what, time.perf_counter() - begun)

    # -- how

    def _mark(self, what, duration_s):
        self._away += duration_s
        self._inside += duration_s
        if self._file is not None:
            now = time.perf_counter() - self._begun
            self._write({"kind": "mark", "what": what, "end_s": round(now, 7), "duration_s": round(duration_s, 7)})

    def _wrap(self, name):
        """Mark a checkpoint whenever the model is saved, for which Keras calls no callback."""
        plain = getattr(self.model, name, None)
        if plain is None or name in self.model.__dict__:
            return

        def save(*args, **named):
            with self.between("checkpoint"):
                return plain(*args, **named)

        self.model.__dict__[name] = save  # not by setattr: Keras would track it
        self._wrapped.append(name)

    def _write(self, line, begin=False):
        """Write a line with one system call, so that it survives a kill of this process."""
        text = json.dumps(line) + "\n"
        if begin and not _ends_with_newline(self.path):  # a training before was killed while it wrote
            text = "\n" + text
        os.write(self._file, text.encode())

    def _look(self, now, cpu):
        busy = _busy_s()
        if busy is not None and self._busy is not None:
            seen = {"end_s": round(now - self._begun, 7), "busy_s": round(busy - self._busy, 3), "own_s": round(cpu - self._own, 3)}
            self._write({"kind": "machine", **seen})
        self._looked, self._busy, self._own = now, busy, cpu

    def _counters(self):
        """Return bytes (sent, received) of the machine's interfaces since boot, and their names."""
        if self._net is None:
            return (0, 0), []
        with contextlib.suppress(OSError, ValueError, IndexError):
            rows = [line.split(":") for line in os.pread(self._net, 65536, 0).decode().splitlines()[2:]]
            counted = [(name.strip(), values.split()) for name, values in rows]
            # loopback is no network, unless there is nothing else
            real = [row for row in counted if row[0] != "lo" and (int(row[1][0]) or int(row[1][8]))] or counted
            return (sum(int(row[1][8]) for row in real), sum(int(row[1][0]) for row in real)), [row[0] for row in real]
        return self._bytes, []


def _of_tf_config():
    """Return the number of workers in TF_CONFIG, chief included, and this process's index; (1, 0) without TF_CONFIG."""
    with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
        told = json.loads(os.environ.get("TF_CONFIG", ""))
        chiefs = len(told["cluster"].get("chief", ()))
        workers = chiefs + len(told["cluster"].get("worker", ()))
        place = int(told["task"]["index"]) + (chiefs if told["task"]["type"] == "worker" else 0)
        if place < workers:
            return workers, place
    return 1, 0


def _header(model, interfaces, **told):
    tf = sys.modules.get("tensorflow")
    devices = []
    if tf is not None:
        for device in tf.config.list_physical_devices("GPU"):
            with contextlib.suppress(Exception):
                devices.append(str(tf.config.experimental.get_device_details(device).get("device_name", "GPU")))
    return {
        "kind": "header",
        "format": FORMAT,
        "schema_version": SCHEMA_VERSION,
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        **told,
        "hostname": socket.gethostname(),
        "pid": os.getpid(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        "cpu": _cpu_model(),
        "devices": devices,
        "interfaces": interfaces,
        "model": str(getattr(model, "name", "")),
        "parameters": _parameters(model),
        "python": platform.python_version(),
        "tensorflow": str(getattr(tf, "__version__", "")),
        "keras": str(getattr(keras, "__version__", "")),
    }


def _parameters(model):
    """Return the number of trainable parameters; None if the model is not built yet."""
    try:
        return sum(math.prod(map(int, variable.shape)) for variable in model.trainable_variables)
    except Exception:
        return None


def _iterations(model):
    """Return the optimizer's count of steps, which a resumed training continues."""
    try:
        iterations = model.optimizer.iterations
        return int(iterations.numpy() if hasattr(iterations, "numpy") else iterations)
    except Exception:
        return 0


def _busy_s():
    """Return busy seconds of this process's cores since boot; None if the system does not report them."""
    try:
        cores = os.sched_getaffinity(0)
        with open("/proc/stat", encoding="ascii") as lines:
            rows = [line.split() for line in lines if line.startswith("cpu") and line[3:4].isdigit()]
        # user nice system idle iowait irq softirq steal; what guests take is in user already
        ticks = [sum(map(int, row[1:4])) + sum(map(int, row[6:9])) for row in rows if int(row[0][3:]) in cores]
        return sum(ticks) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, AttributeError):
        return None


def _cpu_model():
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as lines:
        for line in lines:
            if line.lower().startswith(("model name", "hardware", "cpu model")):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _ends_with_newline(path):
    with open(path, "rb") as file:
        file.seek(0, os.SEEK_END)
        if not file.tell():
            return True
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"
