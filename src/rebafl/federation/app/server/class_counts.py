"""How many samples of each class does a client hold? What its part of the data set holds, or what it said first.

A client's weight in the mean is the number of samples that it reports, so it may report it only once:

    split    every node holds a part of the run's data set, and the server knows what is in it
    fixed    the counts of a client's first accepted upload hold for the whole run
    free     a client may report other counts in every round

What an upload may say of the counts depends on the run's protections: `split` expects what they leave of the truth.
Counts with noise differ each time, and are not compared at all.

First counts are kept in the run directory, one line per client, each with a digest. If the data of a device have
changed for good reason, its line can be removed while the server is down.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from ....algorithms.aggregate import Upload
from ....base.errors import UserError
from ....base.files import sha256, write_whole
from ....population.partition import Split
from ....training.protections import NONE, Protections
from ..options import CountsRule

FIRST_COUNTS = "counts.json"  # in the run directory


class ClassCounts:
    """The class counts that clients are held to."""

    def __init__(
        self, file: Path, rule: CountsRule, split: Split, protect: Protections = NONE, prototypes: bool = False
    ) -> None:
        self.file, self.rule, self.split = file, "free" if protect.noise else rule, split
        self.protect, self.prototypes = protect, prototypes
        self.first = self._read() if self.rule == "fixed" else {}

    def objection(self, upload: Upload) -> str | None:
        """What is wrong with an upload's class counts, or None."""
        expected = self._expected(upload.client)
        reported = upload.counts.tolist()
        if expected is None or reported == expected:
            return None
        return f"impossible class counts {reported}: this client holds {expected}"

    def objection_to_classes(self, client: int, told: Tensor) -> str | None:
        """What is wrong with the classes that a client says it will share, or None."""
        expected = self._expected(client)
        if expected is None or [count > 0 for count in expected] == (told > 0).tolist():
            return None
        return f"it says {told.tolist()}, and holds {expected}"

    def remember(self, accepted: Mapping[int, list[int]]) -> None:
        """Uploads of these clients with these counts were accepted: a client's first counts are kept."""
        new = {client: counts for client, counts in accepted.items() if client not in self.first}
        if self.rule == "fixed" and new:
            self.first |= new
            rows = ",\n".join(
                f'"{client}": {json.dumps([counts, _digest(client, counts)])}'
                for client, counts in sorted(self.first.items())
            )
            write_whole(self.file, f"{{\n{rows}\n}}\n".encode())

    def _expected(self, client: int) -> list[int] | None:
        if self.rule == "split":
            held = torch.from_numpy(self.split.counts(client))
            shown: list[int] = self.protect.shown_counts(held, self.prototypes).tolist()
            return shown
        return self.first.get(client)

    def _read(self) -> dict[int, list[int]]:
        try:
            entries = json.loads(self.file.read_text(encoding="utf-8"))
            first = {int(client): [int(count) for count in counts] for client, (counts, _) in entries.items()}
            for client, counts in first.items():
                if entries[str(client)][1] != _digest(client, counts):
                    raise ValueError(f"the digest of client {client} does not fit its counts")
            return first
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
            raise UserError(
                f"{self.file} is damaged ({error}); restore it, or remove it, and clients are counted again."
            ) from None


def _digest(client: int, counts: list[int]) -> str:
    return sha256(f"{client} {counts}".encode())[:16]
