"""A federation of real processes: what dies alone is noticed and started again, and other users are kept out of it."""

import os
import signal
import ssl
from pathlib import Path

import httpx
import psutil
import pytest

import rebafl
from rebafl.federation.ops import processes
from rebafl.federation.ops.local import open_or_create
from rebafl.federation.ops.processes import ALIVE, LEFT_OVER, is_taken, wait_until
from rebafl.runs.record import Record
from support.unprivileged import as_nobody

APP = {"serverapp": "rebafl.federation.app.server_app:app", "clientapp": "waiting_app:app"}
WORDS = (
    "dataset=fashion-mini model=mlp partition.clients=2 partition=pathological partition.samples=40 training.epochs=1"
)
PATIENCE = 500.0  # seconds after which a federation that does not go on is given up
DEADLINE = 120.0  # so long that a round which waited for it would be noticed


class Trial:
    """A federation of two nodes that trains round after round."""

    def __init__(self, folder: Path):
        self.federation = open_or_create(folder, 2)
        self.record = Record(self.federation.out)
        self.hold = folder / "hold"

    def begin(self):
        sources = [str(Path(rebafl.__file__).parents[1]), str(Path(__file__).parents[1])]
        common = {"PYTHONPATH": os.pathsep.join(sources), "OMP_NUM_THREADS": "1"}

        def environment(name):
            return {**common, "REBAFL_TEST_HOLD": str(self.hold if name == "node-1" else self.hold / "never")}

        config = {"rounds": 10_000, "settings": WORDS, "deadline": DEADLINE, "min-nodes": 2, "wait": PATIENCE}
        self.federation.begin(config, APP, environment)

    def lines(self):
        return self.record.rounds() if self.record.begun else []

    def finishes(self, more, used=range(2)):
        """Do so many more rounds finish in which these clients' uploads are used?"""
        before = len(self.lines())
        return wait_until(lambda: sum(line.used >= set(used) for line in self.lines()[before:]) >= more, PATIENCE, 0.5)

    def process(self, name, module):
        """The process of a machine that runs a module, and its forks."""
        leader = self.federation.started()[name].process()
        assert leader is not None
        family = [process for process in leader.children(recursive=True) if module in " ".join(process.cmdline())]
        return family[0], [process for process in family[1:] if process.ppid() == family[0].pid]


@pytest.fixture(scope="module")
def trial(tmp_path_factory):
    made = Trial(tmp_path_factory.mktemp("trial") / "fed")
    made.begin()
    try:
        assert made.finishes(1)
        yield made
    finally:
        made.hold.unlink(missing_ok=True)
        made.federation.down()


@pytest.mark.slow
def test_a_server_app_that_is_killed_alone_is_started_again(trial):
    apps, (app,) = trial.process("server", "rebafl.federation.server_apps")
    before = {line.round: line for line in trial.lines()}
    app.kill()
    assert trial.finishes(2)
    assert trial.federation.status()["problem"] is None
    assert {line.round: line for line in trial.lines() if line.round in before} == before
    assert apps.is_running()
    assert "flwr-serverapp was killed by signal 9." in (trial.federation.server / "log").read_text()
    apps.kill()  # what starts the server's app, too
    assert trial.finishes(2)


@pytest.mark.slow
def test_a_client_app_that_is_killed_alone_costs_its_node_one_round_and_delays_nobody(trial):
    pid = trial.hold.with_suffix(".pid")
    trial.hold.touch()
    assert wait_until(pid.exists, PATIENCE)
    assert wait_until(pid.read_text, 30)
    done = len(trial.lines())
    os.kill(int(pid.read_text()), signal.SIGKILL)
    trial.hold.unlink()
    assert trial.finishes(1)
    first, *rest = trial.lines()[done:]
    assert "the node's app was killed by signal 9" in {**first.missing, **first.refused}[1]
    assert first.seconds < DEADLINE
    assert all(line.used == {0, 1} for line in rest)


@pytest.mark.slow
def test_other_users_of_the_machine_can_neither_act_as_a_node_nor_use_the_server(trial):
    plan, folder = trial.federation.plan, trial.federation.folder
    node = ssl.create_default_context(cafile=folder / "node-0" / "runtime.crt")
    server = ssl.create_default_context(cafile=folder / "ca.crt")
    paths = ["acquire-task", "pull-task-input", "push-messages", "push-task-output", "push-object", "create-task"]
    runtime = [*(f"/v1/runtime/{path}" for path in paths), "/docs", "/openapi.json", "/health", "/v1/responses"]
    control = ["/v1/control/start-run", "/v1/control/register-node", "/v1/control/list-nodes", "/v1/control/stop-run"]
    secrets = [
        str(path) for path in folder.rglob("*") if path.name in ("secret", "submitted.json") or path.suffix == ".key"
    ]

    def attack():
        statuses = set()
        asked = [(node, plan.node_ports[0], path) for path in runtime]
        asked += [(server, plan.port, path) for path in (*runtime, *control)]
        for context, port, path in asked:
            for lie in ({}, {"x-forwarded-for": "127.0.0.1"}, {"forwarded": "for=127.0.0.1"}, {"x-rebafl-secret": "0"}):
                headers = {"content-type": "application/protobuf", "flwr-task-token": "0" * 32, **lie}
                url = f"https://127.0.0.1:{port}{path}"
                statuses.add(httpx.post(url, headers=headers, verify=context, timeout=60, trust_env=False).status_code)
        readable = [path for path in secrets if os.access(path, os.R_OK)] if os.getuid() else []
        tokens = [process.pid for process in psutil.process_iter() if "--token" in _words(process)]
        return {"statuses": sorted(statuses), "readable": readable, "tokens": tokens, "user": os.getuid()}

    found = as_nobody(attack)
    assert found["statuses"] == [401]
    assert found["tokens"] == []
    if found["user"] != os.getuid():
        assert found["readable"] == []
    with pytest.raises(httpx.HTTPError):  # nor is anything served in plain text
        httpx.post(f"http://127.0.0.1:{plan.node_ports[0]}/v1/runtime/acquire-task", timeout=60, trust_env=False)
    assert trial.finishes(1)


def _words(process):
    try:
        return process.cmdline()
    except psutil.Error:
        return []


@pytest.mark.slow
def test_what_is_left_over_when_a_script_dies_is_said_and_ended(trial):
    """The last test of this file: at its end the federation is down."""
    federation = trial.federation
    started = federation.started()
    node, _ = trial.process("node-0", "rebafl.federation.supernode")
    link, _ = trial.process("server", "rebafl.federation.superlink")
    for name in ("node-0", "server"):
        os.kill(started[name].pid, signal.SIGKILL)
        processes._reap()
    assert wait_until(lambda: processes.states(started)["server"] == LEFT_OVER, 30)
    assert {k: v["process"] for k, v in federation.status()["nodes"].items()} == {"0": LEFT_OVER, "1": ALIVE}
    assert node.is_running()
    federation.start("node-0")  # in place of what is left over of it
    assert not node.is_running() or node.status() == psutil.STATUS_ZOMBIE
    assert processes.states(federation.started()) == {"server": LEFT_OVER, "node-0": ALIVE, "node-1": ALIVE}
    started = federation.started()
    assert federation.down() == 3
    assert not link.is_running() or link.status() == psutil.STATUS_ZOMBIE
    assert set(processes.states(started).values()) == {processes.DEAD}
    assert not any(map(is_taken, (federation.plan.port, *federation.plan.node_ports)))
