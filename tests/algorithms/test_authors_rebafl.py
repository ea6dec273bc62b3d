"""ReBaFL as its authors' code has it, once more sample by sample; and what its projection does and does not see."""

import pytest
import torch
import torch.nn.functional as F

from authors_rebafl import AuthorsReBaFL, ProjectedCifar, ProjectedFashion
from rebafl.algorithms.interface import Batch, Client, Context, Sent, Training
from rebafl.base.rng import generator, torch_stream
from rebafl.models.contract import weights_of

LABELS = torch.tensor([0, 1, 0, 1, 1, 0, 1])
KNOWN = (0, 2, 3)  # class 1, which the client holds, has no prototype
MODELS = {ProjectedFashion: (1, 28, 28), ProjectedCifar: (3, 32, 32)}


def prepared(kind, known):
    """A model, a batch and the context of a client's round, with prototypes of some of four classes."""
    with torch_stream(0, "model"):
        net = kind(MODELS[kind], 4).double()
    x = torch.from_numpy(generator(0, "x").standard_normal((len(LABELS), *MODELS[kind])))
    table = torch.from_numpy(generator(0, "p").standard_normal((4, 128)))
    mass = torch.tensor([float(c in known) for c in range(4)], dtype=torch.float64)
    streams = generator(0, "t"), generator(0, "a")
    client = Client(0, x, LABELS, LABELS.bincount(minlength=4), torch.zeros(1), Training(), *streams)
    sent = Sent(weights_of(net), {"prototypes": table, "mass": mass})
    return net, Batch(x, LABELS, torch.arange(len(LABELS))), AuthorsReBaFL(mu=0.5).start(net, sent, client)


def by_hand(net, batch, context: Context, mu=0.5, eps=0.01):
    """One sample after the other: moved to class i mod 4 if both classes have a prototype, else as it is."""
    table, mass = context.sent.extra["prototypes"], context.sent.extra["mass"]
    counts = torch.tensor([3.0, 4.0, 0.0, 0.0]).double()
    made, labels = [], []
    for i, y in enumerate(LABELS.tolist()):
        feature, turn = net.published(net.features(batch.x[i : i + 1]))[0].detach(), i % 4
        moved = mass[turn] > 0 and mass[y] > 0
        made.append(feature + table[turn] - table[y] if moved else feature)
        labels.append(turn if moved else y)
    losses = []
    for h, targets, n in ((net.features(batch.x), batch.y, counts), (torch.stack(made), torch.tensor(labels), None)):
        n = targets.bincount(minlength=4).double() if n is None else n
        prior = (1 - eps) * n / n.sum() + eps / 4
        losses.append(F.nll_loss((net.head(h).exp() * prior / (net.head(h).exp() @ prior)[:, None]).log(), targets))
    return losses[0] + mu * losses[1]


@pytest.mark.parametrize("kind", MODELS)
def test_its_loss_is_the_one_computed_sample_by_sample(kind):
    net, batch, context = prepared(kind, KNOWN)
    loss = AuthorsReBaFL(mu=0.5).loss(net, batch, context)
    assert loss.item() == pytest.approx(by_hand(net, batch, context).item(), abs=1e-10)
    loss.backward()
    assert all(p.grad is None for p in net.projection.parameters()), "no loss trains the projection"


def test_without_received_prototypes_nothing_is_augmented():
    net, batch, context = prepared(ProjectedFashion, ())
    losses = [AuthorsReBaFL(mu=mu).loss(net, batch, context).item() for mu in (0.0, 0.5)]
    assert losses[0] == losses[1]


@pytest.mark.parametrize("kind", MODELS)
def test_prototypes_are_means_of_what_is_published(kind):
    net, batch, context = prepared(kind, KNOWN)
    (table,) = AuthorsReBaFL().share(net, context, 1).values()
    for c in (0, 1):
        mean = net.published(net.features(batch.x[c == LABELS])).mean(0)
        assert torch.allclose(table[c], mean, atol=1e-10)
    assert not torch.allclose(table[0], net.features(batch.x[LABELS == 0]).mean(0), atol=1e-2)
