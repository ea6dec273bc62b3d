"""A claim, an item and results, small enough to judge by hand."""

from rebafl.paper.items import Claim, Item
from rebafl.paper.results import Result


def made(accuracy, seed=0, **curves):
    rounds = len(accuracy)
    return Result(rounds, seed, {}, {}, {"accuracy": accuracy, "active": [2] * rounds, **curves})


CLAIM = Claim("a is above b", "best", pairs=(("a", "b"),))


ITEM = Item("x", "X", ("table",), ("a", "b"), {"one": "", "two": ""}, claims=(CLAIM,))
