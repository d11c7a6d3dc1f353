"""Names of the labels and annotations that torchq puts on objects.

One rule: everything a rebuild needs to know about a pod whose job has vanished is here.
"""

GROUP = "train.distributed.io"

JOB_NAME = f"{GROUP}/job-name"
JOB_UID = f"{GROUP}/job-uid"
TASK_TYPE = f"{GROUP}/task-type"
"""Label: the task type in lower case, as in the pod's name."""
TASK_INDEX = f"{GROUP}/task-index"
ATTEMPT = f"{GROUP}/attempt"
"""Label: the admission attempt a pod belongs to; a pod of another attempt is deleted."""
RESTART = f"{GROUP}/restart"
"""Label: the job's restart generation that a pod belongs to; one of an earlier generation is restarted or replaced."""
QUEUE = f"{GROUP}/queue"
"""Label: the tenant queue that pays for the pod."""

CHARGE = f"{GROUP}/charge"
"""Annotation: the pod's share of the charge, as JSON {canonical resource name: amount}."""
GANG = f"{GROUP}/gang"
"""Annotation: the name of the all-or-nothing group a pod is bound with; unique in the cluster."""
GANG_SIZE = f"{GROUP}/gang-size"
"""Annotation: how many pods the group must have before any of them is bound."""
SUBMIT_DIRECTORY = f"{GROUP}/submit-directory"
"""Annotation on a TorchJob and its pods: the folder of submission, the working directory on the embedded node."""
FOLDER_UNKNOWN = f"{GROUP}/FolderUnknown"
"""Condition of a pod on the embedded node: a container failed because a file is missing in its working folder, which is
an empty one, as neither the container nor the job names a folder. The message says what to do."""
SUBMITTED = f"{GROUP}/submitted"
"""Annotation on a TorchJob: when `torchq submit` submitted it, and its place in the list
(`crds.torchjob.submission_order`). It decides
the order among jobs that were created in the same second."""
RETRY_AT = f"{GROUP}/retry-at"
"""Annotation on a TorchJob: a time (RFC 3339). A job that was sent back before it, by backing off or parking, waits in
its queue again from then on."""
START = f"{GROUP}/start"
"""Annotation on a pod: its start gate is open; any text. It never closes again."""
RESTART_CONTAINERS = f"{GROUP}/restart-containers"
"""Annotation on a pod: the restart generation for which its node is to restart its containers in place; where that is
asked for by an object of its own: for which it has."""
RESTART_ASKED = f"{GROUP}/restart-asked"
"""Annotation on a pod: when that was asked of its node (RFC 3339)."""
RESTARTS_SETTLED = f"{GROUP}/restarts-settled"
"""Annotation on a pod that its node restarts in place: how many restarts of its main container have been seen to."""
OBJECT_ERRORS = f"{GROUP}/ObjectErrors"
"""Type of a node's condition: its embedded node has skipped pods after unforeseen errors; the message names them."""
RESTARTED = f"{GROUP}/ContainersRestarted"
"""Type of a pod's condition: its containers were restarted in place; the message is the generation they were restarted
for. False, with a reason, where that could not be done."""
POD_UID = f"{GROUP}/pod-uid"
"""Annotation on a request to recreate containers: the uid of the pod that is meant."""
RESTART_REQUEST = f"{GROUP}/restart-request"
"""Annotation on a TorchJob: what its owner wants restarted, as JSON (`crds.torchjob.restart_requests`)."""

VET = f"{GROUP}/vet"
"""Annotation on a pod of a dry run, any text: an embedded API server then refuses what its node would not run."""
EMBEDDED = "torchq"
"""No label: nodeInfo.kubeletVersion of an embedded node, beside which no other node ever comes to its cluster."""
