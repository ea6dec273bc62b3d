"""`rebafl demo`: what does it do? FedAvg and ReBaFL under the same dropout, in a table and a picture, in minutes."""

from __future__ import annotations

from importlib.resources import as_file, files
from pathlib import Path

from ..base.config import parse_assignments, read_toml
from ..base.errors import UserError
from ..runs.settings import Settings, make_settings
from .compare import compare
from .terminal import run_shown, say
from .words import Words, split_words

METHODS = ("fedavg", "rebafl")


def demo(words: Words = None) -> None:
    """Train FedAvg and ReBaFL under the same dropout, compare them in a table, and draw their curves.

    It needs no network and no files: 20 clients with 300 small images of two classes each. Killed or stopped, it is
    resumed by the same command.

    Examples:

    * `rebafl demo`

    * `rebafl demo rounds=50 participation.p=0.2 out=demo-p02`
    """
    base, rest, target = split_words(words or [])
    if base or any(word.split("=")[0].split(".")[0] == "algorithm" for word in rest):
        raise UserError("The demo takes settings, but neither a settings file nor algorithm; use rebafl run for those.")
    folder = target or Path("demo")
    for name in METHODS:
        run_shown(demo_settings(name, rest), folder / name, False, f"rebafl demo {' '.join(words or [])}".strip())
    compare([str(folder / name) for name in METHODS], png=folder / "curves.png")
    say(f"See also: rebafl ui {folder}, and rebafl run --help")


def demo_settings(method: str, words: list[str] | None = None) -> Settings:
    """What the demo runs for a method, with these settings changed."""
    with as_file(files(__package__) / "demo.toml") as path:
        return make_settings(read_toml(path), {"algorithm": method}, parse_assignments(words or []))
