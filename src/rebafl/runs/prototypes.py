"""Where were the classes' prototypes after each round? Written down on request, one small file per round.

They are the server's, after the round; only algorithms that keep prototypes have any. A file counts once its round is
committed; a round that is computed again writes the same file again. No result depends on these files.
"""

from __future__ import annotations

from pathlib import Path

import torch

from ..algorithms.interface import Server
from ..algorithms.prototypes import PROTOTYPES
from ..base.files import ASIDE, cannot_write
from ..base.tensors import save, unpack

FOLDER = "prototypes"  # in the run directory
TABLE = "table"


def keep_prototypes(folder: Path, round: int, server: Server) -> None:
    """Write down those of a round that is about to be committed."""
    table = server.state.get(PROTOTYPES)
    if table is None:
        return
    path = folder / FOLDER / f"{round}.safetensors"
    aside = path.with_name(path.name + ASIDE)
    try:
        path.parent.mkdir(exist_ok=True)
        save({TABLE: {PROTOTYPES: table}}, aside)
        aside.replace(path)
    except OSError as error:
        raise cannot_write(path, error) from None


def read_prototypes(folder: Path, rounds: int) -> dict[int, torch.Tensor]:
    """By round, those that were kept of the committed rounds; what is damaged is left out."""
    kept = {}
    for round in range(1, rounds + 1):
        try:
            kept[round] = unpack((folder / FOLDER / f"{round}.safetensors").read_bytes())[0][TABLE][PROTOTYPES]
        except (OSError, ValueError, KeyError):
            continue
    return kept
