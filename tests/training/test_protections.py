"""What clients keep to themselves: what leaves a client, and what the server makes of it."""

from dataclasses import replace

import pytest
import torch

from rebafl import UserError, make_settings
from rebafl.algorithms.aggregate import Upload
from rebafl.algorithms.interface import Client, Sent
from rebafl.base.rng import seeded_noise
from rebafl.runs.experiment import prepare
from rebafl.training.protections import NONE, Protections
from support.toy import TOY_SETTINGS, TinyNet, quiet, same_bits

PROTOTYPES = "prototypes"


def trained(toy, algorithm="rebafl", client=3, round=1, source="seed", partition=None, **protect):
    """What a client of the small problem sends, and its next state."""
    changes = {"algorithm": algorithm, "protect": protect, **({"partition": partition} if partition else {})}
    experiment = prepare(make_settings(TOY_SETTINGS, changes), toy, TinyNet, say=quiet)
    server = experiment.first_server()
    sent = Sent(server.weights, experiment.settings.algorithm.broadcast(server))
    work = replace(experiment.work, noise=source)
    return work.train(work.make_net(), sent, client, round, None)


UNEVEN = {"kind": "dirichlet", "alpha": 0.3, "clients": 4}


def same_upload(one, other):
    return (
        same_bits(one.change, other.change)
        and same_bits(one.shared, other.shared)
        and torch.equal(one.counts, other.counts)
    )


@pytest.mark.parametrize("algorithm", ["rebafl", "fedavg", "scaffold"])
@pytest.mark.parametrize(
    "neutral",
    [{}, {"min_count": 1}, {"min_holders": 3}, {"update_clip": 1e9}, {"delta": 1e-3}],
    ids=lambda neutral: str(neutral),
)
def test_what_protects_nothing_changes_no_bit(toy, algorithm, neutral):
    (upload, state), (plain, before) = trained(toy, algorithm, **neutral), trained(toy, algorithm)
    assert same_upload(upload, plain)
    assert same_bits(state, before)


def test_a_huge_bound_without_noise_gives_the_same_prototypes(toy):
    upload, plain = trained(toy, clip=1e9)[0], trained(toy)[0]
    assert torch.equal(upload.counts, plain.counts)
    torch.testing.assert_close(upload.shared[PROTOTYPES], plain.shared[PROTOTYPES], rtol=1e-6, atol=0)
    assert same_bits(upload.change, plain.change)


def test_a_class_with_few_samples_is_not_shared(toy):
    plain = trained(toy, partition=UNEVEN)[0]
    held = plain.counts[plain.counts > 0]
    least = int(held.min()) + 1
    assert len(held) > 1, "there must be something left"
    upload = trained(toy, partition=UNEVEN, min_count=least)[0]
    few = plain.counts < least
    assert (upload.counts[few] == 0).all()
    assert (upload.shared[PROTOTYPES][few] == 0).all()
    assert torch.equal(upload.counts[~few], plain.counts[~few])
    assert torch.equal(upload.shared[PROTOTYPES][~few], plain.shared[PROTOTYPES][~few])
    assert same_bits(upload.change, plain.change)


def test_counts_are_rounded_to_powers_of_two():
    counts = torch.tensor([0, 1, 2, 3, 5, 6, 11, 12, 1000])
    shown = Protections(counts="rounded").shown_counts(counts, prototypes=True)
    assert shown.tolist() == [0, 1, 2, 4, 4, 8, 8, 16, 1024]
    assert shown.dtype == torch.int64


def test_withheld_counts_say_which_rows_are_meant_and_no_more(toy):
    upload, plain = trained(toy, counts="withheld")[0], trained(toy)[0]
    assert upload.counts.tolist() == (plain.counts > 0).long().tolist()
    assert torch.equal(upload.shared[PROTOTYPES], plain.shared[PROTOTYPES])
    assert trained(toy, "fedavg", counts="withheld")[0].counts.tolist() == [0, 0, 0, 0]


def test_withheld_counts_give_equal_weights():
    protect = Protections(counts="withheld")
    uploads = [protect.received(Upload(n, {}, torch.tensor(counts))) for n, counts in enumerate([[1, 1], [0, 1]])]
    assert [upload.samples for upload in uploads] == [1, 1]
    assert protect.objection(uploads[0]) is None
    assert "withheld in this run" in protect.objection(Upload(0, {}, torch.tensor([7, 0])))


