"""Times a tf.data pipeline as its consumer sees it; runs in the user's Python and knows only TensorFlow.

``--input FILE.py:NAME``: NAME is a ``tf.data.Dataset``, or a function that returns one and may take any of

``num_parallel_calls``
    Of its ``map``: given 1, 2, 4, ... in turn. Without it the threads that the pipeline may use are varied.
``batch``
    Samples of a batch: given each of ``--batches`` in turn.
``prefetch``, ``cache``
    Left as they are; given 1 and True where they have no default.

Each stretch begins with a fresh iterator, drops its first batches, and times the next ones at full speed, with nobody who
works on them. Where the pipeline caches, whole epochs are timed: the first, and two more.

calibrate/profiling.py gives the flags; calibrate/measurements.py has the records that go to ``--out``.
"""

from __future__ import annotations

import inspect
import itertools
import logging
import re
import time
from typing import Any

from . import machine, recording, training
from .recording import Recorder, UsageError, progress

DROPPED = 3
FEWEST = 5
"""Batches of a stretch, whatever time they take."""
LATER_EPOCHS = 2
DEFAULT_BATCHES = (16, 32, 64)
MOST_CALLS_WAITING = 8
"""Calls at a time, where they wait instead of computing, so that they need no cores."""
WAITING = 0.5
LONGEST_PAUSE_S = 3.0
MOST_AHEAD = 20


_GIVEN = {"prefetch": 1, "cache": True, "num_parallel_calls": 1}
"""To a function that asks for it, and has no default."""


class Source:
    """The user's pipeline, created again for each measurement if it caches or takes parameters."""

    def __init__(self, tf: Any, target: str) -> None:
        self.tf, self.target = tf, target
        self.made = 0
        self.loaded = self._load()
        self.takes: set[str] = set()
        self.filled: dict[str, Any] = {}
        if not isinstance(self.loaded, tf.data.Dataset):
            parameters = inspect.signature(self.loaded).parameters
            collecting = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
            required = {name for name, each in parameters.items() if each.default is each.empty and each.kind not in collecting}
            known = {"num_parallel_calls", "prefetch", "batch", "cache"}
            self.takes = set(parameters) & known
            self.filled = {name: value for name, value in _GIVEN.items() if name in required}
            if required - known:
                odd = ", ".join(sorted(required - known))
                raise UsageError(
                    f"{target}: takes {odd}; it may take num_parallel_calls, prefetch, batch and cache, and everything else needs a default"
                )

    def _load(self) -> Any:
        module, name = training.load_module(self.target, f"_{self.made}" if self.made else "")
        self.made += 1
        source, dataset = getattr(module, name, None), self.tf.data.Dataset
        if not isinstance(source, dataset) and not callable(source):
            functions = {key for key, value in vars(module).items() if inspect.isfunction(value) and not key.startswith("_")}
            known = [key for key, value in vars(module).items() if key in functions or isinstance(value, dataset)]
            why = f"has no {name!r}" if source is None else f"{name!r} is a {type(source).__name__}, not a tf.data.Dataset or a function"
            raise UsageError(f"{self.target.rpartition(':')[0]}: {why}; it has {', '.join(known[:10]) or 'none'}")
        return source

    def make(self, batch: int | None, calls: int | None, fresh: bool) -> Any:
        """The data set; where it takes no number of calls, its threads are as many."""
        tf = self.tf
        if isinstance(self.loaded, tf.data.Dataset):
            made = self._load() if fresh else self.loaded
        else:
            arguments = dict(self.filled)
            if "batch" in self.takes:
                arguments["batch"] = batch
            if "num_parallel_calls" in self.takes and calls is not None:
                arguments["num_parallel_calls"] = calls
            made = self.loaded(**arguments)
            if not isinstance(made, tf.data.Dataset):
                raise UsageError(f"{self.target}: returns a {type(made).__name__}; it must return a tf.data.Dataset")
        if calls is not None and "num_parallel_calls" not in self.takes:
            options = tf.data.Options()
            options.threading.private_threadpool_size = calls
            made = made.with_options(options)
        return made

    def accounted(self, batch: int | None, calls: int, fresh: bool) -> Any | None:
        """The data set with autotuning on, so that tf.data counts what its stages take.

        None where it is on anyway, and no cache (``fresh``) hides stages.

        An iterator has a model of its stages only while autotuning is on (RootDataset in tensorflow/core/data). Numbers of
        calls that the pipeline gives stay fixed: only AUTOTUNE ones are tuned.
        """
        tf = self.tf
        made = self.make(batch, calls, fresh=fresh)
        if made.options().autotune.enabled is not False and not fresh:
            return None
        options = tf.data.Options()
        options.autotune.enabled = True
        options.experimental_optimization.inject_prefetch = False  # never done without autotuning
        logging.disable(logging.WARNING)  # tf.data warns of each option that changes
        try:
            return made.with_options(options)
        finally:
            logging.disable(logging.NOTSET)


