"""How does this package take part? As `python -m rebafl.bench.ours SETTINGS.toml [KEY=VALUE…]`, like a peer."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..config import parse_assignments, read_toml
from ..settings import make_settings
from ..simulate import simulate
from ..version import VERSION


def main(file: str, *words: str) -> None:
    """The very run a user would start, records and checkpoints included."""
    settings = make_settings(read_toml(Path(file)), parse_assignments(words))
    with tempfile.TemporaryDirectory(dir=Path(file).parent) as out:
        simulate(settings, Path(out) / "run", listen=_tell, say=lambda text: print(text, file=sys.stderr))


def _tell(event: str, facts: Mapping[str, Any]) -> None:
    if event == "start":
        print(json.dumps({"peer": "rebafl", "version": VERSION}), flush=True)
    elif event == "client" and facts["done"] == 1:
        print(json.dumps({"client": facts["done"]}), flush=True)
    elif event == "round":
        print(json.dumps({"round": facts["round"], "accuracy": facts["accuracy"]}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
