"""What does a run give away? All attacks, their controls and verdicts, in one result.

Two are curious and follow the protocol: the server sees every upload, so also every client's model; a client sees what
is broadcast, and what its own share leaves of that.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..algorithms.aggregate import moved
from ..base.rng import generator
from ..base.tensors import Tensors
from ..base.words import Say
from ..data import Data
from ..models.choice import Factory
from ..population.partition import Indices, Split
from ..runs.environment import machine
from ..training.client_work import Work
from ..training.resources import one_thread
from . import linking, membership
from .curves import CLIENT, NOT_DONE, SERVER, USUAL, Curve, Plan, Steps, Tick, known_answers, least_k, plain_curve
from .exposure import Exposure, counts_of, exposure, without_own
from .measures import NORMAL, Estimate, Numbers, auc, estimate
from .replay import Replay, Scene
from .tracing import (
    Leakage,
    Target,
    Traced,
    leakage,
    non_members,
    over_clients,
    trace,
    whole,
)
from .verdicts import LEAKS, NO_LEAK, TOO_WEAK, Verdict, decide
from .views import Eye, class_views, pools, target_of

PROTOTYPES, MASS = "prototypes", "mass"
CONTROLS = 6  # models that are overfitted on purpose
Groups = dict[tuple[int, int], list[Target]]


def audit_run(
    path: Path,
    plan: Plan = USUAL,
    data: Data | None = None,
    model: Factory | None = None,
    say: Say = print,
    tick: Tick = lambda done, of, text: None,
) -> dict[str, Any]:
    """Everything about some rounds of a finished run, as plain values."""
    replay = Replay(path, data, model, say)
    rounds = sorted(set(plan.rounds)) or replay.early_middle_late()
    replay.check(rounds)
    more = [] if plan.rounds else [r for r in replay.at_hand() if r not in rounds and replay.lines[r - 1].used][-2:]
    uploads, extra = (sum(len(replay.lines[number - 1].used) for number in some) for some in (rounds, more))
    steps = Steps(2 * uploads + extra + len(rounds) + 3, tick)
    scenes = {scene.round: scene for scene in replay.scenes([*rounds, *more], steps)}
    with one_thread():
        return _RunAudit(replay, [scenes[r] for r in rounds], [scenes[r] for r in sorted(scenes)], plan, steps).result()


class _RunAudit:
    def __init__(
        self, replay: Replay, scenes: Sequence[Scene], linked: Sequence[Scene], plan: Plan, steps: Steps
    ) -> None:
        """`linked`: those of `scenes`, and further rounds that are looked at only to link uploads."""
        self.linked = linked
        self.replay, self.scenes, self.plan, self.steps = replay, scenes, plan, steps
        self.work: Work = replay.experiment.work
        self.split: Split = self.work.split
        self.table = self.split.table()
        self.task = replay.experiment.task
        self.eye = Eye(self.work.make_net(), self.work.data)
        self.public = replay.unheld()
        self.pools = pools(self.split.labels, self.public, self.task.classes, self.task.features, plan.seed)
        self.shares = all(PROTOTYPES in upload.shared for scene in scenes for upload in scene.uploads.values())
        self.verdicts: list[Verdict] = []
        self.seen: dict[tuple[str, int], Groups] = {}  # (attacker, round) -> targets
        self.inference: dict[tuple[str, str], dict[int, list[tuple[float, float, float]]]] = {}
        self.non_members = 0

    def result(self) -> dict[str, Any]:
        for scene in self.scenes:
            self._look(scene)
            self.steps(f"round {scene.round}: broadcast attacked")
        curves = self._curves() if self.shares else []
        self.steps("curves of leakage against k")
        sent = self._sent(curves) if self.shares else []
        handed = exposure(self.replay.lines, self.table, self._least_holders()) if self.shares else None
        parts: dict[str, Any] = {
            "what": self._facts(),
            "curves": [plain_curve(curve, self.task.features, self.plan.risk) for curve in curves],
            "sent": sent,
            "synthetic": known_answers(self.task.features, self.plan),
            "exposure": self._exposure(handed) if handed else None,
            "linking": self._linking(),
            "membership": self._membership(),
            "counts": self._counts(),
        }
        self.steps("controls")
        parts["risk"] = self._risk(curves, handed) if handed else None
        parts["verdicts"] = [verdict.plain() for verdict in self.verdicts]
        parts["missing"] = list(NOT_DONE)
        return parts

    def _facts(self) -> dict[str, Any]:
        settings = self.replay.settings
        return {
            "run": str(self.replay.path),
            "dataset": settings.dataset,
            "algorithm": settings.algorithm.name,
            "run_seed": settings.seed,
            "audit_seed": self.plan.seed,
            "rounds": [scene.round for scene in self.scenes],
            "of_rounds": self.replay.last,
            "rounds_linked": [scene.round for scene in self.linked],
            "replay_has_the_recorded_bits": {scene.round: scene.same_bits for scene in self.linked},
            "clients": self.task.clients,
            "clients_audited": len({client for scene in self.scenes for client in scene.uploads}),
            "features": self.task.features,
            "public_images": len(self.public),
            "non_members_per_class": self.non_members,
            "machine": machine(),
        }

    def _least_holders(self) -> int:
        """From how many holders on a class is broadcast, if the run is protected so."""
        return max(1, self.replay.settings.protect.min_holders)

    def _held(self, client: int) -> dict[int, Indices]:
        """A client's images by class, as far as there are public images of the class to compare with."""
        index = self.split.indices(client)
        labels = self.split.labels[index]
        return {int(label): index[labels == label] for label in np.unique(labels) if int(label) in self.pools}

    def _look(self, scene: Scene) -> None:
        """All targets of a round, under the eyes of both attackers, and membership inference on the way."""
        everyone = sorted({label for client in scene.uploads for label in self._held(client)})
        self.eye.load(scene.sent.weights)
        start = {label: self._both(self.pools[label].held_out) for label in everyone}
        start_own = {c: {label: self._both(i) for label, i in self._held(c).items()} for c in scene.uploads}
        self.eye.load(scene.after.weights)
        end = {label: self._both(self.pools[label].held_out)[1] for label in everyone}
        end_own = {c: {label: self._both(i)[1] for label, i in self._held(c).items()} for c in scene.uploads}
        change = {name: scene.after.weights[name] - scene.sent.weights[name] for name in scene.sent.weights}
        for client in scene.uploads:
            held = self._held(client)
            self.eye.load(scene.local(client))
            views = class_views(self.eye, self.pools, list(held))
            own = {label: self._both(index) for label, index in held.items()}
            held_out = {label: self.eye.logits(views[label].held_out) for label in held}
            for label in held:
                pool = self.pools[label]
                features = own[label][0]
                target = target_of(views[label], pool, client, label, scene.round, features, features, self.plan.seed)
                self._add(SERVER, scene.round, target)
                places = pool.fakes_and_others(client, label, self.plan.seed)
                self._infer(
                    SERVER, client, label, places, start_own[client][label], own[label][1], start[label],
                    held_out[label], scene.uploads[client].change,
                )  # fmt: skip
                self._infer(
                    CLIENT, client, label, places, start_own[client][label], end_own[client][label], start[label],
                    end[label], change,
                )  # fmt: skip
            if self.shares:
                self._look_as_client(scene, client, held, {label: own[label][0] for label in held})
            self.steps(f"round {scene.round}: client {client} attacked")

    def _look_as_client(
        self, scene: Scene, client: int, held: Mapping[int, Indices], uploaded: Mapping[int, Tensor]
    ) -> None:
        """A client does not know another's model; it trains one like it, on public images of the same classes."""
        self.eye.load(self._shadow(scene, client, held))
        views = class_views(self.eye, self.pools, list(held))
        for label, index in held.items():
            seen = self.eye.features(index)
            pool = self.pools[label]
            self._add(
                CLIENT,
                scene.round,
                target_of(views[label], pool, client, label, scene.round, uploaded[label], seen, self.plan.seed),
            )

    def _shadow(self, scene: Scene, client: int, held: Mapping[int, Indices]) -> Tensors:
        chosen = [self.pools[label].reference[: len(index)] for label, index in held.items()]
        return trained_on(self.work, self.eye, scene, client, np.concatenate(chosen))

    def _add(self, attacker: str, round: int, target: Target) -> None:
        self.seen.setdefault((attacker, round), {})[target.client, target.label] = [target]
        count = len(target.others)
        self.non_members = min(self.non_members, count) if self.non_members else count

    def _both(self, index: Indices) -> tuple[Tensor, Tensor]:
        features = self.eye.features(index)
        return features, self.eye.logits(features)

    def _infer(
        self, attacker: str, client: int, label: int, places: tuple[Indices, Indices], before: tuple[Tensor, Tensor],
        after: Tensor, public_before: tuple[Tensor, Tensor], public_after: Tensor, change: Mapping[str, Tensor],
    ) -> None:  # fmt: skip
        members = membership.scores(before, after, label, change)
        public = membership.scores(public_before, public_after, label, change)
        fakes, others = places
        for way, score in members.items():
            told = membership.told_apart(score, public[way][fakes], public[way][others], self.plan.risk.fpr)
            self.inference.setdefault((attacker, way), {}).setdefault(client, []).append(told)

    # Tracing

    def _curves(self) -> list[Curve]:
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
        points = (leakage(groups, k, plan.risk.fpr, plan.score, plan.seed) for k in plan.ks)
        return Curve(attacker, round, tuple(point for point in points if point is not None))

    def _sent(self, curves: Sequence[Curve]) -> list[dict[str, Any]]:
        """The means that were really sent, and a verdict for each attacker."""
        rows = []
        plan = self.plan
        uploads = {scene.round: scene.uploads for scene in self.scenes}

        def real(target: Target) -> Numbers:
            return np.asarray(uploads[target.round][target.client].shared[PROTOTYPES][target.label], dtype=np.float64)

        by_round = {f"{scene.round}": self.seen[SERVER, scene.round] for scene in self.scenes}
        for name, groups in {**by_round, "combined": self._together(SERVER)}.items():
            pairs = {key: [(target, real(target)) for target in targets] for key, targets in groups.items()}
            found = whole(pairs, plan.risk.fpr, plan.score, plan.seed)
            rows += self._judged(SERVER, "each client's upload", name, found, curves)
        for kind in ("broadcast", "broadcast minus own share"):
            rows += self._judged(CLIENT, kind, "all", self._broadcast(kind), curves)
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
        self.verdicts.append(
            Verdict(
                "tracing, means of some of a client's images", attacker, word,
                f"up to k = {point.k} of those tried; there (round {curve.round}) AUC {reason}" if leaking else reason,
                point.auc, curve.points[0].auc, point.fakes,
            )
        )  # fmt: skip

    def _broadcast(self, kind: str) -> Leakage | None:
        """Means as clients see them; every holder whose images are in one counts as a client that is attacked."""
        traced: dict[int, list[Traced]] = {}
        sizes = []
        for scene in self.scenes:
            for (client, label), targets in self.seen[CLIENT, scene.round].items():
                mass = float(scene.after.state[MASS][label])
                mean, k = scene.after.state[PROTOTYPES][label], mass
                holders = [c for c, upload in scene.uploads.items() if int(upload.counts[label]) > 0]
                if mass <= 0:
                    continue  # not broadcast
                if kind != "broadcast":
                    curious = [c for c in holders if c != client]
                    if not curious:
                        continue
                    largest = max(curious, key=lambda c: int(scene.uploads[c].counts[label]))  # what leaves the least
                    own = scene.uploads[largest]
                    k = mass - float(own.counts[label])
                    mean = without_own(mean, mass, own.shared[PROTOTYPES][label], float(own.counts[label]))
                rows = np.arange(len(targets[0].members))
                size = max(1, round(k))
                sizes.append(size)
                traced.setdefault(client, []).append(
                    trace(
                        targets, [np.asarray(mean, dtype=np.float64)], rows, size, self.plan.risk.fpr, self.plan.score,
                        self.plan.seed,
                    )
                )  # fmt: skip
        shared = non_members(t[0] for scene in self.scenes for t in self.seen[CLIENT, scene.round].values())
        return over_clients(traced, int(np.median(sizes)) if sizes else 0, self.plan.seed, shared)

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
        self.verdicts.append(
            Verdict(
                f"tracing, {what}, {where}", attacker, word, f"AUC {reason}" if word != TOO_WEAK else reason, found.auc,
                positive, found.fakes, {"k": found.k, "tpr": asdict(found.tpr), "permuted": asdict(found.permuted)},
            )
        )  # fmt: skip
        return [{"attacker": attacker, "what": what, "round": round, **asdict(found), "verdict": word}]

    # What is handed to whom

    def _exposure(self, handed: Exposure) -> dict[str, Any]:
        worst = self._subtraction_error()
        reached = [event for event in handed.handed if event.to]
        by = {kind: sum(event.by == kind for event in reached) for kind in ("single holder", "subtraction")}
        facts = {
            "class_round_pairs": handed.pairs,
            "holders": handed.holders,
            "share_single": handed.share(1),
            "share_two": handed.share(2),
            "prototypes_to_server": handed.to_server,
            "handed_to_clients": by,
            "clients_exposed": sorted(handed.clients()),
            "models_handed": handed.models,
            "subtraction_error": worst,
        }
        self.verdicts.append(
            Verdict(
                "prototypes of single clients", SERVER, LEAKS if handed.to_server else NO_LEAK,
                f"every upload: {handed.to_server} prototypes of single clients in {self.replay.last} rounds",
            )
        )  # fmt: skip
        count = len(reached)
        checked = "" if worst is None else f"; recomputed in the audited rounds with a relative error of {worst:.1g}"
        word = LEAKS if count else NO_LEAK
        if worst is not None and worst > 1e-3:
            word, checked = TOO_WEAK, f"; but recomputing them fails (relative error {worst:.1g})"
        self.verdicts.append(
            Verdict(
                "prototypes of single clients", CLIENT, word,
                f"{count} handed out exactly ({by['single holder']} as the single holder, {by['subtraction']} by "
                f"subtraction) of {len(handed.clients())} clients{checked}",
            )
        )  # fmt: skip
        events = [{**asdict(event), "to": list(event.to)} for event in reached]
        return {**facts, "events": events}

    def _subtraction_error(self) -> float | None:
        """How far what single holders and subtraction give is from the uploads, at worst, in the replayed rounds."""
        errors = []
        for scene in self.scenes:
            for label in range(self.task.classes):
                holders = [c for c, upload in scene.uploads.items() if int(upload.counts[label]) > 0]
                mass = float(scene.after.state[MASS][label])
                if mass <= 0 or not 0 < len(holders) <= 2:
                    continue
                for client in holders:
                    found = scene.after.state[PROTOTYPES][label].double()
                    for other in (o for o in holders if o != client):
                        own = scene.uploads[other]
                        found = without_own(found, mass, own.shared[PROTOTYPES][label], float(own.counts[label]))
                    truth = scene.uploads[client].shared[PROTOTYPES][label].double()
                    errors.append(float((found - truth).norm() / truth.norm().clamp(min=1e-30)))
        return max(errors, default=None)

    def _linking(self) -> list[dict[str, Any]]:
        rounds = [scene.uploads for scene in self.linked]
        rows = []
        for way, similar in self.plan.similarities.items():
            found, chance = linking.link(rounds, similar)
            positive = linking.positive_control(rounds, similar, self.plan.seed)
            negative, _ = linking.negative_control(rounds, similar, self.plan.seed)
            word, reason = decide(found, positive, negative, chance)
            text = f"found again: {reason}" if word != TOO_WEAK else reason
            self.verdicts.append(
                Verdict(f"linking shuffled uploads, {way}", SERVER, word, text, found, positive, negative)
            )
            rows.append({"way": way, "chance": chance, **_three(found, positive, negative), "verdict": word})
        return rows

    def _membership(self) -> list[dict[str, Any]]:
        controls = self._overfitted()
        rows = []
        for (attacker, way), by_client in self.inference.items():
            columns = [[float(np.mean([told[n] for told in some])) for some in by_client.values()] for n in range(3)]
            shared = self.non_members * len(self.pools)
            found = estimate(columns[0], self.plan.seed, shared)
            tpr, negative = (estimate(column, self.plan.seed) for column in columns[1:])
            positive = estimate(controls.get(way, []), self.plan.seed)
            word, reason = decide(found, positive, negative, 0.5, self.non_members)
            text = f"AUC {reason}" if word != TOO_WEAK else reason
            name = f"membership by {way} (not LiRA)"
            self.verdicts.append(Verdict(name, attacker, word, text, found, positive, negative, {"tpr": asdict(tpr)}))
            rows.append(
                {
                    "attacker": attacker,
                    "way": way,
                    **_three(found, positive, negative),
                    "tpr": asdict(tpr),
                    "verdict": word,
                }
            )
        return rows

    def _overfitted(self) -> dict[str, list[float]]:
        """The positive control: models that saw two public images of each class 300 times."""
        found: dict[str, list[float]] = {}
        scene = self.scenes[-1]
        training = self.work.training
        hard = replace(training, epochs=300, batch=8, weight_decay=0.0, transform="none")
        for number in range(CONTROLS):
            random = generator(self.plan.seed, "privacy overfitted", 0, number)
            few = {label: random.permutation(pool.reference)[:2] for label, pool in self.pools.items()}
            self.eye.load(scene.sent.weights)
            before = {label: (self._both(few[label]), self._both(self.pools[label].held_out[:300])) for label in few}
            seen = np.concatenate(list(few.values()))
            weights = trained_on(replace(self.work, training=hard), self.eye, scene, number, seen)
            self.eye.load(weights)
            change = {name: weights[name] - scene.sent.weights[name] for name in weights}
            told: dict[str, list[float]] = {}
            for label, (own, public) in before.items():
                members = membership.scores(own, self._both(few[label])[1], label, change)
                after = self._both(self.pools[label].held_out[:300])[1]
                others = membership.scores(public, after, label, change)
                for way, score in members.items():
                    told.setdefault(way, []).append(auc(score, others[way]))
            for way, aucs in told.items():
                found.setdefault(way, []).append(float(np.mean(aucs)))
        return found

    def _counts(self) -> dict[str, Any]:
        counts = counts_of(self.table)
        word = LEAKS
        self.verdicts.append(
            Verdict(
                "class counts", SERVER, word,
                f"every upload names its classes exactly; {counts.unique_classes} of {counts.clients} clients are the "
                f"only ones with their set of classes ({counts.bits:.1f} of {math.log2(counts.clients):.1f} bits)",
            )
        )  # fmt: skip
        alike = self._alike() if self.shares else None
        return {**asdict(counts), "alike": alike}

    def _alike(self) -> dict[str, Any] | None:
        """Do distances between broadcast prototypes say which classes look alike? Held against public pixels."""
        scene = self.scenes[-1]
        known = [c for c in self.pools if float(scene.after.state[MASS][c]) > 0]
        if len(known) < 4:
            return None
        data = self.work.data
        table = scene.after.state[PROTOTYPES][known].double()
        pixels = torch.stack(
            [data.x_train[torch.from_numpy(self.pools[c].held_out)].double().flatten(1).mean(0) for c in known]
        )
        self.eye.load(scene.after.weights)
        deep = torch.stack([self.eye.features(self.pools[c].reference[:500]).double().mean(0) for c in known])
        pairs = np.triu_indices(len(known), 1)
        own, seen, control = (torch.cdist(t, t).numpy()[pairs] for t in (table, pixels, deep))
        found, positive = _rank_correlation(own, seen), _rank_correlation(own, control)
        random = generator(self.plan.seed, "privacy alike")
        chance = []
        for _ in range(500):
            order = random.permutation(len(known))
            mixed = torch.cdist(pixels[order], pixels[order]).numpy()[pairs]
            chance.append(_rank_correlation(own, mixed))
        p = float((1 + np.sum(np.array(chance) >= found)) / (1 + len(chance)))
        word = LEAKS if p < 0.05 else NO_LEAK if positive > 0.5 else TOO_WEAK
        text = (
            f"rank correlation {found:.2f} between distances of prototypes and of class means of public pixels "
            f"(p = {p:.3f}); control, distances of public features: {positive:.2f}"
        )
        self.verdicts.append(Verdict("which classes are alike", CLIENT, word, text))
        return {"correlation": found, "p": p, "control": positive, "classes": len(known), "verdict": word}

    def _risk(self, curves: Sequence[Curve], handed: Exposure) -> dict[str, Any]:
        risk = self.plan.risk
        answer = least_k(risk, [curve for curve in curves if curve.attacker == SERVER], self.task.features)
        k = answer["k"]
        clients = least_k(risk, [curve for curve in curves if curve.attacker == CLIENT], self.task.features)
        held = self.table[self.table > 0]
        typical = float(np.median(held)) if len(held) else 0.0
        by_server, by_clients = [], []
        for place, line in enumerate(self.replay.lines):
            used = sorted(line.used)
            counts = self.table[used]
            if ((counts > 0) & (counts < k)).any():
                by_server.append(line.round)
            told = set(self.replay.lines[place + 1].active) if place + 1 < self.replay.last else set()
            if any(self._smallest(counts[:, label], used, told) < k for label in range(self.task.classes)):
                by_clients.append(line.round)
        times = max(sum(client in line.used for line in self.replay.lines) for client in range(self.task.clients))
        gap = NORMAL.inv_cdf(risk.tpr) + NORMAL.inv_cdf(1 - risk.fpr)
        return {
            **answer,
            "k_for_clients": clients["k"] if clients["effective_dimensions"] else None,
            "typical_images_per_class": typical,
            "holders": None if not typical or not math.isfinite(k) else math.ceil(k / typical) + 1,
            "noise_one_round": 1 / gap,
            "noise_all_rounds": math.sqrt(max(1, times)) / gap,
            "most_participations": times,
            "rounds_broken_for_server": by_server,
            "rounds_broken_for_clients": by_clients,
        }

    def _smallest(self, counts: Indices, used: Sequence[int], told: set[int]) -> float:
        """The smallest mean of others that someone learns from the broadcast of a class; infinite: nobody does."""
        total = int(counts.sum())
        holders = int((counts > 0).sum())
        if not told or not total or holders < self._least_holders():
            return math.inf
        left = [total - int(n) for client, n in zip(used, counts, strict=True) if client in told and total > int(n) > 0]
        single = holders == 1 and told == {used[int(np.argmax(counts))]}  # told only its own
        return min([*left, *([] if single else [total])], default=math.inf)


def trained_on(work: Work, eye: Eye, scene: Scene, client: int, index: Indices) -> Tensors:
    """The model that the same round would have made of other images."""
    other = replace(work, split=replace(work.split, indices=lambda _: index))
    upload, _ = other.train(eye.net, scene.sent, client, scene.round, None)
    return moved(scene.sent.weights, {name: tensor.to(torch.float64) for name, tensor in upload.change.items()})


def _three(found: Estimate, positive: Estimate, negative: Estimate) -> dict[str, Any]:
    return {"result": asdict(found), "positive": asdict(positive), "negative": asdict(negative)}


def _rank_correlation(a: Numbers, b: Numbers) -> float:
    ranks = [np.argsort(np.argsort(x)).astype(np.float64) for x in (a, b)]
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])
