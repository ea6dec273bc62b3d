"""Where are reconstructions kept, so that every number can be computed again? In one file of plain arrays.

Pictures are kept as bytes, and measured only after they were made bytes: what is read from the file gives the same
numbers as the audit did.
"""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ...base.errors import UserError, exists
from ...base.files import write_whole
from ...data.npz import read_npz
from ...population.partition import Indices
from .lineups import Lineups, Target

FILE = "pictures.npz"
PARTS = ("members", "others", "fake_members")
Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Campaign:
    """One attack by one attacker, on features of one depth, in one round."""

    attack: str
    attacker: str
    depth: str
    round: str


@dataclass
class Album:
    """Targets, what each attack made of which of them, and what else the numbers are computed from."""

    digest: str
    """Of the data set that positions are in."""
    seed: int
    class_means: dict[int, Bytes]
    non_members: int
    """Of each class at least so many."""
    judge: dict[str, Tensor]
    targets: list[Target] = field(default_factory=list)
    shots: dict[Campaign, tuple[list[int], Bytes]] = field(default_factory=dict)
    """Places among the targets, and a reconstruction of each."""

    def add(self, campaign: Campaign, places: Sequence[int], pictures: Tensor) -> None:
        made = as_bytes(pictures)
        before = self.shots.get(campaign)
        if before is not None:
            places, made = [*before[0], *places], np.concatenate([before[1], made])
        self.shots[campaign] = (list(places), made)


def as_bytes(pictures: Tensor) -> Bytes:
    """Pictures with numbers from 0 to 1; what is no number becomes black."""
    whole: Bytes = (pictures.detach().nan_to_num(0.0).clamp(0, 1) * 255).round().to(torch.uint8).numpy()
    return whole


def as_pictures(stored: Bytes) -> Tensor:
    return torch.from_numpy(stored).float() / 255


def save(album: Album, path: Path) -> None:
    arrays: dict[str, Any] = {f"judge.{name}": tensor.numpy() for name, tensor in album.judge.items()}
    for label, mean in album.class_means.items():
        arrays[f"class_mean.{label}"] = mean
    for name in PARTS:
        arrays[f"targets.{name}"], arrays[f"targets.{name}_ends"] = _packed([getattr(t, name) for t in album.targets])
    for name in ("real", "fake"):
        some: list[Lineups] = [getattr(t, name) for t in album.targets]
        arrays[f"targets.{name}"] = np.concatenate([lineups.positions for lineups in some])
        arrays[f"targets.{name}_places"], arrays[f"targets.{name}_ends"] = _packed([lines.places for lines in some])
    campaigns = []
    for number, (campaign, (places, pictures)) in enumerate(album.shots.items()):
        campaigns.append(asdict(campaign))
        arrays[f"shots.{number}.targets"] = np.array(places)
        arrays[f"shots.{number}.pictures"] = pictures
    facts = {
        "digest": album.digest,
        "seed": album.seed,
        "non_members": album.non_members,
        "campaigns": campaigns,
        "targets": [[t.unit, t.client, t.label, t.what, t.k] for t in album.targets],
    }
    arrays["facts"] = np.array(json.dumps(facts))
    held = io.BytesIO()
    np.savez_compressed(held, **arrays)
    write_whole(path, held.getvalue())


def load_album(path: Path) -> Album:
    if not exists(path):
        raise UserError(f"{path} does not exist; it is written by: rebafl privacy audit RUN.")
    arrays = read_npz(path)
    try:
        return _unpacked(arrays, json.loads(str(arrays["facts"])))
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError) as error:
        raise UserError(f"{path} is not a file of reconstructions ({error}); audit again.") from None


def _unpacked(arrays: dict[str, Any], facts: dict[str, Any]) -> Album:
    members, others, fakes = (_rows(arrays[f"targets.{name}"], arrays[f"targets.{name}_ends"]) for name in PARTS)
    lineups = {}
    for name in ("real", "fake"):
        ends = arrays[f"targets.{name}_ends"]
        shown, places = (_rows(arrays[f"targets.{name}{what}"], ends) for what in ("", "_places"))
        lineups[name] = [Lineups(*both) for both in zip(shown, places, strict=True)]
    targets = [
        Target(unit, client, label, what, k, members[n], others[n], fakes[n], lineups["real"][n], lineups["fake"][n])
        for n, (unit, client, label, what, k) in enumerate(facts["targets"])
    ]
    return Album(
        facts["digest"],
        facts["seed"],
        {int(n.removeprefix("class_mean.")): a for n, a in arrays.items() if n.startswith("class_mean.")},
        facts["non_members"],
        {n.removeprefix("judge."): torch.from_numpy(a) for n, a in arrays.items() if n.startswith("judge.")},
        targets,
        {
            Campaign(**campaign): (arrays[f"shots.{n}.targets"].tolist(), arrays[f"shots.{n}.pictures"])
            for n, campaign in enumerate(facts["campaigns"])
        },
    )


def _packed(rows: Sequence[Indices]) -> tuple[Indices, Indices]:
    """Rows of different lengths as one, and where each ends."""
    return np.concatenate(rows), np.cumsum([len(row) for row in rows])


def _rows(packed: Indices, ends: Indices) -> list[Indices]:
    return np.split(packed, ends[:-1])
