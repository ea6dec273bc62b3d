"""What is said of a user's own setting, in cases made by hand."""

import re
import shlex

import pytest

from rebafl.advice.limits import no_competitor, ruled_out, shared_in_words
from rebafl.advice.measured import Measured, algorithm_of, shipped
from rebafl.advice.nearest import advise
from rebafl.algorithms import KINDS
from rebafl.base.config import parse_assignments, plain, read_toml
from rebafl.base.errors import UserError
from rebafl.runs.experiment import prepare
from rebafl.runs.settings import make_settings
from rebafl.runs.sweep import grid
from support.advice import condition, entry, settings
from support.toy import make_toy

WORDS = ("dataset=fashion-mnist", "partition.clients=20", "participation.p=0.5")
PLAIN = (entry("rebafl", 70.0), entry("fedavg", 60.0))


def found(*conditions, words=WORDS, no_state=False):
    advice = advise(settings(*words), words, Measured(conditions), no_state)
    return [(near.condition.scale, near.condition.setting.clients, near.verdict.best.name) for near in advice.found]


def test_the_nearest_condition_is_taken():
    conditions = [condition(*PLAIN, clients=clients) for clients in (500, 30, 100)]
    assert found(*conditions) == [("paper", 30, "rebafl")]


def test_the_papers_scale_wins_where_it_is_as_near():
    smaller = [condition(*PLAIN, scale=scale) for scale in ("beyond/report", "quick")]
    assert found(condition(*PLAIN), *smaller) == [("paper", 20, "rebafl")]


def test_a_smaller_scale_is_added_where_it_is_nearer():
    assert found(condition(*PLAIN, clients=50), condition(*PLAIN, scale="quick")) == [
        ("paper", 50, "rebafl"),
        ("quick", 20, "rebafl"),
    ]
    assert found(condition(*PLAIN, clients=30), condition(*PLAIN, scale="quick", clients=50)) == [
        ("paper", 30, "rebafl")
    ]


def test_a_smaller_scale_is_added_where_its_best_was_not_run_at_the_larger():
    track = condition(entry("fedtrack", 75.0), entry("rebafl[mu=5.0]", 70.0), scale="beyond/report")
    assert [best for _, _, best in found(condition(*PLAIN), track)] == ["rebafl", "fedtrack"]
    full = condition(*PLAIN, entry("fedtrack", 65.0))
    assert [best for _, _, best in found(full, track)] == ["rebafl"]


def test_other_data_sets_count_where_nothing_is_near_on_ones_own():
    cifar = condition(entry("fedtrack", 70.0), *PLAIN, dataset="cifar-10")
    assert found(condition(*PLAIN), cifar) == [("paper", 20, "rebafl")]
    for own in ([], [condition(*PLAIN, clients=200)]):
        advice = advise(settings(*WORDS), WORDS, Measured((cifar, *own)))
        assert advice.is_near
        assert [near.condition.setting.dataset for near in advice.found] == ["cifar-10"]
    far = [condition(*PLAIN, clients=200), condition(*PLAIN, clients=100, dataset="cifar-10")]
    (nearest,) = advise(settings(*WORDS), WORDS, Measured(tuple(far))).found
    assert (nearest.condition.setting.clients, nearest.is_near) == (200, False)  # 3.32 steps, and 2.32 and one


def test_two_methods_alone_decide_nothing_where_more_were_compared_as_near():
    """Neither by their rounds, which are the user's, nor within a scale."""
    few, more = condition(*PLAIN, scale="beyond/report"), condition(*THREE)
    assert found(few, more, words=(*WORDS, "rounds=40")) == [("paper", 20, "rebafl"), ("beyond/report", 20, "rebafl")]
    assert found(condition(*PLAIN), condition(*THREE, clients=30))[0] == ("paper", 30, "rebafl")


def test_what_objects_must_be_of_more_than_two_methods_and_no_mere_hint():
    first = condition(*THREE)
    for other, said in (
        (condition(*OTHERS, clients=30), True),
        (condition(*OTHERS[:2], clients=30), False),
        (condition(*OTHERS, clients=30, scale="quick"), False),
    ):
        advice = advise(settings(*WORDS), WORDS, Measured((first, other)))
        assert (" But fedrs (" in advice.take) is said
    again = [condition(*OTHERS, clients=30), condition(*OTHERS, clients=40)]
    advice = advise(settings(*WORDS), WORDS, Measured((first, *again)))
    assert advice.take.count(" But ") == 1, "what names the same methods is said once"
    assert len(advice.found) == 2


