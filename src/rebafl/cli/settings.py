"""`rebafl settings` and `algorithms`: what can be chosen, and what are the defaults?"""

from __future__ import annotations

from rich.text import Text

from ..algorithms import KINDS as ALGORITHMS
from ..base.config import describe, write_toml
from ..report.reference import first_line
from .terminal import out
from .words import Words, read_words


def settings(words: Words = None) -> None:
    """Print all settings that these words would run with, as a file for `rebafl run`.

    Example: `rebafl settings dataset=cifar-10 algorithm=fedavg > cifar.toml`
    """
    print(write_toml(read_words(words or [])[0].plain()), end="")


def algorithms() -> None:
    """List the algorithms: paper, parameters with defaults and ranges, state, communication and compute.

    Others come from outside: `algorithm=module:Class`, see docs/own-algorithm.md.

    Example: `rebafl algorithms`
    """
    for name, kind in ALGORITHMS.items():
        costs = kind.costs
        out.print(Text.assemble((name, "bold"), f"  {first_line(kind)}"), soft_wrap=True)
        out.print(Text(f"  {kind.paper}", "dim"), soft_wrap=True)
        facts = (("client state", costs.state), ("communication", costs.communication), ("compute", costs.compute))
        extra = "; ".join(f"{title}: {fact}" for title, fact in facts if fact != "none")
        out.print(Text(f"  beyond FedAvg: {extra or 'nothing'}"), soft_wrap=True)
        for parameter in describe(kind):
            words = (f"  algorithm.{parameter.name}={parameter.default}", f"  {parameter.about}")
            out.print(Text.assemble((words[0], "cyan"), words[1]), soft_wrap=True)
        out.print()
