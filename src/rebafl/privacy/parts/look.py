"""What do both attackers see of every client in every audited round? Each model is loaded once for all attacks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor

from ...population.partition import Indices
from .. import membership
from ..curves import CLIENT, SERVER
from ..replay import Scene
from ..tracing import Target
from ..views import class_views, target_of
from .stage import Stage

Groups = dict[tuple[int, int], list[Target]]
"""(client, class) -> one target for each round."""
Told = tuple[float, float, float]
"""Of members: AUC and TPR; of fake members: AUC."""


@dataclass
class Seen:
    """`targets` by (attacker, round); `inference` by (attacker, way), then by client."""

    targets: dict[tuple[str, int], Groups] = field(default_factory=dict)
    inference: dict[tuple[str, str], dict[int, list[Told]]] = field(default_factory=dict)
    non_members: int = 0
    """Of each class at least so many."""

    def add(self, attacker: str, round: int, target: Target) -> None:
        self.targets.setdefault((attacker, round), {})[target.client, target.label] = [target]
        count = len(target.others)
        self.non_members = min(self.non_members, count) if self.non_members else count


def look(stage: Stage) -> Seen:
    seen = Seen()
    for scene in stage.scenes:
        _look_at(stage, scene, seen)
        stage.steps(f"round {scene.round}: broadcast attacked")
    return seen


def _look_at(stage: Stage, scene: Scene, seen: Seen) -> None:
    """All targets of a round, under the eyes of both attackers, and membership inference on the way."""
    everyone = sorted({label for client in scene.uploads for label in stage.held(client)})
    stage.eye.load(scene.sent.weights)
    start = {label: stage.both(stage.pools[label].held_out) for label in everyone}
    start_own = {c: {label: stage.both(i) for label, i in stage.held(c).items()} for c in scene.uploads}
    stage.eye.load(scene.after.weights)
    end = {label: stage.both(stage.pools[label].held_out)[1] for label in everyone}
    end_own = {c: {label: stage.both(i)[1] for label, i in stage.held(c).items()} for c in scene.uploads}
    change = {name: scene.after.weights[name] - scene.sent.weights[name] for name in scene.sent.weights}
    for client in scene.uploads:
        held = stage.held(client)
        stage.eye.load(scene.local(client))
        views = class_views(stage.eye, stage.pools, list(held), stage.blur)
        own = {label: stage.both(index) for label, index in held.items()}
        held_out = {label: stage.eye.logits(views[label].held_out) for label in held}
        for label in held:
            pool = stage.pools[label]
            features = own[label][0]
            target = target_of(
                views[label], pool, client, label, scene.round, features, features, stage.plan.seed, stage.blur
            )
            if not stage.summed:
                seen.add(SERVER, scene.round, target)
            places = pool.fakes_and_others(client, label, stage.plan.seed)
            before = start_own[client][label]
            broadcast = (end_own[client][label], end[label], change)
            uploaded = (own[label][1], held_out[label], scene.uploads[client].change)
            for attacker, (after, public_after, seen_change) in (
                (SERVER, broadcast if stage.summed else uploaded),
                (CLIENT, broadcast),
            ):
                members = membership.scores(before, after, label, seen_change)
                public = membership.scores(start[label], public_after, label, seen_change)
                for way, score in members.items():
                    fakes, others = (public[way][some] for some in places)
                    told = membership.told_apart(score, fakes, others, stage.plan.risk.fpr)
                    seen.inference.setdefault((attacker, way), {}).setdefault(client, []).append(told)
        if stage.shares:
            _look_as_client(stage, scene, client, {label: own[label][0] for label in held}, seen)
        stage.steps(f"round {scene.round}: client {client} attacked")


def _look_as_client(stage: Stage, scene: Scene, client: int, uploaded: Mapping[int, Tensor], seen: Seen) -> None:
    """A client does not know another's model; it trains one like it, on public images of the same classes.

    Nor does a server that sees sums only.
    """
    held: Mapping[int, Indices] = stage.held(client)
    stage.eye.load(stage.shadow(scene, client))
    views = class_views(stage.eye, stage.pools, list(held), stage.blur)
    for label, index in held.items():
        own = stage.eye.features(index)
        pool = stage.pools[label]
        target = target_of(
            views[label], pool, client, label, scene.round, uploaded[label], own, stage.plan.seed, stage.blur
        )
        for attacker in (SERVER, CLIENT) if stage.summed else (CLIENT,):
            seen.add(attacker, scene.round, target)