def test_a_method_with_other_settings_does_not_object_to_itself():
    tuned = (entry("rebafl[mu=5.0]", 70.0), *OTHERS[1:])
    (only,) = advise(settings(*WORDS), WORDS, Measured((condition(*THREE), condition(*tuned, clients=30)))).found
    assert only.verdict.best.name == "rebafl"


def test_a_hint_whose_rounds_are_nearer_objects():
    conditions = [condition(*THREE, scale="beyond/report"), condition(*OTHERS, scale="quick", images=100)]
    take = advise(settings(*WORDS, "rounds=20"), WORDS, Measured(tuple(conditions))).take
    assert take.startswith("Take rebafl (")
    assert " But, as a hint, fedrs (" in take


def test_the_nearest_of_ones_own_kind_of_split_is_shown_though_another_is_nearer():
    mine = (*WORDS, "partition.clients=30")
    near = condition(*THREE, skew="even", clients=30), condition(*THREE, clients=75), condition(*THREE, clients=80)
    advice = advise(settings(*mine), mine, Measured(near))
    assert [one.condition.setting.clients for one in advice.found] == [30, 75]


def test_what_else_was_set_is_said_of_what_is_named():
    other = condition(*THREE, other={"training.epochs": "1"})
    assert (
        "fashion-mnist training.epochs=1 at the paper's scale"
        in advise(settings(*WORDS), WORDS, Measured((other,))).take
    )


def test_a_model_that_nobody_has_is_refused_wherever_the_data_are(tmp_path, monkeypatch):
    monkeypatch.setenv("REBAFL_DATA", str(tmp_path))
    for dataset in ("fashion-mini", "mnist"):
        with pytest.raises(UserError, match="there is no 'nope'"):
            advise(settings(f"dataset={dataset}", "model=nope"), (), Measured((condition(*THREE),)))


def test_a_condition_with_nothing_to_compare_is_passed_over():
    assert found(condition(PLAIN[0]), condition(*PLAIN, clients=30)) == [("paper", 30, "rebafl")]


@pytest.mark.parametrize(
    ("words", "near"),
    [
        ((), True),
        (("partition.clients=80",), True),  # two steps
        (("partition.clients=100",), False),
        (("participation.p=1.0",), False),
        (("partition=iid",), False),
        (("partition=dirichlet", "partition.alpha=0.1"), True),
        (("participation=persistent", "participation.period=4"), True),
        (("participation=persistent", "participation.period=10"), False),
        (("dataset=mnist", "partition.clients=30"), True),
        (("dataset=mnist", "partition.clients=50"), False),
        (("attack=sign-flip",), False),
        (("robust=median",), False),
        (("training.lr=0.1",), True),
    ],
)
def test_nothing_near_is_said_plainly(words, near):
    advice = advise(settings(*WORDS, *words), WORDS, Measured((condition(*PLAIN),)))
    assert advice.is_near is near
    (only,) = advice.found
    assert only.words.startswith("like yours" if not words else "near yours (" if near else "not near yours (")


def test_who_holds_what_is_not_known_before_the_data_are_here(tmp_path, monkeypatch):
    monkeypatch.setenv("REBAFL_DATA", str(tmp_path))
    advice = advise(settings(*WORDS, "partition=natural"), WORDS, Measured((condition(*PLAIN),)))
    assert (advice.setting.classes, advice.is_near, advice.refused) == (None, False, "")


def test_nothing_at_all_is_measured():
    advice = advise(settings(*WORDS), WORDS, Measured(()))
    assert (advice.found, advice.is_near) == ((), False)
    assert advice.again.startswith("rebafl sweep ")


def test_the_command_that_measures_it_is_one_that_runs(tmp_path):
    path = tmp_path / "my config.toml"
    path.write_text('algorithm = "moon"\nrounds = 7\n')
    words = ["partition=clustered", "participation.p=[0.5,0.2]", "algorithm=moon", "algorithm.mu=2", "seed=9", "out=x"]
    advice = advise(settings(*words[:-1]), words, shipped())
    program, sweep, *rest = shlex.split(advice.again)
    assert (program, sweep, rest[-1]) == ("rebafl", "sweep", "out=runs/which")
    points = grid({}, rest[:-1], tmp_path)
    assert {str(point.settings.participation) for point in points} == {"Bernoulli(p=(0.5, 0.2))"}
    assert {point.settings.seed for point in points} == {0, 1, 2}
    assert "fedavg" in {point.settings.algorithm.name for point in points}
    assert len({point.out for point in points}) == len(points) >= 6
    assert shlex.split(advise(settings(), [str(path)], shipped()).again)[2] == str(path)


