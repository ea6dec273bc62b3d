"""How well are means traced? Curves of leakage against k, the means that were really sent, and their verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from ...algorithms.aggregate import class_weighted_mean
from ..curves import CLIENT, SERVER, Curve
from ..exposure import without_own
from ..measures import Numbers, estimate
from ..replay import Scene
from ..tracing import Leakage, Target, Traced, leakage, non_members, over_clients, trace, whole
from ..verdicts import LEAKS, TOO_WEAK, Verdict, decide
from .look import Groups, Seen
from .stage import PROTOTYPES, Stage

BROADCAST, REST, SUM = "broadcast", "broadcast minus own share", "sum of the uploads"
UPLOAD = "each client's upload"


class Tracing:
    def __init__(self, stage: Stage, seen: Seen) -> None:
        self.stage, self.plan, self.scenes = stage, stage.plan, stage.scenes
        self.seen, self.non_members = seen.targets, seen.non_members

    def curves(self) -> list[Curve]:
        curves: list[Curve] = []
        for attacker in (SERVER, CLIENT):
            curves += [self._curve(attacker, f"{s.round}", self.seen[attacker, s.round]) for s in self.scenes]
            together = self._together(attacker)
            if together:
                curves.append(self._curve(attacker, "combined", together))
        return curves

    def _together(self, attacker: str) -> Groups:
        """Clients that uploaded in several of the rounds, with all their rounds."""
        merged: Groups = {}
        for scene in self.scenes:
            for key, targets in self.seen[attacker, scene.round].items():
                merged.setdefault(key, []).extend(targets)
        return {key: targets for key, targets in merged.items() if len(targets) > 1}

    def _curve(self, attacker: str, round: str, groups: Groups) -> Curve:
        plan = self.plan
        points = (leakage(groups, k, plan.risk.fpr, plan.score, plan.seed, self.stage.blur) for k in plan.ks)
        return Curve(attacker, round, tuple(point for point in points if point is not None))

    def sent(self, curves: Sequence[Curve]) -> list[dict[str, Any]]:
        """The means that were really sent, and a verdict for each attacker."""
        rows = []
        if self.stage.summed:
            rows += self._judged(SERVER, SUM, "all", self._means(SUM), curves)
        else:
            by_round = {f"{scene.round}": self.seen[SERVER, scene.round] for scene in self.scenes}
            for name, groups in {**by_round, "combined": self._together(SERVER)}.items():
                rows += self._judged(SERVER, UPLOAD, name, self._uploaded(groups), curves)
        for kind in (BROADCAST, REST):
            rows += self._judged(CLIENT, kind, "all", self._means(kind), curves)
        for attacker in (SERVER, CLIENT):
            self._reach(attacker, curves)
        return rows

    def _reach(self, attacker: str, curves: Sequence[Curve]) -> None:
        """Up to which k means of a client's images are traced, in the audited round in which that is most."""
        own = [c for c in curves if c.attacker == attacker and c.round != "combined" and c.points]
        judged = [
            (point, curve, *decide(point.auc, curve.points[0].auc, point.fakes, 0.5, self.non_members))
            for curve in own
            for point in curve.points
        ]
        if not judged:
            return
        leaking = [row for row in judged if row[2] == LEAKS]
        point, curve, word, reason = max(leaking, key=lambda row: (row[0].k, row[0].auc.low)) if leaking else judged[0]
        self.stage.verdicts.append(
            Verdict(
                "tracing, means of some of a client's images", attacker, word,
                f"up to k = {point.k} of those tried; there (round {curve.round}) AUC {reason}" if leaking else reason,
                point.auc, curve.points[0].auc, point.fakes,
            )
        )  # fmt: skip

    def of(self, kind: str) -> Leakage | None:
        """How well the means of a kind are traced in the last of the rounds that are looked at."""
        last = self.scenes[-1].round
        return self._uploaded(self.seen[SERVER, last]) if kind == UPLOAD else self._means(kind)

    def _uploaded(self, groups: Groups) -> Leakage | None:
        """Every mean that a client uploaded."""
        scenes, plan = {scene.round: scene for scene in self.scenes}, self.plan
        pairs: dict[tuple[int, int], list[tuple[Target, Numbers]]] = {}
        for key, targets in groups.items():
            for target in targets:
                scene = scenes[target.round]
                if target.client in self.stage.sent_by(scene, target.label):
                    mean = scene.uploads[target.client].shared[PROTOTYPES][target.label]
                    pairs.setdefault(key, []).append((target, np.asarray(mean, dtype=np.float64)))
        return whole(pairs, plan.risk.fpr, plan.score, plan.seed, self.stage.blur)

    def _means(self, kind: str) -> Leakage | None:
        """Means over clients; every holder whose images are in one counts as a client that is attacked."""
        traced: dict[int, list[Traced]] = {}
        sizes, plan = [], self.plan
        for scene in self.scenes:
            for (client, label), targets in self.seen[CLIENT, scene.round].items():
                seen = self._mean(kind, scene, client, label)
                if seen is None:
                    continue
                mean, k, holders = seen
                sizes.append(k)
                rows = np.arange(len(targets[0].members))
                found = trace(
                    targets, [mean], rows, k, plan.risk.fpr, plan.score, plan.seed, self.stage.blur, holders
                )  # fmt: skip
                traced.setdefault(client, []).append(found)
        shared = non_members(t[0] for scene in self.scenes for t in self.seen[CLIENT, scene.round].values())
        return over_clients(traced, int(np.median(sizes)) if sizes else 0, plan.seed, shared)

    def _mean(self, kind: str, scene: Scene, client: int, label: int) -> tuple[Numbers, int, int] | None:
        """What is seen of a mean that this client's images are in, of how many images and holders; None: nothing.

        How many images these are is granted to the attacker, whatever the counts say of it.
        """
        holders = self.stage.sent_by(scene, label)
        if client not in holders or (kind != SUM and not self.stage.passed_on(scene, label)):
            return None
        uploads = {c: scene.uploads[c] for c in holders}
        mass = float(sum(int(upload.counts[label]) for upload in uploads.values()))
        if kind == SUM:
            tables = [upload.shared[PROTOTYPES] for upload in uploads.values()]
            mean = class_weighted_mean(tables, [upload.counts for upload in uploads.values()])[label]
        else:
            mean = scene.after.state[PROTOTYPES][label]
        if kind == REST:
            curious = [c for c in holders if c != client]
            if not curious:
                return None
            largest = max(curious, key=lambda c: int(uploads[c].counts[label]))  # what leaves the least
            own = uploads.pop(largest)
            mean = without_own(mean, mass, own.shared[PROTOTYPES][label], float(own.counts[label]))
        k = int(self.stage.table[list(uploads), label].sum())
        return (np.asarray(mean, dtype=np.float64), k, len(uploads)) if k else None

    def _judged(
        self, attacker: str, what: str, round: str, found: Leakage | None, curves: Sequence[Curve]
    ) -> list[dict[str, Any]]:
        if found is None:
            return []
        own = [c for c in curves if c.attacker == attacker and (round == "all" or c.round == round)]
        singles = [point for curve in own if (point := curve.at(1))]
        positive = min((point.auc for point in singles), key=lambda e: e.low, default=estimate([]))
        nearer = [
            p.auc
            for c in own
            for p in c.points
            if p.k == max((k for k in self.plan.ks if 10 * k <= found.k), default=0)
        ]
        easier = max(nearer, key=lambda e: e.low, default=None)
        word, reason = decide(found.auc, positive, found.fakes, 0.5, self.non_members, easier)
        where = {"combined": "rounds combined", "all": "all audited rounds"}.get(round, f"round {round}")
        self.stage.verdicts.append(
            Verdict(
                f"tracing, {what}, {where}", attacker, word, f"AUC {reason}" if word != TOO_WEAK else reason, found.auc,
                positive, found.fakes, {"k": found.k, "tpr": asdict(found.tpr), "permuted": asdict(found.permuted)},
            )
        )  # fmt: skip
        return [{"attacker": attacker, "what": what, "round": round, **asdict(found), "verdict": word}]
