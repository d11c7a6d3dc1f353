"""Objects of an installation by kind, and the rules for each single object.

One rule: a check names the object that fails the check.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Manifest = Mapping[str, Any]
PREFIX = "app.kubernetes.io/"
RECOMMENDED = ("name", "instance", "version", "component", "part-of", "managed-by")
CLUSTER_WIDE = (
    *("Namespace", "CustomResourceDefinition", "ClusterRole", "ClusterRoleBinding", "PriorityClass"),
    *("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"),
)
LONGEST_NAME = 63
UNLIMITED = ("Cluster", "Custom", "Priority", "Role", "Validating")
"""The beginnings of kinds whose names may be longer."""
SERVICE_NAME = re.compile("[a-z]([-a-z0-9]*[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class PodTemplate:
    """The pods of a Deployment or a CronJob."""

    owner: Manifest
    template: Manifest

    @property
    def component(self) -> str:
        """The components of the pods, by their label."""
        return str(self.labels.get(f"{PREFIX}component", ""))

    @property
    def labels(self) -> Mapping[str, str]:
        """The labels of the pods."""
        return self.template["metadata"].get("labels") or {}

    @property
    def spec(self) -> Mapping[str, Any]:
        """The spec of the pods."""
        found: Mapping[str, Any] = self.template["spec"]
        return found

    @property
    def containers(self) -> Sequence[Mapping[str, Any]]:
        """All containers of the pods."""
        return [*self.spec.get("initContainers", ()), *self.spec["containers"]]

    @property
    def ports(self) -> Mapping[str, int]:
        """The named ports of the pods."""
        return {each["name"]: each["containerPort"] for one in self.containers for each in one.get("ports", ())}


def describe(document: Manifest) -> str:
    """Return the name of an object for a message."""
    metadata = document["metadata"]
    place = f"{metadata['namespace']}/" if "namespace" in metadata else ""
    return f"{document['kind']} {place}{metadata['name']}"


def of_kind(documents: Iterable[Manifest], *kinds: str) -> list[Manifest]:
    """Return the objects of these kinds."""
    return [each for each in documents if each["kind"] in kinds]


def pods(documents: Iterable[Manifest]) -> Iterator[PodTemplate]:
    """Yield the pods of all objects that make some."""
    for each in documents:
        if each["kind"] == "Deployment":
            yield PodTemplate(each, each["spec"]["template"])
        elif each["kind"] == "CronJob":
            yield PodTemplate(each, each["spec"]["jobTemplate"]["spec"]["template"])


def identities(documents: Iterable[Manifest]) -> list[str]:
    """Return the objects that are there twice, are in no namespace, or have names that are too long."""
    found = list(documents)
    counts = Counter(describe(each) for each in found)
    problems = [f"{name} is there {count} times" for name, count in counts.items() if count > 1]
    for each in found:
        is_cluster_wide = each["kind"] in CLUSTER_WIDE
        if is_cluster_wide == ("namespace" in each["metadata"]):
            problems.append(f"{describe(each)} must have a namespace only if its kind is namespaced")
        if each["kind"] == "Service" and not SERVICE_NAME.fullmatch(each["metadata"]["name"]):
            problems.append(f"{describe(each)} has a name that no Service may have")
        if len(each["metadata"]["name"]) > LONGEST_NAME and not each["kind"].startswith(UNLIMITED):
            problems.append(f"{describe(each)} has a name with more than {LONGEST_NAME} characters")
    return problems


def labels(documents: Iterable[Manifest], more: Mapping[str, str]) -> list[str]:
    """Return the objects and pods without the recommended labels, or without `more`."""
    found = list(documents)
    named = [(describe(each), each["metadata"].get("labels") or {}) for each in found]
    named += [(f"pods of {describe(each.owner)}", each.labels) for each in pods(found)]
    return [
        f"{name} lacks label {label}"
        for name, own in named
        for label in (*(PREFIX + part for part in RECOMMENDED), *more)
        if not own.get(label) or (label in more and own[label] != more[label])
    ]
