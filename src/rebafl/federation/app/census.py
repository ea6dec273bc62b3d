"""How many samples of each class does a client hold? What its part of the data set holds, or what it said first.

A client's weight in the mean is what it says of itself, so it may say it only once:

    split    every node holds a part of the run's data set, and the server knows what is in it
    fixed    what a client's first accepted upload said holds for the whole run
    free     a client may say something else in every round

What an upload may say of the counts depends on the run's protections: `split` expects what they leave of the truth.
Counts with noise differ each time, and are not compared at all.

What was said first is kept in the run directory, one line a client, each with a digest. If the data of a device have
changed for good reason, its line can be removed while the server is down.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import torch

from ...algorithms.aggregate import Upload
from ...base.errors import UserError
from ...base.files import sha256, write_whole
from ...population.partition import Split
from ...training.protections import NONE, Protections

TABLE = "counts.json"
Rule = Literal["split", "fixed", "free"]


class Census:
    """The class counts that clients are held to."""

    def __init__(
        self, file: Path, rule: Rule, split: Split, protect: Protections = NONE, prototypes: bool = False
    ) -> None:
        self.file, self.rule, self.split = file, "free" if protect.noise else rule, split
        self.protect, self.prototypes = protect, prototypes
        self.first = self._read() if self.rule == "fixed" else {}

    def objection(self, upload: Upload) -> str | None:
        """What is wrong with an upload's class counts, or None."""
        expected = self._expected(upload.client)
        said = upload.counts.tolist()
        if expected is None or said == expected:
            return None
        return f"impossible class counts {said}: this client holds {expected}"

    def settle(self, said: Mapping[int, list[int]]) -> None:
        """Uploads with these counts were accepted."""
        if self.rule == "fixed" and (new := {client: said[client] for client in said if client not in self.first}):
            self.first |= new
            rows = ",\n".join(
                f'"{n}": {json.dumps([each, _digest(n, each)])}' for n, each in sorted(self.first.items())
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
            found = {int(client): [int(count) for count in counts] for client, (counts, _) in entries.items()}
            for client, counts in found.items():
                if entries[str(client)][1] != _digest(client, counts):
                    raise ValueError(f"the digest of client {client} does not fit its counts")
            return found
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
            raise UserError(
                f"{self.file} is damaged ({error}); restore it, or remove it, and clients are counted anew."
            ) from None


def _digest(client: int, counts: list[int]) -> str:
    return sha256(f"{client} {counts}".encode())[:16]
