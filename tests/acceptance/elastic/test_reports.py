"""Pods of real processes report their progress with the file of the example, and save when they are asked to."""

import json
import subprocess
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from coordinator.local.stack_state import Files
from tests.support.acceptance.jobs import job, python
from tests.support.acceptance.stack import Stack, fresh, until

EXAMPLE = Path(__file__).parents[3] / "examples" / "elastic"
TRAINING = """
import os, signal, sys, time
sys.path.insert(0, sys.argv[2])
import report
report.SECONDS = report.SECONDS_WHILE_ASKED = 5.1  # the least that the coordinator allows
step, saved = 100 * int(os.environ["RESTARTS"]), 0
while not os.path.exists(os.path.join(sys.argv[1], "go")):
    step += 1
    asked = report.report(step, samplesPerSecond=4.5, loss=1 / step, gauges={"lr": float("nan"), "grad_norm": 2.0})
    if asked > saved and os.path.exists(os.path.join(sys.argv[1], "save")):
        saved = asked
        report.report(step, checkpoint=saved)
    time.sleep(0.02)
"""

PROTOCOL = """
import json, os, sys, time, urllib.request
status = {"progressPercentage": 40, "estimatedRemainingSeconds": 90, "metrics": [{"name": "loss", "value": "0.25"}]}
with open(os.environ["KUBEFLOW_TRAINER_SERVER_TOKEN"]) as file:
    headers = {"Authorization": "Bearer " + file.read()}
body = json.dumps({"trainerStatus": status}).encode()
urllib.request.urlopen(urllib.request.Request(os.environ["KUBEFLOW_TRAINER_SERVER_URL"], body, headers)).close()
while not os.path.exists(os.path.join(sys.argv[1], "go")):
    time.sleep(0.02)
"""


def training(name: str, folder: Path, **spec: Any) -> dict[str, Any]:
    body = job(name, python(TRAINING, folder, EXAMPLE), workers=2, policy="OnFailure", cpu="100m", **spec)
    tasks = body["spec"]["torchTaskSpecs"]
    body["spec"]["torchTaskSpecs"] = {"Worker": {**tasks["Worker"], "dependsOn": []}}
    return body


def reports(stack: Stack, name: str) -> Any:
    return stack.output_json("job", "show", name)["details"]["training"]


def ask(url: str, token: str, body: dict[str, Any] | None = None) -> int:
    data = None if body is None else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data, {"Authorization": f"Bearer {token}"})) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def test_job_show_tells_what_the_pods_report(stack: Stack, tmp_path: Path) -> None:
    name, other = fresh("report"), fresh("report")
    stack.submit(training(name, tmp_path), training(other, tmp_path))
    found = until(lambda: reports(stack, name), lambda found: found.get("stepsPerSecond"))
    assert found["samplesPerSecond"] == 9.0
    assert [each["pod"] for each in found["pods"]] == [f"{name}-worker-0", f"{name}-worker-1"]
    assert {json.dumps(each["gauges"]) for each in found["pods"]} == {'{"lr": "nan", "grad_norm": 2.0}'}
    [line] = [line for line in stack.torchq("job", "show", name).splitlines() if line.startswith("Training:")]
    assert "steps/s, 9 samples/s, last report at" in line
    environment = {each["name"]: each.get("value", "") for each in stack.pods(name)[0]["spec"]["containers"][0]["env"]}
    url, token = environment["TORCHQ_REPORT_URL"], environment["TORCHQ_REPORT_TOKEN"]
    assert ask(f"{url}/v1/jobs/default/{name}/world?pod={name}-worker-1", token) == 200
    assert ask(f"{url}/v1/jobs/default/{other}/report", token, {"pod": f"{other}-worker-0", "step": 1}) == 403
    assert ask(f"{url}/v1/queues", token) == 404
    check_secrets(stack, token.partition(".")[2])
    (tmp_path / "go").touch()
    stack.reach(name, "Succeeded")
    until(lambda: ask(f"{url}/v1/jobs/default/{name}/world", token), lambda code: code == 410)


def test_a_training_reports_with_the_protocol_of_kubeflow_trainer(stack: Stack, tmp_path: Path) -> None:
    name = fresh("protocol")
    stack.submit(job(name, python(PROTOCOL, tmp_path), workers=0, policy="OnFailure", cpu="100m"))
    printed = until(lambda: stack.try_run("job", "reports", name), lambda printed: printed.code == 0 and printed.out)
    report = json.loads(printed.out)
    assert (report["pod"], report["loss"], report["progressPercentage"]) == ("master-0", 0.25, 40)
    [line] = [line for line in stack.torchq("job", "show", name).splitlines() if line.startswith("Training:")]
    assert "40 %, 90s to go" in line
    (tmp_path / "go").touch()
    stack.reach(name, "Succeeded")


def check_secrets(stack: Stack, code: str) -> None:
    """Check that neither the key nor the code of a token is in a log, in Redis, in a process list or in the output."""
    key = Files(stack.data).report_key
    assert key.stat().st_mode & 0o777 == 0o600
    secrets = (code, key.read_text().strip())
    shown = subprocess.run(["ps", "axww", "-o", "args"], capture_output=True, text=True, check=True).stdout
    logs = "".join(path.read_text(errors="replace") for path in stack.layout.logs("x").parent.iterdir())
    printed = stack.torchq("job", "list", "-o", "yaml") + stack.torchq("config")
    with stack.redis() as connection:
        kept = "".join(str(connection.dump(name)) for name in connection.keys("*"))
    kept += "".join(path.read_text(errors="replace") for path in stack.layout.redis.rglob("*") if path.is_file())
    assert not [secret for secret in secrets for text in (shown, logs, printed, kept) if secret in text]


def test_a_report_answers_the_request_to_save(stack: Stack, tmp_path: Path) -> None:
    name = fresh("report")
    body = training(name, tmp_path, schedulingPolicy={"checkpointSeconds": 600})
    body["spec"]["torchElasticPolicy"] = {"mode": "InPlaceRestart", "numMinReplicas": 1, "numMaxReplicas": 4}
    stack.submit(body)
    stack.reach(name, "Running")
    stack.torchq("job", "scale", name, "1")
    scaling = until(lambda: stack.job(name)["status"].get("scaling"))
    assert not scaling.get("victims")
    (tmp_path / "save").touch()

    def is_smaller(found: dict[str, Any]) -> bool:
        return found["admission"]["workers"] == 1 and "scaling" not in found

    until(lambda: stack.job(name)["status"], is_smaller)
    assert max(each.get("checkpoint", 0) for each in reports(stack, name)["pods"]) > 0
    (tmp_path / "go").touch()
    stack.reach(name, "Succeeded")
