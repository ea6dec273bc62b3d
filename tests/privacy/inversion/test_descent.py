"""The descent that all share: hand-computed cases, an independent optimiser, and rows that do not meet."""

import math
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn

from rebafl.base.errors import UserError
from rebafl.data.arrays import Inputs
from rebafl.models.contract import Classifier
from rebafl.privacy.inversion.contract import Known
from rebafl.privacy.inversion.depths import shallow
from rebafl.privacy.inversion.descent import (
    Distance,
    Setting,
    choose,
    descend,
    distance,
    divide,
    features_of,
    total_variation,
)
from support.pictures import drawn, known
from support.toy import quiet

PLAIN = Distance(torch.zeros(4), torch.tensor(1.0))


class Plain:
    """Pixels that move by themselves, from grey."""

    def __init__(self, shape: tuple[int, ...] = (1, 2, 2)) -> None:
        self.shape = shape

    def start(self, means: Tensor) -> list[Tensor]:
        return [means.new_full((len(means), *self.shape), 0.5)]

    def paint(self, parameters: Sequence[Tensor]) -> Tensor:
        return parameters[0]

    def unlikely(self, parameters: Sequence[Tensor]) -> Tensor:
        return parameters[0].flatten(1).square().mean(1)

    def speeds(self, setting: Setting) -> Sequence[float]:
        return (1.0,)


class OneLayer(Classifier):
    """One convolution of one pixel: 2x - 1 of the normalised picture."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 1, 1)
        self.head = nn.Linear(4, 1)
        nn.init.constant_(self.conv.weight, 2)
        nn.init.constant_(self.conv.bias, -1)

    def features(self, x: Tensor) -> Tensor:
        return self.conv(x).flatten(1)


def linear(pictures: Tensor) -> Tensor:
    """Sums of neighbours, and twice the last pixel."""
    matrix = torch.tensor([[1.0, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1], [0, 0, 0, 2]])
    return pictures.flatten(1) @ matrix.T


def knows(features) -> Known:
    return Known(features, torch.zeros(1, 1, 2, 2), torch.zeros(1), 0)


def test_a_linear_layer_is_inverted_exactly():
    mean = torch.tensor([[0.2 + 0.4, 0.4 + 0.6, 0.6 + 0.8, 2 * 0.8]])
    found, loss = descend(knows(linear), PLAIN, Plain(), mean, [Setting(600, 0.05, 0)], quiet)
    torch.testing.assert_close(found.flatten(), torch.tensor([0.2, 0.4, 0.6, 0.8]), atol=1e-3, rtol=0)
    assert float(loss) < 1e-6


def test_the_shallow_view_of_one_layer_is_inverted_exactly():
    inputs = Inputs(classes=("a",), shape=(1, 2, 2), mean=(0.5,), std=(0.25,), pixels=True)
    view = shallow(OneLayer(), inputs)
    picture = torch.tensor([0.0, 0.25, 0.5, 1.0]).reshape(1, 1, 2, 2)
    by_hand = torch.tensor([[-5.0, -3.0, -1.0, 3.0]])  # 2 (x - 1/2) / (1/4) - 1
    assert torch.equal(view(picture), by_hand)
    found, _ = descend(knows(view), PLAIN, Plain(), by_hand, [Setting(400, 0.05, 0)], quiet)
    torch.testing.assert_close(found, picture, atol=1e-3, rtol=0)


def test_total_variation_by_hand():
    picture = torch.tensor([[0.0, 1.0], [0.5, 0.5]]).reshape(1, 1, 2, 2)
    assert total_variation(picture).tolist() == [0.5 + 0.5]  # down: .5, .5; across: 1, 0


def test_it_moves_as_torch_s_adam_does():
    mean, steps = torch.tensor([[0.6, 1.0, 1.4, 1.6]]), 25
    found, _ = descend(knows(linear), PLAIN, Plain(), mean, [Setting(steps, 0.02, 0.1, prior=0.05)], quiet)
    x = torch.full((1, 1, 2, 2), 0.5, requires_grad=True)
    optimizer = torch.optim.Adam([x], lr=0.02, betas=(0.9, 0.99), eps=1e-10)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = (linear(x) - mean).square().mean() + 0.1 * total_variation(x).sum() + 0.05 * x.square().mean()
        loss.backward()
        optimizer.step()
        schedule.step()
    torch.testing.assert_close(found, x.detach(), atol=1e-5, rtol=0)


def test_each_row_is_found_as_if_alone_and_with_its_own_setting():
    means = torch.tensor([[0.6, 1.0, 1.4, 1.6], [1.0, 0.2, 0.3, 0.4], [0.1, 0.1, 0.1, 0.1]])
    settings = [Setting(40, 0.05, 0), Setting(40, 0.01, 0.3), Setting(40, 0.02, 0.0, prior=0.5)]
    together, _ = descend(knows(linear), PLAIN, Plain(), means, settings, quiet)
    for row in range(3):
        alone, _ = descend(knows(linear), PLAIN, Plain(), means[row : row + 1], [settings[row]], quiet)
        torch.testing.assert_close(together[row : row + 1], alone, atol=1e-6, rtol=0)
    assert not torch.allclose(together[0], descend(knows(linear), PLAIN, Plain(), means[:1], settings[1:2], quiet)[0])


def test_more_rows_than_fit_at_once_keep_their_order():
    means = torch.linspace(0.1, 0.9, 230)[:, None] * torch.ones(4)
    found, loss = descend(knows(lambda x: x.flatten(1)), PLAIN, Plain(), means, [Setting(200, 0.05, 0)] * 230, quiet)
    assert found.shape == (230, 1, 2, 2)
    assert loss.shape == (230,)
    torch.testing.assert_close(found.flatten(1), means, atol=2e-3, rtol=0)


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
    public = divide(what)
    rows = {tuple(picture.flatten().tolist()) for picture in public.learn}
    assert not any(tuple(picture.flatten().tolist()) in rows for picture in public.tune)
    assert len(public.learn) + len(public.tune) == len(what.pictures)


@pytest.mark.parametrize("k", [1, 5])
def test_examples_are_k_pictures_of_one_class_drawn_by_the_seed(k):
    public = divide(known())
    places = public.examples(k, 0)
    assert places.shape[1] == k
    assert all(len(set(row.tolist())) == k for row in places)
    assert all(len(torch.unique(public.tune_labels[row])) == 1 for row in places)
    assert len(torch.unique(public.tune_labels[places])) == 3
    assert torch.equal(public.examples(k, 0), places)
    assert not torch.equal(public.examples(k, 1), places)


def test_a_k_for_which_there_are_too_few_public_pictures_is_refused():
    with pytest.raises(UserError, match="No class has 102 public pictures"):
        divide(known()).examples(51, 0)


def test_the_better_setting_is_chosen():
    what = Known(lambda pictures: pictures.flatten(1), *drawn(60, 2), 0)
    public = divide(what)
    none, enough, wild = Setting(0, 0.05, 0), Setting(60, 0.05, 0), Setting(60, 0.05, 100.0)
    assert choose(what, public, Plain((1, 12, 12)), 1, [none, wild, enough], quiet) == enough
    assert features_of(what, what.pictures).shape == (180, 144)
