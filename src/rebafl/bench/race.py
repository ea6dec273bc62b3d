"""Who is faster at the same work? All take turns in one run, so that a busy moment of the machine affects all alike."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median

from ..algorithms import KINDS as ALGORITHMS
from ..base.config import Plain
from ..base.errors import UserError
from ..base.portable import for_others
from ..engines import cores
from ..runs.environment import machine
from ..runs.experiment import prepare
from ..runs.settings import Settings
from . import workload
from .ours import IN_TURNS
from .peak import flops_per_sample, gemm_peak, training_share
from .stopwatch import OnStep, Timing, ignore_step, in_turns, measure, warm_seconds

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
    own = (sys.executable, "-m", "rebafl.bench.ours", f"{{}}/{workload.SETTINGS}")
    plain = (sys.executable, str(PEERS / "run_plain.py"), "{}")
    known = [
        Contender(OURS, "rebafl, FedAvg", (*own, "algorithm=fedavg")),
        Contender(OURS_REBAFL, "rebafl, ReBaFL", (*own, "algorithm=rebafl")),
        Contender("plain-processes", "plain loop, one process per core", (*plain, "processes")),
        Contender("plain-sequential", "plain loop, one process", (*plain, "sequential")),
        Contender(
            "plain-faster", "plain loop, one process per core, our form of the model", (*plain, "processes", "faster")
        ),
    ]
    for name, label in (("flower", "Flower simulation"), ("pfl", "pfl-research"), ("fedlab", "FedLab")):
        python = environments / name / "bin" / "python"
        command = (str(python), str(PEERS / f"run_{name}.py"), "{}") if python.exists() else ()
        known.append(Contender(name, label, command))
    return known


def choose(known: Sequence[Contender], only: Collection[str]) -> list[Contender]:
    """Those that are named, and ourselves; all if none is named."""
    names = [contender.name for contender in known]
    if unknown := set(only) - set(names):
        raise UserError(f"--only: there is no contender {sorted(unknown)[0]!r}; there are {', '.join(names)}.")
    return [contender for contender in known if not only or contender.name in {OURS, *only}]


def measure_race(
    folder: Path,
    environments: Path,
    only: Collection[str],
    quick: bool,
    repeats: int,
    rounds: int,
    on_step: OnStep = ignore_step,
) -> Plain:
    """All contenders, or some (`only`), on the benchmark's workload or a small one; then training alone."""
    racers = choose(contenders(environments), only)
    size = replace(workload.SMALL if quick else workload.Size(), rounds=rounds)
    measured = race(racers, size, repeats, folder, on_step)
    return measured | {"training": [] if quick else [training_share(name) for name in ("fashion-mnist", "cifar-10")]}


def race(
    racers: Sequence[Contender],
    size: workload.Size,
    repeats: int,
    folder: Path,
    on_step: OnStep = ignore_step,
) -> Plain:
    """Measure everyone `repeats` times; everything measured, and what follows from it."""
    processes = cores()
    settings = workload.write(size, folder, processes)
    installed = [racer for racer in racers if racer.command]
    steps = repeats * len(installed) + 1
    timings: dict[str, list[Timing]] = {racer.name: [] for racer in installed}
    peaks, failures = [], dict[str, str]()
    for repeat in range(repeats):
        peaks.append(gemm_peak(processes))
        for place, racer in enumerate(_rotated(installed, repeat)):
            on_step(repeat * len(installed) + place, steps, racer.label)
            try:
                timings[racer.name].append(_measure(racer, folder))
            except UserError as error:  # what was measured of the others is kept
                if racer.name == OURS:
                    raise
                failures[racer.name] = str(error)
    ideal = _gflop_per_round(settings, size) / median(peaks)
    on_step(steps - 1, steps, "first steps, and FedAvg and ReBaFL in turn")
    return {
        "machine": machine(),
        "workload": asdict(size),
        "processes": processes,
        "repeats": repeats,
        "gemm_gflops": peaks,
        "contenders": [_row(racer, timings, failures, ideal) for racer in racers],
        "accuracies_agree": _agree(timings),
        "first_step_seconds": first_step(folder, repeats),
        "rebafl_to_fedavg": rebafl_to_fedavg(folder, repeats * size.rounds) if OURS_REBAFL in timings else None,
    }


def _measure(racer: Contender, folder: Path) -> Timing:
    """Others see the environment without the variables that this package sets for its own bits."""
    environment = None if racer.name in (OURS, OURS_REBAFL) else for_others()
    return measure([word.format(folder) for word in racer.command], folder / f"{racer.name}.log", environment)


