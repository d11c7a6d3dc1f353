"""An API server that adds requests to every new pod, as a namespace with a LimitRange does."""

from typing import Any


class Adding:
    """A cluster that adds requests to each container that lacks them."""

    def __init__(self, cluster: Any, **added: str) -> None:
        self._cluster, self._added = cluster, added

    def __getattr__(self, verb: str) -> Any:
        return getattr(self._cluster, verb)

    def create(self, resource: Any, manifest: Any, *args: Any, **named: Any) -> Any:
        if resource.kind == "Pod":
            for container in manifest["spec"]["containers"]:
                requests = container.setdefault("resources", {}).setdefault("requests", {})
                requests |= {name: amount for name, amount in self._added.items() if name not in requests}
        return self._cluster.create(resource, manifest, *args, **named)
