"""What holds for every attack that descends: seeds, independence, steps, sabotage, and the k it is tuned for."""

from dataclasses import replace

import pytest
import torch

from rebafl.base.rng import torch_stream
from rebafl.privacy.inversion.contract import Known
from rebafl.privacy.inversion.depths import deep, shallow
from rebafl.privacy.inversion.descent import Setting
from rebafl.privacy.inversion.generator import Generator
from rebafl.privacy.inversion.pixels import Pixels
from rebafl.privacy.inversion.search import Search
from support.pictures import INPUTS, drawn, known, net
from support.toy import quiet

PIXELS, GENERATOR, SEARCH = Setting(60, 0.1, 0.01), Setting(60, 0.03, 0.01), Setting(60, 0.1, 0.01, 0.003)


def pixels(*settings: Setting) -> Pixels:
    return Pixels(settings or (PIXELS,))


def generator(*settings: Setting) -> Generator:
    return Generator(settings or (GENERATOR,))


def search(*settings: Setting) -> Search:
    return Search(settings or (SEARCH,), training=60, restarts=2)


EVERY = pytest.mark.parametrize(
    ("attack", "setting"),
    [(pixels, PIXELS), (generator, GENERATOR), (search, SEARCH)],
    ids=lambda x: getattr(x, "__name__", ""),
)


def private(count: int = 6) -> torch.Tensor:
    return drawn(count, 99)[0][:count]


def error(found: torch.Tensor) -> float:
    return float((found - private(len(found))).square().mean())


@EVERY
def test_the_same_seed_gives_the_same_bits_whatever_torch_has_drawn(attack, setting):
    means = known().features(private())
    first = attack().prepare(known(), 1, quiet)(means)
    with torch_stream(5, "elsewhere"):
        before = torch.get_rng_state()
        second = attack().prepare(known(), 1, quiet)(means)
        assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(first, second)
    assert first.shape == (6, 1, 12, 12)
    assert first.min() >= 0
    assert first.max() <= 1


@EVERY
def test_pictures_are_found_as_if_each_were_alone(attack, setting):
    """In float64: what descends for long makes much of the last bits."""
    pictures, labels = drawn(100, 1)
    what = Known(deep(net().double(), INPUTS), pictures.double(), labels, 0)
    means = what.features(private().double())
    reconstruct = attack(replace(setting, steps=15)).prepare(what, 1, quiet)
    alone = torch.cat([reconstruct(mean[None]) for mean in means])
    torch.testing.assert_close(reconstruct(means), alone, atol=1e-7, rtol=0)
    torch.testing.assert_close(reconstruct(means.flip(0)).flip(0), alone, atol=1e-7, rtol=0)


@EVERY
def test_more_steps_bring_the_features_nearer(attack, setting):
    what = known()
    means = what.features(private())
    apart = []
    for steps in (0, 10, 60):
        found = attack(replace(setting, steps=steps)).prepare(what, 1, quiet)(means)
        apart.append(float((what.features(found) - means).square().sum()))
    assert apart[0] > apart[1] > apart[2]


@EVERY
def test_it_succeeds_where_sabotage_does_not(attack, setting):
    """Nothing descended, another model than computed the features, and features of other pictures."""
    what = known()
    means = what.features(private())
    control = error(attack().prepare(what, 1, quiet)(means))
    other = Known(deep(net(seed=8), INPUTS), what.pictures, what.labels, what.seed)
    sabotaged = [
        error(attack(replace(setting, steps=0)).prepare(what, 1, quiet)(means)),
        error(attack().prepare(other, 1, quiet)(means)),
        error(attack().prepare(what, 1, quiet)(means.roll(3, 0))),
    ]
    assert control < min(sabotaged) / 2


@pytest.mark.parametrize("attack", [pixels, generator])
def test_features_of_the_first_convolution_are_almost_the_picture(attack):
    what = known()
    view = Known(shallow(net(), INPUTS), what.pictures, what.labels, what.seed)
    means, enough = view.features(private()), Setting(150, 0.05, 0.0, detail=1.0)
    found, start = (attack(s).prepare(view, 1, quiet)(means) for s in (enough, replace(enough, steps=0)))
    assert error(found) < error(start) / 20


def test_the_mean_of_shallow_features_gives_the_mean_picture():
    """The first convolution is linear, so no number of pictures hides their mean."""
    what = known()
    view = Known(shallow(net(), INPUTS), what.pictures, what.labels, what.seed)
    of_one_class = drawn(10, 99)[0][::3]
    mean = view.features(of_one_class).mean(0, keepdim=True)
    found = pixels(Setting(200, 0.1, 0.0, detail=1.0)).prepare(view, 10, quiet)(mean)
    torch.testing.assert_close(found[0], of_one_class.mean(0), atol=0.02, rtol=0)


def test_settings_are_chosen_for_each_k_once_and_kept():
    attack = pixels(replace(PIXELS, steps=0), PIXELS)
    attack.prepare(known(), 1, quiet)
    attack.prepare(known(), 5, quiet)
    chosen = dict(attack.chosen.kept)
    assert sorted(key[0] for key in chosen) == [1, 5]
    assert chosen[1, 128, 0] == PIXELS
    attack.prepare(Known(deep(net(8), INPUTS), known().pictures, known().labels, 0), 1, quiet)
    assert attack.chosen.kept == chosen


@EVERY
def test_progress_is_told(attack, setting):
    said: list[str] = []
    attack().prepare(known(), 1, said.append)(known().features(private(2)))
    assert said
