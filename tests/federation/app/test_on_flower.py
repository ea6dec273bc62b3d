"""With Flower's own SuperLink and SuperNodes: the simulator's bits, and no member holds up a round."""

from __future__ import annotations

import json
import math
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TextIO

import pytest
from flwr.app import Context, RecordDict

from rebafl.federation.app.client_app import app as client_app
from rebafl.federation.app.node_config import PARTITION_ID
from rebafl.federation.app.options import read_run_config
from rebafl.federation.app.server import fetch
from rebafl.federation.app.server.federate import federate
from rebafl.federation.ops.processes import free_ports
from rebafl.runs.record import Record
from support.grid import absent, same_server, simulated
from support.lies import metadata, swarm
from support.paths import REPOSITORY
from support.toy import lines
from support.wire import begin_run, nodes, superlink


class Member:
    """A node on the wire that trains honestly and then delivers as it likes."""

    def __init__(self, part, config, act=lambda reply: None, parts=math.inf, pause=0.0):
        self.act, self.parts, self.pause = act, parts, pause
        node = {PARTITION_ID: part}
        self.context = Context(run_id=1, node_id=1, node_config=node, state=RecordDict(), run_config=config)

    def __call__(self, line, message):
        reply = client_app(message, self.context)
        if message.metadata.message_type == "train":
            self.act(reply)
            sent = iter(range(10**9))

            def pace():
                time.sleep(self.pause)
                return next(sent) < self.parts

            threading.Thread(target=line.deliver, args=(reply, pace), daemon=True).start()
        else:
            line.deliver(reply)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*gitwildmatch:DeprecationWarning")  # of what Flower packs its apps with
def test_on_a_real_superlink_no_member_holds_up_a_round(tmp_path, config, monkeypatch):
    monkeypatch.setattr(fetch, "POLL", 1.0)
    deadline = 25.0
    config |= {"deadline": deadline, "wait": 60.0, "min-nodes": 6, "partition.clients": 6, "rounds": 1}
    members = [
        Member(0, config),
        Member(1, config),
        Member(2, config, metadata(ttl=math.nan)),  # the SuperLink answers 500
        Member(3, config, pause=4.0),  # Flower would wait for all parts
        Member(4, config, parts=2),  # dies in mid-upload: Flower would wait for three minutes
        Member(5, config, swarm),  # would block the SuperLink's database
    ]
    with superlink(tmp_path) as wire:
        grid = begin_run(wire)
        with nodes(wire, members):
            real = federate(grid, *read_run_config(config))
        grid.close()
    row = lines(real.path)[0]
    assert row["active"] == list(range(6))
    assert {**row["refused"], **row["missing"]}.keys() == {"2", "3", "4", "5"}
    assert row["missing"].keys() >= {"3", "4", "5"}
    assert real.rounds()[0].seconds < 2 * deadline  # the nodes' introduction included
    away = [(client, 1) for client in range(2, 6)]
    expected = simulated(config, tmp_path / "simulation", **absent(tmp_path, *away))
    assert same_server(real, expected)


@pytest.fixture
def flower(tmp_path, monkeypatch):
    """Start Flower's programs on this machine only, with a home of their own; all are stopped afterwards."""
    for name, value in {
        "FLWR_HOME": str(tmp_path / "home"),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.1",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }.items():
        monkeypatch.setenv(name, value)
    started: list[tuple[subprocess.Popen, TextIO]] = []

    def start(program: str, *words: str) -> None:
        log = (tmp_path / f"{program}-{len(started)}.log").open("w")
        started.append((subprocess.Popen([program, *words], stdout=log, stderr=log), log))

    yield start
    for process, _ in reversed(started):
        process.terminate()
    for process, log in started:
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        log.close()


def listening(port: str) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", int(port))) == 0


@pytest.mark.slow
def test_three_rounds_on_real_nodes_give_the_simulators_bits(tmp_path, flower):
    """A SuperLink and two SuperNodes as processes of their own, with `flwr run .` of this repository."""
    link, *ports = map(str, free_ports(3))
    here = ("--insecure", "--host", "127.0.0.1", "--port")
    flower("flower-superlink", *here, link, "--disable-runtime-dependency-installation")
    for part, port in enumerate(ports):
        node = ("--superlink", f"127.0.0.1:{link}", "--node-config", f"{PARTITION_ID}={part}")
        flower("flower-supernode", *here, port, *node)
    (tmp_path / "home").mkdir()
    connection = f'[superlink]\ndefault = "here"\n[superlink.here]\naddress = "127.0.0.1:{link}"\ninsecure = true\n'
    (tmp_path / "home" / "config.toml").write_text(connection)
    until = time.monotonic() + 60
    while not listening(link) and time.monotonic() < until:
        time.sleep(0.2)
    words = "training.epochs=1 partition=pathological partition.clients=2 partition.samples=200"
    config = {"dataset": "fashion-mini", "rounds": 3, "deadline": 120.0, "settings": words}
    changes = " ".join(f"{key}={json.dumps(value)}" for key, value in {**config, "out": str(tmp_path / "run")}.items())
    command = ["flwr", "run", str(REPOSITORY), "--stream", "--run-config", changes]
    told = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert told.returncode == 0, told.stdout + told.stderr
    real = Record(tmp_path / "run")
    rows = lines(real.path)
    expected = simulated(config, tmp_path / "simulation")
    assert [row["active"] for row in rows] == [[0, 1]] * 3, told.stdout
    assert rows == lines(expected.path)
    assert same_server(real, expected)
