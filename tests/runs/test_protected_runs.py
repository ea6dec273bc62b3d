"""Whole runs with protections: what the server passes on, what the record says, who is left out."""

import json

import pytest
import torch

from rebafl import UserError, make_settings
from rebafl.algorithms.interface import Server
from rebafl.runs.accountant import epsilon_of
from rebafl.runs.events import RoundLine
from rebafl.runs.record import Record
from rebafl.runs.rounds import Round
from support.toy import lines, run_toy, same_bits, weights

NOISY = {"clip": 1.0, "noise": 5.0}


def held(record):
    """Classes whose prototypes the server would broadcast next."""
    return set(torch.nonzero(record.server()["state"]["mass"]).flatten().tolist())


def test_prototypes_that_too_few_share_are_not_broadcast(toy, tmp_path):
    plain = run_toy(tmp_path / "plain", toy, rounds=1)
    hidden = run_toy(tmp_path / "hidden", toy, rounds=1, protect={"min_holders": 4})
    (line,) = hidden.rounds()
    assert 0 < len(line.hidden) < 4, "some classes and not all: else this shows nothing"
    assert held(hidden) == held(plain) - set(line.hidden)
    before, after = plain.server()["state"]["prototypes"], hidden.server()["state"]["prototypes"]
    for label in range(4):
        assert torch.equal(after[label], torch.zeros_like(after[label]) if label in line.hidden else before[label])
    assert same_bits(weights(plain), weights(hidden)), "the weights are averaged as before"
    assert "hidden" not in lines(plain.path)[0]


def test_a_class_that_is_hidden_keeps_its_last_prototype_where_the_server_remembers(toy, tmp_path):
    record = run_toy(tmp_path / "r", toy, algorithm={"kind": "rebafl", "memory": True}, protect={"min_holders": 7})
    assert held(record) == set(), "six clients never suffice"


@pytest.mark.parametrize("algorithm", ["rebafl", "fedavg"])
@pytest.mark.parametrize(
    "protect", [{"counts": "withheld"}, {"counts": "rounded"}, {"min_count": 50}, {**NOISY, "counts": "rounded"}]
)
def test_no_honest_upload_is_refused(toy, tmp_path, algorithm, protect):
    record = run_toy(tmp_path / "r", toy, algorithm=algorithm, protect=protect)
    assert [line.refused for line in record.rounds()] == [{}, {}, {}]
    assert all(line.updated for line in record.rounds())


def test_withheld_counts_average_the_weights_evenly(toy, tmp_path):
    uneven = {"kind": "dirichlet", "alpha": 0.5, "clients": 4}
    usual = run_toy(tmp_path / "a", toy, algorithm="fedavg", partition=uneven, rounds=1, participation="always")
    even = run_toy(
        tmp_path / "b", toy, algorithm="fedavg", partition=uneven, rounds=1, participation="always",
        protect={"counts": "withheld"},
    )  # fmt: skip
    assert not same_bits(weights(usual), weights(even))
    equal = {"kind": "iid", "clients": 4}
    usual = run_toy(tmp_path / "c", toy, algorithm="fedavg", partition=equal, participation="always")
    even = run_toy(
        tmp_path / "d", toy, algorithm="fedavg", partition=equal, participation="always",
        protect={"counts": "withheld"},
    )  # fmt: skip
    assert same_bits(weights(usual), weights(even)), "clients of one size weigh the same anyway"


def test_every_round_says_what_was_given_away(toy, tmp_path):
    record = run_toy(tmp_path / "r", toy, protect=NOISY)
    sent = dict.fromkeys(range(6), 0)
    for line in record.rounds():
        for client in line.active:
            sent[client] += 1
        assert line.epsilon == pytest.approx(epsilon_of(max(sent.values()) ** 0.5 / 5, 1e-5))
        assert line.noise_source == "seed"
    assert all("epsilon" not in line for line in lines(run_toy(tmp_path / "plain", toy).path))
    text = (tmp_path / "r" / "rounds.jsonl").read_text().splitlines()
    assert [RoundLine.read(json.loads(row)) for row in text] == record.rounds()


@pytest.mark.parametrize("algorithm", ["rebafl", "scaffold"])
def test_noise_does_not_depend_on_the_workers_nor_on_a_pause(toy, tmp_path, algorithm):
    protect = {**NOISY, "update_clip": 0.1, "update_noise": 0.1, "counts": "rounded"}
    whole = run_toy(tmp_path / "whole", toy, algorithm=algorithm, protect=protect, workers=2)
    run_toy(tmp_path / "parts", toy, algorithm=algorithm, protect=protect, rounds=1)
    parts = run_toy(tmp_path / "parts", toy, algorithm=algorithm, protect=protect)
    assert same_bits(weights(whole), weights(parts))
    assert lines(whole.path) == lines(parts.path)


def test_who_has_spent_the_budget_takes_part_no_more(toy, tmp_path):
    """ε of two uploads is allowed, that of three is not; a resumed run counts those of before."""
    budget = epsilon_of(2**0.5 / 5, 1e-5) * 1.001
    words = {"protect": {**NOISY, "budget": budget}, "participation": "always"}
    run_toy(tmp_path / "r", toy, rounds=1, **words)
    record = run_toy(tmp_path / "r", toy, rounds=4, **words)
    assert [list(line.active) for line in record.rounds()] == [list(range(6))] * 2 + [[], []]
    assert [list(line.spent) for line in record.rounds()] == [[], []] + [list(range(6))] * 2
    assert [line.updated for line in record.rounds()] == [True, True, False, False]
    assert max(line.epsilon for line in record.rounds()) <= budget


