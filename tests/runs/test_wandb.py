"""A run's file for W&B is one that W&B reads: after kills, cuts and damage, too."""

import gzip
import json
import os
import random
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import psutil
import pytest

from rebafl.runs.loggers import log_run
from rebafl.runs.loggers.sink import About
from rebafl.runs.loggers.wandb import BEGIN, BLOCK, Wandb, in_json, pieces, records
from rebafl.runs.opening import roll_back
from rebafl.runs.record import Record
from support.toy import round_line, run_toy
from support.wandb_file import check_wandb, wandb_file, wandb_records, wandb_rounds


def test_a_run_is_logged_while_it_runs_and_by_no_other_process(tmp_path, toy):
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    run_toy(tmp_path / "r", toy, rounds=2, log="wandb")
    check_wandb(tmp_path / "r")
    run_toy(tmp_path / "r", toy, rounds=4, log="wandb")
    check_wandb(tmp_path / "r")
    assert {child.pid for child in psutil.Process().children(recursive=True)} <= before


def test_logging_later_writes_the_same_and_only_what_is_missing(tmp_path, toy):
    record = run_toy(tmp_path / "r", toy, rounds=3)
    assert log_run(record, "wandb") == 3
    check_wandb(tmp_path / "r")
    before = wandb_file(tmp_path / "r").read_bytes()
    assert log_run(record, "wandb") == 0
    assert wandb_file(tmp_path / "r").read_bytes() == before
    roll_back(Record(record.path), 2)
    assert log_run(record, "wandb") == 0
    check_wandb(tmp_path / "r")


def test_whatever_is_torn_off_is_written_again(tmp_path, toy):
    record = run_toy(tmp_path / "r", toy, rounds=3, log="wandb")
    file = wandb_file(tmp_path / "r")
    whole = file.read_bytes()
    for length in [0, 1, 6, 7, 8, 14, *range(20, len(whole), 97)]:
        file.write_bytes(whole[:length])
        log_run(record, "wandb")
        assert file.read_bytes() == whole, length
    last = whole.rindex(b"accuracy")
    file.write_bytes(whole[:last] + b"b" + whole[last + 1 :])
    assert log_run(record, "wandb") == 1
    assert file.read_bytes() == whole


def test_records_of_every_length_around_the_end_of_a_block_are_read_as_they_were_written():
    chance = random.Random(0)
    for end in range(BLOCK - 30, BLOCK + 1):
        filling = [bytes(end - len(BEGIN) - 7)] if end > len(BEGIN) + 7 else []
        wanted = [*filling, b"", chance.randbytes(5), chance.randbytes(2 * BLOCK + 11), b"last"]
        content = BEGIN
        for record in wanted:
            content += pieces([record], len(content))
        found = list(records(content))
        assert [data for data, _ in found] == wanted
        assert found[-1][1] == len(content)
        assert [data for data, _ in records(content[:-1])] == wanted[:-1]
    assert list(records(b"")) == list(records(BEGIN)) == list(records(b"something else")) == []


def test_settings_and_numbers_as_w_and_b_has_them(tmp_path):
    sink = Wandb(About(tmp_path / "r", {"algorithm.mu": 0.1, "model": "cnn"}, ["a"], 1000.0))
    assert sink.rounds(0) == 0
    sink.write(round_line(round=1, accuracy=50.0, recall=[float("nan")]), 1003.0)
    sink.close()
    run = wandb_records(tmp_path / "r")[1].run
    assert {item.key: json.loads(item.value_json) for item in run.config.update} == {
        "algorithm.mu": 0.1,
        "model": "cnn",
    }
    assert (run.display_name, run.project, run.start_time.seconds) == ("r", "rebafl", 1000)
    (values,) = wandb_rounds(tmp_path / "r")
    assert values["recall/a"] == "NaN"
    assert values["_runtime"] == 3.0
    assert [in_json(value) for value in (float("-inf"), "NaN", None)] == ['"-Infinity"', '"NaN"', "null"]


class StandIn(BaseHTTPRequestHandler):
    """What W&B's server answers, as far as an upload needs it; keeps what it was sent."""

    seen: ClassVar[list[tuple[str, dict]]] = []

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        content = gzip.decompress(body) if self.headers.get("content-encoding") == "gzip" else body
        answer = {}
        if self.path.endswith(("/graphql", "/file_stream")):
            asked = json.loads(content)
            self.seen.append((self.path, asked))
            answer = {"data": self.answer(asked)} if "query" in asked else {}
        self.do_PUT(json.dumps(answer).encode())

    def do_PUT(self, answer=b""):
        self.send_response(200)
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def answer(self, asked):
        if "upsertBucket" in asked["query"]:
            project = {"id": "p", "name": "rebafl", "entity": {"id": "e", "name": "me"}}
            return {"upsertBucket": {"bucket": {"id": "b", "name": asked["variables"]["name"], "project": project}}}
        if "createRunFiles" in asked["query"]:
            here = f"http://{self.headers['host']}/file/"
            files = [{"name": name, "uploadUrl": here + name} for name in asked["variables"]["files"]]
            return {"createRunFiles": {"runID": "b", "uploadHeaders": [], "files": files}}
        return {}

    def log_message(self, *_):
        pass


@pytest.mark.slow
def test_wandb_sync_uploads_each_round_once(tmp_path, toy):
    record = run_toy(tmp_path / "r", toy, rounds=3, log="wandb")
    sink = Wandb(About(record.path, {}, toy.classes, 0.0))
    assert sink.rounds(3) == 3
    for number in range(4, 151):  # so that the file has several blocks
        sink.write(round_line(round=number, accuracy=number / 2, recall=[1.0] * 10), float(number))
    sink.close()
    assert wandb_file(tmp_path / "r").stat().st_size > 2 * BLOCK
    server = ThreadingHTTPServer(("127.0.0.1", 0), StandIn)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("WANDB_")},
        "HOME": str(tmp_path),
        "WANDB_BASE_URL": f"http://127.0.0.1:{server.server_port}",
        "WANDB_API_KEY": "0" * 40,
        "WANDB_ERROR_REPORTING": "false",
    }
    command = [sys.executable, "-m", "wandb", "sync", str(wandb_file(tmp_path / "r").parent)]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    server.shutdown()
    server.server_close()
    assert done.returncode == 0, done.stderr
    assert "Finished syncing" in done.stderr
    sent = [asked["files"] for path, asked in StandIn.seen if path.endswith("/file_stream") and "files" in asked]
    history = [json.loads(line) for files in sent for line in files.get("wandb-history.jsonl", {}).get("content", [])]
    assert [row["round"] for row in history] == list(range(1, 151))
    assert [row["accuracy"] for row in history[3:]] == [number / 2 for number in range(4, 151)]
    marker = wandb_file(tmp_path / "r").with_suffix(".wandb.synced")
    assert marker.exists()
    assert log_run(record, "wandb") == 0
    run_toy(tmp_path / "r", toy, rounds=4, log="wandb")
    assert not marker.exists(), "there is something new to upload"
