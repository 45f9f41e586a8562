"""Makes the user's tf.data pipeline as often as it is measured, and reads its stages from its graph; knows only TensorFlow.

Nothing is timed here, but in input_pipeline.py.
"""

from __future__ import annotations

import inspect
import logging
from typing import Any

from . import training
from .ending import UsageError

_GIVEN = {"prefetch": 1, "cache": True, "num_parallel_calls": 1}
"""To a function that asks for it, and has no default."""


class Source:
    """The user's pipeline, made anew for each stretch where it caches or takes parameters."""

    def __init__(self, tf: Any, target: str) -> None:
        self.tf, self.target = tf, target
        self.made = 0
        self.found = self._load()
        self.takes: set[str] = set()
        self.filled: dict[str, Any] = {}
        if not isinstance(self.found, tf.data.Dataset):
            parameters = inspect.signature(self.found).parameters
            required = {
                name
                for name, its in parameters.items()
                if its.default is its.empty and its.kind not in (its.VAR_POSITIONAL, its.VAR_KEYWORD)
            }
            known = {"num_parallel_calls", "prefetch", "batch", "cache"}
            self.takes = set(parameters) & known
            self.filled = {name: value for name, value in _GIVEN.items() if name in required}
            if required - known:
                odd = ", ".join(sorted(required - known))
                raise UsageError(
                    f"{target}: takes {odd}; it may take num_parallel_calls, prefetch, batch and cache, all else needs a default"
                )

    def _load(self) -> Any:
        module, name = training.load_module(self.target, f"_{self.made}" if self.made else "")
        self.made += 1
        found = getattr(module, name, None)
        if not isinstance(found, self.tf.data.Dataset) and not callable(found):
            known = [
                key
                for key, its in vars(module).items()
                if isinstance(its, self.tf.data.Dataset) or (inspect.isfunction(its) and not key.startswith("_"))
            ]
            what = f"has no {name!r}" if found is None else f"{name!r} is a {type(found).__name__}, no tf.data.Dataset and no function"
            raise UsageError(f"{self.target.rpartition(':')[0]}: {what}; it has {', '.join(known[:10]) or 'none'}")
        return found

    def make(self, batch: int | None, calls: int | None, fresh: bool) -> Any:
        """The data set; where it takes no number of calls, its threads are as many."""
        tf = self.tf
        if isinstance(self.found, tf.data.Dataset):
            made = self._load() if fresh else self.found
        else:
            given = dict(self.filled)
            given.update({"batch": batch} if "batch" in self.takes else {})
            given.update({"num_parallel_calls": calls} if "num_parallel_calls" in self.takes and calls is not None else {})
            made = self.found(**given)
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
        found = tensor.numpy()
    except (AttributeError, NotImplementedError):  # of a graph, not known here
        return None
    return found.decode("utf-8", "replace") if isinstance(found, bytes) else int(found)


def stages(dataset: Any) -> list[dict[str, Any]]:
    """What the pipeline consists of, from its consumer to its sources, with the sizes that it was given; -1 is AUTOTUNE."""
    found: list[dict[str, Any]] = []
    seen: set[int] = set()
    waiting = [dataset]
    while waiting:
        one = waiting.pop(0)
        if id(one) in seen:
            continue
        seen.add(id(one))
        name = type(one).__name__.strip("_").replace("DatasetV2", "").replace("Dataset", "")
        row: dict[str, Any] = {"name": name or "Dataset"}
        for key in ("buffer_size", "num_parallel_calls", "batch_size", "count", "filename"):
            value = _value(getattr(one, "_" + key, None))
            if value is not None:
                row[key] = value
        if name == "Repeat":
            row["elements"] = int(_value(one._input_dataset.cardinality()) or -1)
        if name not in ("Options", "Variant"):
            found.append(row)
        waiting += one._inputs()
    return found


class Facts:
    """What a pipeline's stages say of its batches."""

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
        self.shuffle = max((size * (self.batch // its) for size, its in shuffles), default=0)
        last = next((row for row in self.rows if row["name"] not in ("Repeat", "Take", "Skip")), {})
        self.prefetch = last.get("buffer_size") if last.get("name") == "Prefetch" else None
        self.calls = [row["num_parallel_calls"] for row in self.rows if "num_parallel_calls" in row]

    def samples(self, tf: Any, element: Any) -> int:
        """Of an element: its leading dimension where the pipeline batches, else it is one."""
        if not self.batched:
            return 1
        first = tf.nest.flatten(element)[0]
        size = first.shape[0] if first.shape.rank else None
        return int(size) if size is not None else int(tf.shape(first)[0])
