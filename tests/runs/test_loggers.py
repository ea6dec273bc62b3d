"""Each committed round stands exactly once where people look already: live, later, and after any number of kills."""

import os
import random
import signal
import time

import pytest
from typer.testing import CliRunner

from rebafl import UserError, cli, make_settings
from rebafl.runs.loggers import SINKS, Logs, chosen, log_run, need_loggers
from rebafl.runs.loggers.mlflow import Mlflow, _own_store
from rebafl.runs.loggers.sink import About, numbers
from rebafl.runs.loggers.tensorboard import NAME, TensorBoard
from rebafl.runs.opening import roll_back
from rebafl.runs.record import Record
from rebafl.runs.sweep import grid
from support.toy import lines, round_line, run_toy
from support.wandb_file import check_wandb


def events(path):
    """Steps and values in the event file, by the package's own protocol but with our own reading of its frames."""
    from tensorboardX.proto.event_pb2 import Event

    data, place, found = (path / "logs" / "tensorboard" / NAME).read_bytes(), 0, []
    while place < len(data):
        length = int.from_bytes(data[place : place + 8], "little")
        event = Event.FromString(data[place + 12 : place + 12 + length])
        place += 16 + length
        if event.step:
            found.append((event.step, {value.tag: value.simple_value for value in event.summary.value}))
    assert place == len(data)
    return found


def check(path):
    """Every round is there once, in order, with the record's accuracy."""
    rows, found = lines(path), events(path)
    assert [step for step, _ in found] == [row["round"] for row in rows]
    assert [values["accuracy"] for _, values in found] == pytest.approx([row["accuracy"] for row in rows])


def test_a_run_is_logged_while_it_runs_and_its_bits_stay(tmp_path, toy):
    plain = run_toy(tmp_path / "plain", toy, rounds=4)
    run_toy(tmp_path / "r", toy, rounds=2, log="tensorboard")
    check(tmp_path / "r")
    run_toy(tmp_path / "r", toy, rounds=4, log="tensorboard")
    check(tmp_path / "r")
    assert lines(tmp_path / "r") == lines(plain.path)


def test_logging_later_writes_the_same_and_only_what_is_missing(tmp_path, toy):
    record = run_toy(tmp_path / "r", toy, rounds=3)
    assert log_run(record, "tensorboard") == 3
    before = (tmp_path / "r" / "logs" / "tensorboard" / NAME).read_bytes()
    assert log_run(record, "tensorboard") == 0
    assert (tmp_path / "r" / "logs" / "tensorboard" / NAME).read_bytes() == before
    run_toy(tmp_path / "r", toy, rounds=5)
    assert log_run(record, "tensorboard") == 2
    check(tmp_path / "r")


def test_a_run_that_is_rolled_back_loses_those_rounds_there_too(tmp_path, toy):
    record = run_toy(tmp_path / "r", toy, rounds=5, log="tensorboard")
    roll_back(Record(record.path), 3)
    assert log_run(record, "tensorboard") == 0
    check(tmp_path / "r")


def test_whatever_is_torn_off_is_written_again(tmp_path, toy):
    record = run_toy(tmp_path / "r", toy, rounds=3, log="tensorboard")
    file = tmp_path / "r" / "logs" / "tensorboard" / NAME
    whole = file.read_bytes()
    for length in [0, 1, 11, 12, 50, *range(60, len(whole), 37)]:
        file.write_bytes(whole[:length])
        log_run(record, "tensorboard")
        check(tmp_path / "r")
    damaged = bytearray(whole)
    damaged[-20] ^= 1
    file.write_bytes(bytes(damaged))
    assert log_run(record, "tensorboard") == 1
    check(tmp_path / "r")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tensorboard", "wandb"])
