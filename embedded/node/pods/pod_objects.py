"""The ConfigMaps and Secrets of one pod, gathered for each step that needs them.

One rule: a step takes no answer from before its own begin. So a container sees the newest contents, and contents that
belong together are read for one purpose only.
"""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

from embedded.config_sources import ConfigKey, ConfigObject, ConfigObjects
from embedded.node.pods.config_reader import ConfigReader


@dataclass(slots=True)
class _Step:
    ticket: int
    found: dict[ConfigKey, ConfigObject] = field(default_factory=dict)
    rejected: set[ConfigKey] = field(default_factory=set)
    """The objects that lacked a key, so that they are read again."""


class PodObjects:
    """The objects that one pod reads."""

    def __init__(self, reader: ConfigReader) -> None:
        self._reader = reader
        self._steps: dict[Hashable, _Step] = {}

    def gather(self, name: Hashable, keys: Iterable[ConfigKey]) -> ConfigObjects | None:
        """Return all objects that a step needs, as they were read after its first call; None while some are not read.

        An object that is missing counts as read, and it is read again, as an object that is rejected.
        """
        wanted = list(keys)
        if not wanted:
            return {}
        step = self._steps.get(name) or self._steps.setdefault(name, _Step(self._reader.ticket()))
        for key in wanted:
            if key not in step.found or step.found[key].problem or key in step.rejected:
                answer = self._reader.find(key, step.ticket)
                if answer is not None:
                    step.found[key] = answer
        return step.found if all(key in step.found for key in wanted) else None

    def reject(self, name: Hashable, key: ConfigKey) -> None:
        """Have an object of a step read again after a pause, because it lacks a key or is missing."""
        step = self._steps[name]
        step.rejected.add(key)
        self._reader.reject(key, step.found[key])

    def end(self, name: Hashable) -> None:
        """Forget the objects of a step that is done."""
        self._steps.pop(name, None)
