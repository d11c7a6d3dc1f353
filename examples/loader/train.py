"""Train with a data loader whose workers outlive SIGTERM, so that the training can save when it is asked to stop.

    torchq run -- python train.py                 # one process
    torchq run --nodes 2 -- torchrun train.py     # one or more processes per node

A node sends SIGTERM to the first process of a container alone. Under `python train.py` that is the training. torchrun
passes the signal on to its whole process group, to the workers of data loaders, too. A worker that dies of it makes the
next batch fail, and nothing is saved. So each worker ignores SIGTERM (`outlive_sigterm`): the training ends it.

The processes agree after each step whether to stop, because they do not get the signal in the same step. Rank 0 then
saves into TORCHQ_OUTPUT, which outlives the pod, and the next start continues there.
"""

import argparse
import os
import signal
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, DistributedSampler

SAMPLES, INPUTS = 4096, 32


class Line(Dataset[tuple[Tensor, Tensor]]):
    """Samples that are made when they are asked for, as files are read."""

    def __len__(self) -> int:
        """Return the number of samples."""
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        """Return the inputs and the target of one sample."""
        inputs = torch.randn(INPUTS, generator=torch.Generator().manual_seed(index))
        return inputs, inputs.sum().reshape(1)


def outlive_sigterm(_worker: int) -> None:
    """Ignore SIGTERM in a worker of a data loader, as its `worker_init_fn`."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


class Stop:
    """The request to stop, which SIGTERM makes. A step that has begun is finished first."""

    def __init__(self) -> None:
        self._requested = False
        signal.signal(signal.SIGTERM, self._request)

    def agreed(self) -> bool:
        """Return whether any process was asked to stop; all processes get the same answer."""
        flag = torch.tensor(float(self._requested))
        dist.all_reduce(flag, dist.ReduceOp.MAX)
        return bool(flag.item())

    def _request(self, *_: object) -> None:
        self._requested = True


def train(save: Path, steps: int, workers: int, stop: Stop) -> int:
    """Train from the last save up to a number of steps, or until the stop; return the step that was reached."""
    torch.manual_seed(0)
    model = nn.Linear(INPUTS, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    step = 0
    if save.exists():
        state = torch.load(save)
        model.load_state_dict(state["model"])
        step = state["step"]
        print(f"continues at step {step}", flush=True)
    data = Line()
    sampler: DistributedSampler[tuple[Tensor, Tensor]] = DistributedSampler(data)
    loader = DataLoader(data, 16, sampler=sampler, num_workers=workers, worker_init_fn=outlive_sigterm)
    while step < steps:
        sampler.set_epoch(step)
        for inputs, targets in loader:
            loss = nn.functional.mse_loss(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
                parameter.grad /= dist.get_world_size()
            optimizer.step()
            step += 1
            if step % 20 == 0 and dist.get_rank() == 0:
                print(f"step {step} loss {loss.item():.3f}", flush=True)
            if stop.agreed() or step == steps:
                if dist.get_rank() == 0:
                    draft = save.with_suffix(".draft")
                    torch.save({"model": model.state_dict(), "step": step}, draft)
                    draft.rename(save)
                    print(f"saved at step {step}", flush=True)
                return step
    return step


def main() -> int:
    """Train; return exit code 0 also after a stop."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--workers", type=int, default=2, help="processes that load data, for each training process")
    arguments = parser.parse_args()
    stop = Stop()
    dist.init_process_group("gloo")
    try:
        train(Path(os.environ.get("TORCHQ_OUTPUT", ".")) / "last.pt", arguments.steps, arguments.workers, stop)
        dist.barrier()  # no rank may end while another still communicates with it
    finally:
        dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