def test_twenty_kills_while_logging(tmp_path, toy, name):
    chance, kills = random.Random(5), 0
    run_toy(tmp_path / "r", toy, rounds=1, log=name)  # imports what children would have to
    while kills < 20:
        child = os.fork()
        if child == 0:
            die_at_a_write(chance)
            try:
                run_toy(tmp_path / "r", toy, rounds=400, log=name)
            finally:
                os._exit(0)
        chance.random()
        kills += os.WIFSIGNALED(os.waitpid(child, 0)[1])
    done = len(Record(tmp_path / "r").rounds())
    assert done > 20
    run_toy(tmp_path / "r", toy, rounds=done + 1, log=name)
    {"tensorboard": check, "wandb": check_wandb}[name](tmp_path / "r")


def die_at_a_write(chance):
    """Be killed at a random write, to the record or to the log, of which a random part is still done."""
    left, write = [chance.randrange(3, 60)], os.write

    def deadly(original):
        def wrapper(*args, **kwargs):
            left[0] -= 1
            if left[0] < 0:
                if original is write:
                    write(args[0], args[1][: chance.randrange(len(args[1]) + 1)])
                os.kill(os.getpid(), signal.SIGKILL)
            return original(*args, **kwargs)

        return wrapper

    os.write, os.fsync, os.ftruncate = deadly(os.write), deadly(os.fsync), deadly(os.ftruncate)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning")
def test_mlflow_gets_each_round_once(tmp_path, toy, monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    record = run_toy(tmp_path / "r", toy, rounds=3)
    about = About(record.path, {"rounds": 3}, toy.classes, 1000.0)
    first = Mlflow(about)
    for line in record.rounds()[:2]:
        first.write(line, 1000.0 + line.round)
    first.write(record.rounds()[1], 1002.0)  # as after a kill between the write and whatever came next
    assert log_run(record, "mlflow") == 1
    again = Mlflow(about)
    assert again.run == first.run
    history = again.client.get_metric_history(first.run, "accuracy")
    assert sorted((m.step, m.value) for m in history) == [(line.round, line.accuracy) for line in record.rounds()]
    assert (tmp_path / "mlflow.db").exists()


def killed(work, after):
    """Do some work in a process of its own that is killed after so many seconds, wherever it is; was it?"""
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)  # the system ends us: nothing is tidied up
        signal.setitimer(signal.ITIMER_REAL, after)
        try:
            work()
        finally:
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def kill_while_logging(path, toy, name, kills, longest):
    """Killed again and again at random moments, then run a round further and undisturbed; the record."""
    chance, done = random.Random(7), 0
    while done < kills:
        done += killed(lambda: run_toy(path, toy, rounds=5000, log=name), chance.uniform(0.3, 1.0) * longest)
    return run_toy(path, toy, rounds=len(Record(path).rounds()) + 1, log=name)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning")
