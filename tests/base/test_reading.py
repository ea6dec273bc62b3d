"""Files that anybody may have made: a pipe, a device or a folder in place of one is refused at once."""

import os
from pathlib import Path

import numpy as np
import pytest

from rebafl import data as datasets
from rebafl.base.config import read_toml
from rebafl.base.errors import UserError
from rebafl.base.files import locked
from rebafl.base.reading import opened, read_bytes, read_text
from rebafl.population.given import File
from rebafl.population.participation import Trace
from rebafl.runs.export import load_model
from rebafl.runs.record import Record, read_settings
from rebafl.runs.settings import make_settings

pytestmark = pytest.mark.timeout(20)  # what blocks, fails


@pytest.fixture(params=["pipe", "device", "folder", "link to a pipe"])
def no_file(request, tmp_path):
    path = tmp_path / "thing"
    if request.param == "pipe":
        os.mkfifo(path)
    elif request.param == "device":
        path = Path("/dev/zero")
    elif request.param == "folder":
        path.mkdir()
    else:
        os.mkfifo(tmp_path / "pipe")
        path.symlink_to(tmp_path / "pipe")
    return path


def test_only_regular_files_are_opened(no_file):
    with pytest.raises(OSError, match="not a file"):
        opened(no_file)


def test_what_is_read_is_what_path_reads(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes("eins\r\nzwei\rdrei ä\n".encode())
    assert read_bytes(path) == path.read_bytes()
    assert read_text(path) == path.read_text(encoding="utf-8")


def test_a_file_that_is_replaced_by_a_pipe_while_it_is_opened(tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "pipe")
    regular = os.stat(__file__)
    monkeypatch.setattr(os, "stat", lambda path: regular)
    with pytest.raises(OSError, match="not a file"):
        opened(tmp_path / "pipe")


@pytest.mark.parametrize(
    "read",
    [
        read_toml,
        read_settings,
        lambda path: Trace(path=str(path)).present(3, 0, 1, "participation"),
        lambda path: File(path=str(path), clients=3).split(np.arange(3), 3, 0),
        lambda path: make_settings({"participation": {"kind": "trace", "path": str(path)}}).label,
        datasets.read_image,
        lambda path: datasets.load(str(path)),
    ],
)
def test_no_reader_waits_for_what_is_no_file(no_file, read):
    with pytest.raises(UserError) as error:
        read(no_file)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["config.toml", "environment.json", "checkpoint/manifest.json"])
def test_a_run_directory_with_a_pipe_in_it(tmp_path, name):
    record = Record(tmp_path)
    record.create({"rounds": 1}, {"settings_sha256": "0"})
    (tmp_path / name).unlink()
    os.mkfifo(tmp_path / name)
    for read in (record.config, record.environment, record.rounds):
        try:
            read()
        except UserError as error:
            assert name.rpartition("/")[2] in str(error)
            break
    else:
        pytest.fail("the pipe was not noticed")


def test_an_exported_model_with_a_pipe_in_it(tmp_path):
    os.mkfifo(tmp_path / "model.json")
    with pytest.raises(UserError, match=r"model\.json"):
        load_model(tmp_path)


def test_a_pipe_in_place_of_the_lock(tmp_path):
    os.mkfifo(tmp_path / ".lock")
    with pytest.raises(UserError, match="cannot hold a run"), locked(tmp_path):
        pass
