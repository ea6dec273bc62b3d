"""Result files and methods made by hand, for tests of advice."""

import json

from rebafl.advice.measured import Cell, Condition, Entry
from rebafl.advice.setting import Setting
from rebafl.base.config import parse_assignments
from rebafl.base.sealed import seal
from rebafl.runs.settings import make_settings


def settings(*words):
    return make_settings(parse_assignments(words))


def keep(folder, scale, words, accuracy, up=1000, cloud=None, own=""):
    """The file of a run with these accuracies, in which one client took part in each round; `own`: with own code."""
    chosen, rounds = settings(*words.split()), len(accuracy)
    curves = {"accuracy": accuracy, "bytes_up": [up] * rounds, "bytes_down": [500] * rounds, "active": [1] * rounds}
    curves |= {"cloud_accuracy": cloud} if cloud else {}
    result = {"rounds": rounds, "seed": chosen.seed, "settings": chosen.plain(), "environment": {}, "curves": curves}
    if own:
        result["settings"]["algorithm"]["kind"] = own
    path = folder / scale / f"{chosen.label}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(seal(json.dumps(result)))
    return path


def entry(name, *accuracies, swing=1.0, **by_seed):
    """A method with the accuracies of seeds 0, 1, …, or of those that are named: `seed3=70.0`."""
    cells = {**dict(enumerate(accuracies)), **{int(seed[4:]): value for seed, value in by_seed.items()}}
    return Entry(name, 1000, 1000, {seed: Cell(f"{name}-{seed}", value, swing, value) for seed, value in cells.items()})


def setting(**changed):
    usual = {
        "dataset": "fashion-mnist", "skew": "pathological", "holds": "2 classes a client", "classes": 2.0,
        "clients": 20, "share": 0.5, "held": 1.0, "total": 10,
    }  # fmt: skip
    return Setting(**{**usual, **changed})


def condition(*entries, scale="paper", images=None, **changed):
    return Condition(scale, setting(**changed), images, entries)
