"""Names of resources: what a container may ask for, and what a quota or a pool may limit.

One rule: pure. A limit on a name for which no job can ask limits nothing, so such a name is refused where it is
written.
"""

import difflib
import re

from crds.resources import quantities
from crds.resources.amounts import JOBS, PODS

STANDARD = "cpu|memory|ephemeral-storage|hugepages-[-._A-Za-z0-9]{1,53}"
EXTENDED = "[a-z0-9]([-.a-z0-9]*[a-z0-9])?/[A-Za-z0-9]([-._A-Za-z0-9]{0,61}[A-Za-z0-9])?"
"""A name with a domain, as in nvidia.com/gpu."""
RESOURCE = re.compile(rf"{STANDARD}|(?!requests\.){EXTENDED}")
"""What a container may ask for, as the API server judges it: one of its own names, or one with a domain."""
POD_NAMES = ("count/pods", "requests.pods")
"""Other names of `pods`; the first one is that of a ResourceQuota."""
LIMIT = rf"^({JOBS}|{PODS}|{'|'.join(POD_NAMES)}|(requests[.])?({STANDARD}|{EXTENDED}))$"
"""What a limit may be named. `requests.` before a name counts as the name, so it must not be there twice."""
TWO_PREFIXES = "requests.requests."
WHOLE = (
    "^[+]?([0-9]+([.]0*)?([KMGTPE]i|[kMGTPE]?|[eE][+]?[0-9]{1,2})|([0-9]*000|0+)([.]0*)?m"
    "|[0-9]*[.]([0-9]{1,3}0*k|[0-9]{1,6}0*M|[0-9]{1,9}0*[GTPE]))$"
)
"""What a quantity looks like that is a whole number. A number that is whole only because of a negative exponent is
refused, too."""
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
"""What people write, and what they mean."""


def canonical(name: str) -> str:
    """The name by which a limit counts: other names of `pods`, and ResourceQuota's prefix, are resolved."""
    return PODS if name in POD_NAMES else quantities.canonical(name)


def is_limit(name: str) -> bool:
    """Whether a limit may have the name: a job can ask for it, or it is `jobs` or `pods`."""
    known = name in (JOBS, PODS, *POD_NAMES)
    return known or RESOURCE.fullmatch(quantities.canonical(name)) is not None


def unknown(name: str) -> str:
    """What is wrong with a name that no limit may have, and what was meant, if that can be guessed."""
    meant = guess(name)
    return f"{name} is not a resource; did you mean {meant}?" if meant else f"{name} is {UNKNOWN}"


def guess(name: str) -> str:
    """The resource that was meant; empty if there is none near."""
    plain = quantities.canonical(name.lower().strip())
    near = difflib.get_close_matches(plain[:64], (*_USUAL, *_MEANT), 1, 0.75)
    found = plain if plain in _MEANT else next(iter(near), "")
    return _MEANT.get(found, found)


def is_counted_whole(name: str) -> bool:
    """Whether amounts of a resource are whole numbers: jobs, pods and devices. Kubernetes takes fractions of CPUs and
    of bytes."""
    return name in (JOBS, PODS, *POD_NAMES) or "/" in name


def is_divided(name: str, quantity: str | int | float) -> bool:
    """Whether a quantity is a fraction where only whole numbers make sense. The quantity itself is one."""
    if not is_counted_whole(name):
        return False
    return not (quantity.is_integer() if isinstance(quantity, float) else _WHOLE.fullmatch(str(quantity)))
