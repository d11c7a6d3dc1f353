"""What a pod's node does about its containers that end.

One rule: pure. Decided once, when the pod is made, by the driver for restarts in place; failures are torchq's to judge,
all but those of a service task, which its node restarts for ever.

    driver            restartPolicy of the pod
    recreate, local   Never
    kruise            OnFailure: the node's part of a restart in place is to start what was ended
    kubernetes        Never; where single pods are restarted, with the rule that a failure of its main container
                      restarts all containers of its pod (RestartAllContainers: Kubernetes 1.36; older ones ignore it)
"""

from typing import Any

from reconcilers.views import containers

ON_FAILURE = {"action": "RestartAllContainers", "exitCodes": {"operator": "NotIn", "values": [0]}}


def apply(spec: dict[str, Any], task_policy: str, scope: str, driver: str) -> None:
    """Set it in a fresh copy of a template, for a task with a restartPolicy in a job with a restartScope."""
    if task_policy == "Always":
        spec["restartPolicy"] = "Always"
        return
    heals = task_policy != "Never"
    spec["restartPolicy"] = "OnFailure" if heals and driver == "kruise" else "Never"
    if heals and driver == "kubernetes" and scope == "Task":
        containers.main(spec).update(restartPolicy="Never", restartPolicyRules=[ON_FAILURE])
