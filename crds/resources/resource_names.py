"""Names of resources that a container may request, and of those that a quota or a pool may limit.

One rule: pure. A limit has no effect on a name that no job can request, so such a name is refused when a user writes
it.
"""

import difflib
import re

from crds.resources import quantities
from crds.resources.amounts import JOBS, PODS

STANDARD = "cpu|memory|ephemeral-storage|hugepages-[-._A-Za-z0-9]{1,53}"
EXTENDED = "[a-z0-9]([-.a-z0-9]*[a-z0-9])?/[A-Za-z0-9]([-._A-Za-z0-9]{0,61}[A-Za-z0-9])?"
"""A name with a domain, as in nvidia.com/gpu."""
RESOURCE = re.compile(rf"{STANDARD}|(?!requests\.){EXTENDED}")
"""A name that a container may request, as in the API server: a standard name, or a name with a domain."""
POD_NAMES = ("count/pods", "requests.pods")
"""Other names of `pods`; the first is the name in a ResourceQuota."""
LIMIT = rf"^({JOBS}|{PODS}|{'|'.join(POD_NAMES)}|(requests[.])?({STANDARD}|{EXTENDED}))$"
"""The pattern of a limit's name. A name may have the prefix `requests.` once."""
TWO_PREFIXES = "requests.requests."
WHOLE = (
    "^[+]?([0-9]+([.]0*)?([KMGTPE]i|[kMGTPE]?|[eE][+]?[0-9]{1,2})|([0-9]*000|0+)([.]0*)?m"
    "|[0-9]*[.]([0-9]{1,3}0*k|[0-9]{1,6}0*M|[0-9]{1,9}0*[GTPE]))$"
)
"""The pattern of a quantity that is a whole number. It refuses a whole number with a negative exponent, too."""
UNKNOWN = (
    "not a resource: write cpu, memory, ephemeral-storage, hugepages-<size>, jobs, pods or <domain>/<name>, "
    "as in nvidia.com/gpu"
)
DIVIDED = "must be a whole number: jobs, pods and devices cannot be divided"
_WHOLE = re.compile(WHOLE)
_USUAL = ("cpu", "memory", "ephemeral-storage", "nvidia.com/gpu", JOBS, PODS)
_MEANT = {
    **dict.fromkeys(("gpu", "gpus", "nvidia", "nvidia-gpu", "nvidia.com", "nvidia.gpu", "cuda"), "nvidia.com/gpu"),
    **dict.fromkeys(("cpus", "core", "cores", "vcpu", "vcpus", "processor", "processors"), "cpu"),
    **dict.fromkeys(("mem", "ram", "memory-bytes"), "memory"),
    **dict.fromkeys(("disk", "storage", "scratch"), "ephemeral-storage"),
    **{"hugepages": "hugepages-2Mi", "rdma": "rdma/hca"},
}
"""Frequent wrong names, and the resources that users mean by them."""


def canonical(name: str) -> str:
    """Return the canonical name of a limit: other names of `pods` and the prefix `requests.` are resolved."""
    return PODS if name in POD_NAMES else quantities.canonical(name)


def is_limit(name: str) -> bool:
    """Return whether a limit may have the name: a job can request it, or it is `jobs` or `pods`."""
    is_count = name in (JOBS, PODS, *POD_NAMES)
    return is_count or RESOURCE.fullmatch(quantities.canonical(name)) is not None


def unknown(name: str) -> str:
    """Return the problem of a name that no limit may have, with a suggestion if there is a similar name."""
    suggestion = guess(name)
    return f"{name} is not a resource; did you mean {suggestion}?" if suggestion else f"{name} is {UNKNOWN}"


def guess(name: str) -> str:
    """Return the resource with the most similar name; empty if there is none."""
    plain = quantities.canonical(name.lower().strip())
    near = difflib.get_close_matches(plain[:64], (*_USUAL, *_MEANT), 1, 0.75)
    match = plain if plain in _MEANT else next(iter(near), "")
    return _MEANT.get(match, match)


def is_counted_whole(name: str) -> bool:
    """Return whether amounts of a resource must be whole numbers: those of jobs, pods and devices.

    Kubernetes accepts fractions of CPUs and of bytes.
    """
    return name in (JOBS, PODS, *POD_NAMES) or "/" in name


def is_divided(name: str, quantity: str | int | float) -> bool:
    """Return whether a valid quantity is a fraction of a resource that cannot be divided."""
    if not is_counted_whole(name):
        return False
    return not (quantity.is_integer() if isinstance(quantity, float) else _WHOLE.fullmatch(str(quantity)))
