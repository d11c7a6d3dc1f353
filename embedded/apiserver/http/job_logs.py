"""The logs of all runs of a TorchJob's containers over HTTP, also of pods that no longer exist.

One rule: read-only, and a log is there as long as its TorchJob exists, unless a bound removed it. A client that reads
the list after a pod is gone finds the runs of that pod in it.

Kubernetes has no such path: there the server answers 404. `crds.api_resources.job_logs_path` builds both paths.

    GET /torchq/logs/NAMESPACE/JOB-UID       200 {"runs": [RUN, ...]}, in the order in which the runs began
    GET /torchq/logs/NAMESPACE/JOB-UID/ID    200 text/plain: the output of one run

The first answers 404 (a Status, reason NotFound) if the TorchJob does not exist, and the second also if it has no such
run. A RUN has

    id          the last part of its path: POD-UID.CONTAINER.RESTART
    pod, podUid, task, index
                the pod's name, uid, task type in lower case, and task index (a number)
    attempt     the admission attempt of the pod (label `attempt`), a number
    generation  the job's restart generation when the pod was made (label `restart`), a number
    container, init, restart
                the container's name, whether it is an init container, and the number of its run, from 0
    startedAt   when the run began, as Kubernetes writes times with microseconds; null if it did not begin
    endedAt     when it ended; null while it runs, and if its end is not known
    exitCode    the exit code; null with `endedAt`
    start       the position of the first byte that is kept, in everything that the run has printed
    bytes       the number of bytes that are kept, from `start` on
    kept        true if the pod is gone, so that only the end of its output remains (`embedded.job_logs`)

The second takes the parameters of the subresource `log` of a pod: follow, tailLines, sinceSeconds, sinceTime,
limitBytes and timestamps. With `follow` it ends with the run. A line marks output that was removed, as in that
subresource.
"""
