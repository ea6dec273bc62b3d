"""How do reconstructions look beside the originals? One picture of many, like the paper's.

Each column is one client's class. From the top: an original, the class's mean, and for every attack what it makes of
the original's own feature, of means of more and more images, and of what was sent.
"""

from __future__ import annotations

import io
from collections.abc import Sequence

import numpy as np
import torch
from PIL import Image, ImageDraw

from ...data import Data
from .album import Album, Bytes, Campaign
from .lineups import SOME, Target

COLUMNS, GAP, NAMES = 12, 3, 190
GREY = 235


def figure(album: Album, data: Data, campaigns: Sequence[Campaign]) -> bytes:
    """As PNG: what these attacks made of the first mean of each kind."""
    sitters = _columns(album, campaigns)
    rows: list[tuple[str, list[Bytes | None]]] = [
        ("original", [_original(album, data, sitter) for sitter in sitters]),
        ("mean of public images", [album.class_means[label] for _, label in sitters]),
    ]
    for campaign in campaigns:
        made = _firsts(album, campaign)
        kinds = sorted({(what, k) for _, _, what, k in made}, key=lambda kind: (kind[0] != SOME, kind[1]))
        for what, k in kinds:
            name = f"{campaign.attack}, " + (f"k = {k}" if what == SOME else f"sent, k = {k}")
            rows.append((name, [made.get((*sitter, what, k)) for sitter in sitters]))
    return _png(rows)


def _columns(album: Album, campaigns: Sequence[Campaign]) -> list[tuple[int, int]]:
    """Clients and classes, different classes first."""
    found = list(dict.fromkeys((t.client, t.label) for c in campaigns for t in _targets(album, c)))
    seen: dict[int, int] = {}
    order = {}
    for sitter in found:
        order[sitter] = seen[sitter[1]] = seen.get(sitter[1], 0) + 1
    return sorted(found, key=lambda sitter: (order[sitter], sitter[1]))[:COLUMNS]


def _targets(album: Album, campaign: Campaign) -> list[Target]:
    return [album.targets[place] for place in album.shots[campaign][0]]


def _firsts(album: Album, campaign: Campaign) -> dict[tuple[int, int, str, int], Bytes]:
    made: dict[tuple[int, int, str, int], Bytes] = {}
    for target, picture in zip(_targets(album, campaign), album.shots[campaign][1], strict=True):
        made.setdefault((target.client, target.label, target.what, target.k), picture)
    return made


def _original(album: Album, data: Data, sitter: tuple[int, int]) -> Bytes | None:
    for target in album.targets:
        if (target.client, target.label) == sitter and target.k == 1:
            raw: Bytes = data.x_train[int(target.members[0])].permute(2, 0, 1).to(torch.uint8).numpy()
            return raw
    return None


def _png(rows: Sequence[tuple[str, Sequence[Bytes | None]]]) -> bytes:
    channels, height, width = next(p for _, pictures in rows for p in pictures if p is not None).shape
    columns = max(len(pictures) for _, pictures in rows)
    size = (NAMES + columns * (width + GAP), len(rows) * (height + GAP))
    sheet = Image.new("RGB", size, (255, 255, 255))
    pen = ImageDraw.Draw(sheet)
    for y, (name, pictures) in enumerate(rows):
        pen.text((4, y * (height + GAP) + height // 2 - 6), name, fill=(0, 0, 0))
        for x, picture in enumerate(pictures):
            if picture is not None:
                colours = np.repeat(picture, 3, axis=0) if channels == 1 else picture[:3]
                place = (NAMES + x * (width + GAP), y * (height + GAP))
                sheet.paste(Image.fromarray(np.ascontiguousarray(colours.transpose(1, 2, 0))), place)
    held = io.BytesIO()
    sheet.save(held, "PNG", optimize=True)
    return held.getvalue()
