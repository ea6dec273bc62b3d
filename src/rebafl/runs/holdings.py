"""Which client holds how much of each class? What a run writes down of it, for people who look at the run.

A simulation knows from the start, a federation where nodes hold parts of a known data set, too; elsewhere the server
learns it from uploads. Where the settings keep class counts from the server, the file says "withheld" and no more:
nobody may learn from a record what uploads were not to tell. No result depends on this file.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import torch

from ..algorithms.aggregate import Upload
from ..algorithms.prototypes import PROTOTYPES
from ..base.files import write_whole
from ..base.sealed import seal, unseal
from .experiment import Experiment

HOLDINGS = "holdings.json"  # in the run directory
MOST = 20_000  # clients that are counted one by one; of more, nobody looks at single ones
Source = Literal["split", "uploads", "withheld", "not counted"]


@dataclass
class Holdings:
    """`counts` has a row for each client that is known, one number per class; `source` says where they come from."""

    classes: Sequence[str]
    clients: int
    source: Source
    counts: dict[int, list[int]] = field(default_factory=dict)

    def learn(self, uploads: Iterable[Upload]) -> bool:
        """Take over what uploads say of clients; is anything new?"""
        if self.source != "uploads":
            return False
        said = {upload.client: [int(count) for count in upload.counts] for upload in uploads}
        new = {client: row for client, row in said.items() if client < MOST and self.counts.get(client) != row}
        self.counts |= new
        return bool(new)

    def write(self, folder: Path) -> None:
        """Only what a client has is written: pairs of class and count."""
        rows = {str(client): [[c, n] for c, n in enumerate(self.counts[client]) if n] for client in sorted(self.counts)}
        values = {"classes": list(self.classes), "clients": self.clients, "source": self.source, "counts": rows}
        write_whole(folder / HOLDINGS, seal(json.dumps(values)))


def of_run(experiment: Experiment, knows_split: bool) -> Holdings:
    """What is known when a run begins; `knows_split` says whether clients hold what the settings give them."""
    protect, task = experiment.settings.protect, experiment.task
    holdings = Holdings(experiment.work.data.classes, task.clients, "uploads")
    if protect.counts == "withheld" or protect.noise or protect.secagg:
        holdings.source = "withheld"
    elif task.clients > MOST:
        holdings.source = "not counted"
    elif knows_split:
        holdings.source = "split"
        shared = PROTOTYPES in experiment.settings.algorithm.shared_template(experiment.first_server())
        for client in range(task.clients):
            held = torch.from_numpy(experiment.work.split.counts(client))
            holdings.counts[client] = protect.shown_counts(held, shared).tolist()
    return holdings


def read_holdings(folder: Path) -> Holdings | None:
    """What a run wrote down; None if it did not, as earlier versions, or if the file is damaged."""
    try:
        values, _ = unseal((folder / HOLDINGS).read_bytes())
        classes = [str(name) for name in values["classes"]]
        counts = {int(client): _row(pairs, len(classes)) for client, pairs in values["counts"].items()}
        return Holdings(classes, int(values["clients"]), values["source"], counts)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError):
        return None


def _row(pairs: Sequence[Sequence[int]], classes: int) -> list[int]:
    held: Mapping[int, int] = {int(c): int(n) for c, n in pairs}
    return [held.get(c, 0) for c in range(classes)]


def noted(experiment: Experiment, folder: Path, knows_split: bool) -> Holdings:
    """The holdings of a run that begins or is resumed, written down."""
    before = read_holdings(folder)
    if before and before.clients == experiment.task.clients:
        return before
    holdings = of_run(experiment, knows_split)
    holdings.write(folder)
    return holdings
