"""The environment variables of a training process, right for both `python train.py` and `torchrun train.py`.

One rule: a variable that the user sets wins and stands once. Variables of torchq stand first, so that the user's values
may refer to them: $(RANK).

torchrun reads PET_<OPTION> as the default of each of its options (torch.distributed.argparse_util). A plain `torchrun
train.py` therefore joins the other pods by static rendezvous. One pod is one node of torchrun. WORLD_SIZE and RANK
count pods; torchrun replaces them by its own values for the PET_NPROC_PER_NODE processes that it starts in each pod.
"""

from typing import Any

from reconcilers.pods.task_members import PodMember


def pod_variables(member: PodMember, address: str, port: int, processes: int) -> dict[str, str]:
    """Return the variables of one pod. `address` and `port` are those of its rank 0, `processes` is the number of
    processes that torchrun starts in it. A pod outside of the world gets no rank."""
    env = {"PYTHONUNBUFFERED": "1"}
    if member.lead:
        env |= {"MASTER_ADDR": address, "MASTER_PORT": str(port)}
    if member.rank is None:
        return env
    return env | {
        "RANK": str(member.rank),
        "WORLD_SIZE": str(member.world_size),
        "PET_NNODES": str(member.world_size),
        "PET_NODE_RANK": str(member.rank),
        "PET_NPROC_PER_NODE": str(processes),
        "PET_MASTER_ADDR": address,
        "PET_MASTER_PORT": str(port),
    }


def add_variables(container: dict[str, Any], env: dict[str, str]) -> None:
    """Add the variables to a container of a fresh copy of a template."""
    users = container.get("env") or []
    user_names = {entry["name"] for entry in users}
    container["env"] = [{"name": name, "value": value} for name, value in env.items() if name not in user_names] + users
