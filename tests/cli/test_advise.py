"""`rebafl advise` as a person types it."""

import json

import pytest
from typer.testing import CliRunner

from rebafl import cli
from rebafl.base.errors import UserError
from support.paths import REPOSITORY

LIKE = ["dataset=fashion-mnist", "partition.clients=50", "participation.p=0.1"]


def advise(*words):
    result = CliRunner().invoke(cli.app, ["advise", *map(str, words)])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.stdout


def test_what_was_measured_is_said_with_its_files():
    text = advise(*LIKE)
    assert "like yours" in text
    assert "the paper's scale: 200 rounds, 1000 images a client or all dealt out" in text
    assert "kB up" in text
    files = {word.rstrip(",\n") for word in text.split() if word.startswith("results/")}
    assert files
    assert all((REPOSITORY / file).exists() for file in files)


def test_the_cost_names_what_uploads_give_away_and_who_made_the_method():
    """FedTrack is the best there, and this project's own."""
    text = advise(*LIKE)
    assert (
        "clients keep: none; uploads beside weights and class counts: length, means, scatter (no protection but "
        "secure aggregation covers means and scatter)"
    ) in text
    assert "\nOf this project: fedtrack; tuned here for longer than the others" in text
    assert "Of this project" not in advise(*LIKE, "protect.noise=1", "protect.clip=1")


def test_how_long_and_on_how_much_it_was_trained_is_said_though_not_counted():
    text = advise("dataset=fashion-mnist", "rounds=1000", "partition.samples=3")
    assert "like yours, but for its 200 rounds (yours 1000) and its 1000 images a client (yours 3)" in text
    assert "like yours but for its size)" in text.splitlines()[1]
    even = ["dataset=cifar-10", "partition=even", "participation=fraction", "participation.share=0.1"]
    text = advise(*even, "partition.clients=500")
    first, second = (line for line in text.splitlines() if line.startswith("  like yours"))
    assert first == "  like yours"
    assert second == "  like yours, but for its 20 rounds (yours 200) and its 12 images a client (yours 100)"
    assert "its 100 images" not in advise(*even, "partition.clients=300"), "167 are not twice as many"


def test_images_that_are_dealt_out_are_counted_by_those_that_there_are():
    """Dirichlet deals out 60,000 images to 100 clients."""
    mine = ["partition=dirichlet", "partition.alpha=0.1", "participation=markov", "rounds=40"]
    mine += ["participation.leave=0.3", "participation.join=0.03"]
    assert "\n  like yours\n" in advise(*mine, "partition.clients=100")
    assert "but for its 600 images a client (yours 240)" in advise(*mine, "partition.clients=250")


def test_the_smallest_scale_is_only_a_hint_for_a_longer_run():
    mine = ["dataset=cifar-10", "participation=persistent", "participation.period=20"]
    assert advise(*mine).splitlines()[1].startswith("Only a hint, from a smaller run: rebafl (")
    for rounds in (20, 5):
        text = advise(*mine, f"rounds={rounds}", "partition.samples=100")
        assert text.splitlines()[1].startswith("Take rebafl ("), "no hint for a run that is no larger"
    assert advise(*mine, "rounds=20").splitlines()[1].startswith("Only a hint"), "with ten times the images"


def test_a_settings_file_and_words_that_win_over_it(tmp_path):
    path = tmp_path / "config.toml"
    path.write_text('dataset = "fashion-mini"\n[partition]\nclients = 50\n[participation]\np = 0.4\n')
    assert "50 clients, 10% there" in advise(path, "participation.p=0.1").splitlines()[0]
    assert f"rebafl sweep {path} participation.p=0.1 " in advise(path, "participation.p=0.1")


def test_nothing_near(tmp_path):
    text = advise("partition=iid", "participation=always", "partition.clients=10000")
    assert "Nothing near it was measured." in text
    assert "not near yours" in text
    assert "To measure it in your own setting, 21 runs: rebafl sweep partition=iid participation=always" in text


