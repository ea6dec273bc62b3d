"""What does a run give away? All attacks, their controls and verdicts, in one result.

Two are curious and follow the protocol: the server sees every upload, so also every client's model; a client sees what
is broadcast, and what its own share leaves of that.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..base.words import Say
from ..data import Data
from ..models.choice import Factory
from ..runs.environment import machine
from ..training.resources import one_thread
from .curves import NO_PICTURES, USUAL, Plan, Steps, Tick, known_answers, plain_curve
from .exposure import exposure
from .inversion.tools import Tool
from .parts.counts import counted
from .parts.handed import handed_out
from .parts.linking import linked
from .parts.look import look
from .parts.membership import inferred
from .parts.pictures import are_pictures, picture_steps, pictures_part
from .parts.risk import kept_risk
from .parts.stage import PROTOTYPES, Stage
from .parts.tracing import Tracing
from .replay import Replay


def audit_run(
    path: Path,
    plan: Plan = USUAL,
    data: Data | None = None,
    model: Factory | None = None,
    say: Say = print,
    tick: Tick = lambda done, of, text: None,
    to: Path | None = None,
) -> dict[str, Any]:
    """Everything about some rounds of a finished run, as plain values; reconstructions are kept in the folder `to`."""
    replay = Replay(path, data, model, say)
    rounds = sorted(set(plan.rounds)) or replay.early_middle_late()
    replay.check(rounds)
    more = [] if plan.rounds else [r for r in replay.at_hand() if r not in rounds and replay.lines[r - 1].used][-2:]
    uploads, extra = (sum(len(replay.lines[number - 1].used) for number in some) for some in (rounds, more))
    tools = plan.tools() if plan.pictures and are_pictures(replay.experiment.work.data) else []
    pictures = picture_steps([len(replay.lines[number - 1].used) for number in rounds], tools) if tools else 0
    steps = Steps(2 * uploads + extra + len(rounds) + 3 + pictures, tick)
    scenes = {scene.round: scene for scene in replay.scenes([*rounds, *more], steps)}
    with one_thread():
        stage = Stage(replay, [scenes[r] for r in rounds], [scenes[r] for r in sorted(scenes)], plan, steps)
        return _result(stage, tools, to)


def _result(stage: Stage, tools: list[Tool], to: Path | None) -> dict[str, Any]:
    seen = look(stage)
    tracing = Tracing(stage, seen)
    curves = tracing.curves() if stage.shares else []
    stage.steps("curves of leakage against k")
    sent = tracing.sent(curves) if stage.shares else []
    handed = (
        exposure(stage.replay.lines, stage.shared_table, stage.least_holders, stage.memory) if stage.shares else None
    )
    parts: dict[str, Any] = {
        "what": _facts(stage, seen.non_members),
        "curves": [plain_curve(curve, stage.task.features, stage.plan.risk) for curve in curves],
        "sent": sent,
        "synthetic": known_answers(stage.task.features, stage.plan),
        "exposure": handed_out(stage, handed) if handed else None,
        "linking": linked(stage),
        "membership": inferred(stage, seen),
        "counts": counted(stage),
    }
    stage.steps("controls")
    parts["inversion"] = pictures_part(stage, tools, to) if tools else None
    parts["risk"] = kept_risk(stage, curves) if handed else None
    parts["verdicts"] = [verdict.plain() for verdict in stage.verdicts]
    parts["missing"] = [*([] if tools else [NO_PICTURES]), *_not_attacked(stage)]
    return parts


def _not_attacked(stage: Stage) -> list[str]:
    """What no attack looks at: what is shared besides prototypes, and members where there is nobody to compare with."""
    shared = {name for scene in stage.scenes for upload in scene.uploads.values() for name in upload.shared}
    others = sorted(shared - {PROTOTYPES})
    named = [f"{', '.join(others[:3])}{' and more' if len(others) > 3 else ''}, which clients share besides"]
    alone = ["members of classes without 20 public images"] if len(stage.pools) < stage.task.classes else []
    return [*(named if others else []), *alone]


def _facts(stage: Stage, non_members: int) -> dict[str, Any]:
    settings = stage.replay.settings
    return {
        "run": str(stage.replay.path),
        "dataset": settings.dataset,
        "algorithm": settings.algorithm.name,
        "run_seed": settings.seed,
        "audit_seed": stage.plan.seed,
        "rounds": [scene.round for scene in stage.scenes],
        "of_rounds": stage.replay.last,
        "rounds_linked": [scene.round for scene in stage.linked],
        "replay_has_the_recorded_bits": {scene.round: scene.same_bits for scene in stage.linked},
        "clients": stage.task.clients,
        "clients_audited": len({client for scene in stage.scenes for client in scene.uploads}),
        "features": stage.task.features,
        "public_images": len(stage.public),
        "non_members_per_class": non_members,
        "machine": machine(),
    }
