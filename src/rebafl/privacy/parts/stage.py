"""What do all attacks on a run share? The replayed rounds, the public images, and a model to look through."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from torch import Tensor

from ...algorithms.interface import Task
from ...base.tensors import Tensors
from ...population.partition import Indices, Split
from ...training.client_work import Work
from ...training.protections import Protections
from ..blur import Blur, blur_of
from ..curves import Plan, Steps
from ..exposure import recipients
from ..replay import Replay, Scene
from ..retrained import retrained
from ..verdicts import Verdict
from ..views import Eye, Pool, pools

PROTOTYPES, MASS = "prototypes", "mass"


@dataclass(frozen=True)
class Stage:
    """`linked`: those of `scenes`, and further rounds that are looked at only to link uploads."""

    replay: Replay
    scenes: Sequence[Scene]
    linked: Sequence[Scene]
    plan: Plan
    steps: Steps
    verdicts: list[Verdict] = field(default_factory=list)
    """Every part adds its own."""

    @property
    def work(self) -> Work:
        return self.replay.experiment.work

    @property
    def split(self) -> Split:
        return self.work.split

    @property
    def task(self) -> Task:
        return self.replay.experiment.task

    @cached_property
    def table(self) -> Indices:
        """How many images of each class each client holds."""
        return self.split.table()

    @cached_property
    def eye(self) -> Eye:
        return Eye(self.work.make_net(), self.work.data)

    @cached_property
    def public(self) -> Indices:
        return self.replay.unheld()

    @cached_property
    def pools(self) -> dict[int, Pool]:
        return pools(self.split.labels, self.public, self.task.classes, self.task.features, self.plan.seed)

    @cached_property
    def shares(self) -> bool:
        """Do clients upload prototypes?"""
        return all(PROTOTYPES in upload.shared for scene in self.scenes for upload in scene.uploads.values())

    @property
    def protect(self) -> Protections:
        return self.replay.settings.protect

    @property
    def summed(self) -> bool:
        """Does the server see no more than sums over clients?"""
        return self.protect.secagg

    @property
    def blur(self) -> Blur:
        """What is done to every mean before it is sent."""
        return blur_of(self.protect)

    @cached_property
    def shared_table(self) -> Indices:
        """How many images are in the mean of each class that each client shares, if at all."""
        shown = np.stack([self.work.shown_counts(client).numpy() for client in range(self.task.clients)])
        return self.table if self.protect.noise else np.where(shown > 0, self.table, 0)

    def sent_by(self, scene: Scene, label: int) -> list[int]:
        """Clients whose uploads of a round hold a prototype of this class."""
        if label in scene.sent.unshared:
            return []
        return [client for client, upload in scene.uploads.items() if int(upload.counts[label]) > 0]

    def passed_on(self, scene: Scene, label: int) -> bool:
        """Is the mean of a class that the round's uploads hold broadcast afterwards?"""
        return bool(scene.after.state[MASS][label] > 0) and label not in self.replay.lines[scene.round - 1].hidden

    def told_of(self, place: int, label: int) -> set[int]:
        """Clients that receive the mean of a class which the round at this place made."""
        return set(recipients(self.replay.lines, place, label, self.shared_table, self.least_holders, self.memory))

    @property
    def memory(self) -> bool:
        """Does the server go on sending the last mean of a class that nobody shares any more?"""
        return bool(getattr(self.replay.settings.algorithm, "memory", False))

    @property
    def least_holders(self) -> int:
        """From how many holders on a class is broadcast, if the run is protected so."""
        return max(1, self.replay.settings.protect.min_holders)

    def held(self, client: int) -> dict[int, Indices]:
        """A client's images by class, as far as there are public images of the class to compare with."""
        index = self.split.indices(client)
        labels = self.split.labels[index]
        return {int(label): index[labels == label] for label in np.unique(labels) if int(label) in self.pools}

    def both(self, index: Indices) -> tuple[Tensor, Tensor]:
        """Features and logits under the model that is loaded."""
        return self.eye.both(index)

    def shadow(self, scene: Scene, client: int) -> Tensors:
        """A model like another client's: trained from the same broadcast on public images of the same classes."""
        chosen = [self.pools[label].reference[: len(index)] for label, index in self.held(client).items()]
        return retrained(self.work, self.eye, scene.sent, scene.round, client, np.concatenate(chosen))
