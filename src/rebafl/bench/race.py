"""Who is faster at the same work? Each in turn, again and again in one run, so that a busy moment hits all alike."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from ..base.config import Plain
from ..base.errors import UserError
from ..base.portable import for_others
from ..engines import cores
from ..runs.environment import machine
from ..runs.experiment import prepare
from ..runs.settings import Settings
from . import workload
from .ours import IN_TURNS
from .peak import flops_a_sample, gemm_peak
from .stopwatch import Listen, Timing, in_turns, measure, nobody

PEERS = Path(__file__).parent / "peers"
APART = 1.0  # points of accuracy: rounding differs between programs, and grows over rounds
OURS, OURS_REBAFL = "rebafl", "rebafl-rebafl"
TARGETS = {"plain-processes": 0.55, "pfl": 0.55, "flower": 0.5}


@dataclass(frozen=True)
class Contender:
    """A program that does the work; `command` is empty if it is not installed."""

    name: str
    label: str
    command: tuple[str, ...]


def contenders(environments: Path) -> list[Contender]:
    """Ourselves, the plain loops, and the peers that `make bench-peers` installed."""
    here = sys.executable
    own = (here, "-m", "rebafl.bench.ours", f"{{}}/{workload.SETTINGS}")
    plain = (here, str(PEERS / "run_plain.py"), "{}")
    found = [
        Contender(OURS, "rebafl, FedAvg", (*own, "algorithm=fedavg")),
        Contender(OURS_REBAFL, "rebafl, ReBaFL", (*own, "algorithm=rebafl")),
        Contender("plain-processes", "plain loop, a process a core", (*plain, "processes")),
        Contender("plain-sequential", "plain loop, one process", (*plain, "sequential")),
        Contender(
            "plain-faster", "plain loop, a process a core, our form of the model", (*plain, "processes", "faster")
        ),
    ]
    for name, label in (("flower", "Flower simulation"), ("pfl", "pfl-research"), ("fedlab", "FedLab")):
        python = environments / name / "bin" / "python"
        command = (str(python), str(PEERS / f"run_{name}.py"), "{}") if python.exists() else ()
        found.append(Contender(name, label, command))
    return found


def race(
    racers: Sequence[Contender],
    size: workload.Size,
    repeats: int,
    folder: Path,
    listen: Listen = nobody,
) -> Plain:
    """Measure everyone `repeats` times; everything measured, and what follows from it."""
    processes = cores()
    settings = workload.write(size, folder, processes)
    timings: dict[str, list[Timing]] = {racer.name: [] for racer in racers if racer.command}
    peaks, failures = [], dict[str, str]()
    total = repeats * len(timings) + 1
    for turn in range(repeats):
        peaks.append(gemm_peak(processes))
        for place, racer in enumerate(_turned([racer for racer in racers if racer.command], turn)):
            listen(turn * len(timings) + place, total, racer.label)
            command = [word.format(folder) for word in racer.command]
            try:
                environment = None if racer.name in (OURS, OURS_REBAFL) else for_others()
                timings[racer.name].append(measure(command, folder / f"{racer.name}.log", environment))
            except UserError as error:  # a peer that fails must not cost what was measured of the others
                if racer.name == OURS:
                    raise
                failures[racer.name] = str(error)
    work = _gflop_a_round(settings, size)
    both = OURS_REBAFL in timings
    listen(total - 1, total, "first steps, and FedAvg and ReBaFL in turn")
    return {
        "machine": machine(),
        "workload": asdict(size),
        "processes": processes,
        "repeats": repeats,
        "gemm_gflops": peaks,
        "contenders": [_row(racer, timings, failures, work / median(peaks)) for racer in racers],
        "accuracies_agree": _agree(timings),
        "first_step_seconds": first_step(folder, repeats),
        "rebafl_to_fedavg": rebafl_to_fedavg(folder, repeats * size.rounds) if both else None,
    }


def rebafl_to_fedavg(folder: Path, rounds: int) -> Plain:
    """What ReBaFL's rounds cost of FedAvg's, in turns: the difference is smaller than what minutes make."""
    own = [sys.executable, "-m", "rebafl.bench.ours", str(folder / workload.SETTINGS), IN_TURNS]
    words = {name: [*own, f"algorithm={name}", f"rounds={rounds + 1}"] for name in ("fedavg", "rebafl")}
    seconds = in_turns(words, rounds + 1, folder / "turns.log")
    warm = {name: each[1:] for name, each in seconds.items()}
    ratios = [theirs / ours for ours, theirs in zip(warm["fedavg"], warm["rebafl"], strict=True)]
    return {"ratio": median(ratios), "spread": [min(ratios), max(ratios)], "seconds": warm}


def first_step(folder: Path, repeats: int) -> float:
    """Seconds from starting a process to the end of a client that takes a single step."""
    words = ["participation.kind=fraction", "participation.share=0.01", "partition.samples=50", "training.epochs=1"]
    command = [sys.executable, "-m", "rebafl.bench.ours", str(folder / workload.SETTINGS), *words, "rounds=1"]
    timings = [measure(command, folder / "first.log") for _ in range(repeats)]
    return median(timing.client for timing in timings)


def _turned(racers: Sequence[Contender], turn: int) -> list[Contender]:
    """Another one begins each time, so that nobody is always the one after a rest."""
    first = turn % len(racers)
    return [*racers[first:], *racers[:first]]


def _gflop_a_round(settings: Settings, size: workload.Size) -> float:
    """Training (forward and backward), and one forward pass over the test set."""
    experiment = prepare(settings, say=lambda text: None)
    net, data = experiment.work.make_net(), experiment.work.data
    forward, whole = flops_a_sample(net, data.inputs(data.x_train[: settings.training.batch]))
    return (whole * size.active * size.samples * size.epochs + forward * len(data.y_test)) / 1e9


def _row(racer: Contender, timings: dict[str, list[Timing]], failures: dict[str, str], ideal: float) -> Plain:
    """One contender: its medians, and its time relative to ours, turn by turn; `ideal` seconds at the peak rate."""
    row: Plain = {"name": racer.name, "label": racer.label, "target": TARGETS.get(racer.name)}
    if not racer.command:
        return row | {"absent": "not installed"}
    if racer.name in failures:
        return row | {"absent": f"failed: {failures[racer.name]}"}
    own, ours = timings[racer.name], timings.get(OURS, [])
    ratios = [_typical(us) / _typical(them) for us, them in zip(ours, own, strict=False)]
    seconds = median(second for timing in own for second in timing.rounds[1:])
    return row | {
        "version": own[0].version,
        "seconds": seconds,
        "peak_share": ideal / seconds,
        "spread": [min(map(_typical, own)), max(map(_typical, own))],
        "ours_to_theirs": median(ratios) if ratios else None,
        "ratio_spread": [min(ratios), max(ratios)] if ratios else None,
        "start_and_first_round": median(timing.start + timing.rounds[0] for timing in own),
        "start": median(timing.start for timing in own),
        "memory_mb": max(timing.memory for timing in own) / 2**20,
        "accuracy": own[0].accuracy,
        "rounds": [timing.rounds for timing in own],
    }


def _typical(timing: Timing) -> float:
    """A round's seconds, once warm."""
    return median(timing.rounds[1:])


def _agree(timings: dict[str, list[Timing]]) -> bool:
    """Did all do the same work? Then their accuracies are alike after every round. ReBaFL is another method."""
    curves = [timing.accuracy for name, found in timings.items() if name != OURS_REBAFL for timing in found]
    return all(max(values) - min(values) <= APART for values in zip(*curves, strict=True))
