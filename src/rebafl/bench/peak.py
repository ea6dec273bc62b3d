"""How much of this machine is used? Floating-point operations per second, beside those of large matrix products."""

from __future__ import annotations

import subprocess
import sys
import time
from statistics import median

import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from ..algorithms.interface import Sent
from ..base.config import Plain
from ..models.contract import Classifier
from ..models.kernels import torch_only
from ..runs.experiment import prepare
from ..runs.settings import make_settings
from ..training.resources import keep_memory, one_thread

SIDE = 1024
TURNS = 9


def gemm_peak(processes: int) -> float:
    """GFLOP/s of `processes` single-thread matrix products at the same time."""
    command = [sys.executable, "-m", "rebafl.bench.peak"]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(processes)]
    return sum(float(process.communicate()[0]) for process in running)


def _gemm_rate(seconds: float) -> float:
    """GFLOP/s that one thread sustains for a while, as training has to."""
    with one_thread():
        a, b = torch.ones(SIDE, SIDE), torch.ones(SIDE, SIDE)
        torch.mm(a, b)
        done, began = 0, time.perf_counter()
        while (spent := time.perf_counter() - began) < seconds:
            torch.mm(a, b)
            done += 1
    return done * 2 * SIDE**3 / spent / 1e9


def training_share(dataset: str) -> Plain:
    """One client's training on one core, interleaved with matrix products: samples/s and share of their rate."""
    settings = make_settings({"dataset": dataset, "algorithm": "fedavg"})
    with one_thread():
        experiment = prepare(settings, say=lambda text: None)
        net, server = experiment.work.make_net(), experiment.first_server()
        samples = len(experiment.work.split.indices(0)) * settings.training.epochs
        keep_memory()
        rates, peaks = [], []
        for turn in range(TURNS):
            peaks.append(_gemm_rate(1.0))
            began = time.perf_counter()
            experiment.work.train(net, Sent(server.weights), 0, turn + 1, None)
            rates.append(samples / (time.perf_counter() - began))
        _, flops = flops_per_sample(net, experiment.work.data.inputs(experiment.work.data.x_train[:50]))
    shares = [rate * flops / 1e9 / peak for rate, peak in zip(rates[1:], peaks[1:], strict=True)]
    return {
        "dataset": dataset,
        "model": settings.model.kind,
        "samples_a_second": median(rates[1:]),
        "mflop_a_sample": flops / 1e6,
        "gemm_gflops": median(peaks[1:]),
        "share": median(shares),
        "share_spread": [min(shares), max(shares)],
    }


def flops_per_sample(net: Classifier, x: torch.Tensor) -> tuple[float, float]:
    """Of a forward pass, and of a whole training step; a multiplication and an addition count as two.

    Counted as the convolutions are defined: that the kernel leaves out products with zero counts for it.
    """
    with torch_only(), FlopCounterMode(display=False) as counter:
        loss = F.cross_entropy(net(x), torch.zeros(len(x), dtype=torch.int64))
        forward = int(counter.get_total_flops())
        torch.autograd.backward(loss)
    return forward / len(x), int(counter.get_total_flops()) / len(x)


if __name__ == "__main__":
    print(_gemm_rate(seconds=3.0))  # much longer than the starts of the processes differ
