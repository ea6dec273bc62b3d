"""How does this package take part? As `python -m rebafl.bench.ours SETTINGS.toml [in-turns] [KEY=VALUE…]`, like a peer.

`in-turns`: before each round it waits until a line on its standard input says that it is its turn.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from ..base.config import parse_assignments, read_toml
from ..base.version import VERSION
from ..runs.events import ClientsTrained, Event, RoundLine, RunStarted
from ..runs.settings import make_settings
from ..runs.simulate import simulate

IN_TURNS = "in-turns"


def main(file: str, *words: str) -> None:
    """The very run a user would start, records and checkpoints included."""
    listen = _tell
    if words[:1] == (IN_TURNS,):
        words, listen = words[1:], _tell_and_wait
    settings = make_settings(read_toml(Path(file)), parse_assignments(words))
    with tempfile.TemporaryDirectory(dir=Path(file).parent) as out:
        simulate(settings, Path(out) / "run", listen=listen, say=lambda text: print(text, file=sys.stderr))


def _tell(event: Event) -> None:
    match event:
        case RunStarted():
            print(json.dumps({"peer": "rebafl", "version": VERSION}), flush=True)
        case ClientsTrained(done=1):
            print(json.dumps({"client": 1}), flush=True)
        case RoundLine():
            print(json.dumps({"round": event.round, "accuracy": event.accuracy}), flush=True)


def _tell_and_wait(event: Event) -> None:
    _tell(event)
    if not isinstance(event, ClientsTrained):
        sys.stdin.readline()


if __name__ == "__main__":
    main(*sys.argv[1:])
