"""What may others learn from a client's upload? The settings `protect.*`, and what they do to it on either side.

A client applies them after training, in the one training loop, so simulator and federation cannot differ:

1. `change_weights`: the trained weights are clipped and noised before anything else is computed from them. Whatever is
   derived later (Scaffold's variates, FedDyn's dual, features for prototypes) is derived from what is sent.
2. `change_upload`: prototypes and class counts are clipped, noised, left out, rounded or withheld.

The server applies `received` to each upload and `concealed` to all of a round; noise that it adds to the mean is in
`central_noise`. docs/protections.md says what each protects against, and what it does not.

**Sensitivity of prototypes and counts.** Let S_c be the sum of the clipped features of class c, each of length at most
C, and n_c their number. What is noised is the vector v of all S_c / C and all n_c. One image more or less, of class c,
changes S_c / C by a vector of length at most 1 and n_c by 1, and nothing else: v moves by at most √(1² + 1²) = √2. So
every entry of v gets normal noise of standard deviation √2 z (of S_c: √2 z C), and the ratio of deviation to
sensitivity is z = `protect.noise`, whatever C is. The mean S_c / n_c, its rounding and what is left out are computed
from the noised v and cost nothing more. All this takes the feature extractor as given. It is the one that the client
sends, trained on the same image: only if its weights were noised, too, does a claim hold for the upload, with the ε of
both together. That is why prototypes are computed with the weights that are sent, not with those that were trained.

**Sensitivity of the weights.** A clipped change has length at most C, so the changes that any two data sets lead to
differ by at most 2 C. Each entry gets normal noise of standard deviation 2 C z, z = `protect.update_noise`. This is
local differential privacy of a client's whole data set under replacement: it holds against the server, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Annotated, Literal

import torch
import torch.nn.functional as F
from pydantic import Field, model_validator
from torch import Tensor
from typing_extensions import Self

from ..algorithms.aggregate import Means, Upload, by_row, euclidean_norm
from ..algorithms.interface import Client
from ..algorithms.prototypes import PROTOTYPES
from ..base.config import Added, parameters
from ..base.tensors import Tensors
from ..models.contract import Classifier, Part, load_weights, part_of

PROTOTYPE_SENSITIVITY = math.sqrt(2)  # of clipped sums in units of the bound, and counts, to one image more or less
UPDATE_SENSITIVITY = 2.0  # of a clipped change, in units of the bound, to any other data
FAR = 8.0  # standard deviations that honest noise never reaches


@parameters
class Protections:
    """What clients keep to themselves, what is blurred, and what the server does not pass on. All off by default."""

    min_count: Annotated[
        int, Field(ge=0, description="of classes with fewer samples a client shares neither prototype nor count")
    ] = 0
    counts: Annotated[
        Literal["exact", "rounded", "withheld"],
        Field(description="class counts that the server learns: exact, powers of two, or none (equal weights)"),
    ] = "exact"
    min_holders: Annotated[
        int, Field(ge=0, description="a prototype is broadcast only if so many answering clients share the class")
    ] = 0
    holders: Annotated[
        Literal["aggregator", "announced"],
        Field(description="min_holders is seen to by the server, or by clients, who are told before they upload"),
        Added(before="aggregator"),
    ] = "aggregator"
    clip: Annotated[float, Field(ge=0, description="bound on the length of each image's feature; 0: none")] = 0.0
    noise: Annotated[
        float, Field(ge=0, description="noise on class sums and counts, over their sensitivity to one image; 0: none")
    ] = 0.0
    update_clip: Annotated[
        float, Field(ge=0, description="bound on the length of the change of the weights; 0: none")
    ] = 0.0
    update_noise: Annotated[
        float, Field(ge=0, description="noise on that change, over its sensitivity to all of a client's data; 0: none")
    ] = 0.0
    central_noise: Annotated[
        float,
        Field(ge=0, description="noise by the server on the mean change, over its sensitivity to one client; 0: none"),
        Added(before=0.0),
    ] = 0.0
    budget: Annotated[float, Field(ge=0, description="ε at which a client takes part no more; 0: no limit")] = 0.0
    delta: Annotated[float, Field(gt=0, lt=1, description="δ at which ε is stated")] = 1e-5
    secagg: Annotated[
        bool, Field(description="the server learns the sum of a round's uploads and no upload"), Added(before=False)
    ] = False
    secagg_stay: Annotated[
        float,
        Field(ge=0.5, le=1, description="share of a round's clients that must stay, or it is discarded; over half"),
        Added(before=0.67),
    ] = 0.67
    secagg_bound: Annotated[
        float, Field(gt=0, description="largest number in an upload that is summed; smaller: finer"), Added(before=1e3)
    ] = 1e3

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.noise and not self.clip:
            raise ValueError("noise needs a bound on what it is to hide; set protect.clip as well")
        if self.update_noise and not self.update_clip:
            raise ValueError("update_noise needs a bound on what it is to hide; set protect.update_clip as well")
        if self.central_noise and not self.update_clip:
            raise ValueError("central_noise needs a bound on what it is to hide; set protect.update_clip as well")
        if self.central_noise and self.update_noise:
            raise ValueError("update_noise and central_noise both blur the weights; choose one of them")
        if self.central_noise and self.counts != "withheld":
            raise ValueError(
                "central_noise needs weights in the mean that do not depend on data; set protect.counts=withheld"
            )
        if self.holders == "announced" and not self.min_holders:
            raise ValueError("holders=announced says how min_holders is kept; set protect.min_holders as well")
        if self.holders == "announced" and self.noise:
            raise ValueError(
                "holders=announced tells exactly which classes a client holds, which noise is to hide; "
                "choose protect.holders=aggregator"
            )
        if self.holders == "announced" and self.secagg:
            raise ValueError(
                "holders=announced tells the server which classes each client holds, which secagg is to hide; "
                "choose protect.holders=aggregator"
            )
        if self.budget and not self.noisy:
            raise ValueError(
                "a budget is spent by noisy uploads only; set protect.noise, protect.update_noise or "
                "protect.central_noise"
            )
        return self

    @property
    def hides(self) -> str:
        """The first setting, if any, that is to hide what is in an upload, other than from whom it comes."""
        names = ("min_count", "min_holders", "clip", "noise", "update_noise", "central_noise")
        return next((name for name in names if getattr(self, name)), "counts" if self.counts != "exact" else "")

    @property
    def noisy(self) -> bool:
        return bool(self.noise or self.update_noise or self.central_noise)

    def change_weights(
        self, net: Classifier, received: Tensors, trains: Callable[[Part], bool], client: Client
    ) -> None:
        """Put the weights that will be sent in the place of those that were trained."""
        if not self.update_clip:
            return
        uploaded = {name: tensor for name, tensor in net.state_dict().items() if trains(part_of(name))}
        change = {n: tensor - received[n] for n, tensor in uploaded.items() if tensor.is_floating_point()}
        length = euclidean_norm(change)
        hidden = bool(self.update_noise or self.central_noise)
        if not hidden and not length > self.update_clip:
            return
        if not math.isfinite(length):
            if not hidden:
                return  # the server refuses it by its name
            change, length = {name: torch.zeros_like(tensor) for name, tensor in change.items()}, 0.0
        shorter, deviation = self.update_clip / max(length, self.update_clip), self.update_deviation
        protected = {}
        for name, tensor in change.items():
            exact = shorter * tensor.to(torch.float64)
            if deviation:
                exact += deviation * client.noise(tensor.shape)
            protected[name] = (received[name].to(torch.float64) + exact).to(tensor.dtype)
        counters = {name: received[name] for name, t in uploaded.items() if hidden and name not in change}
        load_weights(net, {**net.state_dict(), **counters, **protected})

    def change_upload(self, upload: Upload, net: Classifier, client: Client) -> Upload:
        """What is sent instead of this upload."""
        if not (self.min_count or self.clip) and self.counts == "exact":
            return upload
        counts, table = upload.counts, upload.shared.get(PROTOTYPES)
        if self.clip:
            exact = counts.to(torch.float64)
            total = self._clipped_sums(client, net) if table is not None else None
            if self.noise:
                deviation = PROTOTYPE_SENSITIVITY * self.noise
                if total is not None:
                    total += self.clip * deviation * client.noise(total.shape)
                exact = exact + deviation * client.noise(exact.shape)
            counts = exact.round().clamp(min=0).to(torch.int64)
            if table is not None and total is not None:
                table = (total / counts.clamp(min=1).unsqueeze(1)).to(table.dtype)
        counts = self._large_enough(counts)
        shared = upload.shared
        if table is not None:
            shared = {**shared, PROTOTYPES: torch.where((counts > 0).unsqueeze(1), table, torch.zeros_like(table))}
        return replace(upload, counts=self._coarse(counts, table is not None), shared=shared)

    def shown_counts(self, counts: Tensor, prototypes: bool) -> Tensor:
        """What the upload of a client with these class counts says of them; noise comes on top."""
        return self._coarse(self._large_enough(counts), prototypes)

    def received(self, upload: Upload) -> Upload:
        """An upload with the weight that the server gives it."""
        if self.counts == "withheld":
            return replace(upload, weight=1)
        return replace(upload, weight=max(1, upload.samples)) if self.fewest_samples == 0 else upload

    def unshared(self, announced: Sequence[Tensor]) -> tuple[int, ...]:
        """Classes whose prototypes clients keep, by the counts that those who take part show before they upload."""
        if self.holders != "announced" or not announced:
            return ()
        return tuple(
            torch.nonzero(torch.stack([c > 0 for c in announced]).sum(0) < self.min_holders).flatten().tolist()
        )

    def concealed(self, uploads: Sequence[Upload], unshared: Sequence[int] = ()) -> tuple[list[Upload], list[int]]:
        """The uploads without those prototypes that too few clients share, and the classes that are left out so.

        `unshared` are classes that clients were told not to share; they may have been more than was known then.
        """
        if not self.min_holders or not uploads or PROTOTYPES not in uploads[0].shared:
            return list(uploads), []
        hidden = self._held_by_few(torch.stack([upload.counts > 0 for upload in uploads]).sum(0), unshared)
        if not hidden.any():
            return list(uploads), []
        return [_without(upload, hidden) for upload in uploads], torch.nonzero(hidden).flatten().tolist()

    def concealed_means(self, means: Means, holders: Tensor) -> tuple[Means, list[int]]:
        """The same where only means are known, and how many clients hold each class."""
        hidden = self._held_by_few(holders)
        table = means.shared[PROTOTYPES]
        rest = torch.where(by_row(hidden, table), torch.zeros_like(table), table)
        counts = torch.where(hidden, torch.zeros_like(means.counts), means.counts)
        concealed = replace(means, counts=counts, shared={**means.shared, PROTOTYPES: rest})
        return concealed, torch.nonzero(hidden).flatten().tolist()

    def _held_by_few(self, holders: Tensor, unshared: Sequence[int] = ()) -> Tensor:
        few = holders < self.min_holders
        few[list(unshared)] = True
        return (holders > 0) & few

    def secagg_threshold(self, asked: int) -> int:
        """How many of so many clients must stay to the end of a round: more than half, so no two groups can."""
        return min(asked, max(asked // 2 + 1, math.ceil(self.secagg_stay * asked)))

    def objection(self, upload: Upload) -> str | None:
        """What no upload under these protections says, or None."""
        if self.counts == "withheld" and int(upload.counts.max()) > 1:
            return f"class counts {upload.counts.tolist()}, which are withheld in this run"
        return None

    @property
    def fewest_samples(self) -> int:
        """How few samples an honest upload may show."""
        return 0 if self.min_count > 1 or self.noise or self.counts == "withheld" else 1

    def most_samples(self, held: int, classes: int) -> int:
        """How many samples the upload of a client that holds so many may show."""
        noise = math.ceil(FAR * PROTOTYPE_SENSITIVITY * self.noise * classes)
        return held + noise if self.counts == "exact" else math.ceil(4 / 3 * (held + noise))

    @property
    def update_deviation(self) -> float:
        """Standard deviation of the noise on each weight."""
        return UPDATE_SENSITIVITY * self.update_clip * self.update_noise

    def _clipped_sums(self, client: Client, net: Classifier) -> Tensor:
        """Σ f min(1, C / |f|) over the images of each class, one row per class; what is not finite is zero."""
        features = client.features(net).to(torch.float64)
        lengths = features.norm(dim=1, keepdim=True)
        clipped = features * (self.clip / lengths.clamp(min=self.clip))
        clipped = torch.where(torch.isfinite(lengths), clipped, torch.zeros_like(clipped))
        return F.one_hot(client.labels, len(client.counts)).to(torch.float64).T @ clipped

    def _large_enough(self, counts: Tensor) -> Tensor:
        return torch.where(counts >= self.min_count, counts, torch.zeros_like(counts))

    def _coarse(self, counts: Tensor, prototypes: bool) -> Tensor:
        """As the server learns them. Which rows of prototypes are meant has to be said, so these count as one."""
        if self.counts == "exact":
            return counts
        if self.counts == "withheld":
            return (counts > 0).to(counts.dtype) * int(prototypes)
        return torch.tensor([_power_of_two(count) for count in counts.tolist()], dtype=counts.dtype)


NONE = Protections()


def without_prototypes(upload: Upload, classes: Sequence[int]) -> Upload:
    """What a client sends if it keeps the prototypes of these classes; counts are protected by themselves."""
    table = upload.shared.get(PROTOTYPES)
    if not classes or table is None:
        return upload
    rest = table.clone()
    rest[list(classes)] = 0
    return replace(upload, shared={**upload.shared, PROTOTYPES: rest})


def _power_of_two(count: int) -> int:
    """The nearest, the larger one from the middle on; zero stays zero."""
    if count == 0:
        return 0
    below: int = 1 << (count.bit_length() - 1)
    return 2 * below if 2 * count >= 3 * below else below


def _without(upload: Upload, classes: Tensor) -> Upload:
    """Without the prototypes of these classes; the upload keeps its weight."""
    table = upload.shared[PROTOTYPES]
    rest = torch.where(classes.unsqueeze(1), torch.zeros_like(table), table)
    counts = torch.where(classes, torch.zeros_like(upload.counts), upload.counts)
    return replace(upload, counts=counts, shared={**upload.shared, PROTOTYPES: rest}, weight=upload.samples)
