"""Names of the labels and annotations that torchq puts on objects.

One rule: these labels and annotations hold all that a rebuild needs to know about a pod whose job no longer exists.
"""

GROUP = "train.distributed.io"

JOB_NAME = f"{GROUP}/job-name"
JOB_UID = f"{GROUP}/job-uid"
TASK_TYPE = f"{GROUP}/task-type"
"""Label: the task type in lower case, as in the pod's name."""
TASK_INDEX = f"{GROUP}/task-index"
ATTEMPT = f"{GROUP}/attempt"
"""Label: the admission attempt that a pod belongs to; a pod of another attempt is deleted."""
RESTART = f"{GROUP}/restart"
"""Label: the job's restart generation that a pod belongs to; pods of earlier generations are restarted or replaced."""
QUEUE = f"{GROUP}/queue"
"""Label: the tenant queue whose quota the pod is charged to."""

CHARGE = f"{GROUP}/charge"
"""Annotation: the pod's share of the charge, as JSON {canonical resource name: amount}."""
GANG = f"{GROUP}/gang"
"""Annotation: the name of the all-or-nothing group that a pod is bound with; unique in the cluster."""
GANG_SIZE = f"{GROUP}/gang-size"
"""Annotation: the number of pods that the group must have before any of them is bound."""
SUBMIT_DIRECTORY = f"{GROUP}/submit-directory"
"""Annotation on a TorchJob and its pods: the folder the job was submitted from; on the embedded node, containers run
in it."""
PYTHON_FOLDER = f"{GROUP}/python-folder"
"""Annotation on a TorchJob and its pods: a folder that the embedded node puts first on PATH, so that `python` is the
caller's own."""
FOLDER_UNKNOWN = f"{GROUP}/FolderUnknown"
"""Type of a condition of a pod on the embedded node: a container failed because its working folder lacks a file.

The folder is empty, because neither the container nor the job names a folder. The message says what to do.
"""
PORT_SHARED = f"{GROUP}/PortShared"
"""Type of a condition of a pod on the embedded node: it is connected with a pod of another job, or a container failed
because another program has its port. The message says which one."""
SUBMITTED = f"{GROUP}/submitted"
"""Annotation on a TorchJob: the time at which `torchq submit` submitted it, and its place in the
submitted list (`crds.torchjob.submission_order`).

It decides the order of jobs that were created in the same second.
"""
SUBMITTED_BY = f"{GROUP}/submitted-by"
"""Annotation on a TorchJob: the name of the user who submitted it, as the API server told it to torchq's client.

Where the installation's ValidatingAdmissionPolicy is on, the API server accepts no other name and no later change;
elsewhere the name is the user's word.
"""
CODE = f"{GROUP}/code"
"""Label on a TorchJob of `torchq run` and on the ConfigMaps with its code: the first 16 hex digits of the digest."""
CODE_PENDING = f"{GROUP}/code-pending"
"""Annotation on a TorchJob that `torchq restore` has created on hold: its code is not there yet."""
RESTORED = f"{GROUP}/restored"
"""Annotation on a TorchJob that `torchq restore` created: the uid that the job had in the backup. Users can write it;
of a finished job, `status.restoredFrom` has the uid."""
RETRY_AT = f"{GROUP}/retry-at"
"""Annotation on a TorchJob: a time (RFC 3339) at which a retry was requested, or a job on hold was resumed.

A job that was sent back to its queue before that time, to back off or to be parked, waits for admission again.
"""
TOUCHED = f"{GROUP}/touched"
"""The annotation of a PodGroup: when it was written so that its scheduler tries again."""
START = f"{GROUP}/start"
"""Annotation on a pod: with any text, the pod's start gate is open. It never closes again."""
RENDEZVOUS_ID = f"{GROUP}/rendezvous-id"
"""Annotation on a pod of an elastic job: the name under which torchrun meets the other pods at the rendezvous store.

It changes with each restart of the whole job, because nobody can join a rendezvous that was closed.
"""
RANK = f"{GROUP}/rank"
"""Annotation on a pod of an elastic job whose ranks torchq chooses: the rank with which its containers start next."""
WORLD_SIZE = f"{GROUP}/world-size"
"""Annotation on such a pod: the number of pods that have ranks."""
TOPOLOGY = f"{GROUP}/topology"
"""Annotation on a pod whose rank follows from its node: the node's labels that gave the rank, as rack=r1,host=h2."""
REPORT_TOKEN = f"{GROUP}/report-token"
"""Annotation on a pod: the token with which the pods of its job report, for code that reads the token from a file."""
HOSTS = f"{GROUP}/hosts"
"""Annotation on a pod that trains with others: the hosts of its world now, as a host file has them."""
DISCOVER_HOSTS = f"{GROUP}/discover-hosts"
"""Annotation on such a pod: a script that prints these hosts."""
LEFT_NODES = f"{GROUP}/left-nodes"
"""Annotation on a pod: the nodes that pods of its job had left when it was created, separated by commas.

The pod avoids them. If it is bound to one of them all the same, it stays there, so that no pod is moved for ever.
"""
RESTART_CONTAINERS = f"{GROUP}/restart-containers"
"""Annotation on a pod: the restart generation for which its node has to restart its containers in place.

Where a separate object requests the restart, it is the generation for which the containers were restarted; with a
slash, it is a restart of this pod alone that is requested, and the number of restarts of its main container until then.
"""
RESTART_REQUESTED_AT = f"{GROUP}/restart-asked"
"""Annotation on a pod: the time at which this restart was requested from its node (RFC 3339)."""
RESTARTS_HANDLED = f"{GROUP}/restarts-settled"
"""Annotation on a pod that its node restarts in place: the number of handled restarts of its main container."""
OBJECT_ERRORS = f"{GROUP}/ObjectErrors"
"""Type of a condition of a node: the embedded node has skipped pods after unexpected errors; the message names them."""
CONTAINERS_RESTARTED = f"{GROUP}/ContainersRestarted"
"""Type of a condition of a pod: its containers were restarted in place.

The message is the restart generation. The status is False, with a reason, if the restart failed.
"""
POD_UID = f"{GROUP}/pod-uid"
"""Annotation on a request to recreate containers: the uid of the pod with these containers."""
CHECKPOINT_REQUESTED = f"{GROUP}/checkpoint-requested"
"""Annotation on a TorchJob: a number; its workers are asked to save, because some of them are about to be removed."""
CHECKPOINT_COMPLETED = f"{GROUP}/checkpoint-completed"
"""Annotation on a TorchJob: the number of the latest request to save that the workers have fulfilled."""
LINKS = f"{GROUP}/links"
"""Annotation on a TorchJob: links that the dashboard shows, as JSON {name: http or https address}."""
RESTART_REQUEST = f"{GROUP}/restart-request"
"""Annotation on a TorchJob: a restart that its user requests, as JSON (`crds.torchjob.restart_requests`)."""

RECORDED_VERSION = f"{GROUP}/recorded-version"
"""Annotation on the recorder's Lease: the resourceVersion of TorchJobs up to which every change is in the history."""
RECORDED_UNTIL = f"{GROUP}/recorded-until"
"""Annotation on the recorder's Lease: the time up to which everything is in the history."""

SCALE_OUT = f"{GROUP}/scale-out"
"""Finalizer of a ScaleOut that is under way: if the request is deleted, a worker first restores the size of the job."""

VET = f"{GROUP}/vet"
"""Annotation on a pod of a dry run: with any text, the embedded API server refuses a pod that its node cannot run."""
EMBEDDED = "torchq"
"""The nodeInfo.kubeletVersion of an embedded node (not a label). Its cluster never has another node."""