def test_what_cannot_be_told_is_said(tmp_path, monkeypatch):
    monkeypatch.setenv("REBAFL_DATA", str(tmp_path))
    assert "name a partition like yours" in advise("partition=natural")
    (tmp_path / "trace.csv").write_text("client,round\n0,1\n")
    assert "Nothing near" in advise(
        "partition=natural", "participation=trace", f"participation.path={tmp_path}/trace.csv"
    )


def test_what_cannot_be_run_as_it_is_is_said():
    text = advise("dataset=fashion-mini", "partition.samples=100", "model=cifar-cnn", "resize=4")
    first, second, *_ = text.splitlines()
    assert first.startswith("Your setting: fashion-mnist, ")
    assert first.endswith(" (fashion-mini counts as it).")
    assert second.startswith("It cannot be run as it is: model 'cifar-cnn' needs images of at least")
    assert "as it is" not in advise("dataset=fashion-mini", "partition.samples=100")


def test_methods_that_are_ruled_out_are_named():
    assert "Left out" not in advise(*LIKE)
    assert "Left out: feddyn" in advise(*LIKE, "--no-state")
    assert "protect.clip cannot cover means and scatter" in advise(*LIKE, "protect.noise=1", "protect.clip=1")


def test_what_cannot_be_told_of_data_that_are_not_here_is_said(tmp_path, monkeypatch):
    monkeypatch.setenv("REBAFL_DATA", str(tmp_path))
    text = advise("dataset=hf:somebody/something")
    assert "How many classes there are in all cannot be told before the data are here; they count as 10." in text
    assert "once its data are here and show that it can be run, 12 runs: rebafl sweep dataset=hf:" in text
    assert "cannot be told" not in advise("dataset=fashion-mini")
    text = advise("dataset=hf:somebody/something", "partition=natural")
    assert "not near yours (how far cannot be told): " in text
    assert "20 clients, yours unknown" in text


def test_json_has_the_same(tmp_path, monkeypatch):
    monkeypatch.setenv("REBAFL_DATA", str(tmp_path))
    found = json.loads(advise(*LIKE, "--json"))
    first = found["found"][0]
    assert found["near"] is True
    assert (first["scale"], first["steps"], first["differences"]) == ("paper", 0, [])
    assert first["best"] in advise(*LIKE)
    assert all((REPOSITORY / file).exists() for file in first["cells"])
    assert {"over", "points", "at_the_end", "error", "seeds", "sure"} == first["leads"][0].keys()
    assert first["uploads_beside_weights_and_counts"] in advise(*LIKE)
    assert found["run"] in advise(*LIKE)
    assert found["take"] in advise(*LIKE)
    assert found["methods"][0] == first["best"]
    assert all((lead["error"] is None) is (len(lead["seeds"]) == 1) for lead in first["leads"])
    assert found["refused"] == ""
    unknown = json.loads(advise("partition=natural", "--json"))
    assert unknown["near"] is False
    assert unknown["found"][0]["steps"] is None


@pytest.mark.parametrize(
    "words",
    [
        ["participation.p=3"],
        ["nonsense"],
        ["partition.clinets=3"],
        ["dataset=nowhere"],
        ["robust=x"],
        ["p"],
        ["dataset=fashion-mini", "partition=natural"],
        [f"dataset={__file__}.npz"],
        ["dataset=fashion-mini", "partition=file", "partition.path=nowhere.json"],
        ["protect.secagg=true", "robust=median"],
    ],
)
def test_bad_input_is_one_sentence(words):
    with pytest.raises(UserError) as error:
        advise(*words)
    assert "\n" not in str(error.value)


def test_help_has_examples_that_run():
    examples = [line.strip(" │*`•\n") for line in CliRunner().invoke(cli.app, ["advise", "--help"]).stdout.splitlines()]
    lines = [line.removeprefix("rebafl advise ") for line in examples if line.startswith("rebafl advise ")]
    assert len(lines) == 3
    assert "Your setting" in advise(*lines[0].split())
