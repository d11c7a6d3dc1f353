"""A program that runs `torchq run` against the simulated API server, with a fault at one of its calls.

One rule: the program stands still before each call, so other programs can act between any two of its calls. A dead
program sends nothing more.
"""

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, get_args

from crds.api_resources import TORCHJOBS
from crds.keys import JobKey
from kube import errors
from tests.faults.api import ApiClient
from tests.faults.fibers import Fiber, Killed

Kind = Literal[
    "kill<", "kill>", "interrupt<", "interrupt>", "fail", "lost", "again", "busy", "conflict", "error<", "error>",
    "late", "cut",
]  # fmt: skip
"""What happens at a call. `<`: before the call takes effect; `>`: after it.

    kill        the program dies
    interrupt   the user presses Ctrl-C
    fail, lost  no answer comes: the call took no effect, or it did
    again       the call is sent twice, and the second answer comes
    busy        429 after all retries
    conflict    409: somebody else was faster
    error       500
    late        no answer comes, and the call takes effect after the program has ended
    cut         no answer comes to this call, nor to any later one; none of them takes effect
"""
KINDS: tuple[Kind, ...] = get_args(Kind)
_BEFORE: dict[Kind, BaseException] = {
    "kill<": Killed(),
    "interrupt<": KeyboardInterrupt(),
    "fail": errors.Unreachable("no answer"),
    "late": errors.Unreachable("no answer"),
    "cut": errors.Unreachable("no answer"),
    "busy": errors.TooManyRequests("429"),
    "conflict": errors.Conflict("409"),
    "error<": errors.ServerError("500"),
}
_AFTER: dict[Kind, BaseException] = {
    "kill>": Killed(),
    "interrupt>": KeyboardInterrupt(),
    "lost": errors.Unreachable("no answer"),
    "error>": errors.ServerError("500"),
}


@dataclass
class Client:
    """A program. `work` acts on the cluster of the program and returns the key of its job."""

    name: str
    api: ApiClient
    work: Callable[[Any], JobKey]
    faults: dict[int, Kind] = field(default_factory=dict)
    """The faults by the number of the call, from 1."""
    calls: list[str] = field(default_factory=list)
    result: JobKey | None = None
    error: BaseException | None = None
    dead: bool = False
    made: set[str] = field(default_factory=set)
    """The uids of the jobs that the calls of the program have created."""
    _cut: bool = False
    _late: list[Callable[[], Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._fiber = Fiber(self._run)

    def _run(self) -> None:
        try:
            self.result = self.work(self)
        except BaseException as error:
            self.error = error

    @property
    def done(self) -> bool:
        """Whether the program has ended and all its calls have taken effect."""
        return self._fiber.done and not self._late

    def step(self) -> None:
        """Let the program make its next call. If the program has ended, let a late call of the program take effect."""
        if self._fiber.done:
            self._late.pop(0)()
        else:
            self._fiber.resume()

    def pause(self, _: float) -> None:
        """Let the other programs act, as while a program sleeps."""
        if self.dead:
            raise Killed
        self._fiber.block(lambda: True)

    def __getattr__(self, verb: str) -> Any:
        """Return a method of Cluster that sends one call."""
        if verb.startswith("_"):
            raise AttributeError(verb)
        effect = getattr(self.api, verb)
        return lambda *given, **options: self._call(
            _label(verb, given[0].plural, options), partial(effect, *given, **options)
        )

    def _call(self, label: str, effect: Callable[[], Any]) -> Any:
        self.pause(0)
        self.calls.append(label)
        if self._cut:
            raise errors.Unreachable("no answer")
        kind = self.faults.get(len(self.calls))
        if kind in ("kill<", "kill>"):
            self.dead = True
        if kind == "late":
            self._late.append(partial(self._deliver, label, effect))
        self._cut = kind == "cut"
        if kind in _BEFORE:
            raise _BEFORE[kind]
        if kind == "again":
            self._deliver(label, effect)
        try:
            return self._noted(label, effect())
        finally:
            if kind in _AFTER:
                raise _AFTER[kind]

    def _deliver(self, label: str, effect: Callable[[], Any]) -> None:
        """Let a call take effect whose answer no program gets."""
        with contextlib.suppress(errors.ClusterError):
            self._noted(label, effect())

    def _noted(self, label: str, answer: Any) -> Any:
        if label == f"create {TORCHJOBS.plural}":
            self.made.add(answer["metadata"]["uid"])
        return answer


def _label(verb: str, plural: str, options: Mapping[str, Any]) -> str:
    return f"{verb} {plural}{' (dry run)' if options.get('dry_run') else ''}"
