"""FedLC: its margins by hand, and its classic mistake, which must be noticed."""

import pytest
import torch
import torch.nn.functional as F

from rebafl import parameters
from rebafl.algorithms import KINDS
from rebafl.algorithms.fedlc import FedLC
from rebafl.algorithms.interface import Algorithm, Context
from rebafl.algorithms.losses import count_margin
from support.methods import ThreeWeights, broken, check_close, federation, one_step, three


def test_with_equal_counts_fedlc_is_bsm_is_a_softmax_over_the_held_classes(toy):
    (lc, _, uploads), *_ = federation(toy, FedLC(tau=3.0), 1)
    (bsm, _, _), *_ = federation(toy, KINDS["bsm-fedavg"](), 1)
    check_close(lc.weights, bsm.weights)

    @parameters
    class HeldOnly(Algorithm):
        name = "held only"

        def loss(self, net, batch, context):
            held = torch.nonzero(context.client.counts).flatten()
            return F.cross_entropy(net(batch.x)[:, held], torch.searchsorted(held, batch.y))

    (held, _, _), *_ = federation(toy, HeldOnly(), 1)
    check_close(lc.weights, held.weights)
    assert len(uploads) == 4


def check_fedlc(algorithm):
    """Counts (16, 1), tau = 1: margins 1/2 and 1, shifted 0 and 1/2. b = (0, .5), a = x = 1: both logits 0, y = 0.

    Softmax (1/2, 1/2): gradients b0 = -.5, b1 = .5, a = .5 * .5 = .25.
    """
    upload, _ = one_step(algorithm, ThreeWeights(1.0, (0.0, 0.5)), 1.0, 0, [16, 1])
    check_close(upload.change, three(-0.25, 0.5, -0.5))


def test_fedlc_by_hand():
    check_fedlc(FedLC())


def margin_with_the_wrong_sign(self, net, sent, client):
    return Context(sent, client, {"margin": -count_margin(client.counts, self.tau)})


def denominator_as_printed(self, net, batch, context):
    """The paper's formula to the letter: the true class is not among those that are summed."""
    logits = net(batch.x) + context.prepared["margin"]
    others = logits.masked_fill(F.one_hot(batch.y, logits.shape[1]).bool(), -torch.inf)
    return (others.logsumexp(1) - logits.gather(1, batch.y[:, None]).squeeze(1)).mean()


@pytest.mark.parametrize("methods", [{"start": margin_with_the_wrong_sign}, {"loss": denominator_as_printed}])
def test_mistakes_of_fedlc_are_noticed(methods):
    with pytest.raises(AssertionError, match="a differs"):
        check_fedlc(broken(FedLC(), methods))
