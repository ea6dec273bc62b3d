"""Which prototypes of single clients does each round hand to whom? Counted, and recomputed from replayed rounds."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from ..curves import CLIENT, SERVER
from ..exposure import Exposure, without_own
from ..verdicts import LEAKS, NO_LEAK, TOO_WEAK, Verdict
from .stage import MASS, PROTOTYPES, Stage


def handed_out(stage: Stage, handed: Exposure) -> dict[str, Any]:
    worst = _subtraction_error(stage)
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
    alone = handed.holders.get(1, 0) if stage.summed else handed.to_server
    which = "sums of one holder" if stage.summed else "every upload"
    stage.verdicts.append(
        Verdict(
            "prototypes of single clients", SERVER, LEAKS if alone else NO_LEAK,
            f"{which}: {alone} prototypes of single clients in {stage.replay.last} rounds",
        )
    )  # fmt: skip
    count = len(reached)
    how = "behind noise of their own" if stage.protect.noise else "exactly"
    checked = "" if worst is None else f"; recomputed in the audited rounds with a relative error of {worst:.1g}"
    word = LEAKS if count else NO_LEAK
    if worst is not None and worst > 1e-3:
        word, checked = TOO_WEAK, f"; but recomputing them fails (relative error {worst:.1g})"
    stage.verdicts.append(
        Verdict(
            "prototypes of single clients", CLIENT, word,
            f"{count} handed out {how} ({by['single holder']} as the single holder, {by['subtraction']} by "
            f"subtraction) of {len(handed.clients())} clients{checked}",
        )
    )  # fmt: skip
    events = [{**asdict(event), "to": list(event.to)} for event in reached]
    return {**facts, "events": events}


def _subtraction_error(stage: Stage) -> float | None:
    """How far what single holders and subtraction give is from the uploads, at worst, in the replayed rounds."""
    errors = []
    for scene in stage.scenes:
        for label in range(stage.task.classes):
            holders = stage.sent_by(scene, label)
            mass = float(scene.after.state[MASS][label])
            if not 0 < len(holders) <= 2 or not stage.passed_on(scene, label):
                continue
            for client in holders:
                found = scene.after.state[PROTOTYPES][label].double()
                for other in (o for o in holders if o != client):
                    own = scene.uploads[other]
                    found = without_own(found, mass, own.shared[PROTOTYPES][label], float(own.counts[label]))
                truth = scene.uploads[client].shared[PROTOTYPES][label].double()
                errors.append(float((found - truth).norm() / truth.norm().clamp(min=1e-30)))
    return max(errors, default=None)