def test_an_upload_that_shows_no_samples_still_counts_for_one():
    assert Protections(min_count=5).received(Upload(0, {}, torch.tensor([0, 0]))).samples == 1
    assert Protections(min_count=5).received(Upload(0, {}, torch.tensor([0, 6]))).samples == 6
    assert NONE.received(Upload(0, {}, torch.tensor([3, 6]))).weight is None


def shared_by(client, *counts):
    return Upload(client, {}, torch.tensor(counts), {PROTOTYPES: torch.full((len(counts), 2), float(client + 1))})


def test_a_prototype_that_too_few_share_is_not_passed_on():
    uploads = [shared_by(0, 3, 2, 0), shared_by(1, 0, 4, 0), shared_by(2, 0, 1, 0)]
    left, hidden = Protections(min_holders=2).concealed(uploads)
    assert hidden == [0], "nobody holds the last class: there is nothing to hide"
    assert [upload.counts.tolist() for upload in left] == [[0, 2, 0], [0, 4, 0], [0, 1, 0]]
    assert (left[0].shared[PROTOTYPES][0] == 0).all()
    assert [upload.samples for upload in left] == [5, 4, 1], "the weights are averaged as before"
    assert Protections(min_holders=1).concealed(uploads) == (uploads, [])


def test_each_image_is_clipped_by_itself(toy):
    """The mean of clipped features, not the clipped mean."""
    bound = 0.5
    upload, plain = trained(toy, clip=bound)[0], trained(toy)[0]
    experiment = prepare(make_settings(TOY_SETTINGS), toy, TinyNet, say=quiet)
    server = experiment.first_server()
    net = experiment.work.make_net()
    client = experiment.work.client(3, 1, None)
    net.load_state_dict({name: server.weights[name] + change for name, change in plain.change.items()})
    features = client.features(net)
    clipped = features * (bound / features.norm(dim=1, keepdim=True)).clamp(max=1)
    for label in plain.counts.nonzero().flatten().tolist():
        expected = clipped[client.labels == label].mean(0)
        torch.testing.assert_close(upload.shared[PROTOTYPES][label], expected, rtol=1e-4, atol=1e-6)
    assert (upload.shared[PROTOTYPES].norm(dim=1) <= bound).all()
    assert not torch.allclose(upload.shared[PROTOTYPES], plain.shared[PROTOTYPES], atol=1e-3)


def sums(upload):
    """What the server can compute: a prototype times its count is the noisy sum."""
    return upload.shared[PROTOTYPES].double() * upload.counts.unsqueeze(1)


@pytest.mark.parametrize("source", ["seed", "system"])
def test_the_noise_on_sums_and_counts_has_the_spread_that_is_claimed(toy, source):
    bound, noise, times = 0.7, 10.0, 150
    experiment = prepare(make_settings(TOY_SETTINGS), toy, TinyNet, say=quiet)
    work, net = replace(experiment.work, noise=source), experiment.work.make_net()
    protect = Protections(clip=bound, noise=noise)
    table = torch.zeros(4, 5)
    counts = torch.tensor([1000, 1000, 1000, 1000])  # so many that none is noised below zero
    exact, found_sums, found_counts = None, [], []
    for round in range(times):
        client = work.client(3, round, None)
        before = Upload(3, {}, counts, {PROTOTYPES: table})
        exact = sums(replace(before, shared={PROTOTYPES: protect._clipped_sums(client, net) / 1000}))
        upload = protect.change_upload(before, net, client)
        found_sums.append(sums(upload) - exact)
        found_counts.append((upload.counts - counts).double())
    for values, deviation in ((found_sums, bound * noise * 2**0.5), (found_counts, noise * 2**0.5)):
        drawn = torch.stack(values).flatten()
        assert abs(drawn.mean()) < 4 * deviation / len(drawn) ** 0.5
        assert drawn.std() == pytest.approx(deviation, rel=4 / (2 * len(drawn)) ** 0.5)


