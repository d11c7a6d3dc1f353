"""The environment a training process finds: right for `python train.py` and for `torchrun train.py` alike.

One rule: what the user set wins and stands once. Ours stands first, so that the user's values may refer to it: $(RANK).

torchrun reads PET_<OPTION> as the default of each of its options (torch.distributed.argparse_util), so that a plain
`torchrun train.py` joins the other pods by static rendezvous. One pod is one node of torchrun; WORLD_SIZE and RANK
count pods, and torchrun replaces them by its own for the processes it starts, PET_NPROC_PER_NODE in each pod.
"""

from typing import Any

from reconcilers.pods.task_members import Member


def variables(member: Member, address: str, port: int, processes: int) -> dict[str, str]:
    """The variables of one pod whose rank 0 listens at an address, and in which torchrun starts so many processes; a
    pod outside of the world gets no rank."""
    found = {"PYTHONUNBUFFERED": "1"}
    if member.lead:
        found |= {"MASTER_ADDR": address, "MASTER_PORT": str(port)}
    if member.rank is None:
        return found
    return found | {
        "RANK": str(member.rank),
        "WORLD_SIZE": str(member.world_size),
        "PET_NNODES": str(member.world_size),
        "PET_NODE_RANK": str(member.rank),
        "PET_NPROC_PER_NODE": str(processes),
        "PET_MASTER_ADDR": address,
        "PET_MASTER_PORT": str(port),
    }


def add(container: dict[str, Any], found: dict[str, str]) -> None:
    """Put the variables into a container of a fresh copy of a template."""
    users = container.get("env") or []
    taken = {each["name"] for each in users}
    container["env"] = [{"name": name, "value": value} for name, value in found.items() if name not in taken] + users
