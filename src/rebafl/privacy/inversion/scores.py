"""What do reconstructions amount to? Every number of the audit about pictures, from an album and its data set alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...data import Data
from ...population.partition import Indices
from ..measures import NORMAL, Estimate, Numbers, estimate
from ..verdicts import LEAKS, NO_LEAK, TOO_WEAK, Word, decide
from .album import Album, Campaign, as_pictures
from .judge import Judge
from .likeness import in_lineups, nearer, nearest, similarity
from .lineups import SIZE, SOME, Target

WAYS = {
    "pixels": (1 / SIZE, "identified among 100 by pixels"),
    "features": (1 / SIZE, "identified among 100 by features"),
    "nearest": (0.5, "nearer to a member than to as many others"),
}
"""By name, what guessing reaches, and what is counted."""
STRONGEST = (LEAKS, TOO_WEAK, NO_LEAK)
"""One way is enough for a leak; that none is found needs all of them."""
Row = dict[str, Any]


def scored(album: Album, data: Data) -> list[Row]:
    """For each attack, attacker, depth, round and kind of mean: likeness, identification, controls and a verdict."""
    looks = Looks(album, data)
    rows: list[Row] = []
    for campaign, (places, stored) in album.shots.items():
        found = _measured([album.targets[place] for place in places], as_pictures(stored), album, looks)
        kinds: dict[tuple[str, int], list[int]] = {}
        for number, place in enumerate(places):
            one = album.targets[place]
            kinds.setdefault((one.what, one.k if one.what == SOME else 0), []).append(number)
        for (what, _), some in kinds.items():
            targets = [album.targets[places[number]] for number in some]
            rows.append(_row(campaign, what, targets, {name: every[some] for name, every in found.items()}, album.seed))
    for row in rows:
        row |= _judged(row, rows, album.non_members)
    return rows


class Looks:
    """Pixels of the data set's pictures, and their features under the judge: each picture is looked at once."""

    def __init__(self, album: Album, data: Data) -> None:
        some = [(t.members, t.others, t.fake_members, t.real.positions, t.fake.positions) for t in album.targets]
        self.used = np.unique(np.concatenate([part.ravel() for parts in some for part in parts]))
        raw = data.x_train[torch.from_numpy(self.used)]
        self.pictures = (raw.float() / 255).permute(0, 3, 1, 2).contiguous()
        self.judge = Judge(self.pictures.shape[1], len(album.judge["head.bias"]))
        self.judge.load_state_dict(album.judge)
        self.seen = self.judge.look(self.pictures)
        self.flat = self.pictures.flatten(1)

    def _places(self, positions: Indices) -> Tensor:
        return torch.from_numpy(np.searchsorted(self.used, positions))

    def picture(self, positions: Indices) -> Tensor:
        return self.pictures[self._places(positions)]

    def pixels(self, positions: Indices) -> Tensor:
        return self.flat[self._places(positions)]

    def features(self, positions: Indices) -> Tensor:
        return self.seen[self._places(positions)]


def _measured(targets: Sequence[Target], made: Tensor, album: Album, looks: Looks) -> dict[str, Numbers]:
    """By measure, one number for each target."""
    means = {label: as_pictures(mean) for label, mean in album.class_means.items()}
    plain = torch.stack([means[t.label] for t in targets])
    found: dict[str, Numbers] = {}
    for name, shown, among in (
        ("", made, [t.members for t in targets]),
        ("_others", made, [t.others for t in targets]),
        ("_class_mean", plain, [t.members for t in targets]),
    ):
        best = np.array([nearest(one, looks.pixels, some) for one, some in zip(shown.flatten(1), among, strict=True)])
        found[f"ssim{name}"], found[f"psnr{name}"] = similarity(shown, looks.picture(best))
    found["gain"] = found["ssim"] - found["ssim_others"]
    for way, rows, look in (
        ("pixels", made.flatten(1), looks.pixels),
        ("features", looks.judge.look(made), looks.features),
    ):
        for name, values in in_lineups(rows, targets, look).items():
            found[f"{name}_{way}"] = values
    for name, values in nearer(made.flatten(1), targets, looks.pixels).items():
        found[f"{name}_nearest"] = values
    return found


RANGES = {"ssim": (-1.0, 1.0), "gain": (-2.0, 2.0), "psnr": (0.0, 100.0)}


def _row(campaign: Campaign, what: str, targets: Sequence[Target], found: Mapping[str, Numbers], seed: int) -> Row:
    units = np.array([t.unit for t in targets])
    lineups = sum(len(t.real.places) for t in targets)
    row: Row = {**asdict(campaign), "what": what, "k": int(np.median([t.k for t in targets])), "means": len(targets)}
    row["line_ups"] = lineups
    for name, values in found.items():
        by_unit = [float(values[units == unit].mean()) for unit in np.unique(units)]
        span = RANGES.get(name.split("_")[0])
        kept = [value for value in by_unit if not math.isnan(value)]
        trials = len(targets) if name.endswith("nearest") else lineups
        row[name] = asdict(_between(kept, *span, seed) if span else rate(kept, trials, seed))
    return row


def _between(values: Sequence[float], low: float, high: float, seed: int) -> Estimate:
    """Of numbers that do not lie between 0 and 1."""
    wide = high - low
    unit = estimate([(value - low) / wide for value in values], seed)
    return Estimate(low + wide * unit.value, low + wide * unit.low, low + wide * unit.high, unit.units)


def rate(by_unit: Sequence[float], trials: int, seed: int) -> Estimate:
    """A share over units; where hits are rare, units may agree by luck, so it is no narrower than Wilson's interval."""
    found = estimate(by_unit, seed)
    if not found.units:
        return found
    z = NORMAL.inv_cdf(0.975)
    share, weight = found.value, 1 / (1 + z * z / trials)
    centre = weight * (share + z * z / (2 * trials))
    half = weight * z * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    return Estimate(
        share, max(0.0, min(found.low, centre - half)), min(1.0, max(found.high, centre + half)), found.units
    )


def _judged(row: Row, rows: Sequence[Row], non_members: int) -> Row:
    """A verdict by each way of comparing, and one from all."""
    same = [
        r for r in rows
        if r["what"] == SOME and all(r[n] == row[n] for n in ("attack", "attacker", "depth", "round"))
    ]  # fmt: skip
    words: dict[str, Word] = {}
    reasons: dict[str, str] = {}
    for way, (chance, _) in WAYS.items():
        name = f"identified_{way}"
        single = next((r for r in same if r["k"] == 1), None)
        nearer = max((r["k"] for r in same if 10 * r["k"] <= row["k"]), default=0)
        easier = next((read(r[name]) for r in same if r["k"] == nearer), None)
        negative = max(
            (read(row[f"{control}_{way}"]) for control in ("fakes", "permuted") if row[f"{control}_{way}"]["units"]),
            key=lambda e: e.low,
            default=None,
        )
        positive = read(single[name]) if single else estimate([])
        words[way], reasons[way] = decide(read(row[name]), positive, negative, chance, non_members, easier)
    chosen = min(WAYS, key=lambda way: STRONGEST.index(words[way]))
    return {
        "verdict": words[chosen],
        "reason": f"{WAYS[chosen][1]}: {reasons[chosen]}",
        "verdict_by": words,
        "way": chosen,
    }


def read(plain: Mapping[str, Any]) -> Estimate:
    """An estimate from plain values, also from JSON, which has no NaN."""
    value, low, high = (math.nan if plain[name] is None else float(plain[name]) for name in ("value", "low", "high"))
    return Estimate(value, low, high, int(plain["units"]))
