"""Training steps under PyTorch: of a Keras model whose backend it is, or of the user's own.

A step of a model is that of Keras's own trainer under PyTorch: forward pass, ``loss.backward()``, the Keras optimizer's update, all
called from Python one operation after the other (eager). When gradients become ready is seen by hooks of autograd
(``Tensor.register_post_accumulate_grad_hook``), the events on which DistributedDataParallel fills its buckets too.
"""

from __future__ import annotations

import contextlib
import time
from typing import Any, Callable, Iterator

from . import machine, recording
from .training import KerasModel, Step, keras_of


class Torch:
    """PyTorch on one device.

    Parameters
    ----------
    device
        Such as ``CPU`` or ``GPU:1``; None takes the first GPU, else the CPU.

    Raises
    ------
    NotInstalledError
        This Python has no PyTorch.
    """

    name = "torch"
    remark = ""

    def __init__(self, device: str | None) -> None:
        self._torch = torch = recording.framework(self.name)
        self._gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
        self.kind, self.index = machine.chosen(device, self._gpus, "PyTorch")
        self._place = f"cuda:{self.index}" if self.kind == "GPU" else "cpu"

    def fingerprint(self) -> dict[str, Any]:
        """Everything that a measured time may depend on, as plain data."""
        torch = self._torch
        record = machine.of_machine(self.kind, self.index, self._gpus)
        record |= {"backend": self.name, "torch": torch.__version__, "cuda": str(torch.version.cuda or "")}
        record |= {"intra_op_threads": torch.get_num_threads(), "inter_op_threads": torch.get_num_interop_threads()}
        if self.kind == "GPU":
            record |= {"device_name": torch.cuda.get_device_name(self.index), "cudnn": str(torch.backends.cudnn.version() or "")}
        return record

    def on_device(self) -> Any:
        """Within, tensors are made on the device."""
        return self._torch.device(self._place)

    def wait(self, result: Any) -> None:  # noqa: ARG002
        """Until the device has done all that was asked of it; a CPU has done each operation before the next is called."""
        if self.kind == "GPU":
            self._torch.cuda.synchronize(self.index)

    def model_of(self, built: Any, mixed: bool) -> KerasModel:
        """The model that the user's function has built."""
        return KerasModel(keras_of(self.name), built, mixed)

    def step_of(self, made: KerasModel, batch: int) -> Step:
        """A callable that does one step on a batch that already lies on the device, as ``keras.backend.torch.trainer`` does it."""
        with self.on_device():
            x, y = made.built_for(batch)

        def run() -> Any:
            with self.on_device():
                outputs = made.model(x, training=True)
                made.model.zero_grad()
                loss = made.loss_of(y, outputs, made.model.losses)
                made.optimizer.scale_loss(loss).backward()
                trained = made.model.trainable_weights
                gradients = [each.value.grad for each in trained]
                with self._torch.no_grad():
                    made.optimizer.apply(gradients, trained)
                return loss.detach()

        return run

    def evaluation_of(self, made: KerasModel, batch: int) -> Step:
        """A callable that computes the loss of a batch, without gradients."""
        with self.on_device():
            x, y = made.batch_of(batch)

        def run() -> Any:
            with self.on_device(), self._torch.no_grad():
                return made.loss_of(y, made.model(x, training=False), [])

        return run

    def peak_bytes(self, step: Step) -> int | None:
        """Most bytes that a step has on the device; None where the device does not count them."""
        if self.kind != "GPU":
            return None
        self._torch.cuda.reset_peak_memory_stats(self.index)
        self.wait(step())
        return int(self._torch.cuda.max_memory_allocated(self.index))

    def split_of(self, made: KerasModel | None, batch: int, step: Step) -> Watched:  # noqa: ARG002
        """Tells how the passes share a step, and when each gradient is ready."""
        weights = made.model.trainable_weights if made else []
        named = {id(weight.value): (str(weight.path), place) for place, weight in enumerate(weights)}
        return Watched(self._torch, self.kind == "GPU", step, self.wait, named)


class Watched:
    """Steps with hooks on the loss and on each gradient; they must call ``backward()``.

    Times are of the CPU's clock, or on a GPU of events in its stream, which come when the work before them is done.
    """

    def __init__(self, torch: Any, gpu: bool, step: Step, wait: Callable[[Any], None], named: dict[int, tuple[str, int]]) -> None:
        self._torch, self._gpu, self._step, self._wait, self._named = torch, gpu, step, wait, named
        self._parameters: list[Any] = []
        self._index: dict[int, int] = {}
        self._lost: Any = None
        self._ready: dict[int, Any] = {}

    def once(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Kinds and fields of the records of one step, ``split`` and ``ready``; nothing where no gradient was seen."""
        self._lost, self._ready = None, {}
        with self._watching():
            begun = self._now()
            result = self._step()
            end = self._now()
        self._wait(result)
        if self._lost is None or not self._ready:
            return
        ready = {str(index): max(self._between(self._lost, at), 0.0) for index, at in self._ready.items()}
        forward_s, backward_s = self._between(begun, self._lost), max(ready.values())
        apply_s = self._between(begun, end) - forward_s - backward_s
        yield "split", {"forward_s": max(forward_s, 0.0), "backward_s": backward_s, "apply_s": max(apply_s, 0.0)}
        yield "ready", {"observed": True, "ready_s": ready}

    def variables(self) -> Iterator[dict[str, Any]]:
        """The fields of a ``variable`` record for each parameter whose gradient was seen."""
        for index, parameter in enumerate(self._parameters):
            name, created = self._named.get(id(parameter), (f"parameter {index}", len(self._named) + len(self._parameters) - index))
            dtype = str(parameter.dtype).rpartition(".")[2]
            yield {
                "index": index, "name": name, "shape": [int(size) for size in parameter.shape], "dtype": dtype,
                "size_bytes": parameter.numel() * parameter.element_size(), "gradient_dtype": dtype, "sparse_row_bytes": None,
                "created": created,
            }  # fmt: skip

    def _now(self) -> Any:
        if not self._gpu:
            return time.perf_counter()
        event = self._torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def _between(self, begin: Any, end: Any) -> float:
        return float(begin.elapsed_time(end)) / 1000 if self._gpu else end - begin

    def _hook(self, parameter: Any) -> None:
        if id(parameter) in self._index:
            return
        self._index[id(parameter)] = index = len(self._parameters)
        self._parameters.append(parameter)

        def ready(_: Any) -> None:
            self._ready[index] = self._now()  # the last one counts, where a parameter has several

        parameter.register_post_accumulate_grad_hook(ready)

    @contextlib.contextmanager
    def _watching(self) -> Iterator[None]:
        """Within, backward passes are watched."""
        autograd, original = self._torch.autograd, self._torch.autograd.backward

        def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            for root in [tensors] if isinstance(tensors, self._torch.Tensor) else tensors:
                for parameter in _leaves(root):
                    self._hook(parameter)
            if self._lost is None:
                self._lost = self._now()
            return original(tensors, *args, **kwargs)

        autograd.backward = backward
        try:
            yield
        finally:
            autograd.backward = original


def _leaves(root: Any) -> Iterator[Any]:
    """Parameters that a backward pass from here reaches."""
    waiting, seen = [root.grad_fn], set()
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            yield node.variable
        waiting += [each for each, _ in node.next_functions]
