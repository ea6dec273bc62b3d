"""Public pictures: the unit of distances, the division, the examples, and the nearest class."""

import math

import pytest
import torch

from rebafl.base.errors import UserError
from rebafl.privacy.inversion.public import ClassStarts, Divider, distance
from support.pictures import drawn, known


def test_distance_is_one_on_average_whatever_the_features_units():
    random = torch.Generator().manual_seed(0)
    features = torch.randn(500, 6, generator=random) @ torch.randn(6, 6, generator=random)
    apart = distance(features)
    assert math.isclose(float(apart(features, features.mean(0)).mean()), 1, rel_tol=0.01)
    larger = distance(1000 * features)
    torch.testing.assert_close(larger(1000 * features, 1000 * features[:1]), apart(features, features[:1]))


def test_distance_of_very_many_features_has_one_unit_for_all():
    features = torch.linspace(-3, 3, 4 * 600).reshape(4, 600)
    apart = distance(features)
    assert apart.stretch.dim() == 0
    assert math.isclose(float(apart(features, features.mean(0)).mean()), 1, rel_tol=1e-5)


def test_features_that_never_vary_do_no_harm():
    features = torch.cat([torch.randn(50, 2, generator=torch.Generator().manual_seed(1)), torch.ones(50, 1)], 1)
    assert torch.isfinite(distance(features)(features, features[:1])).all()


def test_settings_are_chosen_on_other_pictures_than_are_learnt_from():
    what = known()
    public = Divider()(what)
    rows = {tuple(picture.flatten().tolist()) for picture in public.learn}
    assert not any(tuple(picture.flatten().tolist()) in rows for picture in public.tune)
    assert len(public.learn) + len(public.tune) == len(what.pictures)


@pytest.mark.parametrize("k", [1, 5])
def test_examples_are_k_pictures_of_one_class_drawn_by_the_seed(k):
    public = Divider()(known())
    places = public.examples(k, 0)
    assert places.shape[1] == k
    assert all(len(set(row.tolist())) == k for row in places)
    assert all(len(torch.unique(public.tune_labels[row])) == 1 for row in places)
    assert len(torch.unique(public.tune_labels[places])) == 3
    assert torch.equal(public.examples(k, 0), places)
    assert not torch.equal(public.examples(k, 1), places)


def test_a_k_for_which_there_are_too_few_public_pictures_is_refused():
    with pytest.raises(UserError, match="No class has 102 public pictures"):
        Divider()(known()).examples(51, 0)


def test_a_mean_starts_from_the_mean_picture_of_its_class():
    what = known()
    public = Divider()(what)
    starts = ClassStarts.of(what, public)
    pictures, labels = drawn(30, 5)
    means = torch.stack([what.features(pictures[labels == label]).mean(0) for label in range(3)])
    expected = torch.stack([public.learn[public.learn_labels == label].mean(0) for label in range(3)])
    assert torch.equal(starts.nearest(means), expected)