def rebafl_to_fedavg(folder: Path, rounds: int) -> Plain:
    """How many times as long as FedAvg's rounds do ReBaFL's take?"""
    seconds = methods_in_turns(folder, ("fedavg", "rebafl"), rounds)
    return ratio_to(seconds["rebafl"], seconds["fedavg"]) | {"seconds": seconds}


def measure_methods(folder: Path, quick: bool, rounds: int, on_step: OnStep = ignore_step) -> Plain:
    """How many times as long as FedAvg's rounds do those of every method take, on the benchmark's workload?"""
    size = workload.SMALL if quick else workload.Size()
    workload.write(size, folder, cores())
    seconds = methods_in_turns(folder, [*ALGORITHMS], rounds, on_step)
    ratios = {name: ratio_to(own, seconds["fedavg"]) for name, own in seconds.items()}
    return {"machine": machine(), "workload": asdict(size), "to_fedavg": ratios, "seconds": seconds}


def methods_in_turns(
    folder: Path, algorithms: Sequence[str], rounds: int, on_step: OnStep = ignore_step
) -> dict[str, list[float]]:
    """Seconds of each round but the first of these algorithms, which take turns round by round.

    The machine's speed changes within minutes by more than methods differ.
    """
    own = [sys.executable, "-m", "rebafl.bench.ours", str(folder / workload.SETTINGS), IN_TURNS]
    words = {name: [*own, f"algorithm={name}", f"rounds={rounds + 1}"] for name in algorithms}
    seconds = in_turns(words, rounds + 1, folder / "turns.log", on_step)
    return {name: rounds_of[1:] for name, rounds_of in seconds.items()}


def ratio_to(theirs: Sequence[float], ours: Sequence[float]) -> Plain:
    """Of rounds that were run in turn: the median of their ratios, and the range."""
    ratios = [slow / fast for slow, fast in zip(theirs, ours, strict=True)]
    return {"ratio": median(ratios), "spread": [min(ratios), max(ratios)]}


def first_step(folder: Path, repeats: int) -> float:
    """Seconds from starting a process to the end of a client that takes a single step."""
    words = ["participation.kind=fraction", "participation.share=0.01", "partition.samples=50", "training.epochs=1"]
    command = [sys.executable, "-m", "rebafl.bench.ours", str(folder / workload.SETTINGS), *words, "rounds=1"]
    timings = [measure(command, folder / "first.log") for _ in range(repeats)]
    return median(timing.client for timing in timings)


def _rotated(racers: Sequence[Contender], repeat: int) -> list[Contender]:
    """In each repeat another one begins, so that none is always measured after a pause."""
    first = repeat % len(racers)
    return [*racers[first:], *racers[:first]]


def _gflop_per_round(settings: Settings, size: workload.Size) -> float:
    """Training (forward and backward), and one forward pass over the test set."""
    experiment = prepare(settings, say=lambda text: None)
    net, data = experiment.work.make_net(), experiment.work.data
    forward, whole = flops_per_sample(net, data.inputs(data.x_train[: settings.training.batch]))
    return (whole * size.active * size.samples * size.epochs + forward * len(data.y_test)) / 1e9


def _row(racer: Contender, timings: dict[str, list[Timing]], failures: dict[str, str], ideal: float) -> Plain:
    """One contender: its medians, and its time relative to ours, turn by turn; `ideal` seconds at the peak rate."""
    row: Plain = {"name": racer.name, "label": racer.label, "target": TARGETS.get(racer.name)}
    if not racer.command:
        return row | {"absent": "not installed"}
    if racer.name in failures:
        return row | {"absent": f"failed: {failures[racer.name]}"}
    own, ours = timings[racer.name], timings.get(OURS, [])
    ratios = [warm_seconds(us) / warm_seconds(them) for us, them in zip(ours, own, strict=False)]
    seconds = median(second for timing in own for second in timing.rounds[1:])
    return row | {
        "version": own[0].version,
        "seconds": seconds,
        "peak_share": ideal / seconds,
        "spread": [min(map(warm_seconds, own)), max(map(warm_seconds, own))],
        "ours_to_theirs": median(ratios) if ratios else None,
        "ratio_spread": [min(ratios), max(ratios)] if ratios else None,
        "start_and_first_round": median(timing.start + timing.rounds[0] for timing in own),
        "start": median(timing.start for timing in own),
        "memory_mb": max(timing.memory for timing in own) / 2**20,
        "accuracy": own[0].accuracy,
        "rounds": [timing.rounds for timing in own],
    }


def _agree(timings: dict[str, list[Timing]]) -> bool:
    """Did all do the same work? Then their accuracies are alike after every round. ReBaFL is another method."""
    curves = [timing.accuracy for name, own in timings.items() if name != OURS_REBAFL for timing in own]
    return all(max(values) - min(values) <= APART for values in zip(*curves, strict=True))
