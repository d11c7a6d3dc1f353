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
BYTES = "memory|ephemeral-storage|hugepages-.+"
"""The pattern of the resources of which less than a megabyte is a mistake: a suffix is missing, or it is m, thousandths
of a byte."""
TINY = (
    "^[+]?([0-9]{0,6}([.][0-9]*)?|[0-9]{0,3}([.][0-9]*)?(k|Ki)|0*[.][0-9]*(M|Mi)"
    "|[0-9]{0,9}([.][0-9]*)?m|[0-9]{0,12}([.][0-9]*)?u|[0-9]{0,15}([.][0-9]*)?n"
    "|([0-9]?([.][0-9]*)?[eE][+]?[0-5]|[0-9]{2}([.][0-9]*)?[eE][+]?[0-4]|[0-9]{3}([.][0-9]*)?[eE][+]?[0-3]"
    "|[0-9]{4}([.][0-9]*)?[eE][+]?[0-2]|[0-9]{0,6}([.][0-9]*)?[eE]-[0-9]+))$"
)
"""The pattern of a quantity that is less than a megabyte."""
NOUGHT = "^[+]?[0.]+([KMGTPE]i|[numkMGTPE]?|[eE].*)$"
"""The pattern of a quantity that is 0."""
HUGE = "^([^eE]*[0-9.]([KMGTPE]i|[MGTPE])|[+]?0*[1-9][0-9]{6,}([.][0-9]*)?|[+]?[0-9.]*[eE][+]?0*([6-9]|[1-9][0-9]+))$"
"""The pattern of a quantity that no number of CPUs has: a suffix of bytes, or millions."""
FEW_CPUS, MOST_CPUS = (
    "^[-+]?(0*[0-9]{0,6}([.][0-9]*)?|[0-9.]+([numk]|[eE]([+]?0*[0-5]|-[0-9]+))|[0.]+([KMGTPE]i|[MGTPE]|[eE].*))$",
    10**6 - 1,
)
"""The pattern of the other quantities of CPUs, for schemas that cannot negate one, and the largest number."""
FEW_BYTES = (
    "less than a megabyte cannot be meant: write Mi or Gi; m are thousandths of a byte, and no suffix means bytes"
)
MANY_CPUS = "millions of CPUs cannot be meant: write cores, as in 4, or thousandths of one, as in 500m"
_BYTES, _TINY, _NOUGHT, _HUGE = (re.compile(pattern) for pattern in (BYTES, TINY, NOUGHT, HUGE))
_NUMBER = re.compile(r"[+]?([0-9]+(?:[.][0-9]+)?)")
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
    """Return the resource with the most similar name; empty if there is no similar name."""
    plain = quantities.canonical(name.lower().strip())
    near = difflib.get_close_matches(plain[:64], (*_USUAL, *_MEANT), 1, 0.75)
    match = plain if plain in _MEANT else next(iter(near), "")
    return _MEANT.get(match, match)


def is_counted_whole(name: str) -> bool:
    """Return whether amounts of a resource must be whole numbers: the amounts of jobs, pods and devices.

    Kubernetes accepts fractions of CPUs and of bytes.
    """
    return name in (JOBS, PODS, *POD_NAMES) or "/" in name


def is_divided(name: str, quantity: str | int | float) -> bool:
    """Return whether a valid quantity is a fraction of a resource that cannot be divided."""
    if not is_counted_whole(name):
        return False
    return not (quantity.is_integer() if isinstance(quantity, float) else _WHOLE.fullmatch(str(quantity)))


def unmeant(name: str, quantity: str | int | float) -> str:
    """Return why a valid quantity of a resource is most likely a mistake, with a suggestion; empty if the quantity is
    plausible.
    """
    text, resource = str(quantity), canonical(name)
    if _BYTES.fullmatch(resource) and _TINY.fullmatch(text) and not _NOUGHT.fullmatch(text):
        return f"{FEW_BYTES}{_propose(text, 'Mi')}"
    if resource == "cpu" and _HUGE.fullmatch(text) and not _NOUGHT.fullmatch(text):
        return f"{MANY_CPUS}{_propose(text, 'm')}"
    return ""


def _propose(text: str, suffix: str) -> str:
    number = _NUMBER.match(text)
    meant = f"{number[1]}{suffix}" if number else ""
    return "" if _TINY.fullmatch(meant) and suffix != "m" else f"; did you mean {meant}?"
