"""Scenarios in which pods fail, are lost, or are restarted."""

from tests.faults.scenarios import people
from tests.faults.scenarios.scenario import FIRST_NODE, ONE, SECOND_NODE, Scenario, fails, master_fails, pair, task

RESTARTS = {"torchTaskSpecs": pair(restartPolicy="OnFailure")}

SCENARIOS = (
    Scenario(
        name="restart",
        queues=ONE,
        jobs={"one": {**RESTARTS, "backoffLimit": 2}},
        ends={"one": "Succeeded"},
        restarts={"one": 1},
        fate=master_fails(137, 1),
    ),
    Scenario(
        name="replace",
        queues=ONE,
        jobs={"one": {**RESTARTS, "backoffLimit": 3, "restartScope": "Task"}},
        ends={"one": "Succeeded"},
        restarts={"one": 1},
        fate=master_fails(137, 1),
    ),
    Scenario(
        name="backoff",
        queues=ONE,
        jobs={"one": {**RESTARTS, "backoffLimit": 3}},
        ends={"one": "Succeeded"},
        restarts={"one": 3},
        fate=master_fails(137, 3),
        patience=40.0,
    ),
    Scenario(
        name="single",
        queues=ONE,
        jobs={"one": {**RESTARTS, "backoffLimit": 3, "restartScope": "Task"}},
        ends={"one": "Succeeded"},
        restarts={"one": 3},
        fate=master_fails(137, 3),
        patience=40.0,
    ),
    Scenario(
        name="giveup",
        queues=ONE,
        jobs={"one": {**RESTARTS, "backoffLimit": 1}, "two": {"backoffLimit": 0}},
        ends={"one": "Failed", "two": "Failed"},
        restarts={"one": 1},
        fate=master_fails(137, 9),
    ),
    Scenario(
        name="disrupted",
        queues=ONE,
        jobs={"one": {**RESTARTS, "backoffLimit": 0}},
        ends={"one": "Succeeded"},
        disruptions={"one": 2},
        fate=fails("worker", "Evicted", 2),
    ),
    Scenario(
        name="inplace",
        queues=ONE,
        jobs={"one": {"torchTaskSpecs": {**pair(restartPolicy="OnFailure"), "Board": task()}}},
        ends={"one": "Succeeded"},
        restarts={"one": 1},
        fate=fails("worker", 137, 1),
        settings={"in_place": "local"},
    ),
    Scenario(
        name="asked",
        queues=ONE,
        jobs={"one": {}},
        ends={"one": "Succeeded"},
        steps=(
            (people.phase("one", "Running"), people.ask("one", id="all")),
            (people.obeyed("one", "all"), people.ask("one", id="worker", task="Worker", index=0)),
            (people.obeyed("one", "worker"), people.ask("one", id="new", how="Recreate")),
        ),
        until=people.obeyed("one", "new"),
        requests=3,
        settings={"in_place": "local"},
    ),
    Scenario(
        name="lostnode",
        queues=ONE,
        jobs={"one": {"backoffLimit": 0}},
        ends={"one": "Succeeded"},
        disruptions={"one": 1},
        steps=((people.phase("one", "Running"), people.silence(FIRST_NODE)),),
        nodes=(FIRST_NODE, SECOND_NODE),
        bad_node=FIRST_NODE,
        settings={"dead_node_grace": 5},
        patience=20.0,
    ),
)