def test_seeded_noise_is_that_of_round_and_client_and_the_systems_is_new_each_time(toy):
    noisy = {"clip": 1.0, "noise": 1.0}
    assert same_upload(trained(toy, **noisy)[0], trained(toy, **noisy)[0])
    assert not same_upload(trained(toy, round=2, **noisy)[0], trained(toy, **noisy)[0])
    assert not same_upload(trained(toy, source="system", **noisy)[0], trained(toy, source="system", **noisy)[0])


def test_a_noisy_row_is_shared_or_left_out_by_its_noisy_count(toy):
    upload = trained(toy, clip=1.0, noise=3.0, min_count=4)[0]
    absent = upload.counts == 0
    assert (upload.counts[~absent] >= 4).all()
    assert (upload.shared[PROTOTYPES][absent] == 0).all()


def length(change):
    return float(torch.cat([tensor.flatten() for tensor in change.values()]).norm())


def test_the_change_of_the_weights_is_clipped_as_one_vector(toy):
    plain, upload = trained(toy, "fedavg")[0], trained(toy, "fedavg", update_clip=0.01)[0]
    assert length(plain.change) > 0.02
    assert length(upload.change) == pytest.approx(0.01, rel=1e-3)
    ratio = length(upload.change) / length(plain.change)
    for name, tensor in plain.change.items():
        torch.testing.assert_close(upload.change[name], ratio * tensor, rtol=1e-2, atol=1e-6)


@pytest.mark.parametrize("source", ["seed", "system"])
def test_the_noise_on_the_weights_has_the_spread_that_is_claimed(toy, source):
    clipped, noisy = {"update_clip": 0.5}, {"update_clip": 0.5, "update_noise": 3.0}
    plain = trained(toy, "fedavg", **clipped)[0]
    drawn = []
    for round in range(1, 13):
        upload = trained(toy, "fedavg", round=round, source=source, **noisy)[0]
        drawn.append(torch.cat([(upload.change[n] - t).flatten() for n, t in plain.change.items()]).double())
    values = torch.cat(drawn)
    assert values.std() == pytest.approx(2 * 0.5 * 3.0, rel=4 / (2 * len(values)) ** 0.5)


def test_scaffold_shares_what_follows_from_the_noised_weights(toy):
    """Its variate is a function of the change of the weights: one that was computed before would give that away."""
    upload, state = trained(toy, "scaffold", update_clip=0.1, update_noise=2.0)
    plain, _ = trained(toy, "scaffold")
    for name, variate in upload.shared.items():
        path = (plain.change[name] / -plain.shared[name]).median()
        torch.testing.assert_close(variate, -upload.change[name] / path, rtol=1e-3, atol=1e-4)
        torch.testing.assert_close(state[name], variate)
    assert not torch.allclose(plain.shared["head.weight"], upload.shared["head.weight"])


def test_feddyns_state_follows_what_was_sent(toy):
    upload, state = trained(toy, "feddyn", update_clip=0.1, update_noise=2.0)
    for name, dual in state.items():
        torch.testing.assert_close(dual, -0.01 * upload.change[name])


class Seen(TinyNet):
    """What it is given are the features."""

    def features(self, x):
        return x


def tracing(protect, k=100, width=128, times=20):
    """AUC with which members of a prototype are told from others, and its standard error: features are N(0, 1)."""
    random = torch.Generator().manual_seed(0)
    found = []
    for round in range(times):
        members, others = (torch.randn(count, width, generator=random) for count in (k, 1000))
        client = Client(
            id=0, inputs=members, labels=torch.zeros(k, dtype=torch.int64), counts=torch.tensor([k]), black=None,
            training=None, shuffle=None, random=None, noise=seeded_noise(0, round, 0),
        )  # fmt: skip
        upload = Upload(0, {}, client.counts, {PROTOTYPES: members.mean(0, keepdim=True)})
        (prototype,) = protect.change_upload(upload, Seen(), client).shared[PROTOTYPES]
        inside, outside = (x @ prototype - x.square().sum(1) / (2 * k) for x in (members, others))
        found.append((inside.unsqueeze(1) > outside).double().mean())
    values = torch.stack(found)
    return float(values.mean()), float(values.std()) / times**0.5


