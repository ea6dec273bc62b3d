"""What is wrong with a server's folder is said at once, in one sentence, and its script does not try again."""

import datetime
import shutil
import socket
import sqlite3
import ssl
import subprocess
import sys
import threading
from dataclasses import replace

import pytest

from rebafl.base.errors import UserError
from rebafl.federation import superlink
from rebafl.federation.machine_secret import SECRET, make_secret, read_secret
from rebafl.federation.ops import credentials
from rebafl.federation.ops.credentials import make_authority, make_server_certificate
from rebafl.federation.ops.layout import create, read_plan
from rebafl.federation.ops.local import LocalFederation
from rebafl.federation.ops.processes import free_ports
from rebafl.federation.ops.reach import distrust, need_valid
from rebafl.federation.superlink import AllowedKeys, need_sound
from support.plans import SMALL


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made") / "fed"
    create(folder, SMALL)
    return folder


@pytest.fixture
def fed(made, tmp_path):
    return shutil.copytree(made, tmp_path / "fed")


NOW = datetime.datetime.now(datetime.timezone.utc)


def issue(folder, monkeypatch):
    """A certificate of the server that expired a year ago."""
    monkeypatch.setattr(credentials, "_now", lambda: NOW - datetime.timedelta(days=365 * (credentials.YEARS + 1)))
    make_server_certificate(folder / "ca.crt", folder / "ca.key", folder / "server", [])


def started(folder, monkeypatch, capsys):
    """What the server says when it is started and does not start, and its exit code."""
    monkeypatch.setattr(sys, "argv", ["superlink", str(folder / "server"), "--database", "superlink.db"])
    monkeypatch.setattr(superlink, "start_superlink", lambda *_: print("served", file=sys.stderr))
    code: object = 0
    try:
        superlink.main()
    except SystemExit as end:
        code = end.code
    return code, capsys.readouterr().err


def test_a_sound_folder_is_served(fed, monkeypatch, capsys):
    (fed / "server" / SECRET).unlink()  # a folder that was made before there were secrets
    assert started(fed, monkeypatch, capsys) == (0, "served\n")
    assert (fed / "server" / SECRET).stat().st_mode & 0o777 == 0o600


def test_an_expired_certificate_is_said(fed, monkeypatch, capsys):
    issue(fed, monkeypatch)
    code, said = started(fed, monkeypatch, capsys)
    then = NOW - datetime.timedelta(days=365)
    assert code == 2
    assert said.count("\n") == 1
    assert f"server.crt expired on {then:%Y-%m-%d}; renew it: rebafl federation renew --dir {fed}" in said


def test_an_expired_authority_is_said(fed, monkeypatch, capsys):
    monkeypatch.setattr(credentials, "_now", lambda: NOW - datetime.timedelta(days=365 * 40))
    make_authority(fed / "server" / "ca.crt", fed / "other.key")
    code, said = started(fed, monkeypatch, capsys)
    assert (code, "ca.crt expired on" in said) == (2, True)


def test_a_certificate_that_cannot_be_read_is_said(tmp_path):
    (tmp_path / "server.crt").write_bytes(b"\x00" * 100)
    for name in ("server.crt", "absent.crt"):
        with pytest.raises(UserError, match=f"{name} cannot be read .*; restore it, or: renew"):
            need_valid(tmp_path / name, "renew")


