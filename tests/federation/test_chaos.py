"""A federation whose nodes are killed, whose server is killed, and one of whose clients sends NaN."""

import pytest

from chaos import POISONED, chaos


@pytest.mark.slow
def test_a_disturbed_federation_loses_no_finished_round_and_learns_all_the_same(tmp_path):
    story = chaos(tmp_path, rounds=6, seed=1, server_after=3, every=2, deadline=20.0, say=lambda text: None)
    assert [line.round for line in story.lines] == list(range(1, 7))
    assert story.lost == []
    assert {name for _, name, _ in story.deaths} > {"server"}
    for line in story.lines:  # named in every round in which it answered, and never used
        assert POISONED in {**line.refused, **line.missing} or POISONED not in line.active
    refusals = [line.refused[POISONED] for line in story.lines if POISONED in line.refused]
    assert refusals
    assert all("finite" in reason or "nan" in reason.lower() for reason in refusals), refusals
    assert {client for line in story.lines for client in line.refused} == {POISONED}
    assert any(line.missing for line in story.lines)  # the kills did cost something
    assert story.accuracy > story.undisturbed - 5
    assert story.accuracy > story.lines[0].accuracy + 5
