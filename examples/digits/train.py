"""Train a small network on handwritten digits, data-parallel over all processes of a TorchJob.

The script runs unchanged under `python train.py` and `torchrun train.py`: it reads only the variables MASTER_ADDR,
MASTER_PORT, RANK and WORLD_SIZE. Where the package torchq is installed, as in a job of `torchq run`, rank 0 reports the
loss of each epoch, and gives the accuracy as the result of the job. The data set is the UCI "optical recognition of
handwritten digits" with 1,797 scans, which is a part of scikit-learn.
"""

import argparse
import csv
import gzip
import sys
from importlib import metadata

import torch
import torch.distributed as dist
from torch import Tensor, nn

try:
    import torchq
except ImportError:  # the script trains as well without it
    torchq = None

HELD_OUT = 297
"""The number of digits for testing: the last ones of the set."""


def digits() -> tuple[Tensor, Tensor]:
    """Return the images (1797 x 64, 0 to 1) and the labels.

    The file is read without importing scikit-learn, because the import would take longer than the training.
    """
    path = metadata.distribution("scikit-learn").locate_file("sklearn/datasets/data/digits.csv.gz")
    with gzip.open(str(path), "rt") as lines:
        table = torch.tensor([[float(cell) for cell in row] for row in csv.reader(lines)])
    return table[:, :64] / 16.0, table[:, 64].long()


def accuracy(model: nn.Module, images: Tensor, labels: Tensor) -> float:
    """Return the share of images that the model classifies correctly."""
    with torch.no_grad():
        return float((model(images).argmax(dim=1) == labels).float().mean())


class Momentum:
    """Gradient descent with momentum on the sum of all ranks' gradients, with one message per step.

    DistributedDataParallel and torch.optim would do the same. They also import PyTorch's compiler, which takes longer
    than this training, and the demo starts 48 processes.
    """

    def __init__(self, model: nn.Module, rate: float, momentum: float) -> None:
        self._parameters = list(model.parameters())
        self._velocities = [torch.zeros_like(parameter) for parameter in self._parameters]
        self._rate, self._momentum = rate, momentum

    @torch.no_grad()
    def step(self) -> None:
        """Update the parameters and clear their gradients."""
        gradient = torch.cat([parameter.grad.flatten() for parameter in self._parameters if parameter.grad is not None])
        dist.all_reduce(gradient)
        gradient /= dist.get_world_size()
        parts = gradient.split([parameter.numel() for parameter in self._parameters])
        for parameter, velocity, part in zip(self._parameters, self._velocities, parts, strict=True):
            velocity.mul_(self._momentum).add_(part.view_as(parameter))
            parameter.sub_(self._rate * velocity)
            parameter.grad = None


def train(epochs: int, seed: int) -> float:
    """Train together with the other ranks; return the accuracy on the held-out digits."""
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(seed)
    images, labels = digits()
    my_images, my_labels = images[:-HELD_OUT][rank::world], labels[:-HELD_OUT][rank::world]
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))  # equal on all ranks: they share the seed
    optimizer = Momentum(model, rate=0.1, momentum=0.9)
    # All ranks train the same number of batches: a rank with more batches would wait without end.
    batches = len(images[:-HELD_OUT]) // world // 32
    for epoch in range(1, epochs + 1):
        order = torch.randperm(len(my_images))
        for batch in order[: batches * 32].split(32):
            loss = nn.functional.cross_entropy(model(my_images[batch]), my_labels[batch])
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        total = loss.detach()
        dist.all_reduce(total)
        if rank == 0:
            print(f"epoch {epoch}/{epochs} loss {total.item() / world:.3f}")
            if torchq is not None:
                torchq.report(step=epoch, loss=total / world)
    return accuracy(model, images[-HELD_OUT:], labels[-HELD_OUT:])


def main() -> int:
    """Train and return exit code 0 if the model reaches the accuracy of `--at-least`, else 1."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--at-least", type=float, default=0.85, help="the job fails below this accuracy")
    arguments = parser.parse_args()
    dist.init_process_group("gloo")
    try:
        reached = train(arguments.epochs, arguments.seed)
        if dist.get_rank() == 0:
            print(f"accuracy {reached:.3f} on {HELD_OUT} held-out digits with {dist.get_world_size()} processes")
            if torchq is not None:
                torchq.result(accuracy=reached)
        dist.barrier()  # no rank may end while another still communicates with it
        return 0 if reached >= arguments.at_least else 1
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(main())
