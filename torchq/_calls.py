"""The table of all calls: the calls that a caller may make of the program `torchq`, with parameters, answers and
descriptions.

One rule: this table is the source. `torchq/_sync_calls.py` and `torchq/_async_calls.py` are made from it, and `torchq
rpc` checks incoming calls against this table.
"""

from __future__ import annotations

from collections.abc import Mapping

from torchq._run_parameters import RUN
from torchq._table import FOLDER, PYTHON_FOLDER, Call, Parameter, as_map

_REASON = Parameter("reason", "text", '""', note="is recorded in the event of the change")
_COUNT = Parameter("count", "whole", "20")
_TIMEOUT = Parameter("timeout", "number", "None", note="is in seconds (default: as long as needed)")
_OF_SEVERAL = (Parameter("jobs", "jobs", first=True), _REASON)
_NONE_STARTS = ("None of them starts meanwhile.",)
_FIND = "Raises NotFound if there is no such job, or if the handle belongs to an earlier job of that name."

_OF_CLIENT = (
    Call(
        "run",
        RUN,
        "job",
        "Run a command on the cluster, in a copy of this folder as it is now, and return the job's handle.",
        (
            "The job does not depend on this program: it goes on when this program ends. What is not given comes from",
            "[tool.torchq] in the folder's pyproject.toml. Raises Invalid for a wrong value, AlreadyExists for a name",
            "that is taken, and Refused for a job that could never run.",
        ),
        sends=(PYTHON_FOLDER,),
    ),
    Call(
        "dry_run",
        RUN,
        "documents",
        "Return what `run` would submit: the ConfigMaps with the code, then the TorchJob. Nothing is made.",
        ("`submit` takes all of them, and gives the same run.",),
        repeatable=True,
        sends=(PYTHON_FOLDER,),
    ),
    Call(
        "submit",
        (
            Parameter("manifests", "documents", first=True),
            Parameter("anyway", "flag", "False"),
            Parameter("dry_run", "flag", "False"),
        ),
        "jobs",
        "Submit TorchJobs as `torchq submit` does: all of them or none. Each runs in the present folder.",
        ("With `anyway`, jobs that can never run are submitted, too. With `dry_run`, they are only checked.",),
        sends=(FOLDER,),
    ),
    Call(
        "job",
        (Parameter("name", "text", first=True),),
        "job",
        "Return the job of a name, a namespace/name or a handle.",
        (_FIND,),
        repeatable=True,
    ),
    Call(
        "jobs",
        (
            Parameter("queue", "text", "None"),
            Parameter("phase", "text", "None", note="is Queued, Admitted, Running, Suspended, Succeeded or Failed"),
            Parameter("namespace", "text", "None"),
            Parameter("all_namespaces", "flag", "False"),
        ),
        "jobs",
        "Return the jobs of a namespace in the order of submission.",
        repeatable=True,
    ),
    Call(
        "wait",
        (
            Parameter("jobs", "jobs", first=True),
            Parameter("first", "flag", "False"),
            _TIMEOUT,
            Parameter("goal", "text", '"Finished"', note="is Finished or Running"),
        ),
        "endings",
        "Wait until all jobs have ended; with `first`, until one has. Return the ends in the order of the jobs.",
        ("A cancelled or deleted job ends the wait, too. Raises TimedOut; the jobs go on.",),
        repeatable=True,
        long=True,
    ),
    Call(
        "as_completed",
        (Parameter("jobs", "jobs", first=True), _TIMEOUT),
        "job",
        "Yield each job as it ends. Raises TimedOut; the jobs go on.",
        stream=True,
    ),
    Call(
        "cancel",
        _OF_SEVERAL,
        "nothing",
        "End jobs for good. Their status and their logs stay for a while.",
        _NONE_STARTS,
    ),
    Call("delete", _OF_SEVERAL, "nothing", "Delete jobs, their pods and their status.", _NONE_STARTS),
    Call("suspend", _OF_SEVERAL, "nothing", "Delete the pods of jobs and free their charge.", _NONE_STARTS),
    Call("hold", _OF_SEVERAL, "nothing", "Keep waiting jobs out of the order until they are resumed.", _NONE_STARTS),
    Call("queues", (), "documents", "Return all queues with their shares and usage, as TenantQueues.", repeatable=True),
    Call(
        "queue",
        (Parameter("name", "text", first=True),),
        "document",
        "Return one queue with its shares and usage, as a TenantQueue.",
        repeatable=True,
    ),
    Call(
        "next_picks",
        (_COUNT, Parameter("roomy", "flag", "False", note="shows the order as if all jobs had room")),
        "documents",
        "Return the jobs that would be admitted next, in that order.",
        repeatable=True,
    ),
    Call(
        "status", (), "document", "Return the health of the whole system, as `torchq status` shows it.", repeatable=True
    ),
    Call(
        "command",
        (Parameter("arguments", "words", first=True),),
        "text",
        "Run any other command of `torchq` that ends by itself, and return what it prints.",
        ('As in `command("queue", "pause", "team-a")`. Raises the error that the command would print.',),
    ),
)

