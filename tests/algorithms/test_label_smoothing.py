"""Label smoothing by hand."""

from typing import Any

import torch
from torch import nn

from rebafl.algorithms.interface import Batch
from rebafl.algorithms.label_smoothing import LabelSmoothing
from support.methods import exact


def test_label_smoothing_by_hand():
    logits, labels = torch.tensor([[1.0, 2.0, 0.5]]).double(), torch.tensor([1])
    soft = exact([0.1 / 3, 0.9 + 0.1 / 3, 0.1 / 3])
    expected = -(soft * logits.log_softmax(1)).sum()
    net: Any = nn.Identity()
    assert torch.allclose(LabelSmoothing().loss(net, Batch(logits, labels, labels), None), expected)
