"""What would a client's own data give away if it joined? Its own round under a model, attacked before anything is sent.

The round is computed where every client's round is computed, from the model, with the run's settings where the model is
that of a run. One client alone: intervals are over tenths of its images, or over disjoint means, not over clients.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..algorithms.aggregate import Upload, moved
from ..algorithms.interface import Sent, Server, Task
from ..algorithms.prototypes import PROTOTYPES
from ..base.errors import UserError, exists
from ..base.rng import generator
from ..base.words import Say
from ..data import Data, load
from ..models.contract import weights_of
from ..population.partition import Indices, Split
from ..runs.environment import machine
from ..runs.experiment import work_of
from ..runs.export import DESCRIPTION, Model, load_model, model_of_run
from ..runs.record import open_run
from ..runs.settings import Settings, make_settings, stored_settings
from ..training.client_work import Work
from ..training.resources import one_thread
from . import membership
from .blur import blur_of
from .curves import SERVER, USUAL, Curve, Plan, Steps, Tick, known_answers, least_k, plain_curve
from .measures import NORMAL, Estimate, Numbers, auc, estimate, tpr_at
from .own_pictures import own_pictures
from .retrained import overfitted
from .tracing import Leakage, Target, Traced, disjoint, over_clients, trace
from .verdicts import LEAKS, TOO_WEAK, Verdict, decide, three
from .views import Eye, class_views, joined, pools, target_of

FIRST_ROUND = 1


def audit_model(
    path: Path,
    dataset: str,
    plan: Plan = USUAL,
    say: Say = print,
    tick: Tick = lambda done, of, text: None,
    to: Path | None = None,
    trust_code: bool = False,
) -> dict[str, Any]:
    """What one's own data would give away: the training part under a model, with the test part as public.

    Reconstructed images are kept in the folder `to`.
    """
    if exists(path / DESCRIPTION):
        model, settings = load_model(path, trust_code), make_settings({})
        say("An exported model does not say how it was trained; the usual settings are taken for this client's round.")
    else:
        model = model_of_run(path, trust_code=trust_code)
        settings = stored_settings(open_run(path).config())
    data = _as_the_model_reads(load(dataset, say), model, path)
    with one_thread():
        audit = _ModelAudit(path, model, settings, data, plan, tick)
        return audit.result(dataset, to)


def _as_the_model_reads(own: Data, model: Model, path: Path) -> Data:
    if own.shape != model.inputs.shape or (own.x_train.dtype == torch.uint8) != model.inputs.pixels:
        kind = "bytes" if model.inputs.pixels else "numbers"
        raise UserError(
            f"{own.name} has samples of shape {own.shape} ({own.x_train.dtype}); the model of {path} reads "
            f"{model.inputs.shape} ({kind})."
        )
    if int(max(own.y_train.max(), own.y_test.max())) >= len(model.classes):
        raise UserError(f"{own.name} has labels that the model of {path}, with {len(model.classes)} classes, has not.")
    return replace(joined(own), inputs=model.inputs)


class _ModelAudit:
    def __init__(self, path: Path, model: Model, settings: Settings, data: Data, plan: Plan, tick: Tick) -> None:
        self.path, self.data, self.plan, self.settings = path, data, plan, settings
        self.classes = model.classes
        self.eye = Eye(copy.deepcopy(model.net), data)
        self.private = len(data.y_train) - len(data.y_test)
        labels = data.y_train.numpy()
        public = self.public = np.arange(self.private, len(labels))
        self.features = self.eye.features(public[:1]).shape[1]
        self.pools = pools(labels, public, len(model.classes), self.features, plan.seed)
        own = labels[: self.private]
        self.held = {int(c): np.flatnonzero(own == c) for c in np.unique(own) if int(c) in self.pools}
        self.skipped = [model.classes[int(c)] for c in np.unique(own) if int(c) not in self.pools]
        self.steps = Steps(len(self.held) + 5, tick)
        if not self.held:
            raise UserError(
                f"{data.name} holds fewer than 20 test images of each of its training classes; the test part is the "
                "public set, without which nothing can be audited."
            )
        self.blur, self.verdicts = blur_of(settings.protect), list[Verdict]()
        self.work, self.sent, self.upload = self._own_round(model, np.arange(self.private))

    def _own_round(self, model: Model, index: Indices) -> tuple[Work, Sent, Upload]:
        """What this client would upload in its first round."""
        labels = self.data.y_train.numpy()
        split = Split(1, len(self.classes), labels, lambda client: index)
        work = work_of(self.settings, self.data, split, lambda *_: copy.deepcopy(model.net))
        weights, algorithm = weights_of(model.net), self.settings.algorithm
        server = Server(weights, algorithm.server_state(model.net, Task(len(self.classes), self.features, 1)))
        sent = Sent(weights, algorithm.broadcast(server))
        upload, _ = work.train(copy.deepcopy(model.net), sent, 0, FIRST_ROUND, None)
        return work, sent, upload

    def result(self, dataset: str, to: Path | None) -> dict[str, Any]:
        plan, targets = self.plan, dict[int, Target]()
        self.eye.load(
            moved(self.sent.weights, {n: t.to(torch.float64) for n, t in self.upload.change.items()})
        )  # fmt: skip
        self.steps("own round computed")
        for label, index in self.held.items():
            view = class_views(self.eye, self.pools, [label], self.blur)[label]
            seen = self.eye.features(index)
            targets[label] = target_of(view, self.pools[label], 0, label, 0, seen, seen, plan.seed, self.blur)
            self.steps(f"class {self.classes[label]} looked at")
        curve = Curve(SERVER, "before joining", tuple(p for k in plan.ks if (p := self._means(targets, k))))
        self.steps("curve of leakage against k")
        others = min(len(target.others) for target in targets.values())
        sent = [self._judged(target, curve, others) for target in targets.values() if self._sends(target.label)]
        self._count()
        prototypes = {label: self.upload.shared[PROTOTYPES][label] for label in self.held if self._sends(label)}
        pictures, words, missing = own_pictures(self.eye.net, self.data, self.public, self.held, prototypes, plan, to)
        if pictures:
            pictures |= {"data": dataset, "joined": True}
        self.steps("images reconstructed" if pictures else "no images reconstructed")
        told = self._membership(others)
        self.verdicts += words
        self.steps("membership inferred from the own update")
        result = {
            "what": {
                "run": str(self.path), "dataset": self.data.name, "audit_seed": plan.seed, "features": self.features,
                "algorithm": self.settings.algorithm.name,
                "own_images": {self.classes[label]: len(index) for label, index in self.held.items()},
                "skipped_classes": self.skipped, "non_members_per_class": others,
                "not_sent": [self.classes[label] for label in targets if not self._sends(label)],
                "intervals": "over tenths of the images (one client), for the curve over disjoint means",
                "machine": machine(),
            },
            "curves": [plain_curve(curve, self.features, plan.risk)],
            "sent": sent,
            "synthetic": known_answers(self.features, plan),
            "exposure": None, "linking": [], "membership": told, "counts": self._counts(),
            "risk": self._risk(curve),
            "verdicts": [verdict.plain() for verdict in self.verdicts],
            "inversion": pictures,
            "missing": [*([missing] if missing else []), "everything that needs other clients or several rounds"],
        }  # fmt: skip
        self.steps("controls")
        return result

    def _sends(self, label: int) -> bool:
        return PROTOTYPES in self.upload.shared and int(self.upload.counts[label]) > 0

    def _means(self, targets: Mapping[int, Target], k: int) -> Leakage | None:
        """Every disjoint mean of k own images counts for itself."""
        traced: dict[int, list[Traced]] = {}
        for label, target in targets.items():
            random = generator(self.plan.seed, f"privacy blur of class {label}", k, 0)
            for rows in disjoint(len(target.members), k, self.plan.seed, 0, label):
                mean = self.blur.mean(target.uploaded[rows], random)
                found = trace(
                    [target], [mean], rows, k, self.plan.risk.fpr, self.plan.score, self.plan.seed, self.blur
                )  # fmt: skip
                traced[len(traced)] = [found]
        return over_clients(traced, k, self.plan.seed)

    def _judged(self, target: Target, curve: Curve, others: int) -> dict[str, Any]:
        """The mean of a class that would be sent."""
        found = self._traced(target)
        single = curve.at(1)
        positive = single.auc if single else estimate([])
        nearer = max((k for k in self.plan.ks if 10 * k <= found.k), default=0)
        easier = point.auc if (point := curve.at(nearer)) else None
        word, reason = decide(found.auc, positive, found.fakes, 0.5, others, easier)
        name = self.classes[target.label]
        self.verdicts.append(
            Verdict(
                f"tracing, own mean of {name}", SERVER, word, f"AUC {reason}" if word != TOO_WEAK else reason,
                found.auc, positive, found.fakes, {"k": found.k, "tpr": asdict(found.tpr)},
            )
        )  # fmt: skip
        row = {"attacker": SERVER, "what": f"mean of {name}", "round": "before joining"}
        return {**row, **asdict(found), "verdict": word}

    def _traced(self, target: Target) -> Leakage:
        """The mean of all own images of a class, as it would be sent."""
        k, plan = len(target.members), self.plan
        p = target.whiten(np.asarray(self.upload.shared[PROTOTYPES][target.label], dtype=np.float64)[None])[0]
        sharpen = self.blur.sharpening(target.whiten.mean, target.whiten.map, k, 1)
        parts = (target.members, target.fakes, target.others)
        if sharpen is not None:
            p, parts = p @ sharpen, (target.members @ sharpen, target.fakes @ sharpen, target.others @ sharpen)
        members, fakes, others = (plan.score(part, p, k) for part in parts)
        return Leakage(k, *self._tenths(members, fakes, others, target.label), estimate([], plan.seed), 1)

    def _tenths(
        self, members: Numbers, fakes: Numbers, others: Numbers, label: int
    ) -> tuple[Estimate, Estimate, Estimate]:
        """AUC and TPR of members, and the AUC of fake members, with images in ten parts."""
        plan = self.plan
        random = generator(plan.seed, "privacy tenths", 0, label)
        parts = min(10, len(members), len(fakes))
        split = [np.array_split(random.permutation(scores), parts) for scores in (members, fakes, others)]
        threes = list(zip(*split, strict=True))
        return (
            estimate([auc(m, o) for m, _, o in threes], plan.seed),
            estimate([tpr_at(m, others, plan.risk.fpr) for m, _, _ in threes], plan.seed),
            estimate([auc(f, o) for _, f, o in threes], plan.seed),
        )

    def _membership(self, non_members: int) -> list[dict[str, Any]]:
        """Does the own update tell which images it was trained on? All classes together, in tenths of the images."""
        after = {label: self._logits(label, index) for label, index in self.held.items()}
        self.eye.load(self.sent.weights)
        columns: dict[str, list[tuple[Numbers, Numbers, Numbers]]] = {}
        for label, index in self.held.items():
            fakes, others = self.pools[label].fakes_and_others(0, label, self.plan.seed)
            own, public = self.eye.both(index), self.eye.both(self.pools[label].held_out)
            members = membership.scores(own, after[label][0], label, self.upload.change)
            outside = membership.scores(public, after[label][1], label, self.upload.change)
            for way, score in members.items():
                columns.setdefault(way, []).append((score, outside[way][fakes], outside[way][others]))
        controls = overfitted(self.work, self.eye, self.sent, FIRST_ROUND, self.pools, self.plan.seed)
        rows = []
        for way, some in columns.items():
            told = [self._tenths(*scores, label) for scores, label in zip(some, self.held, strict=True)]
            found, tpr, negative = (
                estimate(np.mean([np.resize(t[n].values, 10) for t in told], axis=0).tolist(), self.plan.seed)
                for n in range(3)
            )
            positive = estimate(controls.get(way, []), self.plan.seed)
            word, reason = decide(found, positive, negative, 0.5, non_members)
            text = f"AUC {reason}" if word != TOO_WEAK else reason
            name = f"membership by {way} in the own update (not LiRA)"
            self.verdicts.append(Verdict(name, SERVER, word, text, found, positive, negative, {"tpr": asdict(tpr)}))
            numbers = {**three(found, positive, negative), "tpr": asdict(tpr)}
            rows.append({"attacker": SERVER, "way": way, **numbers, "verdict": word})
        return rows

    def _logits(self, label: int, index: Indices) -> tuple[torch.Tensor, torch.Tensor]:
        return self.eye.both(index)[1], self.eye.both(self.pools[label].held_out)[1]

    def _counts(self) -> dict[str, Any]:
        """What the upload says of the classes that this client holds."""
        shown = self.upload.counts
        held = np.zeros(len(self.classes), dtype=bool)
        held[np.unique(self.data.y_train.numpy()[: self.private])] = True
        sets = math.comb(len(self.classes), int(held.sum()))
        return {
            "shown_counts": {self.classes[c]: int(n) for c, n in enumerate(shown.tolist()) if n},
            "held_classes": [self.classes[int(c)] for c in np.flatnonzero(held)],
            "sets_of_as_many_classes": sets,
            "bits": math.log2(sets),
        }

    def _count(self) -> None:
        facts, protect = self._counts(), self.settings.protect
        shown, held = list(facts["shown_counts"]), facts["held_classes"]
        if protect.noise or not shown:
            return  # behind noise, or not shown: nothing is told for certain
        how = "exactly how many images of each" if protect.counts == "exact" else "which"
        self.verdicts.append(
            Verdict(
                "class counts", SERVER, LEAKS,
                f"the upload names {len(shown)} of the {len(held)} classes that are held, and {how}: one of "
                f"{facts['sets_of_as_many_classes']} sets of as many classes ({facts['bits']:.1f} bits)",
            )
        )  # fmt: skip

    def _risk(self, curve: Curve) -> dict[str, Any]:
        """Which k, holders and noise keep the stated risk, and which own classes would break it."""
        risk, held = self.plan.risk, {self.classes[label]: len(index) for label, index in self.held.items()}
        answer = least_k(risk, [curve], self.features)
        gap = NORMAL.inv_cdf(risk.tpr) + NORMAL.inv_cdf(1 - risk.fpr)
        finite = math.isfinite(answer["k"])
        return {
            **answer,
            "own_k": held,
            "classes_that_would_break_it": [name for name, n in held.items() if n < answer["k"]],
            "holders_alike": {name: math.ceil(answer["k"] / n) + 1 for name, n in held.items()} if finite else None,
            "min_holders": self.settings.protect.min_holders,
            "noise_for_uploads": {uploads: math.sqrt(uploads) / gap for uploads in (1, 10, 100)},
        }
