"""With which settings is a mean of k features attacked? Those that tell most of k public pictures, from their mean."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torchmetrics.functional.image import structural_similarity_index_measure

from .contract import Known, Tick
from .descent import Painter, Setting, descend
from .public import Public, features_of

LINE_UP = 100
"""Pictures of a class among which one is to be identified."""


def choose(
    known: Known, public: Public, painter: Painter, k: int, candidates: Sequence[Setting], tick: Tick
) -> Setting:
    """The candidate whose pictures, from means of k public pictures, tell most of those k pictures.

    Half of the score is how like they are (SSIM), half how near they come to being first in a line-up: likeness alone
    would prefer blurred pictures that are like all of a class.
    """
    if len(candidates) == 1:
        return candidates[0]
    places = public.examples(k, known.seed)
    means = torch.stack([features_of(known, public.tune[row]).mean(0) for row in places])
    scores: dict[Setting, float] = {}
    for steps in sorted({setting.steps for setting in candidates}):
        some = [setting for setting in candidates if setting.steps == steps]
        rows = [setting for setting in some for _ in means]
        found, _ = descend(known, public.distance, painter, means.repeat(len(some), 1), rows, tick)
        for setting, pictures in zip(some, torch.split(found, len(means)), strict=True):
            scores[setting] = likeness(pictures, public.tune, places) + rank(pictures, public, places)
    return max(scores, key=lambda setting: scores[setting])


def likeness(pictures: Tensor, originals: Tensor, places: Tensor) -> float:
    """The mean SSIM with the originals at these places, of which ten for each picture are enough."""
    few = places[:, :10]
    alike = structural_similarity_index_measure(
        pictures.repeat_interleave(few.shape[1], 0), originals[few.flatten()], data_range=1.0
    )
    assert isinstance(alike, Tensor)
    return float(alike)


def rank(pictures: Tensor, public: Public, places: Tensor) -> float:
    """How near the originals at these places come to being first in a line-up of their class: 1 if first, 0 if last.

    On a scale of logarithms: whether they are the very first would say too little, from so few examples.
    """
    scores = []
    for picture, members in zip(pictures, places, strict=True):
        same = torch.nonzero(public.tune_labels == public.tune_labels[members[0]])[:, 0]
        others = same[~torch.isin(same, members)][: LINE_UP - 1]
        own, their = ((public.tune[some] - picture).flatten(1).square().mean(1) for some in (members, others))
        nearer = (their < own[:, None]).sum(1)
        scores.append(1 - float((1 + nearer).log().mean()) / math.log(2 + len(others)))
    return sum(scores) / len(scores)


class Chosen:
    """Settings by k and kind of features: chosen once, with the first model attacked so, and kept for others."""

    def __init__(self, candidates: Sequence[Setting]) -> None:
        self.candidates = candidates
        self.kept: dict[tuple[int, int, int], Setting] = {}

    def __call__(self, known: Known, public: Public, painter: Painter, k: int, tick: Tick) -> Setting:
        key = (k, len(public.distance.mean), known.seed)
        if key not in self.kept:
            self.kept[key] = choose(known, public, painter, k, self.candidates, tick)
        return self.kept[key]
