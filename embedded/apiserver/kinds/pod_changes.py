"""Validation of changes of pods.

One rule: the spec of a pod is fixed after creation, except for a few fields, which have their own rules.
"""

from collections.abc import Iterator
from typing import Any

from embedded.apiserver import status_errors
from embedded.apiserver.kinds import metadata
from embedded.apiserver.status_errors import Cause
from embedded.apiserver.storage.objects import encode

_CHANGEABLE = ("activeDeadlineSeconds", "tolerations", "schedulingGates")
_IMMUTABLE = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def check(new: dict[str, Any], old: dict[str, Any]) -> Iterator[Cause]:
    """Yield the problems of the change of a pod's spec."""
    several = [f for f in ("containers", "initContainers") if len(new.get(f) or ()) != len(old.get(f) or ())]
    if several:
        yield status_errors.not_allowed(f"spec.{several[0]}", "pod updates may not add or remove containers")
        return
    yield from _check_deadline(new, old)
    old_gates = {gate.get("name") for gate in old.get("schedulingGates") or ()}
    for index, gate in enumerate(new.get("schedulingGates") or ()):
        if gate.get("name") not in old_gates:
            detail = f"only deletion is allowed, but found new scheduling gate '{gate.get('name')}'"
            yield status_errors.not_allowed(f"spec.schedulingGates[{index}].name", detail)
    new_tolerations = [_without_seconds(toleration) for toleration in new.get("tolerations") or ()]
    if any(_without_seconds(toleration) not in new_tolerations for toleration in old.get("tolerations") or ()):
        detail = "existing toleration can not be modified except its tolerationSeconds"
        yield status_errors.not_allowed("spec.tolerations", detail)
    if encode(_immutable_part(new)) != encode(_immutable_part(old)):
        yield status_errors.not_allowed("spec", _IMMUTABLE)


def _check_deadline(new: dict[str, Any], old: dict[str, Any]) -> Iterator[Cause]:
    path, seconds, before = (
        "spec.activeDeadlineSeconds",
        new.get("activeDeadlineSeconds"),
        old.get("activeDeadlineSeconds"),
    )
    if seconds is not None and not 0 <= seconds < 2**31:
        yield status_errors.invalid_value(path, seconds, "must be between 0 and 2147483647, inclusive")
    elif seconds is not None and before is not None and seconds > before:
        yield status_errors.invalid_value(path, seconds, "must be less than or equal to previous value")
    elif seconds is None and before is not None:
        yield status_errors.invalid_value(path, None, "must not update from a positive integer to nil value")


def _without_seconds(toleration: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in toleration.items() if name != "tolerationSeconds"}


def _immutable_part(spec: dict[str, Any]) -> dict[str, Any]:
    fixed = {name: value for name, value in spec.items() if name not in _CHANGEABLE}
    for field in ("containers", "initContainers"):
        if field in fixed:
            fixed[field] = [{**container, "image": ""} for container in fixed[field]]
    return fixed


def check_status(new: dict[str, Any], old: dict[str, Any]) -> Iterator[Cause]:
    """Yield the problems of the change of a pod's status."""
    if "qosClass" in old and new.get("qosClass") != old["qosClass"]:
        yield status_errors.immutable("status.qosClass", new.get("qosClass", ""))
    for index, address in enumerate(new.get("podIPs") or ()):
        problem = metadata.ip_address_problem(address.get("ip", ""))
        if problem:
            yield status_errors.invalid_value(f"status.podIPs[{index}]", address.get("ip", ""), problem)