def test_what_a_settings_file_sets_is_set_back_for_the_defaults(tmp_path):
    path = tmp_path / "config.toml"
    path.write_text("[algorithm]\nkind = 'rebafl'\nmu = 2.0\neps = 0.3\n")
    layer, words = read_toml(path), [str(path), *WORDS]
    usual = plain(KINDS["rebafl"]())
    for name, mu in [("rebafl", usual["mu"]), ("rebafl[mu=5.0]", 5.0)]:
        known = Measured((condition(entry(name, 70.0), entry("fedavg", 60.0)),))
        advice = advise(make_settings(layer, parse_assignments(WORDS)), words, known)
        swept = [
            point.settings.plain()["algorithm"] for point in grid(layer, shlex.split(advice.again)[3:-1], tmp_path)
        ]
        its = [each for each in swept if each["kind"] == "rebafl"]
        assert its == [{"kind": "rebafl", **usual, "mu": mu}] * 3, "once for each seed"


THREE = (*PLAIN, entry("moon", 50.0))
OTHERS = (entry("fedrs", 70.0), entry("fedavg", 60.0), entry("moon", 50.0))
MINE = "fashion-mnist at the paper's scale"
HINT = (
    "Only a hint, from a smaller run: fedrs (+10.0, one seed, of 3 methods; fashion-mnist at the quick scale, "
    "like yours but for its size)."
)


@pytest.mark.parametrize(
    ("conditions", "take"),
    [
        ([condition(*THREE)], f"Take rebafl (+10.0, one seed, of 3 methods; {MINE}, like yours)."),
        (
            [condition(*PLAIN)],
            f"Only two were compared, of which rebafl was ahead (+10.0, one seed, of 2 methods; {MINE}, like yours).",
        ),
        (
            [condition(entry("rebafl", 70.0), entry("fedavg", 69.9))],
            f"Only two were compared, and neither leads: rebafl or fedavg (too close, one seed, of 2 methods; {MINE}, "
            "like yours).",
        ),
        (
            [condition(entry("rebafl", 70.0), entry("fedavg", 69.9), entry("moon", 50.0))],
            f"Take rebafl or fedavg (too close, one seed, of 3 methods; {MINE}, like yours).",
        ),
        (
            [condition(*THREE, clients=30), condition(*THREE, scale="quick")],
            f"Take rebafl (+10.0, one seed, of 3 methods; {MINE}, 0.6 steps from yours).",
        ),
        (  # twenty rounds say less of 200 than 30 clients of 20
            [condition(*THREE, clients=30), condition(*OTHERS, scale="quick")],
            f"Take rebafl (+10.0, one seed, of 3 methods; {MINE}, 0.6 steps from yours; fedrs not run there). "
            "But, as a hint, fedrs (+10.0, one seed, of 3 methods; fashion-mnist at the quick scale, "
            "like yours but for its size; rebafl not run there). Measure it.",
        ),
        (  # and 80
            [condition(*THREE, clients=80), condition(*OTHERS, scale="quick")],
            f"Take rebafl (+10.0, one seed, of 3 methods; {MINE}, 2.0 steps from yours; fedrs not run there). "
            "But, as a hint, fedrs (+10.0, one seed, of 3 methods; fashion-mnist at the quick scale, "
            "like yours but for its size; rebafl not run there). Measure it.",
        ),
        (  # but more than 90, which is too far
            [condition(*THREE, clients=90), condition(*OTHERS, scale="quick")],
            HINT,
        ),
        (  # two methods alone decide nothing where more were compared
            [condition(*PLAIN), condition(*OTHERS, scale="quick")],
            f"{HINT.removesuffix(').')}; rebafl not run there). "
            f"But rebafl (+10.0, one seed, of 2 methods; {MINE}, like yours; fedrs not run there). "
            "Measure it.",
        ),
        ([condition(*THREE, clients=900)], "Nothing near it was measured. The nearest, which says little about yours:"),
    ],
)  # fmt: skip
def test_what_to_take_is_said_in_one_line(conditions, take):
    assert advise(settings(*WORDS), WORDS, Measured(tuple(conditions))).take == take


def test_the_scale_whose_rounds_are_like_the_users_comes_first():
    conditions = [condition(*THREE), condition(*OTHERS, scale="quick")]
    for rounds, first in ((200, "rebafl"), (20, "fedrs"), (5, "fedrs"), (1000, "rebafl")):
        assert found(*conditions, words=(*WORDS, f"rounds={rounds}"))[0][2] == first


