"""Small workloads with layers, made up, for tests of what cuts them."""

from __future__ import annotations

from typing import Any


def layered(
    *,
    layers: int = 8,
    forward: float = 0.01,
    size_bytes: float = 4e6,
    output_bytes: float = 1e5,
    kept_bytes: float = 1e6,
    exchanged_bytes: float | None = None,
    work: list[float] | None = None,
    experts: int = 0,
    batch: int = 8,
    **more: Any,
) -> dict[str, Any]:
    """A chain of layers, alike unless ``work`` says what each is of.

    Parameters
    ----------
    forward
        Seconds of the whole model's forward pass of one sample; the backward pass takes twice as long.
    size_bytes
        Parameters of each layer.
    output_bytes, kept_bytes
        Of each layer for a sample.
    exchanged_bytes
        Of each of the two all-reduces that splitting a layer needs in each pass, for a sample; left out: as its output.
    experts
        Of every second layer, each with a variable of its own; 0: none.
    """
    work = work or [1.0] * layers
    each = output_bytes if exchanged_bytes is None else exchanged_bytes
    variables = [{"name": f"dense {number}", "size_bytes": size_bytes, "creation_index": number} for number in range(len(work))]
    made = []
    for number, its in enumerate(work):
        layer: dict[str, Any] = {
            "name": f"layer {number}",
            "forward": its,
            "variables": [number],
            "output_bytes_per_sample": output_bytes,
            "kept_bytes_per_sample": kept_bytes,
            "kept_selectively_bytes_per_sample": kept_bytes / 2,
            "selective_work": 0.1,
            "tensor": {"forward_bytes_per_sample": [each] * 2, "backward_bytes_per_sample": [each] * 2},
        }
        if experts and number % 2:
            index = len(variables)
            variables.append({"name": f"experts {number}", "size_bytes": size_bytes * experts, "creation_index": index})
            layer["variables"].append(index)
            layer["experts"] = {"count": experts, "used": 1, "work": 0.8, "bytes_per_sample": output_bytes, "variables": [index]}
        made.append(layer)
    ready = [{**variable, "ready": 1.0 - variable["creation_index"] / len(variables)} for variable in reversed(variables)]
    return {
        "name": "layered",
        "batch_per_replica": batch,
        "forward": {"base": "0 s", "per_sample_s": forward},
        "backward": {"base": "0 s", "per_sample_s": 2 * forward},
        "apply": "1 ms",
        "variables": ready,
        "layers": made,
        **more,
    }
