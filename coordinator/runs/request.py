"""The request of a user: a command or several roles, in the present content of a folder.

One rule: a request is parsed once, from a document of plain values, and is right afterwards.
"""

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from coordinator.runs import variables
from coordinator.runs.document_fields import Fields
from coordinator.runs.variables import SecretKey
from crds.label_names import DNS_LABEL
from crds.torchjob.jobspec import MAX_BACKOFF_LIMIT, MAX_PRIORITY
from crds.torchjob.tasks import MASTER, MOST_TASKS, WORKER, TaskPhase

IfExists = Literal["fail", "replace", "attach"]
SuccessPolicy = Literal["AllTasks", "Master"]
LONGEST_LABEL = 63
_SUCCESS: dict[str, SuccessPolicy] = {"all": "AllTasks", "master": "Master"}


@dataclass(frozen=True, slots=True)
class Upstream:
    """A role that another role waits for."""

    role: str
    phase: TaskPhase


@dataclass(frozen=True, slots=True)
class RunRole:
    """One task of the job: a number of equal pods."""

    command: tuple[str, ...]
    nodes: int = 1
    """The pods that the job asks for."""
    gpus: int = 0
    """The GPUs of each pod."""
    cpus: str | None = None
    memory: str | None = None
    image: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    secret_env: Mapping[str, SecretKey] = field(default_factory=dict)
    after: Upstream | None = None
    bounds: tuple[int, int] | None = None
    """The least and the largest number of pods between which an elastic role may change; None: it is not elastic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """A run that a user asks for."""

    roles: Mapping[str, RunRole]
    """The roles by task type."""
    folder: str
    name: str = ""
    """The name of the job; empty: one is made from the command."""
    queue: str | None = None
    namespace: str
    priority: int = 0
    if_exists: IfExists = "fail"
    in_place: bool = False
    """Whether the job runs in the folder itself, which must be on the machine of an embedded cluster."""
    image: str = ""
    """The image of roles that have none; empty: the embedded cluster needs none."""
    labels: Mapping[str, str] = field(default_factory=dict)
    outputs: str = ""
    """The claim with the files of `torchq.output()`."""
    model: str = ""
    """The name of the model that the job trains; empty: none."""
    with_models: tuple[str, ...] = ()
    """The models that the job reads, each as NAME or NAME@VERSION."""
    ttl_seconds: int | None = None
    success: SuccessPolicy = "AllTasks"
    retries: int | None = None
    """How often the pods are restarted after any failure; None: only after failures that circumstances have caused."""
    time: int | None = None
    """The seconds that the job may run, from its admission."""
    grace: int | None = None
    """The seconds that each pod has to save and end after SIGTERM; None: those of Kubernetes."""
    exclude: tuple[str, ...] = ()
    checkpoint_seconds: int = 0
    """How long the job has to save before it is restarted or loses workers; 0: it is not asked."""
    autoscale: bool = False
    """Whether an elastic job asks for its least number of pods, and has more only while their room is idle."""


_ROLE_FIELDS = tuple(each.name for each in dataclasses.fields(RunRole) if each.name != "bounds")
FIELDS = tuple(dict.fromkeys((*_ROLE_FIELDS, *(each.name for each in dataclasses.fields(RunRequest)))))
"""The fields of a document: those of a run, and those of its only role."""


def parse(document: Mapping[str, Any]) -> RunRequest:
    """Return a request. `command` with `nodes` and so on is short for the roles Master and Worker.

    Raises InvalidRun with the field that is wrong.
    """
    fields = Fields(document, FIELDS)
    for name in ("folder", "namespace"):
        if not fields.text(name):
            raise fields.wrong(name, "is missing")
    roles = _sized(_roles(fields), fields)
    success = _SUCCESS[fields.choice("success", tuple(_SUCCESS))]
    if success == "Master" and MASTER not in roles:
        raise fields.wrong("success", f"master needs a {MASTER}: the pods of a range of nodes are all workers")
    if_exists: Any = fields.choice("if_exists", ("fail", "replace", "attach"))
    if if_exists != "fail" and not fields.text("name"):
        raise fields.wrong("if_exists", f"{if_exists} needs a name")
    return RunRequest(
        roles=roles,
        folder=fields.text("folder"),
        namespace=fields.text("namespace"),
        name=fields.text("name"),
        queue=fields.text("queue") or None,
        priority=fields.whole("priority", 0, -MAX_PRIORITY, MAX_PRIORITY),
        if_exists=if_exists,
        in_place=fields.flag("in_place"),
        image=fields.text("image"),
        labels=fields.map("labels"),
        outputs=fields.text("outputs"),
        model=_model(fields),
        with_models=fields.texts("with_models"),
        ttl_seconds=fields.whole("ttl_seconds", 0, 0) if "ttl_seconds" in fields else None,
        success=success,
        retries=fields.whole("retries", 0, 0, MAX_BACKOFF_LIMIT) if "retries" in fields else None,
        time=fields.duration("time"),
        grace=fields.duration("grace"),
        exclude=fields.texts("exclude"),
        checkpoint_seconds=fields.whole("checkpoint_seconds", 0, 0),
        autoscale=fields.flag("autoscale"),
    )


def _model(fields: Fields) -> str:
    name = fields.text("model")
    if name and (len(name) > LONGEST_LABEL or not re.fullmatch(DNS_LABEL, name)):
        raise fields.wrong("model", f"must be at most {LONGEST_LABEL} of a-z, 0-9 and -, as in digits, not {name!r}")
    return name


def _roles(fields: Fields) -> dict[str, RunRole]:
    if "roles" not in fields:
        document = {name: fields.value(name) for name in _ROLE_FIELDS if name != "image"}
        role = _role(Fields(document, _ROLE_FIELDS))
        if role.after is not None:
            raise fields.wrong("after", "is for a run with several roles")
        return _master_and_workers(role)
    for name in _ROLE_FIELDS:
        if name in fields and name != "image":
            raise fields.wrong(name, "a run has either this field or roles, each with its own")
    declared = fields.value("roles")
    if not isinstance(declared, Mapping) or not declared:
        raise fields.wrong("roles", "must be a map from names, as in Master and Worker, to roles")
    roles = {str(name): _role(Fields(role, _ROLE_FIELDS, f"roles.{name}")) for name, role in declared.items()}
    for name, role in roles.items():
        if role.after is not None and (role.after.role not in roles or role.after.role == name):
            raise fields.wrong(f"roles.{name}.after", f"must be another role, not {role.after.role!r}")
    return roles


def _sized(roles: dict[str, RunRole], fields: Fields) -> dict[str, RunRole]:
    """Return the roles; a role that grows into idle room asks for its least number of pods."""
    for name, role in roles.items():
        if role.bounds is not None and name != WORKER:
            raise fields.wrong(f"roles.{name}.nodes", f"only the role {WORKER} may have a range of nodes")
    worker = roles.get(WORKER)
    if not fields.flag("autoscale"):
        return roles
    if worker is None or worker.bounds is None:
        raise fields.wrong("autoscale", "needs a range of nodes, as in 1..3")
    return {**roles, WORKER: replace(worker, nodes=worker.bounds[0])}


def _master_and_workers(role: RunRole) -> dict[str, RunRole]:
    """Return the tasks of equal pods. Rank 0 is the Master; the pods of an elastic run are all workers."""
    if role.bounds is not None:
        return {WORKER: role}
    others = {WORKER: replace(role, nodes=role.nodes - 1)} if role.nodes > 1 else {}
    return {MASTER: replace(role, nodes=1), **others}


def _role(fields: Fields) -> RunRole:
    command = fields.texts("command")
    if not command or not command[0]:
        raise fields.wrong("command", "is missing, as in `python train.py`")
    nodes = fields.range("nodes", 1, 1, MOST_TASKS)
    return RunRole(
        command=command,
        nodes=nodes if isinstance(nodes, int) else nodes[1],
        bounds=None if isinstance(nodes, int) else nodes,
        gpus=fields.whole("gpus", 0, 0),
        cpus=fields.quantity("cpus", "cpu"),
        memory=fields.quantity("memory", "memory"),
        image=fields.text("image"),
        env=variables.check_plain(fields.map("env"), fields.path("env")),
        secret_env=variables.parse_secrets(fields.map("secret_env"), fields.path("secret_env")),
        after=_after(fields),
    )


def _after(fields: Fields) -> Upstream | None:
    """Return the role to wait for: NAME until it runs, NAME:Succeeded until it has succeeded."""
    text = fields.text("after")
    name, colon, phase = text.partition(":")
    if not text:
        return None
    if colon and phase not in ("Running", "Succeeded"):
        raise fields.wrong("after", f"must be ROLE, ROLE:Running or ROLE:Succeeded, not {text!r}")
    return Upstream(name, "Succeeded" if phase == "Succeeded" else "Running")