_OF_JOB = (
    Call(
        "phase",
        (),
        "text",
        "The phase of the job, Pending before it has one.",
        (_FIND,),
        repeatable=True,
        attribute=True,
    ),
    Call(
        "why",
        (),
        "document",
        "Return why the job waits, or what it does instead: `code`, `message` and numbers.",
        repeatable=True,
    ),
    Call(
        "position",
        (),
        "place",
        "Return the job's place in its queue, from 1; None if it does not wait in a queue.",
        repeatable=True,
    ),
    Call(
        "pods",
        (),
        "documents",
        "Return the pods of the job: name, task, index, phase, ready, node, restarts.",
        repeatable=True,
    ),
    Call(
        "details", (), "document", "Return the whole TorchJob with all that `torchq job show` knows.", repeatable=True
    ),
    Call(
        "logs",
        (
            Parameter("follow", "flag", "False", note="goes on to the end of the job, through restarts"),
            Parameter("task", "text", "None", note="is a task type; without one, the lines of all pods come"),
            Parameter("index", "whole", "None"),
            Parameter("container", "text", "None"),
            Parameter("tail", "whole", "None", note="is the number of lines of each pod to begin with"),
            Parameter("previous", "flag", "False", note="gives the run before the last restart"),
            Parameter("run", "whole", "None", note="is the run to give, from 1 (default: all)"),
        ),
        "log line",
        "Yield the lines that the pods of the job print.",
        (
            "Every line comes once, with its pod; a line without a pod is a note of torchq. The stream ends when the",
            "caller leaves the loop. Raises Refused, which says why, for a job that has no output.",
        ),
        stream=True,
    ),
    Call(
        "reports",
        (Parameter("follow", "flag", "True"),),
        "document",
        "Yield what training code reports with `torchq.report`, with `pod` and `time`.",
        (
            "It ends with the job. Without `follow`, it ends after the reports so far. Reports by the progress",
            "protocol of Kubeflow Trainer come, too; without `follow`, the last one of each pod.",
        ),
        stream=True,
    ),
    Call(
        "wait",
        (_TIMEOUT, Parameter("goal", "text", '"Finished"', note="is Finished or Running")),
        "ending",
        "Wait until the job has ended, and return how: Succeeded, Failed, Cancelled or Deleted.",
        ("Raises TimedOut; the job goes on.",),
        repeatable=True,
        long=True,
    ),
    Call(
        "result",
        (_TIMEOUT,),
        "result",
        "Wait until the job has succeeded, and return its result; None if rank 0 gave none.",
        (
            "It is the map of what was given to `torchq.result`, or the JSON value that a function has returned.",
            "Raises Failed, which says why, if the job did not succeed, NotFound if the result was too large to "
            "keep or cannot be read from here, and TimedOut; the job goes on.",
        ),
        repeatable=True,
        long=True,
    ),
    Call(
        "outputs",
        (),
        "document",
        "Return where the files are that the job writes to `torchq.output()`.",
        repeatable=True,
    ),
    Call(
        "download",
        (Parameter("pattern", "text", '"**"', first=True), Parameter("to", "path", '"."')),
        "texts",
        "Copy the output files that match a pattern into a folder, and return their names.",
        ("Also those beside the code of rank 0. Raises Refused, with their place, if they cannot be read from here.",),
        repeatable=True,
        long=True,
    ),
    Call("suspend", (_REASON,), "nothing", "Delete the job's pods and free its charge. The job keeps its age."),
    Call("resume", (_REASON,), "nothing", "Resume a suspended, held or delayed job."),
    Call(
        "restart",
        (
            Parameter("task", "text", "None"),
            Parameter("index", "whole", "None"),
            Parameter("how", "text", "None", note="is InPlace or Recreate"),
            _REASON,
        ),
        "nothing",
        "Restart the job, a task or one pod. The job keeps its room and its code.",
    ),
    Call("cancel", (_REASON,), "nothing", "End the job for good. Its status and its logs stay for a while."),
    Call("delete", (_REASON,), "nothing", "Delete the job, its pods and its status."),
    Call("hold", (_REASON,), "nothing", "Keep a waiting job out of the order until it is resumed."),
    Call("bump", (_REASON,), "nothing", "Move a waiting job to the head of its queue."),
    Call(
        "move",
        (Parameter("queue", "text", first=True), Parameter("anyway", "flag", "False"), _REASON),
        "nothing",
        "Move a waiting job to another queue.",
        ("Raises Refused if it could never run there, unless `anyway`.",),
    ),
    Call(
        "scale",
        (Parameter("workers", "whole", first=True), Parameter("anyway", "flag", "False")),
        "nothing",
        "Change the number of workers of an elastic job.",
        ("Raises Refused if it could never run with that number, unless `anyway`.",),
    ),
)

OF_CLIENT: Mapping[str, Call] = as_map("", _OF_CLIENT)
"""The calls of a client, by the name of their method."""
OF_JOB: Mapping[str, Call] = as_map("job.", _OF_JOB)
"""The calls of a job, by the name of their method."""
CALLS: Mapping[str, Call] = {**OF_CLIENT, **OF_JOB}
