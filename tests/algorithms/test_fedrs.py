"""FedRS: its scaled logits by hand, and its classic mistake, which must be noticed."""

import math

import pytest
import torch

from rebafl.algorithms import KINDS
from rebafl.algorithms.fedrs import FedRS
from rebafl.algorithms.interface import Context
from support.methods import ThreeWeights, broken, check_close, federation, one_step, three


def test_fedrs_with_all_classes_is_fedavg(toy):
    (a, _, _), *_ = federation(toy, FedRS(alpha=0.2), 1, balanced=True)
    (b, _, _), *_ = federation(toy, KINDS["fedavg"](), 1, balanced=True)
    check_close(a.weights, b.weights)


def check_fedrs(algorithm):
    """Class 1 is missing, alpha = .5, b = (0, 2 ln 3), a = x = 1: z = (0, ln 3), softmax (1/4, 3/4), y = 0.

    Gradients: b0: -3/4; b1: alpha 3/4 = 3/8; a: 3/4 alpha 2 ln 3 = 3/4 ln 3.
    """
    upload, _ = one_step(algorithm, ThreeWeights(1.0, (0.0, 2 * math.log(3))), 1.0, 0, [1, 0])
    check_close(upload.change, three(-0.75 * math.log(3), 0.75, -0.375), 1e-7)


def test_fedrs_by_hand():
    check_fedrs(FedRS(alpha=0.5))


def scales_every_class(self, net, sent, client):
    return Context(sent, client, {"scale": torch.full((len(client.counts),), self.alpha)})


def test_mistakes_of_fedrs_are_noticed():
    with pytest.raises(AssertionError, match=r"head\.weight differs"):
        check_fedrs(broken(FedRS(alpha=0.5), {"start": scales_every_class}))
