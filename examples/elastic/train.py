"""Train a small network in a world whose size changes while it trains.

The script runs under `torchrun train.py` and `python train.py`. Changes of the world do not change the result:

- Every step uses the same samples in one global batch, whatever the number of processes. The step number seeds the
  choice of the samples, and each process takes an equal part of them. TORCHQ_MAX_WORKERS is the largest number of
  workers. A process computes at once what it gets in the largest world; in a smaller world it accumulates gradients.
- Rank 0 saves every few steps, on SIGTERM, and when a peer has gone. torchrun sends SIGTERM to all processes when a
  worker joins, and a cluster sends it to a pod that is deleted.
- Under torchq each pod reports its steps, and rank 0 saves when it is asked to (`report.py`).
- All ranks continue from what rank 0 reads. A save is a file of its own that appears complete or not at all.

The data is made from the seed: samples of a random network whose labels have noise, so that the loss stays above zero.
"""

import argparse
import os
import signal
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path
from types import FrameType

import torch
import torch.distributed as dist
from report import report
from torch import Tensor, nn

INPUTS, CLASSES, SAMPLES = 32, 8, 4096
KEPT_SAVES = 2
PEER_TIMEOUT = timedelta(seconds=60)
"""How long a process waits for a peer whose connection stays open, as when a node loses its network."""
TURN_SECONDS = 2.0
"""How long a process that has lost a peer waits for its own SIGTERM."""


class Stop:
    """The request to stop, which SIGTERM makes. A step that has begun is finished first."""

    def __init__(self) -> None:
        self._event = threading.Event()

    @property
    def requested(self) -> bool:
        """Whether SIGTERM has come."""
        return self._event.is_set()

    def listen(self) -> None:
        """Take SIGTERM from now on. Before the first step there is nothing to save, and SIGTERM ends the process."""
        signal.signal(signal.SIGTERM, self._request)

    def wait(self) -> None:
        """Give this process's own SIGTERM the time to come after a peer has gone.

        When a worker joins, torchrun stops the processes of one node after the other. A process that fails before its
        turn would count as a failure, and use up one of the restarts.
        """
        self._event.wait(TURN_SECONDS)

    def _request(self, _signal: int, _frame: FrameType | None) -> None:
        self._event.set()


class Data:
    """The samples, and which of them each step uses."""

    def __init__(self, seed: int) -> None:
        random = torch.Generator().manual_seed(seed)
        teacher = nn.Sequential(nn.Linear(INPUTS, 64), nn.Tanh(), nn.Linear(64, CLASSES))
        for parameter in teacher.parameters():
            parameter.data = torch.randn(parameter.shape, generator=random) / parameter.shape[-1] ** 0.5
        self.inputs = torch.randn(SAMPLES, INPUTS, generator=random)
        with torch.no_grad():
            chances = (4 * teacher(self.inputs)).softmax(dim=1)
        self.labels = torch.multinomial(chances, 1, generator=random).squeeze(1)
        self._seed = seed

    def batch(self, step: int, size: int) -> Tensor:
        """Return the numbers of the samples of a step. They depend on nothing but the step."""
        random = torch.Generator().manual_seed(self._seed * 1_000_003 + step)
        return torch.randint(SAMPLES, (size,), generator=random)


