"""An upload that stands out among the others of its round."""

from __future__ import annotations

import math

import pytest
import torch

from rebafl.algorithms.aggregate import Upload
from rebafl.federation.app.server.outliers import outliers


def upload_of(client, shared, change=1.0):
    return Upload(client, {"w": torch.tensor([change])}, torch.tensor([1]), {"s": torch.tensor([shared])})


@pytest.mark.parametrize(
    ("shared", "refused"),
    [
        ((1.0, 2.0, 99.0), []),
        ((1.0, 1.0, 101.0), [2]),
        ((1.0, 101.0), []),  # which of the two?
        ((0.0, 0.0, 1.0), []),
        ((1.0, math.nan, math.inf), []),  # named elsewhere
        ((1.0, 1.0, 1.0, math.inf, 1e30), [3, 4]),
    ],
)
def test_shared_values_are_held_against_the_median(shared, refused):
    uploads = [upload_of(client, each) for client, each in enumerate(shared)]
    assert list(outliers(uploads, compare_changes=False)) == refused


def test_the_change_is_held_against_the_median_only_after_a_discarded_round():
    uploads = [upload_of(0, 1.0), upload_of(1, 1.0), upload_of(2, 1.0, change=11.0)]
    assert outliers(uploads, compare_changes=False) == {}
    assert list(outliers(uploads, compare_changes=True)) == [2]
