"""What does ReBaFL give where it is read as its authors' public code reads it, and not as their paper does?

Of the six ways in which the two differ (docs/algorithms/rebafl.md) these are here: a client's own prototypes are not
put in place of the received ones, so that nothing is augmented in the first round; where the class whose turn it is, or
the own one, has no prototype, the real feature stays; and, with one of the models below, prototypes and augmented
features are made from a projection of the feature that no loss trains. The two others, clients with a single class and
prototypes of cropped images, are not.

    PYTHONPATH=tools rebafl run algorithm=authors_rebafl:AuthorsReBaFL model=authors_rebafl:ProjectedFashion …
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rebafl import parameters
from rebafl.algorithms.interface import Batch, Client, Context, Sent
from rebafl.algorithms.losses import adjusted_cross_entropy, log_prior
from rebafl.algorithms.prototypes import class_prototypes
from rebafl.algorithms.rebafl import ReBaFL
from rebafl.base.tensors import Tensors
from rebafl.models.contract import Classifier
from rebafl.models.networks import CifarCNN, FashionCNN


class ProjectedFashion(FashionCNN):
    """What is published is a linear map of the feature, of length one."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__(shape, classes)
        self.projection = nn.Linear(128, 128)

    def published(self, h: Tensor) -> Tensor:
        return F.normalize(self.projection(h))


class ProjectedCifar(CifarCNN):
    """What is published is the feature after two further layers."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__(shape, classes)
        self.projection = nn.Sequential(nn.Linear(128, 256, bias=False), nn.ReLU(), nn.Linear(256, 128))

    def published(self, h: Tensor) -> Tensor:
        projected: Tensor = self.projection(h)
        return projected


@torch.no_grad()
def published(net: Classifier, h: Tensor) -> Tensor:
    """What prototypes are means of; of a model without a projection, h."""
    return net.published(h) if isinstance(net, ProjectedFashion | ProjectedCifar) else h.detach()


@parameters
class AuthorsReBaFL(ReBaFL):
    """ReBaFL as the authors' public code has it, which differs from their paper."""

    name = "authors-rebafl"

    def start(self, net: Classifier, sent: Sent, client: Client) -> Context:
        return Context(sent, client, {"prior": log_prior(client.counts, self.eps_of(client.id))})

    def loss(self, net: Classifier, batch: Batch, context: Context) -> Tensor:
        h: Tensor = net.features(batch.x)
        real = adjusted_cross_entropy(net.head(h), batch.y, context.prepared["prior"])
        prototypes, known = context.sent.extra["prototypes"], context.sent.extra["mass"] > 0
        if not known.any():
            return real
        turn = torch.arange(len(batch.y)) % len(known)
        able = known[turn] & known[batch.y]
        labels = torch.where(able, turn, batch.y)
        made = published(net, h) + prototypes[labels] - prototypes[batch.y]  # where it is not able, nothing is added
        prior = log_prior(labels.bincount(minlength=len(known)), self.eps_of(context.client.id))
        return real + self.mu * adjusted_cross_entropy(net.head(made), labels, prior)

    def share(self, net: Classifier, context: Context, steps: int) -> Tensors:
        client = context.client
        return {"prototypes": class_prototypes(published(net, client.features(net)), client.labels, len(client.counts))}
