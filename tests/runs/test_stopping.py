"""A run that was stopped between rounds and resumed has the record of one that was not stopped."""

import os

import pytest
import typer
from typer.testing import CliRunner

from rebafl import UserError, cli, make_settings, simulate
from rebafl.base.files import is_locked, locked
from rebafl.cli.terminal import run_shown
from rebafl.runs.events import RoundLine
from rebafl.runs.stopping import STOP, is_requested, request_stop, stopped_after
from support.toy import TOY_SETTINGS, TinyNet, lines, quiet, run_toy, same_bits, weights

CHANGES = {"algorithm": "scaffold", "rounds": 6}


def stopped_at(out, toy, round):
    """A run that somebody stops while this round is under way."""

    def listen(event):
        if isinstance(event, RoundLine) and event.round == round:
            request_stop(out)

    return simulate({**TOY_SETTINGS, **CHANGES}, out, data=toy, model=TinyNet, listen=listen, say=quiet)


def test_the_record_is_that_of_a_run_that_was_never_stopped(tmp_path, toy):
    whole = run_toy(tmp_path / "whole", toy, **CHANGES)
    for round in (1, 4):
        record = stopped_at(tmp_path / "r", toy, round)
        assert record.round == round
        assert stopped_after(record.path) == round
        assert lines(record.path) == lines(whole.path)[:round]
    record = run_toy(tmp_path / "r", toy, **CHANGES)
    assert stopped_after(record.path) is None
    assert lines(record.path) == lines(whole.path)
    assert same_bits(weights(record), weights(whole))
    assert sorted(os.listdir(record.checkpoint)) == sorted(os.listdir(whole.checkpoint))
    assert not (record.path / STOP).exists()


def test_a_request_that_nobody_honoured_does_not_stop_the_next_start(tmp_path, toy):
    run_toy(tmp_path / "r", toy, rounds=2)
    with locked(tmp_path / "r"):  # a run that is killed before its round ends
        request_stop(tmp_path / "r")
    assert is_requested(tmp_path / "r")
    assert run_toy(tmp_path / "r", toy, rounds=4).round == 4


def test_what_does_not_run_cannot_be_stopped(tmp_path, toy):
    run_toy(tmp_path / "r", toy)
    with pytest.raises(UserError, match=r"is not running, so there is nothing to stop; it has 3 finished rounds"):
        request_stop(tmp_path / "r")
    with pytest.raises(UserError, match="holds no run"):
        request_stop(tmp_path / "elsewhere")


def test_asking_for_the_lock_takes_it_from_nobody(tmp_path, toy):
    run_toy(tmp_path / "r", toy)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        with locked(tmp_path / "r"):
            os.write(writer, b"x")
            os.read(os.pipe()[0], 1)
        os._exit(0)
    os.read(reader, 1)
    assert is_locked(tmp_path / "r")
    assert is_locked(tmp_path / "r")
    os.kill(child, 9)
    os.waitpid(child, 0)
    assert not is_locked(tmp_path / "r")


def test_a_damaged_request_is_none(tmp_path):
    for text in ("", "[1]", "{"):
        (tmp_path / STOP).write_text(text)
        assert not is_requested(tmp_path)
        assert stopped_after(tmp_path) is None


def test_the_command_and_what_the_stopped_run_says(tmp_path, toy, monkeypatch, capsys):
    done = CliRunner().invoke(cli.app, ["stop", str(run_toy(tmp_path / "r", toy).path)])
    assert "nothing to stop" in str(done.exception)
    monkeypatch.setattr("rebafl.cli.terminal.simulate", lambda *args, **more: stopped_at(tmp_path / "s", toy, 2))
    with pytest.raises(typer.Exit) as end:
        run_shown(make_settings({"rounds": 6}), tmp_path / "s", silent=True, again="rebafl run out=s")
    assert end.value.exit_code == 0
    assert "Stopped on request after round 2 of 6. Resume with: rebafl run out=s" in capsys.readouterr().err
