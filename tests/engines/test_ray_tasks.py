"""On Ray: the same bits as elsewhere, whatever happens to its workers, and nothing heard outside this machine."""

import gc
import ipaddress
import os
import stat
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from rebafl.algorithms import KINDS
from rebafl.base.config import parse_assignments
from rebafl.base.errors import UserError
from rebafl.base.files import locked
from rebafl.engines import ray_tasks
from rebafl.engines.ray_tasks import connected
from rebafl.runs.record import Record
from rebafl.runs.simulate import simulate
from rebafl.runs.sweep import grid, run_on_ray
from support.engines import Sabotage, run_images
from support.toy import TinyNet, lines, run_toy, same_bits, weights

pytestmark = [
    pytest.mark.slow,
    # Ray leaves its own processes and log files to the garbage collector
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module")
def ray():
    with connected(cpus=2) as module:
        yield module
    assert not module.is_initialized()
    gc.collect()


@pytest.mark.usefixtures("ray")
@pytest.mark.parametrize("algorithm", ["rebafl", "scaffold"])
def test_the_same_bits_as_in_one_process(tmp_path, toy, algorithm):
    """Also what clients keep between rounds."""
    here, there = (
        run_toy(tmp_path / engine, toy, engine=engine, workers=1, algorithm=algorithm) for engine in ("local", "ray")
    )
    assert same_bits(weights(here), weights(there))
    assert same_bits(here.server()["state"], there.server()["state"])
    assert lines(here.path) == lines(there.path)


@pytest.mark.usefixtures("ray")
def test_the_same_bits_with_convolutions_and_a_run_may_change_its_engine(tmp_path):
    here = run_images(tmp_path / "here", 1)
    run_images(tmp_path / "there", 1, rounds=1)
    there = run_images(tmp_path / "there", 2, engine="ray")
    assert same_bits(weights(here), weights(there))
    assert lines(here.path) == lines(there.path)


@pytest.mark.usefixtures("ray")
def test_a_killed_ray_worker_changes_nothing(tmp_path, toy, monkeypatch):
    monkeypatch.setitem(KINDS, "sabotage", Sabotage)
    once = {"kind": "sabotage", "deed": "once", "place": str(tmp_path)}
    record = run_toy(tmp_path / "r", toy, algorithm=once, participation="always", engine="ray")
    plain = run_toy(tmp_path / "p", toy, algorithm="fedavg", participation="always")
    assert (tmp_path / "done").exists()
    assert [line.refused for line in record.rounds()] == [{}] * 3
    assert same_bits(weights(record), weights(plain))


@pytest.mark.usefixtures("ray")
def test_a_client_that_fails_or_kills_every_worker_is_given_up(tmp_path, toy, monkeypatch):
    monkeypatch.setitem(KINDS, "sabotage", Sabotage)
    for deed, reason in (("raise", "ZeroDivisionError: on purpose"), ("die", "died 3 times")):
        harm = {"kind": "sabotage", "deed": deed, "place": str(tmp_path)}
        record = run_toy(tmp_path / deed, toy, algorithm=harm, participation="always", engine="ray", rounds=1)
        assert reason in record.rounds()[0].refused[1]
        assert record.rounds()[0].updated


WORDS = ["dataset=fashion-mini", "partition.clients=4", "partition.samples=20", "training.epochs=1", "rounds=2"]


@pytest.mark.usefixtures("ray")
def test_a_sweep_on_ray_is_the_sweep_here_and_goes_on_where_it_was(tmp_path):
    cells = grid({"engine": "ray"}, [*WORDS, "seed=0,1"], tmp_path)
    simulate({**parse_assignments(WORDS), "rounds": 1, "seed": 1}, cells[1].out, say=lambda text: None)
    heard: list[int] = []
    run_on_ray(cells, 2, heard.append)
    assert heard[-1] == 4
    for seed, cell in enumerate(cells):
        alone = simulate({**parse_assignments(WORDS), "seed": seed}, tmp_path / str(seed), say=lambda text: None)
        assert lines(alone.path) == lines(cell.out)
        assert same_bits(weights(alone), weights(Record(cell.out)))


@pytest.mark.usefixtures("ray")
def test_a_cell_that_cannot_be_run_does_not_stop_the_others(tmp_path):
    cells = grid({}, [*WORDS, "partition.samples=20,99999"], tmp_path)
    with pytest.raises(UserError, match=r"1 of 2 runs failed, the first being partition\.samples=99999: "):
        run_on_ray(cells, 2)
    assert len(Record(cells[0].out).rounds()) == 2


def test_ray_listens_on_loopback_only(ray):
    ray.get(ray.remote(lambda: None).remote())  # a worker is there
    mine = [psutil.Process(), *psutil.Process().children(recursive=True)]
    listening = [
        c.laddr.ip for process in mine for c in process.net_connections("inet") if c.status == psutil.CONN_LISTEN
    ]
    assert listening
    assert all(ipaddress.ip_address(ip.removeprefix("::ffff:")).is_loopback for ip in listening)


def test_without_ray_it_says_what_to_install(tmp_path, toy, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match=r"pip install 'rebafl\[ray\]'"):
        run_toy(tmp_path / "r", toy, model=TinyNet, engine="ray")


def test_files_are_closed_to_others_and_those_of_a_killed_driver_are_removed(tmp_path, monkeypatch):
    monkeypatch.setattr(ray_tasks, "PLACE", str(tmp_path))
    abandoned, alive, young, foreign = (tmp_path / f"rebafl-ray-{k}" for k in range(4))
    for folder in (abandoned, alive, young):
        (folder / "r").mkdir(parents=True)
    foreign.symlink_to(tmp_path)
    for folder in (abandoned, alive):
        os.utime(folder, (0, 0))
    with locked(alive):
        os.utime(alive, (0, 0))
        with ray_tasks._own_folder() as inner:
            Path(inner).mkdir()
            Path(inner).chmod(0o777)  # as Ray does
            assert stat.S_IMODE(Path(inner).parent.stat().st_mode) == 0o700
            assert not abandoned.exists()
            assert alive.exists()
            assert young.exists()
            assert foreign.is_symlink()
    assert not Path(inner).parent.exists()


def test_what_ray_really_leaves_open_is_inside_a_closed_folder():
    """In a process of its own: it is killed, and the next start removes what it left."""
    code = (
        "from rebafl.engines.ray_tasks import connected\nimport os, signal\n"
        "with connected(1) as ray:\n"
        "    print(ray._private.worker._global_node.get_temp_dir_path(), flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=200)
    left = Path(done.stdout.split()[-1]).parent
    assert stat.S_IMODE(left.stat().st_mode) == 0o700
    os.utime(left, (0, 0))
    ray_tasks._remove_leftovers()
    assert not left.exists()
