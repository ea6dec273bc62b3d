"""The descent that all share: hand-computed cases, an independent optimiser, and rows that do not meet."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from rebafl.data.arrays import Inputs
from rebafl.models.contract import Classifier
from rebafl.privacy.inversion.contract import Known
from rebafl.privacy.inversion.depths import shallow
from rebafl.privacy.inversion.descent import Setting, descend, total_variation
from rebafl.privacy.inversion.public import Distance, Divider
from rebafl.privacy.inversion.tuning import choose
from support.pictures import drawn
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
    optimizer = torch.optim.Adam([x], lr=0.02, betas=(0.9, 0.99), eps=1e-8)
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


def test_the_better_setting_is_chosen():
    what = Known(lambda pictures: pictures.flatten(1), *drawn(60, 2), 0)
    public = Divider()(what)
    none, enough, wild = Setting(0, 0.05, 0), Setting(60, 0.05, 0), Setting(60, 0.05, 100.0)
    assert choose(what, public, Plain((1, 12, 12)), 1, [none, wild, enough], quiet) == enough
