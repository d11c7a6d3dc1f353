"""The parameters of `run`.

One rule: a parameter that is not given is not sent; the default is that of the project or of the cluster.
"""

from __future__ import annotations

from torchq._table import Parameter

RUN = (
    Parameter("command", "command", "None", first=True, note="is a list of words"),
    Parameter("roles", "roles", "None", note="takes the place of a command in a job with several"),
    Parameter("name", "text", "None"),
    Parameter("queue", "text", "None"),
    Parameter("nodes", "nodes", "None", note="is the number of pods; (1, 3) makes an elastic job of 1 to 3"),
    Parameter("gpus", "whole", "None", note="of each pod"),
    Parameter("cpus", "quantity", "None", note='of each pod, as in 4 or "100m"'),
    Parameter("memory", "text", "None", note="of each pod, as in 16Gi"),
    Parameter("image", "text", "None"),
    Parameter("env", "map", "None", note="are variables; a secret is refused here"),
    Parameter("secret_env", "map", "None", note='has values of Secrets: {"WANDB_API_KEY": "SECRET/KEY"}'),
    Parameter("folder", "path", '"."'),
    Parameter("autoscale", "flag", "None", note="asks for the least number of nodes; more come while room is idle"),
    Parameter("checkpoint_seconds", "whole", "None", note="is the time to save before workers go or restart"),
    Parameter("exclude", "texts", "None", note="are patterns of files to leave out"),
    Parameter("namespace", "text", "None"),
    Parameter("priority", "whole", "None"),
    Parameter("if_exists", "text", "None", note="is fail, replace or attach"),
    Parameter("in_place", "flag", "None", note="runs in the folder itself, on one machine only"),
    Parameter("outputs", "text", "None", note="is the claim for `torchq.output()`, on Kubernetes"),
    Parameter("model", "text", "None", note="names what the job trains, and with_models what it reads: digits@3f2a1"),
    Parameter("with_models", "texts", "None"),
    Parameter("labels", "map", "None"),
    Parameter("anyway", "flag", "None", note="submits a job that can never run, too"),
    Parameter("success", "text", "None", note="is all (every pod has ended with 0) or master (rank 0 has)"),
    Parameter("retries", "whole", "None", note="restarts the pods this often after any failure"),
    Parameter("time", "text", "None", note="is the longest run, as in 2h or 1h30m"),
    Parameter("grace", "text", "None", note="is the time to save after SIGTERM, as in 90s"),
    Parameter("ttl_seconds", "whole", "None", note="is how long the job stays after its end"),
)
"""See the table of calls."""