def test_of_two_data_sets_the_one_with_more_methods_decides_and_not_the_alphabet():
    conditions = [condition(*THREE, dataset="cifar-10"), condition(*OTHERS, entry("feddyn", 40.0))]
    assert found(*conditions, words=("dataset=mnist", *WORDS[1:]))[0][2] == "fedrs"


def test_how_many_runs_it_takes_to_measure_it_is_said():
    advice = advise(settings(*WORDS), WORDS, Measured((condition(*THREE),)))
    assert advice.methods == ("fedavg", "rebafl")
    assert advice.runs == 6


def test_data_that_are_here_and_cannot_be_read_are_refused(tmp_path):
    path = tmp_path / "junk.npz"
    path.write_text("no arrays")
    with pytest.raises(UserError, match=re.escape("junk.npz")):
        advise(settings(f"dataset={path}"), (), Measured((condition(*THREE),)))


def test_what_a_run_would_refuse_is_said():
    good = ("dataset=fashion-mini", "partition.samples=100")
    assert advise(settings(*good), good, Measured(())).refused == ""
    much = (good[0], "partition.samples=100000")
    assert "more than the" in advise(settings(*much), much, Measured(())).refused


def test_if_nothing_is_near_what_was_best_anywhere_is_to_be_run():
    conditions = [condition(*PLAIN, clients=900), condition(entry("fedrs", 70.0), entry("fedavg", 60.0), clients=800)]
    assert "algorithm=fedavg,fedrs,rebafl " in advise(settings(*WORDS), WORDS, Measured(tuple(conditions))).again


def test_a_method_that_keeps_state_is_left_out_if_clients_may_keep_none():
    full = condition(*PLAIN, entry("feddyn", 75.0), entry("moon", 50.0))
    assert found(full)[0][2] == "feddyn"
    assert found(full, no_state=True)[0][2] == "rebafl"
    advice = advise(settings(*WORDS), WORDS, Measured((full,)), no_state=True)
    assert advice.excluded == {
        "feddyn": "clients keep s_i, as large as the model",
        "moon": "clients keep the client's last model",
    }
    assert "feddyn" not in advice.again
    (near,) = advise(settings(*WORDS), WORDS, Measured((full,))).found
    assert near.stateless.best.name == "rebafl"


@pytest.mark.parametrize(
    ("words", "method", "reason"),
    [
        ("protect.noise=1 protect.clip=1", "fedtrack", "cannot cover means and scatter"),
        ("protect.central_noise=1 protect.update_clip=1 protect.counts=withheld", "scaffold", "and more besides"),
        ("protect.secagg=true", "alone", "must see each upload"),
        ("robust=median", "alone", "takes the place of the mean"),
        ("training.optimizer=adam", "scaffold", "needs SGD"),
    ],
)
def test_what_a_run_would_refuse_is_left_out_by_the_same_words(words, method, reason):
    mine = settings(*words.split(), "partition.clients=4", "partition.samples=20", "model=mlp")
    assert reason in ruled_out(KINDS[method](), mine)
    assert ruled_out(KINDS["fedavg"](), mine) == ""
    refused = settings(
        *words.split(), "partition.clients=4", "partition.samples=20", "model=mlp", f"algorithm={method}"
    )
    with pytest.raises(UserError) as error:
        prepare(refused, make_toy(), say=lambda *_: None)
    if not mine.protect.secagg:
        assert str(error.value) == ruled_out(KINDS[method](), mine)


def test_the_best_of_what_is_left_is_said():
    full = condition(*PLAIN, entry("fedtrack", 75.0))
    assert found(full)[0][2] == "fedtrack"
    assert found(full, words=(*WORDS, "protect.noise=1", "protect.clip=1"))[0][2] == "rebafl"


def test_marks_beside_the_others_do_not_compete():
    marks = {name for name in KINDS if no_competitor(KINDS[name]())}
    assert marks == {"fedavg-ft", "alone", "centralised"}
    assert found(condition(*PLAIN, entry("fedavg-ft", 90.0)))[0][2] == "rebafl"


def test_what_is_shared_is_what_the_algorithms_declare():
    assert shared_in_words(algorithm_of("fedavg")) == "nothing"
    assert shared_in_words(algorithm_of("rebafl")) == "prototypes"
    assert shared_in_words(algorithm_of("rebafl[mu=0]")) == "nothing"
    assert shared_in_words(algorithm_of("fedtrack")) == "length, means, scatter"
    assert shared_in_words(algorithm_of("scaffold")) == "one more number for each weight"
