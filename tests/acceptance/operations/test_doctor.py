"""A stack on a Redis with accounts: the doctor with a read-only account, and places that must not hold secrets."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
import yaml

from crds.api_resources import EVENTS, TORCHJOBS
from queues import redis_keys
from tests.support.acceptance.jobs import job, python, recording
from tests.support.acceptance.stack import CommandResult, Stack, clean_environment, fresh, run, until
from tests.support.queues.guarded import READS, WRITES, Guarded, guarded

pytestmark = pytest.mark.timeout(300)

PRIVATE = "pr1vate-w0rd-of-a-job"
BUSY_JOBS = 10


class GuardedStack(Stack):
    """A stack whose Redis requires a user name and a password."""

    guarded: Guarded

    def start(self) -> CommandResult:
        """Start the stack. The Redis URL with its password is read from a file."""
        file = self.folder / "redis-url"
        file.write_text(self.guarded.url() + "\n")
        file.chmod(0o600)
        up = ("--redis-url-file", str(file), "local", "up", "--data", str(self.data), *self.options)
        return run(*up, cwd=self.folder, environment=clean_environment())

    def doctor(self, *arguments: str) -> CommandResult:
        environment = {**self.environment, "TORCHQ_REDIS_URL": self.guarded.reader}
        said = run("doctor", *arguments, cwd=self.folder, environment=environment)
        assert "Traceback" not in said.err + said.out, said
        return said

    def admin(self) -> "redis.Redis":
        return self.guarded.admin()

    def is_settled(self) -> bool:
        client = self.admin()
        try:
            return not client.exists(redis_keys.USAGE, redis_keys.RESERVATIONS, redis_keys.ENTRIES)
        finally:
            client.close()


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedStack]:
    root = tmp_path_factory.mktemp(fresh("guarded"))
    for name in ("work", "redis"):
        (root / name).mkdir()
    found = GuardedStack(root / "data", root / "work")
    with guarded(root / "redis") as found.guarded:
        said = found.start()
        try:
            assert said.code == 0, said
            yield found
        finally:
            found.close()


@pytest.fixture
def admin(stack: GuardedStack) -> Iterator["redis.Redis"]:
    client = stack.admin()
    yield client
    client.close()


@pytest.mark.smoke("doctor")
def test_doctor_reports_nothing_while_jobs_run_normally(stack: GuardedStack, records: Path) -> None:
    names = [fresh("busy") for _ in range(BUSY_JOBS)]
    stack.submit(*(job(name, recording(records, 0.2), workers=number % 2) for number, name in enumerate(names)))
    looks = 0
    while not all(stack.phase(name) == "Succeeded" for name in names):
        said = stack.doctor("--settle", "3")
        assert (said.code, said.out) == (0, "cluster, queues and RQ agree\n"), said
        looks += 1
    assert looks
    stack.clear()
    assert stack.doctor().code == 0


def test_doctor_names_and_repairs_damage_while_a_job_runs(
    stack: GuardedStack, admin: "redis.Redis", records: Path, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    running, waiting = fresh("runs"), fresh("waits")
    stack.submit(job(running, recording(records, gate=gate), workers=3), job(waiting, recording(records), workers=3))
    stack.reach(running, "Running")
    place = until(lambda: next((each for each in admin.hkeys(redis_keys.ENTRIES) if waiting.encode() in each), None))
    held = admin.hkeys(redis_keys.RESERVATIONS)[0]
    ghost = b"default/ghost/u1"
    admin.hset(redis_keys.RESERVATIONS, ghost, admin.hget(redis_keys.RESERVATIONS, held))
    pool = json.loads(admin.hget(redis_keys.USAGE, ""))
    admin.hset(redis_keys.USAGE, "", json.dumps(pool | {"cpu": pool["cpu"] + 700}))
    admin.zadd(f"{redis_keys.ORDER}default", {place: 7})
    admin.hset(redis_keys.RECORDS, "default/stuck/u2", '{"state":"ready","tenant":"a","since":"1"}')
    admin.set("torchq:junk", "x")
    broken = json.loads(stack.doctor("--settle", "1", "-o", "json").out)
    found = {(each["code"], each["subject"]) for each in broken["disagreements"]}
    assert found >= {
        ("orphan-reservation", ghost.decode()),
        ("leaked-charge", "pool"),
        ("misplaced-entry", place.decode()),
        ("stuck-key", "default/stuck/u2"),
        ("unknown-key", "torchq:junk"),
    }
    assert stack.doctor("--settle", "1").code == 1
    said = stack.doctor("--settle", "1", "--fix")
    assert said.code == 0, said
    assert "repaired on local:" in said.out
    gate.touch()
    for name in (running, waiting):
        assert stack.reach(name, "Succeeded")["status"].get("restartCount", 0) == 0
    stack.clear()
    assert stack.doctor().code == 0


def test_secrets_are_in_no_log_event_process_list_or_setting(stack: GuardedStack, admin: "redis.Redis") -> None:
    name = fresh("secretive")
    body = job(name, python("import os; assert os.environ['PRIVATE']; assert 'TORCHQ_REDIS_URL' not in os.environ"))
    container = body["spec"]["torchTaskSpecs"]["Master"]["template"]["spec"]["containers"][0]
    container["env"].append({"name": "PRIVATE", "value": PRIVATE})
    stack.submit(body, job(fresh("fails"), python("raise SystemExit(1)"), backoffLimit=0))
    lines = until(command_lines, lambda found: any("torchq" in line or "coordinator" in line for line in found))
    stack.reach(name, "Succeeded")
    token = yaml.safe_load(stack.layout.kubeconfig.read_text())["users"][0]["user"]["token"]
    secrets = (WRITES, READS, token)
    places = {
        "logs": [path.read_text(errors="replace") for path in (stack.data / "logs").iterdir()],
        "process list": lines + command_lines(),
        "Redis": values(admin),
        "events": [json.dumps(stack.api.list(EVENTS).items)],
        "settings": [stack.torchq("config"), stack.torchq("config", "-o", "json"), stack.doctor().out],
    }
    for place, texts in places.items():
        assert texts, place
        for secret in (*secrets, PRIVATE):
            assert not any(secret in text for text in texts), (place, secret)
    jobs = json.dumps(stack.api.list(TORCHJOBS).items)
    assert not any(secret in jobs for secret in secrets)
    kept = [path for path in stack.data.iterdir() if path.is_file() and mode(path) & 0o077]
    assert not [path for path in kept if token.encode() in path.read_bytes() or WRITES.encode() in path.read_bytes()]
    assert len(places["Redis"]) > 10
    assert admin.acl_log() == [], "the accounts suffice"
    stack.clear()


def mode(path: Path) -> int:
    return path.stat().st_mode


def command_lines() -> list[str]:
    """Return the command lines of all processes of this machine except pytest."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:  # the process has just ended
            continue
    return [line for line in found if not re.search(r"\bpytest\b", line)]


def values(client: "redis.Redis") -> list[str]:
    """Return every key and every value in Redis as text."""
    read: dict[bytes, Any] = {
        b"string": client.get,
        b"hash": client.hgetall,
        b"list": lambda name: client.lrange(name, 0, -1),
        b"set": client.smembers,
        b"zset": lambda name: client.zrange(name, 0, -1),
        b"stream": client.xrange,
        b"none": str,
    }
    return [f"{name!r} {read[client.type(name)](name)!r}" for name in client.keys("*")]