class Training:
    """The model and its optimizer: gradient descent with momentum, with one message per step.

    DistributedDataParallel and torch.optim would do the same. They also import PyTorch's compiler, which takes longer
    than this training needs to restart.
    """

    def __init__(self, data: Data, batch: int, largest_world: int, seed: int) -> None:
        torch.manual_seed(seed)
        self.model = nn.Sequential(nn.Linear(INPUTS, 128), nn.ReLU(), nn.Linear(128, CLASSES))
        self.done = 0
        """The number of steps that are done."""
        self._data, self._batch = data, batch
        self._at_once = -(-batch // largest_world)
        self._parameters = list(self.model.parameters())
        self._velocity = torch.zeros(sum(parameter.numel() for parameter in self._parameters))

    def step(self) -> float:
        """Do one step together with the other ranks, and return the loss of the global batch.

        Nothing changes before all ranks have exchanged their gradients, so a step that fails leaves the state of the
        step before.
        """
        mine = self._data.batch(self.done + 1, self._batch)[dist.get_rank() :: dist.get_world_size()]
        self.model.zero_grad()
        total = torch.zeros(1)
        for part in mine.split(self._at_once):
            outputs = self.model(self._data.inputs[part])
            loss = nn.functional.cross_entropy(outputs, self._data.labels[part], reduction="sum")
            loss.backward()  # type: ignore[no-untyped-call]
            total += loss.detach()
        message = torch.cat(
            [total, *(parameter.grad.flatten() for parameter in self._parameters if parameter.grad is not None)]
        )
        dist.all_reduce(message)
        message /= self._batch
        self._update(message[1:])
        self.done += 1
        return message[0].item()

    @torch.no_grad()
    def _update(self, gradient: Tensor) -> None:
        self._velocity.mul_(0.9).add_(gradient)
        self._write(self._weights() - 0.05 * self._velocity)

    def state(self) -> dict[str, Tensor]:
        """Return all that a save holds."""
        return {"done": torch.tensor(self.done), "weights": self._weights(), "velocity": self._velocity}

    def continue_from(self, saved: dict[str, Tensor] | None) -> None:
        """Continue from a save of rank 0's, or from the beginning if rank 0 has none; other ranks need none."""
        state = self.state() if saved is None else saved
        for value in state.values():
            dist.broadcast(value, src=0)
        self.done = int(state["done"])
        self._velocity = state["velocity"]
        self._write(state["weights"])

    def _weights(self) -> Tensor:
        return torch.cat([parameter.detach().flatten() for parameter in self._parameters])

    def _write(self, weights: Tensor) -> None:
        parts = weights.split([parameter.numel() for parameter in self._parameters])
        for parameter, part in zip(self._parameters, parts, strict=True):
            parameter.data.copy_(part.view_as(parameter))


class Saves:
    """The saves in a folder that all workers share, each with its step in its name.

    A process of an earlier world that saves late cannot replace a newer save.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def newest(self) -> dict[str, Tensor] | None:
        """Return the save with the highest step, if there is one."""
        paths = self._paths()
        return torch.load(paths[-1], weights_only=True) if paths else None

    def write(self, training: Training) -> None:
        """Save unless this step is saved already. The file gets its name when it is complete."""
        path = self._folder / f"step-{training.done:09}.pt"
        if path.exists():
            return
        unfinished = path.with_suffix(f".{os.getpid()}")
        with unfinished.open("wb") as file:
            torch.save(training.state(), file)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
        for old in self._paths()[:-KEPT_SAVES]:
            old.unlink(missing_ok=True)

    def _paths(self) -> list[Path]:
        return sorted(self._folder.glob("step-*.pt"))


class Log:
    """The lines of this process, on its output and at the end of a file of all processes."""

    def __init__(self, path: str) -> None:
        self.pod = os.environ.get("POD_NAME") or "here"
        self._path = path

    def say(self, **facts: float | str) -> None:
        """Print one line of names and values. It ends with the time and is written in one piece."""
        line = " ".join(
            f"{name} {value:.6g}" if isinstance(value, float) else f"{name} {value}" for name, value in facts.items()
        )
        line += f" time {time.time():.3f}"
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
        if self._path:
            with open(self._path, "ab", buffering=0) as file:
                file.write(line.encode() + b"\n")


def train(training: Training, saves: Saves, log: Log, arguments: argparse.Namespace) -> bool:
    """Train until the last step, and return True. Return False if the process was asked to stop.

    Raises RuntimeError if a peer has gone. Rank 0 has saved the last step in each case.
    """
    rank, world, stop, saved = dist.get_rank(), dist.get_world_size(), Stop(), 0
    training.continue_from(saves.newest() if rank == 0 else None)
    log.say(start=log.pod, rank=rank, world=world, done=training.done)
    stop.listen()
    try:
        while training.done < arguments.steps and not stop.requested:
            began = time.monotonic()
            loss = training.step()
            if rank == 0:
                log.say(step=training.done, world=world, loss=loss)
                if training.done % arguments.save_every == 0:
                    saves.write(training)
            time.sleep(max(0.0, began + arguments.step_seconds - time.monotonic()))
            speed = arguments.batch / world / (time.monotonic() - began)
            asked = report(training.done, loss=loss, samplesPerSecond=speed)
            if rank == 0 and asked > saved:
                saves.write(training)
                saved = asked
                report(training.done, checkpoint=saved)
    except RuntimeError:
        if rank == 0:
            saves.write(training)
        stop.wait()
        raise
    if rank == 0:
        saves.write(training)
    return training.done >= arguments.steps


def parse() -> argparse.Namespace:
    """Return the arguments of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=2_000)
    parser.add_argument("--batch", type=int, default=240, help="samples of a step, over all processes")
    parser.add_argument("--save-every", type=int, default=50, help="steps between two saves")
    folder = Path("saves", os.environ.get("JOB_UID", ""))
    parser.add_argument("--folder", type=Path, default=folder, help="the folder of the saves; all workers share it")
    parser.add_argument(
        "--step-seconds", type=float, default=0.1, help="the least time of a step, as of a larger model"
    )
    parser.add_argument("--record", default="", help="also append every line to this file")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def main() -> int:
    """Train, and return exit code 0 if the last step is done, else the code of a process that SIGTERM has ended."""
    arguments = parse()
    log = Log(arguments.record)
    log.say(launch=log.pod)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=PEER_TIMEOUT)
    workers = int(os.environ.get("TORCHQ_MAX_WORKERS") or dist.get_world_size())
    largest_world = workers * int(os.environ.get("LOCAL_WORLD_SIZE") or 1)
    training = Training(Data(arguments.seed), arguments.batch, largest_world, arguments.seed)
    complete = train(training, Saves(arguments.folder), log, arguments)
    if not complete:
        return 128 + signal.SIGTERM
    dist.barrier()  # no rank may end while another still communicates with it
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
