"""Check a node before training: a multiplication on each of its GPUs, then two rounds of all_gather in pairs.

Each pod runs one process: `python check.py`. It reads MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE. A pair fails
together, so the second round pairs each node that failed with one that did not. A node that fails both rounds is to
blame, and ends with exit code 1; the others end well. Without GPUs it checks the CPU, and the network by gloo.

Each step is a process of its own, since a device or a library may hang.
"""

import json
import os
import subprocess
import sys
import time
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from pairs import pair

SECONDS = int(os.environ.get("NODE_CHECK_SECONDS", "60"))
"""The longest time of one step."""
RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def main() -> int:
    """Check this node and return the exit code."""
    store = meet(is_host=RANK == 0)
    works = run("multiply")
    first = play(store, "first", pair(WORLD), works)
    second = play(store, "second", pair(WORLD, first), works)
    store.set(f"done/{RANK}", "well")
    if RANK == 0:  # the others need the store until they are done
        failed_ranks(store, "done")
    guilty = sorted(first & second)
    print(f"ranks that failed: first round {sorted(first)}, second round {sorted(second)}, both {guilty}", flush=True)
    return int(RANK in guilty)


def meet(is_host: bool) -> Any:
    """Return the store where all ranks meet."""
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    patience = timedelta(seconds=4 * SECONDS)
    return dist.TCPStore(address, port, is_master=is_host, wait_for_workers=False, timeout=patience)


def play(store: Any, name: str, groups: list[list[int]], works: bool) -> set[int]:
    """Take part in a round and return the ranks that failed in it: rank 0 decides, so that all know the same."""
    group = next(each for each in groups if RANK in each)
    well = works and (len(group) == 1 or run("gather", name, json.dumps(group)))
    store.set(f"{name}/{RANK}", "well" if well else "bad")
    if RANK == 0:
        store.set(f"{name}/failed", json.dumps(failed_ranks(store, name)))
    return set(json.loads(store.get(f"{name}/failed")))


def failed_ranks(store: Any, name: str) -> list[int]:
    """Return the ranks that have failed, or that do not answer in time."""
    deadline, failed = time.monotonic() + 2 * SECONDS, []
    for rank in range(WORLD):
        try:
            store.wait([f"{name}/{rank}"], timedelta(seconds=max(0.1, deadline - time.monotonic())))
            well = store.get(f"{name}/{rank}") == b"well"
        except Exception:  # versions of torch differ in its type
            well = False
        failed += [] if well else [rank]
    return failed


def run(*step: str) -> bool:
    """Run a step in a process of its own, and return whether it ended well in time."""
    try:
        return subprocess.run([sys.executable, __file__, *step], timeout=SECONDS, check=False).returncode == 0
    except subprocess.TimeoutExpired:
        print(f"{step[0]} takes longer than {SECONDS} s", flush=True)
        return False


def multiply() -> None:
    """Multiply on every device of this node, and print the seconds of the slowest one."""
    slowest, size = 0.0, int(os.environ.get("NODE_CHECK_SIZE", "1024"))
    for device in [f"cuda:{index}" for index in range(torch.cuda.device_count())] or ["cpu"]:
        began = time.monotonic()
        ones = torch.ones(size, size, device=device)
        for _ in range(5):
            if not bool((ones @ ones == size).all()):
                raise RuntimeError(f"a multiplication on {device} is wrong")
        slowest = max(slowest, time.monotonic() - began)
    print(f"multiplied in {slowest:.2f} s", flush=True)


def gather(name: str, group: list[int]) -> None:
    """Exchange numbers with the other ranks of a group, and compare what has arrived."""
    on_gpu = torch.cuda.is_available()
    dist.init_process_group(
        "nccl" if on_gpu else "gloo",
        store=dist.PrefixStore(f"{name}/{group}", meet(is_host=False)),
        rank=group.index(RANK),
        world_size=len(group),
        timeout=timedelta(seconds=SECONDS),
    )
    mine = torch.full((1 << 20,), float(RANK), device="cuda" if on_gpu else "cpu")
    for _ in range(5):
        found = [torch.empty_like(mine) for _ in group]
        dist.all_gather(found, mine)
        if [float(each.min()) for each in found] != group:
            raise RuntimeError(f"all_gather with ranks {group} is wrong")
    dist.destroy_process_group()


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["multiply"]:
            multiply()
        case ["gather", name, group]:
            gather(name, json.loads(group))
        case _:
            sys.exit(main())
