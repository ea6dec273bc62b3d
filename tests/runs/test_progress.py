"""Whoever follows a run sees how far its round is, and costs it next to nothing."""

import rebafl.runs.progress as module
from rebafl import simulate
from rebafl.runs.events import ClientsTrained
from rebafl.runs.progress import PROGRESS, ProgressFile, read_progress
from support.toy import TOY_SETTINGS, TinyNet, quiet, run_toy


def test_a_round_says_how_many_clients_are_done(tmp_path, toy, monkeypatch):
    monkeypatch.setattr(module, "PAUSE", 0.0)
    seen = []

    def listen(event):
        if isinstance(event, ClientsTrained):
            now = read_progress(tmp_path / "r")
            seen.append((now.round, now.stage, now.done, now.of) == (now.round, "training", event.done, event.of))

    simulate(TOY_SETTINGS, tmp_path / "r", data=toy, model=TinyNet, listen=listen, say=quiet)
    assert len(seen) > 6
    assert all(seen)
    assert read_progress(tmp_path / "r").stage == "scoring"


def test_it_is_not_written_for_every_client(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "PAUSE", 3600.0)
    file = ProgressFile(tmp_path, 1)
    file.say("training", 1000)
    for _ in range(1000):
        file.client_done()
    assert read_progress(tmp_path).done == 0
    file.say("scoring")
    assert read_progress(tmp_path).done == 1000


def test_a_disk_that_is_full_costs_the_file_and_not_the_round(tmp_path):
    (tmp_path / PROGRESS).mkdir()
    ProgressFile(tmp_path, 1).say("training", 3)
    assert read_progress(tmp_path) is None


def test_a_damaged_file_says_nothing(tmp_path, toy):
    run_toy(tmp_path / "r", toy)
    odd = '{"round": 1, "stage": "<b>", "done": 1, "of": 2, "at": 0}'
    for text in ("", "{", "[]", "7", '{"round": 1}', odd, odd.replace('"<b>"', '"training"').replace(": 0}", ': "x"}')):
        (tmp_path / "r" / PROGRESS).write_text(text)
        assert read_progress(tmp_path / "r") is None