def normal_cdf(x):
    return float(torch.special.ndtr(torch.tensor(x)))


def test_an_exact_mean_gives_its_members_away_and_clipping_alone_does_not_help():
    assert tracing(NONE)[0] == pytest.approx(normal_cdf((128 / 200) ** 0.5), abs=0.03)
    assert tracing(Protections(clip=11.0))[0] > 0.75


@pytest.mark.parametrize("noise", [1.0, 2.0, 5.0, 10.0])
def test_noise_keeps_tracing_below_what_it_allows_any_attack(noise):
    """No test of one image tells more from a Gaussian mechanism than AUC Φ(1 / (z √2)), whatever it knows."""
    found, error = tracing(Protections(clip=11.0, noise=noise))
    assert 0.5 - 3 * error < found < normal_cdf(1 / (noise * 2**0.5)) + 3 * error


class Normed(TinyNet):
    """Has running statistics, and a counter that tells the number of steps."""

    def __init__(self):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(5)

    def features(self, x):
        return self.norm(super().features(x))


def test_counters_are_not_sent_with_noisy_weights_and_statistics_are_noised(toy):
    def upload(**protect):
        settings = make_settings(TOY_SETTINGS, {"algorithm": "fedavg", "protect": protect})
        work = prepare(settings, toy, Normed, say=quiet).work
        net = work.make_net()
        weights = {name: tensor.clone() for name, tensor in net.state_dict().items()}
        return work.train(net, Sent(weights), 3, 1, None)[0].change

    plain, noisy = upload(), upload(update_clip=0.1, update_noise=1.0)
    assert int(plain["norm.num_batches_tracked"]) > 0
    assert int(noisy["norm.num_batches_tracked"]) == 0
    assert not torch.allclose(plain["norm.running_mean"], noisy["norm.running_mean"], atol=1e-3)


def test_what_is_not_finite_is_not_seen_through_the_noise(toy):
    """That training failed would be told by an upload that is not finite."""
    experiment = prepare(make_settings(TOY_SETTINGS), toy, TinyNet, say=quiet)
    client, net = experiment.work.client(3, 1, None), experiment.work.make_net()
    received = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    net.load_state_dict({name: torch.full_like(tensor, float("nan")) for name, tensor in received.items()})
    protect = Protections(clip=1.0, noise=1.0, update_clip=1.0, update_noise=1.0)
    upload = Upload(3, {}, client.counts, {PROTOTYPES: torch.zeros(4, 5)})
    assert torch.isfinite(protect.change_upload(upload, net, client).shared[PROTOTYPES]).all()
    protect.change_weights(net, received, lambda part: True, client)
    assert all(torch.isfinite(tensor).all() for tensor in net.state_dict().values())


def test_parts_that_are_not_uploaded_get_no_noise(toy):
    upload, _ = trained(toy, "fedbabu", update_clip=0.1, update_noise=2.0)
    assert not [name for name in upload.change if name.startswith("head.")]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"noise": 1.0}, r"^protect: noise needs a bound .*; set protect\.clip as well\.$"),
        ({"update_noise": 1.0}, r"^protect: update_noise needs a bound .*; set protect\.update_clip as well\.$"),
        ({"budget": 1.0, "clip": 1.0}, r"^protect: a budget is spent by noisy uploads only; set .*\.$"),
        ({"min_count": -1}, r"^protect\.min_count = -1: should be greater than or equal to 0\.$"),
        ({"counts": "none"}, r"^protect\.counts = 'none': should be 'exact', 'rounded' or 'withheld'\.$"),
        ({"clip": float("nan")}, r"^protect\.clip = nan: should be a finite number\.$"),
        ({"delta": 1.0}, r"^protect\.delta = 1\.0: should be less than 1\.$"),
        ({"sensitivity": 1.0}, r"^Unknown key 'protect\.sensitivity'"),
    ],
)
def test_values_that_make_no_sense_are_refused_in_one_sentence(values, message):
    with pytest.raises(UserError, match=message):
        make_settings({"protect": values})


def test_without_protections_settings_are_those_of_version_0_1():
    assert "protect" not in make_settings({}).identity()
    assert make_settings({"protect": {"min_count": 5}}).digest != make_settings({}).digest