def _value(tensor: Any) -> Any:
    try:
        value = tensor.numpy()
    except (AttributeError, NotImplementedError):  # of a graph, not known here
        return None
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else int(value)


def stages(dataset: Any) -> list[dict[str, Any]]:
    """The stages of a pipeline, from its consumer to its sources, with the sizes that it was given; -1 is AUTOTUNE."""
    rows: list[dict[str, Any]] = []
    seen: set[int] = set()
    waiting = [dataset]
    while waiting:
        stage = waiting.pop(0)
        if id(stage) in seen:
            continue
        seen.add(id(stage))
        name = type(stage).__name__.strip("_").replace("DatasetV2", "").replace("Dataset", "")
        row: dict[str, Any] = {"name": name or "Dataset"}
        for key in ("buffer_size", "num_parallel_calls", "batch_size", "count", "filename"):
            value = _value(getattr(stage, "_" + key, None))
            if value is not None:
                row[key] = value
        if name == "Repeat":
            row["elements"] = int(_value(stage._input_dataset.cardinality()) or -1)
        if name not in ("Options", "Variant"):
            rows.append(row)
        waiting += stage._inputs()
    return rows


class Facts:
    """Properties of a pipeline's batches, from its stages."""

    def __init__(self, dataset: Any) -> None:
        self.rows = stages(dataset)
        names = [row["name"] for row in self.rows]
        self.cached = "Cache" in names
        self.cache_file = next((row.get("filename", "") for row in self.rows if row["name"] == "Cache"), "")
        self.batch, self.batched = 1, False
        above = 1  # samples of an element at the place where the walk is, over those of a batch
        self.shuffle, self.epoch = 0, int(_value(dataset.cardinality()))
        shuffles = []
        for row in self.rows:
            if "Batch" in row["name"] and row.get("batch_size", 0) > 0:
                self.batch, self.batched = self.batch * row["batch_size"], True
                above *= row["batch_size"]
            if row["name"] == "Shuffle":
                shuffles.append((row.get("buffer_size", 0), above))
            if row["name"] == "Repeat" and row["elements"] > 0:
                self.epoch = -(-row["elements"] // above)
        self.shuffle = max((size * (self.batch // above) for size, above in shuffles), default=0)
        last = next((row for row in self.rows if row["name"] not in ("Repeat", "Take", "Skip")), {})
        self.prefetch = last.get("buffer_size") if last.get("name") == "Prefetch" else None
        self.calls = [row["num_parallel_calls"] for row in self.rows if "num_parallel_calls" in row]

    def samples(self, tf: Any, element: Any) -> int:
        """Samples of an element: its leading dimension where the pipeline batches, else it is one."""
        if not self.batched:
            return 1
        first = tf.nest.flatten(element)[0]
        size = first.shape[0] if first.shape.rank else None
        return int(size) if size is not None else int(tf.shape(first)[0])


def bytes_read() -> int | None:
    """Bytes that this process has read, from files or from the system's cache of them; None where that is not told."""
    told = re.search(r"^rchar: (\d+)", machine.read_file("/proc/self/io"), re.MULTILINE)
    return int(told[1]) if told else None


class Probe:
    """One run: all settings in turn, round by round."""

    def __init__(self, tf: Any, arguments: Any, recorder: Any) -> None:
        self.tf, self.arguments, self.recorder = tf, arguments, recorder
        self.source = Source(tf, arguments.input)
        self.cores = len(machine.cores_of_process())
        if arguments.batches and "batch" not in self.source.takes:
            raise UsageError(f"`batches`: {arguments.input} takes no batch: leave it out, or use a function with this argument")
        batches = [int(part) for part in arguments.batches.split(",")] if arguments.batches else DEFAULT_BATCHES
        self.batches: list[int | None] = [*batches] if "batch" in self.source.takes else [None]
        doubled = [1 << power for power in range(5) if 1 << power <= max(self.cores, 1)]
        self.calls = [int(part) for part in arguments.calls.split(",")] if arguments.calls else doubled

    def run(self) -> None:
        """Measure all, then tell that it is the end."""
        dataset = self.source.make(self.batches[-1], None, fresh=False)
        facts = Facts(dataset)
        if facts.cache_file:
            raise UsageError(
                f"{self.arguments.input}: caches in a file ({facts.cache_file}), whose first epoch can be measured only once: measure it "
                "with cache() in memory"
            )
        self.recorder.write(
            "pipeline", takes=sorted(self.source.takes), stages=facts.rows, batch=facts.batch, batched=facts.batched,
            epoch_batches=facts.epoch, shuffle_samples=facts.shuffle, prefetch=facts.prefetch, calls=facts.calls, cached=facts.cached,
            cores=self.cores,
        )  # fmt: skip
        cases = [(batch, calls) for batch in self.batches for calls in self.calls]
        rounds, done = self.arguments.rounds, 0
        judge = machine.Judge(self.recorder)
        for turn in range(rounds):
            judge.begin()
            means = {}
            for case in list(cases):
                progress(done, rounds * len(cases), f"round {turn + 1} of {rounds}")
                means[case], busy = self.stretch(*case, turn, facts.cached)
                if turn == 0 and case[1] == max(self.calls) and busy < WAITING and not self.arguments.calls:
                    further = [calls for calls in (4, MOST_CALLS_WAITING) if calls > max(self.calls)]
                    cases += [(case[0], calls) for calls in further]
                    for calls in further:
                        means[case[0], calls], _ = self.stretch(case[0], calls, turn, facts.cached)
                done += 1
            judge.end(turn, means)
        progress(rounds * len(cases), rounds * len(cases), "batches that are ready ahead")
        self.ahead()

    def stretch(self, batch: int | None, calls: int, turn: int, fresh: bool) -> tuple[float, float]:
        """One setting in one round; the mean seconds of a batch, and the share of cores' time of one that it took."""
        dataset = self.source.make(batch, calls, fresh=fresh)
        facts, arguments = Facts(dataset), self.arguments
        if facts.cached:  # the whole first epoch, which fills the cache, then later ones
            most, limit_s = facts.epoch if facts.epoch > 0 else None, arguments.epoch_seconds
        else:
            most, limit_s = arguments.count, arguments.seconds
        first = self._draw(dataset, facts, calls, turn, "first", most, limit_s)
        for _ in range(LATER_EPOCHS if facts.cached else 0):
            self._draw(dataset, facts, calls, turn, "later", most, limit_s)
        # the fit asks for the account with the fewest calls, where threads wait for cores the least
        if calls == min(self.calls) and (accounted := self.source.accounted(batch, calls, fresh=facts.cached)) is not None:
            self._account(accounted, Facts(accounted), calls, turn)
        return first

    def _account(self, dataset: Any, facts: Any, calls: int, turn: int) -> None:
        """Record what tf.data counts of a pipeline that switches autotuning off, in a stretch whose times are not kept."""
        most = facts.epoch if facts.cached and facts.epoch > 0 else None if facts.cached else DROPPED + FEWEST
        for epoch in ("first", "later") if facts.cached else ("first",):
            iterator, drawn, samples, ended = iter(dataset), 0, 0, False
            began = time.perf_counter()
            for drawn, element in enumerate(iterator, start=1):
                samples = samples or facts.samples(self.tf, element)
                if facts.cached and epoch == "first" and drawn <= FEWEST:  # before the cache is whole and drops the stages that filled it
                    self._stages(iterator, calls, samples, turn, epoch, drawn + -(-facts.shuffle // samples), separate=True)
                in_time = drawn < DROPPED or time.perf_counter() - began < self.arguments.seconds
                if drawn == most or not (facts.cached or in_time):
                    break
            else:
                ended = True
            if facts.cached and not ended:
                next(iterator, None)  # a cache is whole when its end has been asked for
            if drawn and not (facts.cached and epoch == "first"):
                held = 0 if ended or facts.cached else -(-facts.shuffle // samples)
                self._stages(iterator, calls, samples, turn, epoch, drawn + held, separate=True)

    def _draw(self, dataset: Any, facts: Any, calls: int, turn: int, epoch: str, most: int | None, limit_s: float) -> tuple[float, float]:
        tf = self.tf
        cpu_began, began = time.process_time(), time.perf_counter()
        iterator = iter(dataset)
        first = next(iterator, None)
        if first is None:
            raise UsageError(f"{self.arguments.input}: is empty: it has no batch")
        samples = facts.samples(tf, first)
        self.recorder.write("first_batch", batch=samples, calls=calls, round=turn, epoch=epoch, seconds=time.perf_counter() - began)
        drawn = 1 + sum(1 for _ in itertools.islice(iterator, DROPPED - 1))
        read, ended = bytes_read(), False
        times: list[float] = []
        cpu, begun = time.process_time(), time.perf_counter()
        last = begun
        for _ in iterator:
            now = time.perf_counter()
            drawn += 1
            times.append(now - last)
            last = now
            whole = most is not None and drawn >= most
            if (whole or now - begun > limit_s) and (facts.cached or len(times) >= FEWEST):
                if facts.cached and most is not None and not whole:
                    raise UsageError(
                        f"{self.arguments.input}: caches, and its first epoch takes longer than {limit_s:g} s: measure a part of it, such "
                        "as take(1000)"
                    )
                break
        else:
            ended = True
        cpu_ended = time.process_time()
        after = bytes_read()
        if facts.cached and most is None and not ended:
            raise UsageError(f"{self.arguments.input}: caches, and the end of an epoch is unknown: measure it without repeat()")
        if facts.cached and not ended:
            next(iterator, None)  # a cache is whole when its end has been asked for
        if not times:
            raise UsageError(f"{self.arguments.input}: has only {drawn} batches, but timing needs at least {DROPPED + FEWEST}")
        ended = ended or drawn == facts.epoch
        held = -(-facts.shuffle // samples)
        # at an epoch's end batches come out of the shuffle buffer, and nothing is prepared any more; the last may be a smaller one
        kept = times[: -max(held, 1)] if ended else times
        done, spent = (len(kept) if ended else drawn - DROPPED), cpu_ended - cpu
        if not kept:  # the buffer holds the whole epoch: what a batch has taken from the beginning on
            kept, done, spent = [(last - began) / drawn] * len(times), drawn, cpu_ended - cpu_began
        self.recorder.write(
            "batches", batch=samples, calls=calls, round=turn, epoch=epoch, seconds=kept, cpu_s=spent / done,
            read_bytes=None if read is None or after is None else (after - read) / done,
        )  # fmt: skip
        self._stages(iterator, calls, samples, turn, epoch, drawn + (0 if ended else held))
        mean_s = sum(kept) / len(kept)
        return mean_s, spent / done / mean_s if mean_s > 0 else 1.0

    def _stages(self, iterator: Any, calls: int, batch: int, turn: int, epoch: str, drawn: int, separate: bool = False) -> None:
        """Record what tf.data itself has counted of each stage, as it runs it; nothing where this TensorFlow does not tell."""
        try:
            from tensorflow.python.data.experimental.ops import iterator_model_ops

            model = iterator_model_ops.get_model_proto(iterator)
            rows = [
                {
                    "id": int(node.id), "name": node.name,
                    "asynchronous": int(node.node_class) in (2, 4, 6), "interleaves": int(node.node_class) in (1, 2),
                    "seconds": node.processing_time / 1e9 / drawn, "elements": node.num_elements / drawn,
                    "inputs": [int(number) for number in node.inputs],
                    "parameters": {parameter.name: float(parameter.value) for parameter in node.parameters},
                }
                for node in model.nodes.values()
            ]  # fmt: skip
        except Exception:  # an interface that TensorFlow does not promise
            return
        if rows:
            self.recorder.write("stages", batch=batch, calls=calls, round=turn, epoch=epoch, nodes=rows, separate=separate)

    def ahead(self) -> None:
        """Number of batches ready after a pause of the consumer."""
        dataset = self.source.make(self.batches[-1], None, fresh=False)
        iterator = iter(dataset)
        began, drawn = time.perf_counter(), 0
        for _ in range(2 * FEWEST):
            if next(iterator, None) is None:
                return
            drawn += 1
        mean_s = (time.perf_counter() - began) / drawn
        pause_s = min(LONGEST_PAUSE_S, MOST_AHEAD * mean_s)
        time.sleep(pause_s)
        ready = 0
        while ready < MOST_AHEAD:
            began = time.perf_counter()
            if next(iterator, None) is None or time.perf_counter() - began > mean_s / 2:
                break
            ready += 1
        self.recorder.write("ahead", batches=ready, most=max(1, int(pause_s / mean_s)), mean_s=mean_s)


def in_short(message: str) -> str:
    """An error's message in a line: of what TensorFlow wraps, the innermost exception."""
    within = re.findall(r"\b\w+(?:Error|Exception): [^\n]+", message)
    lines = [re.sub(r"\{\{.*?\}\}", "", line).strip() for line in message.splitlines() if not line.startswith("in user code")]
    return (within or [line for line in lines if line] or [""])[0][:200]


def main() -> int:
    """Run the probe; the exit status tells the parent who is at fault."""
    arguments = recording.asked(
        __doc__,
        input=None,
        batches=None,  # for a function that takes batch
        calls=None,  # calls or threads at a time; left out: 1, 2, 4 and so on up to the cores
        rounds=5,
        count=50,  # batches of a stretch
        seconds=2.0,  # after which a stretch ends
        epoch_seconds=120.0,  # that the first epoch of a cache may take
    )

    def measure(recorder: Recorder) -> None:
        tf = recording.framework("tensorflow")
        tf.config.set_visible_devices([], "GPU")  # batches are prepared on the host; the GPU stays with whom it belongs to
        recorder.write("fingerprint", **machine.fingerprint(tf, "/CPU:0", "CPU"))
        Probe(tf, arguments, recorder).run()

    def said(error: Exception, where: str) -> str:
        at = " at " + where if where else ""
        return f"{arguments.input}: raises {type(error).__name__}{at}: {in_short(str(error)[:2000])}"

    return recording.run("input", arguments, measure, arguments.input, said=said)
