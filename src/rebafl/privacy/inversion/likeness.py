"""How like a private picture is a reconstruction? Similarity beside two baselines, and identification in line-ups.

The nearest of k members is near by chance as k grows. So it stands beside the nearest of k non-members, and beside the
class's mean picture, which needs no attack.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.util import find_spec

import numpy as np
import torch
from torch import Tensor

from ...base.errors import UserError
from ...population.partition import Indices
from ..measures import Numbers
from .lineups import Lineups, Target

Look = Callable[[Indices], Tensor]
"""From positions in the data set to rows of numbers: pixels, or features."""


def check_installed() -> None:
    if find_spec("torchmetrics") is None:
        raise UserError(
            "Similarity of pictures needs torchmetrics; pip install 'rebafl[privacy]', or audit with --no-pictures."
        )


def similarity(a: Tensor, b: Tensor) -> tuple[Numbers, Numbers]:
    """SSIM and PSNR of each pair of pictures with numbers from 0 to 1."""
    check_installed()
    from torchmetrics.functional.image import structural_similarity_index_measure  # an extra

    error = (a - b).double().square().flatten(1).mean(1).clamp(min=1e-10)  # equal pictures: 100 dB
    values = []
    for some, other in zip(torch.split(a, 500), torch.split(b, 500), strict=True):
        found = structural_similarity_index_measure(some, other, data_range=1.0, reduction="none")
        assert isinstance(found, Tensor)
        values.append(found.reshape(-1))
    return torch.cat(values).double().numpy(), (-10 * error.log10()).numpy()


def distances(one: Tensor, many: Tensor) -> Tensor:
    """Squared, of one row to each of others."""
    return (many - one).square().sum(1)


def nearest(one: Tensor, look: Look, among: Indices) -> int:
    """The position of the picture that is nearest by squared error."""
    return int(among[int(distances(one, look(among)).argmin())])


def nearer(rows: Tensor, targets: Sequence[Target], look: Look) -> dict[str, Numbers]:
    """Is a reconstruction nearer to a member than to any of as many non-members? By guessing, half of them are.

    The controls: fake members in the place of members, and another mean's members.
    """
    found = {name: np.full(len(targets), np.nan) for name in ("identified", "fakes", "permuted")}
    for number, following in enumerate(_following(targets)):
        one, target = rows[number], targets[number]
        least = float(distances(one, look(target.others)).min())
        for name, some in (("identified", target.members), ("fakes", target.fake_members)):
            found[name][number] = _less(float(distances(one, look(some)).min()), least)
        if following != number:
            found["permuted"][number] = _less(float(distances(one, look(targets[following].members)).min()), least)
    return found


def _less(a: float, b: float) -> float:
    return 0.5 if a == b else float(a < b)


def share_identified(one: Tensor, look: Look, lineups: Lineups) -> float:
    """How often the one to be found is the nearest of its line-up; several that are equally near share a hit."""
    shares = []
    for row, place in zip(lineups.positions, lineups.places, strict=True):
        found = distances(one, look(row))
        best = found == found.min()  # of nothing, if a number is missing
        shares.append(float(best[int(place)]) / max(1, int(best.sum())))
    return float(np.mean(shares))


def in_lineups(rows: Tensor, targets: Sequence[Target], look: Look) -> dict[str, Numbers]:
    """Identification of the member, and both negative controls: a fake member, and another mean's line-ups.

    In the second, each reconstruction is held against the line-ups of the next mean of that client, class and k: as if
    features were permuted between pictures.
    """
    real, fake, permuted = (np.full(len(targets), np.nan) for _ in range(3))
    for number, following in enumerate(_following(targets)):
        real[number] = share_identified(rows[number], look, targets[number].real)
        fake[number] = share_identified(rows[number], look, targets[number].fake)
        if following != number:
            permuted[number] = share_identified(rows[number], look, targets[following].real)
    return {"identified": real, "fakes": fake, "permuted": permuted}


def _following(targets: Sequence[Target]) -> list[int]:
    groups: dict[tuple[int, int, str, int], list[int]] = {}
    for number, t in enumerate(targets):
        groups.setdefault((t.client, t.label, t.what, t.k), []).append(number)
    after = list(range(len(targets)))
    for some in groups.values():
        for here, there in zip(some, some[1:] + some[:1], strict=True):
            after[here] = there
    return after
