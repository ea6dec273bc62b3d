"""Can private pictures be made again from what was sent? Reconstruction attacks on the replayed rounds.

All k are attacked in the last audited round; in the others single images and the means that were sent. A curious client
does not know the model that a mean comes from, and trains one like it. Attacks that search for each picture anew are
slow, and get fewer of them.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from ...data import Data
from ...population.partition import Indices
from ..curves import CLIENT, SERVER
from ..inversion.album import FILE, Album, Campaign, save
from ..inversion.depths import View, deep, shallow
from ..inversion.figure import figure
from ..inversion.lineups import SOME
from ..inversion.scores import Row, read, scored
from ..inversion.sitting import Public, Sent, Sitter, Sitting, divided, new_album, seen
from ..inversion.tools import DEEP, SHALLOW, Tool
from ..replay import Scene
from ..verdicts import LEAKS, Verdict
from .stage import MASS, PROTOTYPES, Stage

CLIENTS = 6
"""Of each audited round."""
UPLOAD, BROADCAST = "each client's upload", "broadcast"


@dataclass(frozen=True)
class Sight:
    """What one attacker sees of one client: features of one depth, and the model that they are taken for."""

    attacker: str
    depth: str
    uploaded: View
    view: View


def picture_steps(uploads: Sequence[int], tools: Sequence[Tool]) -> int:
    """Steps of progress; `uploads`: how many there are in each audited round."""
    counts = [min(CLIENTS, count) for count in uploads]
    return 1 + counts[-1] * len(tools) + sum(counts[:-1]) * sum(tool.everywhere for tool in tools)


def are_pictures(data: Data) -> bool:
    return len(data.shape) == 3 and data.inputs.pixels


def pictures_part(stage: Stage, tools: Sequence[Tool], to: Path | None) -> dict[str, Any] | None:
    data, seed = stage.work.data, stage.plan.seed
    public = divided(data, stage.public, seed)
    if not public.pictures:
        return None
    album = _reconstructed(stage, tools, public)
    part, verdicts = told(album, data, f"{stage.scenes[-1].round}", to)
    stage.verdicts.extend(verdicts)
    return part


def _reconstructed(stage: Stage, tools: Sequence[Tool], public: Public) -> Album:
    """Every attack on some clients of every audited round."""
    data, seed = stage.work.data, stage.plan.seed
    sitting = Sitting(public, new_album(data, public, seed), seed)
    stage.steps("classifier that compares pictures")
    last = stage.scenes[-1]
    for scene in (last, *stage.scenes[:-1]):
        for client in list(scene.uploads)[:CLIENTS]:
            sights = list(_sights(stage, scene, client, scene is last))
            held = {label: own for label, own in stage.held(client).items() if label in public.pictures}
            for tool in (tool for tool in tools if tool.everywhere or scene is last):
                for sight in (sight for sight in sights if tool.everywhere or sight.attacker == SERVER):
                    ks = tool.sizes(stage.plan.ks if scene is last else (1,), sight.depth)
                    campaign = Campaign(tool.attack.name, sight.attacker, sight.depth, f"{scene.round}")
                    for label, own in held.items():
                        sitting.attack(tool, campaign, _sitter(sight, scene, client, label, own, data), ks)
                stage.steps(f"round {scene.round}: {tool.attack.name} on client {client}")
    return sitting.album


def _sights(stage: Stage, scene: Scene, client: int, everything: bool) -> Iterator[Sight]:
    net, inputs = stage.eye.net, stage.work.data.inputs
    stage.eye.load(scene.local(client))
    own = deep(net, inputs)
    yield Sight(SERVER, DEEP, own, own)
    if everything:
        near = shallow(net, inputs)
        yield Sight(SERVER, SHALLOW, near, near)
    stage.eye.load(stage.shadow(scene, client))
    yield Sight(CLIENT, DEEP, own, deep(net, inputs))


def _sitter(sight: Sight, scene: Scene, client: int, label: int, own: Indices, data: Data) -> Sitter:
    sent: tuple[Sent, ...] = ()
    if sight.attacker == CLIENT:
        sent = _broadcast(scene, label, own)
    elif sight.depth == DEEP:
        upload = scene.uploads[client]
        if PROTOTYPES in upload.shared:
            sent = (Sent(UPLOAD, len(own), upload.shared[PROTOTYPES][label], own),)
    return Sitter(client, label, own, seen(sight.uploaded, data, own), sight.view, sent)


def _broadcast(scene: Scene, label: int, own: Indices) -> tuple[Sent, ...]:
    if MASS not in scene.after.state or float(scene.after.state[MASS][label]) <= 0:
        return ()
    mean: Tensor = scene.after.state[PROTOTYPES][label]
    return (Sent(BROADCAST, round(float(scene.after.state[MASS][label])), mean, own),)


def told(album: Album, data: Data, last: str, to: Path | None) -> tuple[dict[str, Any], list[Verdict]]:
    """The audit's part about pictures, from the album alone, and its verdicts; the album is kept in the folder `to`."""
    rows = scored(album, data)
    if to is not None:
        to.mkdir(parents=True, exist_ok=True)
        save(album, to / FILE)
    shown = [c for c in album.shots if c.attacker == SERVER and c.depth == DEEP and c.round == last]
    drawn = base64.b64encode(figure(album, data, shown)).decode()
    part = {"rows": rows, "file": FILE if to is not None else None, "data": data.name, "joined": False, "figure": drawn}
    return part, verdicts_of(rows, last)


def verdicts_of(rows: Sequence[Row], last: str) -> list[Verdict]:
    """Of each attack, attacker and depth in the last round: how far it reaches, and what was really sent."""
    found = []
    late = [r for r in rows if r["round"] == last]
    for kind in dict.fromkeys((r["attack"], r["attacker"], r["depth"]) for r in late):
        own = [r for r in late if (r["attack"], r["attacker"], r["depth"]) == kind]
        some = sorted((r for r in own if r["what"] == SOME), key=lambda r: int(r["k"]))
        leaking = [r for r in some if r["verdict"] == LEAKS]
        name = f"reconstruction by {kind[0]}, {kind[2]} features"
        if some:
            row = leaking[-1] if leaking else some[0]
            reach = f"up to k = {row['k']} of those tried; there " if leaking else ""
            found.append(_verdict(f"{name}, means of some of a client's images", row, some[0], reach))
        found += [_verdict(f"{name}, {r['what']}", r, some[0] if some else r) for r in own if r["what"] != SOME]
    return found


def _verdict(name: str, row: Row, single: Row, reach: str = "") -> Verdict:
    way = row["way"]
    return Verdict(
        name, row["attacker"], row["verdict"], f"{reach}{row['reason']}",
        read(row[f"identified_{way}"]), read(single[f"identified_{way}"]), read(row[f"fakes_{way}"]),
        {"k": row["k"], "round": row["round"]},
    )  # fmt: skip
