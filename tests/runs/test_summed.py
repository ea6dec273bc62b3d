"""Means from sums of integers: the aggregator's to the resolution of fixed point, with equal bits masked or not."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from rebafl.algorithms.aggregate import Upload, means_of
from rebafl.runs.summed import COUNTS, HOLDERS, SAMPLES, Averages, Summed
from rebafl.secagg.abort import Abort
from rebafl.secagg.client import Client
from rebafl.secagg.fixed_point import plain_sum
from rebafl.secagg.local import exchange
from rebafl.secagg.server import Server
from rebafl.secagg.terms import Terms
from rebafl.training.protections import Protections
from support.secagg import pem, signing_key
from support.toy import same_bits

CLASSES, CLIENTS, SAMPLED, VALUE = 4, 6, 500, 8.0
CHANGE = {"w": (7, 3), "b": (), "c": (9,)}
SHAPES: dict[str, tuple[int, ...]] = {f"change/{name}": shape for name, shape in CHANGE.items()}
SHAPES["shared/prototypes"] = (CLASSES, 5)
LOST = {("mask", 2), ("unmask", 5)}


def averages(change="samples", **other) -> Averages:
    weights: dict[str, Any] = {name: "classes" if name.startswith("shared") else change for name in SHAPES}
    return Averages(SHAPES, weights, CLASSES, CLIENTS, SAMPLED, VALUE, **other)


def uploads(dtype=torch.float32) -> list[Upload]:
    generator = torch.Generator().manual_seed(0)
    made = []
    for client in range(CLIENTS):
        change = {name: torch.randn(shape, generator=generator, dtype=dtype) for name, shape in CHANGE.items()}
        counts = torch.randint(0, 100, (CLASSES,), generator=generator)
        counts[client % 3] = 0
        counts[3] = 0  # a class that nobody holds
        table = torch.randn((CLASSES, 5), generator=generator, dtype=dtype)
        made.append(Upload(client, change, counts, {"prototypes": table}))
    return made


def resolution(sums: Averages, name: str, divisor: float) -> float:
    """Half of the last bit for each client, and what float64 rounds on both ways to the mean."""
    (part,) = [part for part in sums.layout.parts if part.name == name]
    return CLIENTS * 2.0 ** -(part.bits + 1) / divisor + 1e-14


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("weight", ["samples", "clients"])
@pytest.mark.parametrize("withheld", [False, True])
def test_the_decoded_means_are_the_aggregators(dtype, weight, withheld):
    made = [replace(upload, weight=1) if withheld else upload for upload in uploads(dtype)]
    sums = averages(weight)
    means, holders = sums.decoded(plain_sum(map(sums.encoded, made)), CLIENTS)
    expected = means_of(made, weight, lambda name: "classes")
    assert means.uploads == CLIENTS
    assert torch.equal(means.counts, expected.counts)
    assert holders.tolist() == [0] * CLASSES, "nobody asked"
    divisor = sum(upload.samples for upload in made) if weight == "samples" else CLIENTS
    for name, mean in expected.change.items():
        assert means.change[name].dtype == torch.float64
        assert means.change[name].shape == mean.shape
        assert float((means.change[name] - mean).abs().max()) <= resolution(sums, f"change/{name}", divisor)
    table = means.shared["prototypes"]
    assert not table[3].any()
    assert float((table - expected.shared["prototypes"]).abs().max()) <= resolution(sums, "shared/prototypes", 1)


def test_masked_and_plain_sums_have_equal_bits():
    sums = averages(holders=True)
    terms = Terms(b"round 1", {client: pem(client) for client in range(CLIENTS)}, 4, sums.layout)
    clients = {client: Client(terms, client, signing_key(client)) for client in range(CLIENTS)}
    made = uploads()
    vectors = {upload.client: sums.encoded(upload) for upload in made}

    def lose_two(stage, client, to_server, data):
        return None if (stage.value, client) in LOST else data

    outcome = exchange(Server(terms), clients, vectors, lose_two)
    assert outcome.survivors == (0, 1, 3, 4, 5)
    masked, plain = (Summed(sums, Protections(min_holders=3, secagg=True)) for _ in range(2))
    masked.put(outcome.total, outcome.survivors)
    for upload in reversed(made):
        if upload.client in outcome.survivors:
            plain.add(upload)
    assert np.array_equal(masked.total, plain.total)
    (means, hidden), (others, also_hidden) = masked.means(CLIENTS), plain.means(CLIENTS)
    assert same_bits(means.change, others.change)
    assert same_bits(means.shared, others.shared)
    assert torch.equal(means.counts, others.counts)
    held = torch.stack([made[client].counts > 0 for client in outcome.survivors]).sum(0)
    assert hidden == also_hidden == [label for label in range(CLASSES) if 0 < held[label] < 3]


def test_the_scale_is_as_fine_as_the_bounds_allow():
    bits = {part.name: part.bits for part in averages(holders=True).layout.parts}
    assert bits == {**dict.fromkeys(SHAPES, 32), COUNTS: 0, SAMPLES: 0, HOLDERS: 0}
    wide = Averages({"change/w": (2,)}, {"change/w": "samples"}, CLASSES, 100, 60_000, 1e6)
    assert wide.layout.parts[0].bits == 20  # 100 * 6e10 * 2^20 < 2^63
    with pytest.raises(Abort, match="too few bits"):
        _ = Averages({"change/w": (2,)}, {"change/w": "samples"}, CLASSES, 100, 60_000, 1e12).layout


def test_what_cannot_be_right_is_refused():
    sums, upload = averages(), uploads()[0]
    for counts in ([0, 0, 0, 0], [-1, 5, 0, 0], [501, 0, 0, 0], [5, 0, 0]):
        with pytest.raises(Abort, match="class counts"):
            sums.encoded(replace(upload, counts=torch.tensor(counts)))
    wrong: list[dict[str, Any]] = [{"w": torch.zeros(3)}, {"w": torch.full((7, 3), torch.nan)}, {"v": torch.zeros(1)}]
    for other in [*wrong, {"w": torch.full((7, 3), 1.01 * VALUE)}]:
        with pytest.raises(Abort):
            sums.encoded(replace(upload, change={**upload.change, **other}))
    with pytest.raises(Abort, match="row"):
        _ = Averages({"p": (3, 2)}, {"p": "classes"}, CLASSES, 2, 10, 1.0).layout
    with pytest.raises(Abort, match=COUNTS):
        _ = Averages({COUNTS: (3,)}, {COUNTS: "samples"}, CLASSES, 2, 10, 1.0).layout


def test_a_sum_that_clients_within_the_bounds_cannot_have_given_is_refused():
    sums, upload = averages(holders=True), uploads()[0]
    with pytest.raises(Abort, match="cannot hold 0 samples"):
        sums.decoded(np.zeros(sums.layout.length, "<u8"), 3)
    right = sums.encoded(upload)
    places = np.cumsum([0, *(part.numbers for part in sums.layout.parts)])
    parts = {part.name: int(place) for part, place in zip(sums.layout.parts, places, strict=False)}
    beyond = {
        COUNTS: -1 - int(upload.counts[0]),
        SAMPLES: -upload.samples,
        HOLDERS: 2,
        "change/w": int(2 * VALUE * 2**32) * upload.samples,  # the mean of one client, beyond its bound
    }
    for name, shift in beyond.items():
        wrong = right.copy()
        wrong[parts[name]] += np.array(shift).astype(np.int64).astype("<u8")
        with pytest.raises(Abort):
            sums.decoded(wrong, 1)
    assert sums.decoded(right, 1)[0].uploads == 1


@pytest.mark.parametrize(
    ("asked", "stay", "needed"),
    [(2, 0.67, 2), (3, 0.67, 3), (4, 0.67, 3), (20, 0.67, 14), (4, 0.5, 3), (5, 0.5, 3), (5, 1.0, 5), (10, 0.75, 8)],
)
def test_how_many_must_stay(asked, stay, needed):
    protect = Protections(secagg=True, secagg_stay=stay)
    assert protect.secagg_threshold(asked) == needed
    summed = Summed(replace(averages(), clients=20), protect)
    for upload in [replace(uploads()[0], client=client) for client in range(needed - 1)]:
        summed.add(upload)
    with pytest.raises(Abort, match=f"{needed - 1} of {asked} clients stayed to the end; at least {needed} must"):
        summed.means(asked)
    summed.add(replace(uploads()[0], client=asked))
    assert summed.means(asked)[0].uploads == needed


def test_a_single_client_is_no_sum():
    summed = Summed(averages(), Protections(secagg=True))
    summed.add(uploads()[0])
    with pytest.raises(Abort, match="hides nothing"):
        summed.means(1)