@pytest.mark.parametrize(
    ("protect", "algorithm", "sentences"),
    [
        ({}, "rebafl", []),
        ({"min_count": 3, "clip": 1.0}, "rebafl", []),
        (NOISY, "rebafl", ["given the weights", "voids any claim about the client as a whole", "seed"]),
        (NOISY | {"update_clip": 1.0, "update_noise": 1.0}, "rebafl", ["covers its weights, prototypes and", "seed"]),
        ({"update_clip": 1.0, "update_noise": 1.0}, "rebafl", ["local", "Prototypes and class counts are", "seed"]),
        ({"update_clip": 1.0, "update_noise": 1.0}, "fedavg", ["local", "Class counts are uploaded without", "seed"]),
        ({"update_clip": 1.0, "update_noise": 1.0, "counts": "withheld"}, "fedavg", ["local", "seed"]),
        (
            {"update_clip": 1.0, "update_noise": 1.0, "counts": "withheld"},
            "scaffold",
            ["local", "follows from the weights", "seed"],
        ),
        ({"update_clip": 1.0, "central_noise": 1.0, "counts": "withheld"}, "fedavg", ["broadcasts only", "seed"]),
        (
            {"update_clip": 1.0, "central_noise": 1.0, "counts": "withheld"},
            "rebafl",
            ["broadcasts only", "Prototypes and class counts are uploaded without", "seed"],
        ),
        (
            {**NOISY, "update_clip": 1.0, "central_noise": 1.0, "counts": "withheld"},
            "rebafl",
            ["given the weights", "voids any claim", "broadcasts only", "what each of them covers", "seed"],
        ),
    ],
)
def test_the_record_says_what_is_claimed_and_what_is_not(toy, tmp_path, protect, algorithm, sentences):
    record = run_toy(tmp_path / "r", toy, algorithm=algorithm, protect=protect, rounds=1)
    found = record.environment()["warnings"]
    assert len(found) == len(sentences)
    assert all(part in sentence for part, sentence in zip(sentences, found, strict=True))


def test_protections_belong_to_the_run(toy, tmp_path):
    record = run_toy(tmp_path / "r", toy, protect={"min_count": 3}, rounds=1)
    assert Record(record.path).config()["protect"]["min_count"] == 3
    assert make_settings(record.config()).protect.min_count == 3


@pytest.mark.parametrize("workers", [1, 2])
def test_announced_holders_change_what_the_server_sees_and_nothing_else(toy, tmp_path, workers):
    words = {"delivery": {"kind": "bernoulli", "p": 0.8}, "rounds": 4, "workers": workers}
    usual = run_toy(tmp_path / "a", toy, protect={"min_holders": 4}, **words)
    told = run_toy(tmp_path / "b", toy, protect={"min_holders": 4, "holders": "announced"}, **words)
    assert any(line.unshared for line in told.rounds())
    assert all(set(line.hidden) >= {c for c in line.unshared if c in line.hidden} for line in told.rounds())
    assert same_bits(weights(usual), weights(told))
    assert same_bits(usual.server()["state"], told.server()["state"])
    without = [{key: value for key, value in line.items() if key != "unshared"} for line in lines(told.path)]
    assert without == lines(usual.path)


def test_a_class_that_too_few_announced_never_leaves_a_client(toy, tmp_path, monkeypatch):
    seen = []
    take = Round.take

    def watched(round, outcome):
        seen.append((round.sent.unshared, outcome.upload))
        take(round, outcome)

    monkeypatch.setattr(Round, "take", watched)
    run_toy(tmp_path / "r", toy, protect={"min_holders": 4, "holders": "announced"})
    kept = [upload.shared["prototypes"][list(few)] for few, upload in seen if few]
    assert kept
    assert all((rows == 0).all() for rows in kept)
    assert any((upload.counts[list(few)] > 0).any() for few, upload in seen), "some held what they did not send"


CENTRAL = {"update_clip": 0.05, "central_noise": 2.0, "counts": "withheld"}


@pytest.mark.parametrize("algorithm", ["fedavg", "feddyn", "rebafl"])
def test_the_server_adds_noise_once_to_the_mean(toy, tmp_path, algorithm):
    """The next model minus that without noise is the noise: its spread is 2 C z / m."""
    words = {"algorithm": algorithm, "rounds": 1, "participation": "always"}
    noisy = run_toy(tmp_path / "noisy", toy, protect=CENTRAL, **words)
    plain = run_toy(tmp_path / "plain", toy, protect={**CENTRAL, "central_noise": 0.0}, **words)
    settings = make_settings(noisy.config())
    after, before = (settings.algorithm.evaluated(Server.saved(r.server())) for r in (noisy, plain))
    drawn = torch.cat([(after[name] - before[name]).flatten().double() for name in before])
    assert drawn.std() == pytest.approx(2 * 0.05 * 2.0 / 6, rel=4 / (2 * len(drawn)) ** 0.5)
    assert abs(drawn.mean()) < 4 * drawn.std() / len(drawn) ** 0.5
    assert [line.epsilon for line in noisy.rounds()] == [epsilon_of(1 / 2.0, 1e-5)]


def test_central_noise_does_not_depend_on_the_workers_nor_on_a_pause(toy, tmp_path):
    whole = run_toy(tmp_path / "whole", toy, protect=CENTRAL, workers=2)
    run_toy(tmp_path / "parts", toy, protect=CENTRAL, rounds=2)
    parts = run_toy(tmp_path / "parts", toy, protect=CENTRAL)
    assert same_bits(weights(whole), weights(parts))
    assert lines(whole.path) == lines(parts.path)


def test_what_follows_from_single_changes_has_no_central_noise(toy, tmp_path):
    with pytest.raises(UserError, match=r"scaffold shares .* without noise: choose another algorithm"):
        run_toy(tmp_path / "r", toy, algorithm="scaffold", protect=CENTRAL)
