"""A data folder of one's own, and a web server."""

import threading
from http.server import ThreadingHTTPServer

import pytest

from support.web import Server


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("REBAFL_DATA", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def server():
    Server.content, Server.limit, Server.ranges, Server.seen = bytes(range(256)) * 400, None, True, []
    Server.files = {}
    with ThreadingHTTPServer(("127.0.0.1", 0), Server) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()
        thread.join()
