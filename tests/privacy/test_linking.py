"""Shuffled uploads are found again by what they carry, and not by nothing."""

import torch

from rebafl.algorithms.aggregate import Upload
from rebafl.privacy.linking import by_both, by_classes, by_direction, link, negative_control, positive_control
from rebafl.privacy.verdicts import LEAKS, TOO_WEAK, decide


def uploads(round, clients=8, signal=1.0):
    """Each client has its own direction, and shares its set of classes with one other."""
    made = {}
    for client in range(clients):
        own = torch.randn(40, generator=torch.Generator().manual_seed(client))
        noise = torch.randn(40, generator=torch.Generator().manual_seed(1000 + 100 * round + client))
        counts = torch.zeros(8, dtype=torch.int64)
        counts[client // 2] = 5
        made[client] = Upload(client, {"head.weight": signal * own + noise}, counts)
    return made


ROUNDS = [uploads(1), uploads(2), uploads(3)]


def test_clients_are_found_again():
    assert link(ROUNDS, by_classes)[0].value == 0.5  # two of eight have the same classes
    assert link(ROUNDS, by_classes)[1] == 1 / 8
    assert link(ROUNDS, by_direction)[0].value > 0.8
    assert link(ROUNDS, by_both)[0].value > 0.9


def test_names_drawn_anew_are_not():
    found, chance = negative_control(ROUNDS, by_both)
    assert found.low <= chance


def test_a_sabotaged_similarity_is_too_weak_to_tell():
    def blind(a, b):
        return 0.0

    words = {}
    for name, similar in (("real", by_both), ("blind", blind)):
        found, chance = link(ROUNDS, similar)
        control = positive_control(ROUNDS, similar)
        words[name] = decide(found, control, negative_control(ROUNDS, similar)[0], chance)[0]
    assert words == {"real": LEAKS, "blind": TOO_WEAK}
