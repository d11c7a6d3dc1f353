"""How the containers of a pod ended, and their last messages.

One rule: pure, over the status of a pod. The end of the pod is that of the main container, else the first failure of
another container.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from crds import excerpts, timestamps
from reconcilers.views import containers, pod_code, pod_outcome, pod_result, torchrun
from reconcilers.views.pod_outcome import FINISHED
from reconcilers.views.torchrun import LastOutput

LONGEST_MESSAGE = 80
"""The number of characters kept of a pod's last output."""
LONGEST_EXPLANATION = 30_000
"""The number of characters reported of the last output of the pod that caused a failure (`pod_view.explain`)."""
STOPPED = "AskedToStop"
"""The reason of a pod that its node had asked to stop, where the node says no more."""
EXPLANATION = "its node stopped it (a failed probe, a full volume): see the events of the pod"


def read(spec: Mapping[str, Any], status: Mapping[str, Any], phase: str) -> dict[str, Any]:
    """Return the fields about the end of the pod's containers and their last output."""
    if phase == "Failed" and (failure := pod_code.find_failure(status)) is not None:
        return {"reason": failure.reason, "message": failure.message, "ended": failure.ended}
    other, ended = termination(spec, status, phase)
    output, code = pod_result.own_message(ended), ended.get("exitCode")
    is_out_of_memory = not other and ended.get("reason") == pod_outcome.OOM_KILLED
    if pod_result.is_marked(ended) and not (is_out_of_memory or pod_outcome.is_disrupted(status)):
        ended, output = {**ended, "reason": STOPPED}, output or EXPLANATION
    last_words = torchrun.last_output(output)
    text = message(other, last_words, status, LONGEST_MESSAGE)
    return {
        "reason": status.get("reason") or ended.get("reason") or "",
        "message": text,
        "exit_code": code,
        "cause": torchrun.exit_cause(output) if code else None,
        "lost_peer": bool(code) and last_words.lost_peer,
        "unexplained": (bool(code) and last_words.more)
        or text != message(other, last_words, status, LONGEST_EXPLANATION),
        "ended": timestamps.seconds_or_none(ended.get("finishedAt")),
        "used_memory": containers.main_memory(spec) if is_out_of_memory else 0,
    }


def message(other: str, last_words: LastOutput, status: Mapping[str, Any], most: int) -> str:
    """Return the pod's last output as one line. `other` is the container that wrote it, if that is not the main
    container."""
    pod_message = status.get("message") or ""
    # The containers' output must not hide that the pod exceeded its limits.
    text = (
        last_words.text
        if last_words.text and not pod_outcome.exceeds_own_limit(pod_message)
        else last_line(pod_message, LONGEST_EXPLANATION)
    )
    return excerpts.excerpt(": ".join(filter(None, (f"container {other}" if other else "", text))), most)


def termination(spec: Mapping[str, Any], status: Mapping[str, Any], phase: str) -> tuple[str, Mapping[str, Any]]:
    """Return the container that decided the end of the pod, empty for the main container, and its termination.

    The end of the main container comes first, then the first failure of another container. While the pod continues, the
    result is the last end of the main container, even if the node starts the container again.
    """
    main = containers.main(spec)["name"]
    main_status = containers.status_of(main, status)
    ended: Mapping[str, Any] = (main_status.get("state") or {}).get("terminated") or {}
    if phase not in FINISHED:
        return "", ended or (main_status.get("lastState") or {}).get("terminated") or {}
    if phase == "Succeeded" or ended:
        return "", ended
    others = (entry for entry in _terminations(status) if entry[0] != main and entry[1].get("exitCode"))
    return next(others, ("", ended))


def _terminations(status: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for field in ("initContainerStatuses", "containerStatuses"):
        for container_status in status.get(field) or ():
            terminated = (container_status.get("state") or {}).get("terminated")
            if terminated and container_status["name"] != containers.RESTART_AGENT:
                yield container_status["name"], terminated


def last_line(text: str, most: int) -> str:
    """Return the last line of a text that is not empty."""
    lines = (line.strip() for line in reversed(text.splitlines()))
    return excerpts.excerpt(next(filter(None, lines), ""), most)
