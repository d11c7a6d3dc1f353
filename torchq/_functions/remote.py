"""`torchq.remote`: a function that runs here when it is called, and as a job when it is submitted.

One rule: a function or an argument that cannot be sent is refused before anything is sent.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import os
import sys
import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, TypedDict, TypeVar, overload

from torchq._errors import Invalid, Refused
from torchq._functions import guards, notebook, places
from torchq._functions.call import VARIABLE, FunctionCall
from torchq._sync_calls import Job
from torchq._training.importing import refuse_while_importing

if sys.version_info >= (3, 10):
    from typing import ParamSpec

    P = ParamSpec("P")
else:
    P = TypeVar("P")
if sys.version_info >= (3, 11):
    from typing import Unpack
R = TypeVar("R")


class RemoteOptions(TypedDict, total=False):
    """The options of a job of a function: the parameters of `torchq.run`, without those of its command."""

    name: str
    queue: str
    nodes: int | tuple[int, int]
    gpus: int
    cpus: float | str
    memory: str
    image: str
    env: Mapping[str, str]
    secret_env: Mapping[str, str]
    folder: str | os.PathLike[str]
    autoscale: bool
    checkpoint_seconds: int
    exclude: Iterable[str]
    namespace: str
    priority: int
    if_exists: str
    in_place: bool
    outputs: str
    model: str
    with_models: Iterable[str]
    labels: Mapping[str, str]
    anyway: bool
    success: str
    retries: int
    time: str
    grace: str
    ttl_seconds: int


class RemoteFunction(Generic[P, R]):
    """A function that can run as a job. Called, it runs here."""

    def __init__(self, function: Callable[P, R], options: Mapping[str, Any]) -> None:
        """Create it. Raises Invalid for an option that `torchq.run` does not have, Refused for a method."""
        unknown = sorted(set(options) - set(RemoteOptions.__annotations__))
        if unknown:
            known = ", ".join(RemoteOptions.__annotations__)
            raise Invalid(f"remote: there is no option {', '.join(unknown)}; there are {known}")
        if not isinstance(function, types.FunctionType):
            raise Invalid(f"remote: takes a function, not {type(function).__name__}")
        if places.is_of_class(function):  # here it would be called without its object
            places.check_kind(function)
        functools.update_wrapper(self, function)
        self.function: Callable[P, R] = function
        """The function itself."""
        self.options = dict(options)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the function here."""
        return self.function(*args, **kwargs)

    def submit(self, *args: P.args, **kwargs: P.kwargs) -> Job:
        """Run the function as a job, with the present content of this folder, and return the job's handle.

        Every rank calls the function with these arguments. The return value of rank 0 is the result of the job, and
        `Job.result` returns it as JSON expresses it. A function that returns None gives no result, so it may call
        `torchq.result`.

        Raises Refused for a function that the job could not find by its module and name, as a lambda. Raises Invalid
        for arguments that are not JSON, TypeError for arguments that the function does not take, and the
        errors of `torchq.run`.
        """
        refuse_while_importing()
        places.check_kind(self.function)
        inspect.signature(self.function).bind(*args, **kwargs)
        module, call = _find(self.function, os.fspath(self.options.get("folder") or os.curdir))
        text = FunctionCall(args, kwargs, call.search_path, call.file, call.source).as_text()
        command = ["python", "-m", "torchq._runner", module, self.function.__qualname__]
        environment = {**(self.options.get("env") or {}), VARIABLE: text}
        # The package itself imports this module.
        run: Callable[..., Job] = importlib.import_module("torchq").run
        return run(command, **{**self.options, "env": environment})

    def with_options(self, **options: Unpack[RemoteOptions]) -> RemoteFunction[P, R]:
        """Return the same function with other options, as in `train.with_options(gpus=8).submit(3e-4)`."""
        return RemoteFunction(self.function, {**self.options, **options})

    def __repr__(self) -> str:
        return f"<torchq.remote function {self.function.__qualname__}>"

    def __reduce__(self) -> str:
        """Be pickled by name, as functions are, for multiprocessing in the user's own code."""
        return self.function.__qualname__


@overload
def remote(function: Callable[P, R], /) -> RemoteFunction[P, R]: ...
@overload
def remote(**options: Unpack[RemoteOptions]) -> Callable[[Callable[P, R]], RemoteFunction[P, R]]: ...
def remote(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a function able to run as a job, as in `@torchq.remote(nodes=2, gpus=1, queue="team-a")`.

    Called, the function runs here, as ever. `submit` runs it as a job: the job gets this folder, the names of the
    module and of the function, and the arguments as JSON. The options are the same as those of `torchq.run`.

    Each node runs the function in one process, which has the variables RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT.
    """
    if function is not None:
        return RemoteFunction(function, options)
    return functools.partial(RemoteFunction, options=options)


def _find(function: Callable[..., Any], folder: str) -> tuple[str, FunctionCall]:
    """Return the name of the module that the job imports, and the way in which the job finds the module. Raises
    Refused.
    """
    name = function.__qualname__
    main = vars(sys.modules["__main__"])
    cells = main.get("In")
    is_of_main = function.__module__ == "__main__"
    if is_of_main and isinstance(cells, list) and not os.path.isfile(inspect.unwrap(function).__code__.co_filename):
        return notebook.MODULE, FunctionCall(source=notebook.make_module(cells, name, main))
    guards.refuse_unguarded(function)
    place = places.find(function, folder, sys.path)
    meant = getattr(sys.modules[function.__module__], name, None)
    if getattr(meant, "function", meant) is not function:
        raise Refused(f"{name} of the module {place.module} is something else by now: give the function another name")
    return place.module, FunctionCall(search_path=place.search_path, file=place.file)