def test_twenty_kills_while_logging_to_mlflow(tmp_path, toy, monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    run_toy(tmp_path / "r", toy, rounds=1, log="mlflow")  # makes the store, which takes MLflow seconds
    record = kill_while_logging(tmp_path / "r", toy, "mlflow", kills=20, longest=2.0)
    sink = Mlflow(About(record.path, {}, toy.classes, 0.0))
    assert len(sink.client.search_runs([sink._experiment()])) == 1
    assert len(record.rounds()) > 2
    for name in ("accuracy", "diversity", "clients/answered", "bytes/up"):
        history = sink.client.get_metric_history(sink.run, name)
        wanted = [(line.round, numbers(line, toy.classes)[name]) for line in record.rounds()]
        assert sorted((metric.step, metric.value) for metric in history) == wanted, name
    assert log_run(record, "mlflow") == 0


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning")
def test_a_kill_while_mlflow_makes_its_store_leaves_none_that_is_half_made(tmp_path, toy, monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    record = run_toy(tmp_path / "r", toy, rounds=2)
    whole = time.monotonic()
    log_run(run_toy(tmp_path / "other" / "r", toy, rounds=2), "mlflow")  # imports it here, so that children need not
    whole = time.monotonic() - whole
    kills = [killed(lambda: log_run(record, "mlflow"), whole * part) for part in (0.1, 0.15, 0.2, 0.25, 0.3)]
    assert any(kills)
    log_run(record, "mlflow")
    sink = Mlflow(About(record.path, {}, toy.classes, 0.0))
    assert sorted(m.step for m in sink.client.get_metric_history(sink.run, "accuracy")) == [1, 2]
    assert len(sink.client.search_runs([sink._experiment()])) == 1
    assert sink.client.get_run(sink.run).data.params["rounds"] == "2"
    assert list((tmp_path / "r" / "logs").iterdir()) == []


def test_mlflows_store_needs_no_hard_links(tmp_path, monkeypatch):
    def refused(*_):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refused)
    monkeypatch.setattr("rebafl.runs.loggers.mlflow._make_store", lambda path: path.write_bytes(b"a store"))
    about = About(tmp_path / "r", {}, ["a"], 0.0)
    for _ in range(2):
        assert _own_store(about) == f"sqlite:///{tmp_path / 'mlflow.db'}"
        assert (tmp_path / "mlflow.db").read_bytes() == b"a store"
        assert list(about.folder.iterdir()) == []


def test_numbers_of_a_round():
    line = round_line(active=[1, 2, 3], lost=[2], refused={3: "x"}, unreached=[4], accuracy=50.0, recall=[10.0, None])
    found = numbers(line, ["a/b", "c"])
    assert found["recall/a_b"] == 10.0
    assert "recall/c" not in found
    assert "epsilon" not in found
    assert (found["clients/chosen"], found["clients/answered"], found["clients/refused"]) == (4, 2, 1)
    assert numbers(line, ["a/b", "a_b"])["recall/0"] == 10.0, "names that would be one are numbers"


def test_a_logger_that_fails_costs_no_round(tmp_path, toy, monkeypatch):
    class Broken(TensorBoard):
        def write(self, line, at):
            raise OSError(28, "No space left on device")

    monkeypatch.setitem(SINKS, "tensorboard", Broken)
    said: list[str] = []
    record = run_toy(tmp_path / "r", toy, rounds=3)
    with Logs(record, "tensorboard", said.append) as logs:
        assert logs.follow() == 0
        assert logs.follow() == 0
    assert len(said) == 1
    assert "No space left" in said[0]
    assert "rebafl log" in said[0]
    with pytest.raises(UserError, match="No space left"):
        log_run(record, "tensorboard")
    assert run_toy(tmp_path / "r", toy, rounds=5, log="tensorboard").round == 5


def test_what_is_not_installed_is_one_sentence(monkeypatch, tmp_path, toy):
    monkeypatch.setattr("rebafl.runs.loggers.sink.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"log=wandb needs wandb; install it with: pip install 'rebafl\[wandb\]'"):
        need_loggers("wandb")
    with pytest.raises(UserError, match="log=tensorboard needs tensorboardX"):
        run_toy(tmp_path / "r", toy, log="tensorboard")
    assert not (tmp_path / "r").exists()


def test_names_are_checked_and_change_no_result():
    with pytest.raises(
        UserError, match=r"log = 'tensorbord': there is no logger 'tensorbord'; there are: tensorboard, mlflow"
    ):
        make_settings({"log": "tensorbord"})
    assert make_settings({"log": "mlflow,tensorboard"}).digest == make_settings({}).digest
    assert chosen("wandb,tensorboard,wandb") == ["tensorboard", "wandb"]


def test_a_sweep_takes_several_loggers_as_one_value(tmp_path):
    points = grid({}, ["seed=0,1", "log=tensorboard,mlflow"], tmp_path)
    assert [point.settings.log for point in points] == ["tensorboard,mlflow"] * 2


def test_the_command(tmp_path, toy):
    run_toy(tmp_path / "r", toy, rounds=2)
    command = CliRunner()
    assert command.invoke(cli.app, ["log", str(tmp_path / "r"), "--to", "tensorboard"]).exit_code == 0
    check(tmp_path / "r")
    for words in ([], ["--to", "nothing"]):
        done = command.invoke(cli.app, ["log", str(tmp_path / "r"), *words])
        assert isinstance(done.exception, UserError)