DAMAGES = {
    "header": lambda data: b"\x00" * 100 + data[100:],
    "text": lambda data: b"not a database" * 1000,
    "cut": lambda data: data[: len(data) // 2],
    "middle": lambda data: data[:4200] + b"\xff" * 8000 + data[12200:],
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_database_is_said(fed, monkeypatch, capsys, damage):
    path = fed / "server" / "superlink.db"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE t (x, y)")
        database.executemany("INSERT INTO t VALUES (?, ?)", [(k, "text" * 50) for k in range(500)])
        database.execute("CREATE INDEX i ON t (x, y)")
    database.close()
    need_sound(path)
    path.write_bytes(DAMAGES[damage](path.read_bytes()))
    code, said = started(fed, monkeypatch, capsys)
    assert code == 2
    assert said.count("\n") == 1
    assert said.startswith(f"Flower's database {path} is damaged (")
    assert "move it away and start the server again: the run is resumed" in said


def test_a_database_that_flower_itself_cannot_use_is_said(fed, monkeypatch, capsys):
    def fail(*_):
        raise sqlite3.DatabaseError("no such table: run")

    monkeypatch.setattr(sys, "argv", ["superlink", str(fed / "server")])
    monkeypatch.setattr(superlink, "start_superlink", fail)
    with pytest.raises(SystemExit) as end:
        superlink.main()
    assert end.value.code == 2
    assert "superlink.db is damaged (DatabaseError: no such table: run)" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["server", "node-1"])
def test_the_scripts_end_when_the_folder_is_at_fault_and_not_otherwise(fed, tmp_path, name):
    """A stand-in for Python that ends with 1, then with 2."""
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "python"
    program.write_text(
        '#!/bin/sh\ncase "$*" in *warm*) exec sleep 100;; esac\n'
        'if [ -e once ]; then echo "said"; exit 2; fi\ntouch once; exit 1\n'
    )
    program.chmod(0o755)
    (tmp_path / "bin" / "sleep").write_text('#!/bin/sh\n[ "$1" = 100 ] && exec /bin/sleep 100\nexec /bin/sleep 0.1\n')
    (tmp_path / "bin" / "sleep").chmod(0o755)
    path = f"{tmp_path / 'bin'}:/usr/bin:/bin"
    script = ["/bin/sh", str(fed / name / "start.sh")]
    ended = subprocess.run(script, env={"PATH": path}, capture_output=True, text=True, check=False, timeout=60)
    assert (ended.returncode, ended.stdout) == (2, "said\n")
    assert (fed / name / "once").exists()


def serving(folder):
    """A listener with the server's certificate; its address."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.crt", folder / "server.key")
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            try:
                context.wrap_socket(client, server_side=True).close()
            except OSError:
                client.close()

    threading.Thread(target=serve, daemon=True).start()
    return listener, f"127.0.0.1:{listener.getsockname()[1]}"


def test_a_node_says_why_it_does_not_believe_the_server(fed, monkeypatch, tmp_path):
    listener, address = serving(fed / "server")
    with listener:
        assert distrust(address, fed / "node-0" / "ca.crt") == ""
        make_authority(tmp_path / "ca.crt", tmp_path / "ca.key")
        reason = distrust(address, tmp_path / "ca.crt")
        assert reason.startswith(f"The certificate of the server at {address} is not believed (")
    issue(fed, monkeypatch)
    listener, address = serving(fed / "server")
    plan = replace(read_plan(fed), port=int(address.split(":")[1]))
    with listener:
        federation = LocalFederation(fed)
        federation.plan = plan
        assert "has expired; renew them" in federation.status()["problem"]  # and not just that nobody answers
        with pytest.raises(UserError, match="has expired; renew them"):
            federation.submit({"rounds": 1})
        reason = distrust(address, fed / "node-0" / "ca.crt")
        assert reason.startswith(f"The certificate of the server at {address}, or that of its authority")
        assert reason.endswith("has expired; renew them with: rebafl federation renew")
    assert distrust(f"127.0.0.1:{free_ports(1)[0]}", fed / "ca.crt") == ""  # nobody listens: that passes
    assert distrust("nonsense", fed / "ca.crt") == ""


def test_a_secret_that_others_can_read_is_none(tmp_path):
    make_secret(tmp_path)
    assert len(read_secret(tmp_path)) == 32
    (tmp_path / SECRET).chmod(0o640)
    with pytest.raises(UserError, match="can be read by other users of this machine; close it with: chmod 600"):
        read_secret(tmp_path)
    (tmp_path / SECRET).chmod(0o600)
    (tmp_path / SECRET).write_bytes(b"short")
    with pytest.raises(UserError, match="too short"):
        read_secret(tmp_path)
    (tmp_path / SECRET).unlink()
    with pytest.raises(UserError, match="cannot be read"):
        read_secret(tmp_path)


def test_the_members_file_counts_as_it_is_now_and_a_broken_one_not_at_all(fed, capsys):
    path = fed / "server" / "members.toml"
    allowed, text = AllowedKeys(path), path.read_text()
    first, second = allowed.keys[0], allowed.keys[1]
    assert not allowed.read_again()
    path.write_text("\n".join(line for line in text.splitlines() if not line.startswith("1 = ")))
    assert allowed.read_again()
    assert (allowed.include(first), allowed.include(second)) == (True, False)
    path.write_text("[clients")
    assert not allowed.read_again()
    assert allowed.include(first)
    assert str(path) in capsys.readouterr().err
