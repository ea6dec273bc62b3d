"""One thread, whatever own code wants: several would change bits, and a forked worker would wait for them for ever."""

import os
import threading

import pytest
import torch
from torch import nn

from rebafl.base.errors import UserError
from rebafl.training.resources import _set_threads, one_thread
from support.toy import TinyNet, run_toy, same_bits, weights


class Greedy(TinyNet):
    """A model that wants threads for itself, as it is made and as it computes."""

    def __init__(self, *words):
        super().__init__(*words)
        torch.set_num_threads(4)
        torch.rand(300, 300) @ torch.rand(300, 300)

    def features(self, x):
        torch.set_num_threads(3)
        return super().features(x)


@pytest.mark.timeout(60)
def test_a_model_that_sets_threads_blocks_no_worker(tmp_path, toy):
    before = torch.get_num_threads()
    plain = run_toy(tmp_path / "p", toy, workers=1)
    greedy = run_toy(tmp_path / "g", toy, model=Greedy, workers=2)
    assert same_bits(weights(plain), weights(greedy))
    assert torch.get_num_threads() == before


def test_own_code_is_not_heard_while_one_thread_is_wanted():
    usual = torch.set_num_threads
    with one_thread():
        with one_thread():
            torch.set_num_threads(3)
            assert torch.get_num_threads() == 1
        torch.set_num_threads(3)
        assert torch.get_num_threads() == 1
    assert torch.set_num_threads is usual


def test_another_name_for_it_is_noticed():
    with pytest.raises(UserError, match="remove its call of set_num_threads"), one_thread():
        _set_threads(2)
    assert torch.set_num_threads is _set_threads


def test_two_threads_leave_torch_as_it_was():
    inside, done = threading.Event(), threading.Event()

    def other():
        with one_thread():
            inside.set()
            done.wait(10)

    thread = threading.Thread(target=other)
    with one_thread():
        thread.start()
        inside.wait(10)
    assert torch.set_num_threads is not _set_threads
    done.set()
    thread.join()
    assert torch.set_num_threads is _set_threads


def test_a_process_that_was_forked_meanwhile_can_still_ask(toy):
    with one_thread():
        child = os.fork()
        if child == 0:
            with one_thread():
                os._exit(0 if isinstance(nn.Linear(1, 1), nn.Module) else 1)
        assert os.waitpid(child, 0)[1] == 0
