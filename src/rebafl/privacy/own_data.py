"""What would a client's own data give away if it joined? Its means under a model, attacked before anything is sent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..base.errors import UserError
from ..base.rng import generator
from ..base.words import Say
from ..data import Data, load
from ..runs.environment import machine
from ..runs.export import DESCRIPTION, Model, load_model, model_of_run
from ..training.resources import one_thread
from .curves import NOT_DONE, SERVER, USUAL, Curve, Plan, Steps, Tick, known_answers, least_k, plain_curve
from .measures import auc, estimate, tpr_at
from .tracing import Leakage, Target, Traced, disjoint, over_clients, trace
from .verdicts import TOO_WEAK, Verdict, decide
from .views import Eye, class_views, pools, target_of


def audit_model(
    path: Path,
    dataset: str,
    plan: Plan = USUAL,
    say: Say = print,
    tick: Tick = lambda done, of, text: None,
    trust_code: bool = False,
) -> dict[str, Any]:
    """What one's own data would give away: means of the training part under a model, with the test part as public.

    One client alone: intervals are over tenths of the images, or over disjoint means, not over clients.
    """
    open_model = load_model if (path / DESCRIPTION).exists() else model_of_run
    model = open_model(path, trust_code=trust_code)
    data = _as_the_model_reads(load(dataset, say), model, path)
    with one_thread():
        return _ModelAudit(path, model, data, plan, tick).result()


def _as_the_model_reads(own: Data, model: Model, path: Path) -> Data:
    if own.shape != model.inputs.shape or (own.x_train.dtype == torch.uint8) != model.inputs.pixels:
        kind = "bytes" if model.inputs.pixels else "numbers"
        raise UserError(
            f"{own.name} has samples of shape {own.shape} ({own.x_train.dtype}); the model of {path} reads "
            f"{model.inputs.shape} ({kind})."
        )
    if int(max(own.y_train.max(), own.y_test.max())) >= len(model.classes):
        raise UserError(f"{own.name} has labels that the model of {path}, with {len(model.classes)} classes, has not.")
    x, y = torch.cat([own.x_train, own.x_test]), torch.cat([own.y_train, own.y_test])
    return Data(own.name, x, y, own.x_test, own.y_test, model.inputs)


class _ModelAudit:
    def __init__(self, path: Path, model: Model, data: Data, plan: Plan, tick: Tick) -> None:
        self.path, self.data, self.plan = path, data, plan
        self.classes = model.classes
        self.eye = Eye(model.net, data)
        self.private = len(data.y_train) - len(data.y_test)
        labels = data.y_train.numpy()
        public = np.arange(self.private, len(labels))
        self.features = self.eye.features(public[:1]).shape[1]
        self.pools = pools(labels, public, len(model.classes), self.features, plan.seed)
        own = labels[: self.private]
        self.held = {int(c): np.flatnonzero(own == c) for c in np.unique(own) if int(c) in self.pools}
        self.skipped = [model.classes[int(c)] for c in np.unique(own) if int(c) not in self.pools]
        self.steps = Steps(len(self.held) + 2, tick)
        if not self.held:
            raise UserError(
                f"{data.name} holds fewer than 20 test images of each of its training classes; the test part is the "
                "public set, without which nothing can be audited."
            )

    def result(self) -> dict[str, Any]:
        plan, targets = self.plan, dict[int, Target]()
        for label, index in self.held.items():
            view = class_views(self.eye, self.pools, [label])[label]
            seen = self.eye.features(index)
            targets[label] = target_of(view, self.pools[label], 0, label, 0, seen, seen, plan.seed)
            self.steps(f"class {self.classes[label]} looked at")
        points = [point for k in plan.ks if (point := self._means(targets, k))]
        curve = Curve(SERVER, "before joining", tuple(points))
        self.steps("curve of leakage against k")
        verdicts, sent = [], []
        others = min(len(target.others) for target in targets.values())
        positive = points[0].auc if points and points[0].k == 1 else estimate([])
        for label, target in targets.items():
            found = self._tenths(target)
            nearer = max((k for k in plan.ks if 10 * k <= found.k), default=0)
            easier = next((point.auc for point in points if point.k == nearer), None)
            word, reason = decide(found.auc, positive, found.fakes, 0.5, others, easier)
            verdicts.append(
                Verdict(
                    f"tracing, own mean of {self.classes[label]}", SERVER, word,
                    f"AUC {reason}" if word != TOO_WEAK else reason, found.auc, positive, found.fakes,
                    {"k": found.k, "tpr": asdict(found.tpr)},
                )
            )  # fmt: skip
            row = {"attacker": SERVER, "what": f"mean of {self.classes[label]}", "round": "before joining"}
            sent.append({**row, **asdict(found), "verdict": word})
        held = {self.classes[label]: len(index) for label, index in self.held.items()}
        answer = least_k(plan.risk, [curve], self.features)
        result = {
            "what": {
                "run": str(self.path), "dataset": self.data.name, "audit_seed": plan.seed, "features": self.features,
                "own_images": held, "skipped_classes": self.skipped, "non_members_per_class": others,
                "intervals": "over tenths of the images (one client), for the curve over disjoint means",
                "machine": machine(),
            },
            "curves": [plain_curve(curve, self.features, plan.risk)],
            "sent": sent,
            "synthetic": known_answers(self.features, plan),
            "exposure": None, "linking": [], "membership": [], "counts": None,
            "risk": {**answer, "classes_that_would_break_it": [name for name, n in held.items() if n < answer["k"]]},
            "verdicts": [verdict.plain() for verdict in verdicts],
            "missing": [*NOT_DONE, "everything that needs other clients or several rounds"],
        }  # fmt: skip
        self.steps("controls")
        return result

    def _means(self, targets: Mapping[int, Target], k: int) -> Leakage | None:
        """Every disjoint mean of k own images counts for itself."""
        traced: dict[int, list[Traced]] = {}
        for label, target in targets.items():
            for rows in disjoint(len(target.members), k, self.plan.seed, 0, label):
                mean = target.uploaded[rows].mean(0)
                traced[len(traced)] = [
                    trace([target], [mean], rows, k, self.plan.risk.fpr, self.plan.score, self.plan.seed)
                ]
        return over_clients(traced, k, self.plan.seed)

    def _tenths(self, target: Target) -> Leakage:
        """One mean of all own images of a class; members and non-members in ten parts each."""
        k, plan = len(target.members), self.plan
        p = target.whiten(target.uploaded.mean(0)[None])[0]
        members, fakes, others = (plan.score(part, p, k) for part in (target.members, target.fakes, target.others))
        random = generator(plan.seed, "privacy tenths", 0, target.label)
        parts = min(10, k, len(fakes))
        split = [np.array_split(random.permutation(scores), parts) for scores in (members, fakes, others)]
        threes = list(zip(*split, strict=True))
        return Leakage(
            k,
            estimate([auc(m, o) for m, _, o in threes], plan.seed),
            estimate([tpr_at(m, others, plan.risk.fpr) for m, _, _ in threes], plan.seed),
            estimate([auc(f, o) for _, f, o in threes], plan.seed),
            estimate([], plan.seed),
            1,
        )
