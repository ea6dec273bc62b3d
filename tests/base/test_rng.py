import numpy as np
import torch

from rebafl.base.rng import generator, key, seeded_noise, system_noise, torch_stream


def test_each_of_the_four_parts_matters_and_nothing_else():
    base = key(0, "client", 1, 2)
    others = [key(1, "client", 1, 2), key(0, "model", 1, 2), key(0, "client", 2, 2), key(0, "client", 1, 3)]
    assert len({base, *others}) == 5
    assert key(0, "client", 1, 2) == base
    assert key(0, "client", 1, 12) != key(0, "client", 11, 2)


def test_streams_do_not_depend_on_each_other():
    alone = generator(0, "a").random(5)
    generator(0, "b").random(100)
    assert np.array_equal(generator(0, "a").random(5), alone)


def test_torch_stream_is_repeatable_and_leaves_no_trace():
    before = torch.get_rng_state()
    with torch_stream(3, "model"):
        first = torch.rand(4)
    with torch_stream(3, "model"):
        assert torch.equal(torch.rand(4), first)
    assert torch.equal(torch.get_rng_state(), before)


def test_known_values():
    """The streams are part of the results: a change of them must be noticed."""
    assert key(0, "client", 1, 2) == 0x64A10D970FAB23B2EE3EA566FE6C558


def test_the_systems_noise_is_normal_and_never_the_same():
    drawn = system_noise((200, 100)).flatten()
    assert drawn.dtype == torch.float64
    probabilities = torch.tensor([0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99], dtype=torch.float64)
    exact = torch.special.ndtri(probabilities)
    assert torch.allclose(drawn.quantile(probabilities), exact, atol=0.12)
    assert not torch.equal(drawn, system_noise((200, 100)).flatten())
    assert system_noise(()).shape == ()
    assert system_noise((0, 3)).shape == (0, 3)


def test_the_noise_of_a_simulation_repeats():
    first, again, other = (seeded_noise(1, 2, client)((3, 4)) for client in (3, 3, 4))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
