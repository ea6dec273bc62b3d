"""With Flower's own SuperLink and SuperNodes: the simulator's bits, and no member holds up a round."""

from __future__ import annotations

import json
import math
import os
import socket
import ssl
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TextIO

import httpx
import pytest
from flwr.app import Array, Context, RecordDict
from flwr.app.message.arraychunk import ArrayChunk

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


def peak(pid, since_now=False):
    """The most memory that a process ever had, in MB; from now on, if that is wished."""
    if since_now:
        Path(f"/proc/{pid}/clear_refs").write_text("5")
    text = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in text.splitlines() if line.startswith("VmHWM")).split()[1]) / 1024


def again_and_again(size, times):
    """An upload that names one chunk so often that it unpacks to 4.5 GB."""

    def act(reply):
        chunk = ArrayChunk(memoryview(os.urandom(size)))
        bomb = Array("<f4", (size * times // 4,), "numpy.ndarray", b"")
        bomb.__dict__["_chunks"] = [(chunk.object_id, chunk)] * times
        reply.content["change"]["bomb"] = bomb

    return act


def unauthenticated(wire):
    """Bodies of 600 MB in all, from nobody's key: in one piece, without a length, and in many pieces at once."""
    url = f"https://{wire.address}/v1/fleet/push-object"
    headers = {"content-type": "application/protobuf"}
    trusted = ssl.create_default_context(cafile=wire.folder / "ca.crt")
    part = b"x" * 2**20

    def send(size, length=True):
        def body():
            for _ in range(size):
                yield part

        extra = {"content-length": str(size * 2**20)} if length else {}
        with httpx.Client(verify=trusted, timeout=60, trust_env=False) as client:
            try:
                return client.post(url, content=body(), headers={**headers, **extra}).status_code
            except httpx.TransportError:
                return 413  # it was hung up on while it sent

    with ThreadPoolExecutor(20) as pool:
        sizes = [(600, True), (600, False), *[(30, True)] * 20]
        return set(pool.map(lambda size: send(*size), sizes))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*gitwildmatch:DeprecationWarning")  # of what Flower packs its apps with
def test_on_a_real_superlink_no_member_holds_up_a_round_or_fills_the_memory(tmp_path, config, monkeypatch):
    monkeypatch.setattr(fetch, "POLL", 1.0)
    deadline = 40.0
    config |= {"deadline": deadline, "wait": 60.0, "min-nodes": 8, "partition.clients": 8, "rounds": 1}
    members = [
        Member(0, config),
        Member(1, config),
        Member(2, config, metadata(ttl=math.nan)),  # the SuperLink answers 500
        Member(3, config, pause=4.0),  # Flower would wait for all parts
        Member(4, config, parts=2),  # dies in mid-upload: Flower would wait for three minutes
        Member(5, config, swarm),  # would block the SuperLink's database
        Member(6, config, again_and_again(900_000, 5000)),  # would fill the memory of the server's app
        Member(7, config, again_and_again(5_000_000, 900)),  # is more than it may have stored at all
    ]
    with superlink(tmp_path, len(members)) as wire:
        link = peak(wire.process.pid)
        assert unauthenticated(wire) <= {401, 413}
        grid = begin_run(wire)
        own = peak("self", since_now=True)
        with nodes(wire, members):
            real = federate(grid, *read_run_config(config))
        link_grew, own_grew = peak(wire.process.pid) - link, peak("self") - own
        grid.close()
    print(f"The SuperLink grew by {link_grew:.0f} MB, the process of the server's app by {own_grew:.0f} MB.")
    assert link_grew < 250
    assert own_grew < 500
    row = lines(real.path)[0]
    assert row["active"] == list(range(8))
    assert {**row["refused"], **row["missing"]}.keys() == {"2", "3", "4", "5", "6", "7"}
    assert row["missing"].keys() >= {"3", "4", "5"}
    assert "the reply unpacks to 45" in row["refused"]["6"]
    assert (tmp_path / "superlink.log").read_text().count("its reply is dropped") == 1
    assert real.rounds()[0].seconds < 2 * deadline  # the nodes' introduction included
    away = [(client, 1) for client in range(2, 8)]
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


# Flower may send a last heartbeat through a client that it has closed
@pytest.mark.filterwarnings("ignore:Exception in thread:pytest.PytestUnhandledThreadExceptionWarning")
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
