"""Which runs are there under a folder, how far is each, and in what do they differ?"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from ..base.config import Plain
from ..base.errors import UserError
from ..runs import measures
from ..runs.checkpoint import MANIFEST
from ..runs.record import CONFIG, Record
from ..runs.settings import flatten
from ..runs.tags import read_tags
from .run_view import seconds_left, state_of
from .scan import CURVES, Scan

NOT_COMPARED = ("workers", "engine", "rounds", "keep_prototypes", "log")
"""Settings that do not tell two runs apart."""


SEEDS = ("seed", "seeds")


def find_runs(places: Iterable[Path]) -> dict[str, Path]:
    """By name, the runs in these folders and below; a run's own folders are not looked into."""
    found: dict[str, Path] = {}
    for place in places:
        for folder, below, files in os.walk(place):
            below.sort()
            if CONFIG in files and (Path(folder) / "checkpoint" / MANIFEST).exists():
                path = Path(folder)
                name = os.path.relpath(path, place) if path != place else (path.name or path.resolve().name)
                while name in found and found[name] != path:
                    name = f"{place.name}/{name}"
                found[name] = path
                below.clear()
    return found


class Folder:
    """All runs under some folders, looked at again and again."""

    def __init__(self, places: Sequence[Path]) -> None:
        self.places = list(places)
        self.paths: dict[str, Path] = {}
        self._scans: dict[str, Scan] = {}
        self._configs: dict[str, tuple[int, Plain]] = {}

    def refresh(self) -> None:
        self.paths = find_runs(self.places)

    def path(self, name: str) -> Path:
        """The run of this name, if it is one of them."""
        if name not in self.paths:
            self.refresh()
        if name not in self.paths:
            raise UserError(f"There is no run {name!r} here.")
        return self.paths[name]

    def scan(self, name: str) -> Scan:
        scan = self._scans.setdefault(name, Scan(self.path(name)))
        scan.look()
        return scan

    def config(self, name: str) -> Plain:
        path = self.path(name)
        stamp = (path / CONFIG).stat().st_mtime_ns
        if self._configs.get(name, (0, {}))[0] != stamp:
            self._configs[name] = stamp, flatten(Record(path).config())
        return self._configs[name][1]

    def table(self) -> Plain:
        """One row per run, and the settings in which they differ; a damaged run says so in its row."""
        self.refresh()
        rows = [self._row(name) for name in self.paths]
        settings = [row["settings"] for row in rows if row["settings"]]
        names = sorted({name for values in settings for name in values} - set(NOT_COMPARED))
        # a key that only one kind has, such as algorithm.mu, tells apart runs of that kind only
        apart = [name for name in names if len({str(values[name]) for values in settings if name in values}) > 1]
        for row in rows:
            row["settings"] = {name: row["settings"].get(name) for name in apart}
        return {"runs": rows, "apart": apart}

    def _row(self, name: str) -> Plain:
        path = self.paths[name]
        try:
            config, scan = self.config(name), self.scan(name)
            accuracy, rounds = list(scan.curves["accuracy"]), int(config["rounds"])
            state, every = state_of(path, scan.rounds, rounds), int(config.get("evaluate.every", 1))
            return {
                "name": name,
                "state": state,
                "done": scan.rounds,
                "rounds": rounds,
                "left": seconds_left(state, scan.curves["seconds"], rounds),
                "best": measures.best(accuracy) if accuracy else None,
                "last": accuracy[-1] if accuracy else None,
                "second_half": measures.second_half(measures.scored(accuracy, every)) if accuracy else None,
                "time": round(math.fsum(scan.curves["seconds"]), 3),
                "tags": read_tags(path),
                "changed": (path / "checkpoint" / MANIFEST).stat().st_mtime,
                "problem": "",
                "settings": config,
                "group": group_of(config),
                "label": str(config.get("algorithm.kind", "")),
            }
        except (UserError, OSError, KeyError, ValueError) as error:
            empty = dict.fromkeys(("left", "best", "last", "second_half"))
            empty |= {"time": 0.0, "tags": read_tags(path)}
            about = {"name": name, "state": "damaged", "done": 0, "rounds": 0, "changed": 0.0, "problem": str(error)}
            return {**about, **empty, "settings": {}, "group": name, "label": ""}

    def curves(self, names: Sequence[str], first: Sequence[int]) -> list[Plain]:
        """For each run the curves from its round `first` on (counted from 0); from 0 if what was before fell."""
        result = []
        for name, since in zip(names, first, strict=True):
            scan = self.scan(name)
            start = since if since <= scan.rounds else 0
            result.append(
                {"name": name, "from": start, "group": group_of(self.config(name)), **curves_from(scan, start)}
            )
        return result


def curves_from(scan: Scan, start: int) -> Plain:
    """Lists that JSON can hold: what is no number is null."""
    return {name: [None if math.isnan(v) else v for v in scan.curves[name][start:]] for name in CURVES}


def group_of(config: Plain) -> str:
    """Runs that differ in nothing but their seed have the same."""
    return str(sorted((k, str(v)) for k, v in config.items() if k.split(".")[0] not in (*SEEDS, *NOT_COMPARED)))
