"""Means from sums of integers: the aggregator's to the resolution of fixed point, with equal bits masked or not."""

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from rebafl.algorithms.aggregate import Upload, weighted_mean
from rebafl.algorithms.prototypes import mean_prototypes
from rebafl.secagg.abort import Abort
from rebafl.secagg.client import Client
from rebafl.secagg.fixed_point import plain_sum
from rebafl.secagg.local import exchange
from rebafl.secagg.server import Server
from rebafl.secagg.terms import Terms
from rebafl.secagg.uploads import COUNTS, Averages
from support.secagg import pem, signing_key

CLASSES, CLIENTS, SAMPLES, VALUE = 4, 6, 500, 8.0
SHAPES = {"w": (7, 3), "b": (), "prototypes": (CLASSES, 5), "c": (9,)}
AVERAGES = Averages(
    SHAPES, {"w": "samples", "b": "samples", "prototypes": "classes", "c": "clients"}, CLASSES, CLIENTS, SAMPLES, VALUE
)


def uploads(dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    made = []
    for client in range(CLIENTS):
        tensors = {name: torch.randn(shape, generator=generator, dtype=dtype) for name, shape in SHAPES.items()}
        counts = torch.randint(0, 100, (CLASSES,), generator=generator)
        counts[client % 3] = 0
        counts[3] = 0  # a class that nobody holds
        shared = {name: tensors.pop(name) for name in ("prototypes", "c")}
        made.append(Upload(client, tensors, counts, shared))
    return made


def vector(upload):
    return AVERAGES.encoded({**upload.change, **upload.shared}, upload.counts)


def resolution(name, divisor):
    """Half of the last bit for each client, and what float64 rounds on both ways to the mean."""
    (part,) = [part for part in AVERAGES.layout.parts if part.name == name]
    return CLIENTS * 2.0 ** -(part.bits + 1) / divisor + 1e-14


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_decoded_mean_is_the_weighted_mean(dtype):
    made = uploads(dtype)
    means, counts = AVERAGES.decoded(plain_sum(map(vector, made)), CLIENTS)
    samples = [upload.samples for upload in made]
    assert counts.tolist() == sum(upload.counts for upload in made).tolist()
    for name, mean in weighted_mean([upload.change for upload in made], samples).items():
        assert means[name].dtype == torch.float64
        assert means[name].shape == mean.shape
        assert float((means[name] - mean).abs().max()) <= resolution(name, sum(samples))
    alike = weighted_mean([{"c": upload.shared["c"]} for upload in made], [1.0] * CLIENTS)
    assert float((means["c"] - alike["c"]).abs().max()) <= resolution("c", CLIENTS)
    doubles = [upload.shared["prototypes"].to(torch.float64) for upload in made]
    table, mass = mean_prototypes(doubles, [upload.counts for upload in made])
    assert mass[3] == 0
    assert not means["prototypes"][3].any()
    assert float((means["prototypes"] - table).abs().max()) <= resolution("prototypes", 1)


def test_masked_and_plain_sums_have_equal_bits():
    made = uploads()
    terms = Terms(b"round 1", {client: pem(client) for client in range(CLIENTS)}, 4, AVERAGES.layout)
    clients = {client: Client(terms, client, signing_key(client)) for client in range(CLIENTS)}
    vectors = {upload.client: vector(upload) for upload in made}

    def lose_two(stage, client, to_server, data):
        return None if (stage.value, client) in LOST else data

    outcome = exchange(Server(terms), clients, vectors, lose_two)
    assert outcome.survivors == (0, 1, 3, 4, 5)
    plain = plain_sum(vectors[client] for client in reversed(outcome.survivors))
    decode = partial(AVERAGES.decoded, clients=len(outcome.survivors))
    (means, counts), (others, other_counts) = decode(outcome.total), decode(plain)
    assert all(np.array_equal(means[name].numpy(), others[name].numpy()) for name in SHAPES)
    assert torch.equal(counts, other_counts)


LOST = {("mask", 2), ("unmask", 5)}


def test_the_scale_is_as_fine_as_the_bounds_allow():
    bits = {part.name: part.bits for part in AVERAGES.layout.parts}
    assert bits == {"w": 32, "b": 32, "prototypes": 32, "c": 32, COUNTS: 0}
    wide = Averages({"w": (2,)}, {"w": "samples"}, CLASSES, 100, 60_000, 1e6)
    assert wide.layout.parts[0].bits == 20  # 100 * 6e10 * 2^20 < 2^63
    with pytest.raises(Abort, match="too few bits"):
        _ = Averages({"w": (2,)}, {"w": "samples"}, CLASSES, 100, 60_000, 1e12).layout


def test_what_cannot_be_right_is_refused():
    upload = uploads()[0]
    tensors = {**upload.change, **upload.shared}
    for counts in ([0, 0, 0, 0], [-1, 5, 0, 0], [501, 0, 0, 0], [5, 0, 0]):
        with pytest.raises(Abort):
            AVERAGES.encoded(tensors, torch.tensor(counts))
    wrong: list[dict[str, Any]] = [{"w": torch.zeros(3)}, {"w": torch.full((7, 3), torch.nan)}, {"v": torch.zeros(1)}]
    for other in [*wrong, {"w": torch.full((7, 3), 1e6)}]:
        with pytest.raises(Abort):
            AVERAGES.encoded({**tensors, **other}, upload.counts)
    with pytest.raises(Abort, match="row"):
        _ = Averages({"p": (3, 2)}, {"p": "classes"}, CLASSES, 2, 10, 1.0).layout
    with pytest.raises(Abort, match=COUNTS):
        _ = Averages({COUNTS: (3,)}, {COUNTS: "samples"}, CLASSES, 2, 10, 1.0).layout
    with pytest.raises(Abort, match="cannot hold 0 samples"):
        AVERAGES.decoded(np.zeros(AVERAGES.layout.length, "<u8"), 3)
