"""Makes the traces here: three steps of a small model under DistributedDataParallel on two processes with gloo, of which rank 0's is kept.

Made with PyTorch 2.14.1 on CPU: ``python make.py`` in this folder. Without shapes: ``ddp-gloo``. Left out of the events are fields that
nothing reads (strides, concrete inputs, indices), so that the files stay small.
"""

from __future__ import annotations

import gzip
import json
import os
import tempfile
from pathlib import Path

import torch
import torch.distributed
import torch.multiprocessing
from torch import nn
from torch.profiler import ProfilerActivity, profile, schedule

DROPPED = ("Input Strides", "Concrete Inputs", "Ev Idx", "Record function id", "Fwd thread id")


def train(rank: int, shapes: bool, out: str) -> None:
    """Train on one process, and export its trace."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29517")
    torch.distributed.init_process_group("gloo", rank=rank, world_size=2)
    torch.set_num_threads(1)
    layers = nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 512), nn.ReLU(), nn.Linear(512, 10)
    model = nn.parallel.DistributedDataParallel(nn.Sequential(*layers), bucket_cap_mb=1)
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    data = torch.utils.data.TensorDataset(torch.randn(640, 512), torch.randint(10, (640,)))
    batches = iter(torch.utils.data.DataLoader(data, batch_size=64))
    with profile(activities=[ProfilerActivity.CPU], schedule=schedule(wait=1, warmup=2, active=3), record_shapes=shapes) as profiler:
        for _ in range(6):
            inputs, labels = next(batches)
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs), labels).backward()
            optimizer.step()
            profiler.step()
    profiler.export_chrome_trace(f"{out}/{rank}.json")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    for shapes, name in ((True, "ddp-gloo-shapes"), (False, "ddp-gloo")):
        with tempfile.TemporaryDirectory() as folder:
            torch.multiprocessing.spawn(train, (shapes, folder), nprocs=2)
            data = json.loads(Path(folder, "0.json").read_text())
        data["traceName"] = f"{name}.json"
        for event in data["traceEvents"]:
            for field in DROPPED:
                event.get("args", {}).pop(field, None)
        Path(f"{name}.json.gz").write_bytes(gzip.compress(json.dumps(data).encode(), mtime=0))
