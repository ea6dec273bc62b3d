"""How is one client's class attacked? Its means are made, given to an attack, and what comes back is kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from ...base.rng import generator
from ...data import Data
from ...models.contract import CHUNK
from ...population.partition import Indices
from .album import Album, Campaign, as_bytes
from .contract import Known
from .depths import View, pictures_of
from .judge import trained_judge
from .lineups import SIZE, USUAL_LINEUPS, Target, means_of, target
from .tools import Tool

NON_MEMBERS = 1000
MOST_OF_ALL = 1000
"""Public pictures of each class, where an attack is given those of all classes."""


@dataclass(frozen=True)
class Public:
    """What is public: pictures to learn from, by class, and the positions of those that are in line-ups only."""

    pictures: dict[int, Tensor]
    non_members: dict[int, Indices]
    everything: tuple[Tensor, Tensor]
    """Some of all classes, with their labels."""


def divided(data: Data, public: Indices, seed: int) -> Public:
    """Half of the public pictures, but no more than are needed, are for line-ups; no attack learns from them."""
    pictures, non_members = {}, {}
    labels = data.y_train.numpy()
    for label in range(len(data.classes)):
        some = generator(seed, "inversion public", 0, label).permutation(public[labels[public] == label])
        cut = min(NON_MEMBERS, len(some) // 2)
        if cut >= SIZE:
            non_members[label] = some[:cut]
            pictures[label] = pictures_of(data.x_train[torch.from_numpy(some[cut:])], data.inputs)
    few = {label: made[:MOST_OF_ALL] for label, made in pictures.items()}
    labelled = [torch.full((len(made),), label) for label, made in few.items()]
    every = (torch.cat(list(few.values())), torch.cat(labelled)) if few else (torch.zeros(0), torch.zeros(0))
    return Public(pictures, non_members, every)


def new_album(data: Data, public: Public, seed: int) -> Album:
    means = {label: as_bytes(made.mean(0)) for label, made in public.pictures.items()}
    judge = trained_judge(*public.everything, len(data.classes), seed)
    fewest = min(len(some) for some in public.non_members.values())
    return Album(data.digest, seed, means, fewest, judge.state_dict())


@dataclass(frozen=True)
class Sent:
    """A mean that was really sent: what it is, of how many images, and which private ones are in it."""

    what: str
    k: int
    mean: Tensor
    members: Indices


@dataclass(frozen=True)
class Sitter:
    """One client's images of one class, their features under its own model, and the model that the attacker has."""

    client: int
    label: int
    own: Indices
    uploaded: Tensor
    view: View
    sent: tuple[Sent, ...] = ()
    parts: int = 0
    """Intervals are over so many parts of the images; 0: over clients."""

    def mean_of(self, members: Indices) -> Tensor:
        rows = {int(position): row for row, position in enumerate(self.own)}
        return self.uploaded[[rows[int(position)] for position in members]].mean(0)


@dataclass
class Sitting:
    """Attacks on clients' classes, one after the other; the same means and line-ups for every attack."""

    public: Public
    album: Album
    seed: int
    drawn: dict[tuple[int, int, str, int], list[int]] = field(default_factory=dict)
    """By client, class, kind and k: places among the album's targets."""

    def attack(self, tool: Tool, campaign: Campaign, sitter: Sitter, ks: Sequence[int]) -> None:
        pictures = self.public.pictures[sitter.label]
        labels = torch.full((len(pictures),), sitter.label)
        if tool.all_classes:
            pictures, labels = self.public.everything
        known = Known(sitter.view, pictures, labels, self.seed)
        by_k: dict[int, list[tuple[int, Tensor]]] = {}
        for k in ks:
            for place in self._means(sitter, k)[: tool.singles if k == 1 else tool.most]:
                by_k.setdefault(k, []).append((place, sitter.mean_of(self.album.targets[place].members)))
        for sent in sitter.sent:
            by_k.setdefault(sent.k, []).extend((place, sent.mean.float()) for place in self._sent(sitter, sent))
        for k, some in sorted(by_k.items()):
            reconstruct = tool.attack.prepare(known, k, lambda text: None)
            self.album.add(campaign, [place for place, _ in some], reconstruct(torch.stack([mean for _, mean in some])))

    def _means(self, sitter: Sitter, k: int) -> list[int]:
        key = (sitter.client, sitter.label, "", k)
        if key not in self.drawn:
            most = Tool.singles if k == 1 else Tool.most
            others = self.public.non_members[sitter.label]
            some = means_of(sitter.client, sitter.label, sitter.own, k, most, others, self.seed, sitter.parts)
            self.drawn[key] = [self._added(one) for one in some]
        return self.drawn[key]

    def _sent(self, sitter: Sitter, sent: Sent) -> list[int]:
        """One target, or where intervals are over parts, one for each, with its part of the line-ups."""
        key = (sitter.client, sitter.label, sent.what, sent.k)
        if key not in self.drawn:
            others, parts = self.public.non_members[sitter.label], max(1, sitter.parts)
            self.drawn[key] = [
                self._added(
                    target(
                        sitter.client, sitter.label, sent.what, sent.k, sent.members, others, self.seed, part,
                        USUAL_LINEUPS // parts, part if sitter.parts else None,
                    )
                )
                for part in range(parts)
            ]  # fmt: skip
        return self.drawn[key]

    def _added(self, one: Target) -> int:
        self.album.targets.append(one)
        return len(self.album.targets) - 1


@torch.no_grad()
def seen(view: View, data: Data, index: Indices) -> Tensor:
    """Features of some of the data set's pictures."""
    parts = np.array_split(index, max(1, -(-len(index) // CHUNK)))
    return torch.cat([view(pictures_of(data.x_train[torch.from_numpy(part)], data.inputs)) for part in parts])
