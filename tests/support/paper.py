"""A claim, an item and results, small enough to judge by hand; and result files for cells that nobody ran."""

import json

from rebafl.paper.item_results import ItemResults
from rebafl.paper.items import Claim, Item, find_scale
from rebafl.paper.results import Result, file_of


def made(accuracy, seed=0, **curves):
    rounds = len(accuracy)
    return Result(rounds, seed, {}, {}, {"accuracy": accuracy, "active": [2] * rounds, **curves})


CLAIM = Claim("a is above b", "best", pairs=(("a", "b"),))


ITEM = Item("x", "X", ("table",), ("a", "b"), {"one": "", "two": ""}, claims=(CLAIM,))


def shown(item, found, tmp_path, scale="quick"):
    """An item with these results, by method and condition, and then by seed."""
    item_results = ItemResults(item, find_scale(scale), tmp_path)
    item_results.__dict__["results"] = found
    return item_results


def keep_made(cell, folder, accuracy, **curves):
    """A file for a cell, as long as its run would be, with the same accuracy in all rounds."""
    path, rounds = file_of(cell, folder), cell.settings.rounds
    path.parent.mkdir(parents=True, exist_ok=True)
    kept = {"rounds": rounds, "seed": cell.settings.seed, "settings": {}, "environment": {}}
    all_curves = {"accuracy": accuracy, "diversity": 0.1, "active": 1, "bytes_up": 1, "bytes_down": 1, **curves}
    path.write_text(json.dumps(kept | {"curves": {name: [value] * rounds for name, value in all_curves.items()}}))
