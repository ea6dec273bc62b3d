"""The verdicts and gaps on docs/reproduction.md, computed again from the result files by code that shares none of it.

Shared are only settings: a file belongs to a cell if its settings are those that the cell's words give.
"""

import json
import re
from itertools import pairwise, product
from statistics import mean, stdev

import pytest

from rebafl.base.config import parse_assignments, read_toml
from rebafl.runs.settings import complete, make_settings
from support.paths import DOCS, REPOSITORY, RESULTS

PACKAGE = REPOSITORY / "src" / "rebafl" / "paper"
PAPER = read_toml(PACKAGE / "items.toml")
PRINTED = json.loads((PACKAGE / "printed.json").read_text())
PAGE = (DOCS / "reproduction.md").read_text()
APART = ("rounds", "workers", "engine", "seed")
ROUNDS = 200


def identity(settings):
    kept = {name: value for name, value in settings.items() if name not in APART}
    return json.dumps(kept, sort_keys=True, default=list)


@pytest.fixture(scope="module")
def files():
    """By settings, then by seed, the curves of all files at the paper's scale."""
    found: dict[str, dict[int, dict]] = {}
    for path in (RESULTS / "paper").glob("*.json"):
        kept = json.loads(path.read_text())
        assert kept["rounds"] == ROUNDS
        found.setdefault(identity(complete(kept["settings"])), {})[kept["seed"]] = kept["curves"]
    return found


@pytest.fixture(scope="module")
def curves(files):
    """Of a method of an item under a condition, by seed."""
    known: dict[tuple[str, str], dict[int, dict]] = {}

    def look_up(item, method, condition):
        words = PAPER["items"][item]["conditions"][condition], PAPER["methods"][method]
        if words not in known:
            settings = make_settings(parse_assignments(f"rounds={ROUNDS} {' '.join(words)}".split()))
            known[words] = files.get(identity(settings.plain()), {})
        return known[words]

    return look_up


def number(run, measure):
    accuracy = run["accuracy"]
    half = accuracy[ROUNDS // 2 :]
    if measure == "swing":
        return sum(abs(b - a) for a, b in pairwise(half)) / (len(half) - 1)
    if measure in ("diversity", "accuracy"):
        return mean(value for value in run[measure] if value is not None)
    if measure == "bytes_up":
        return sum(run["bytes_up"]) / sum(run["active"])
    return {"best": max(accuracy), "second_half": mean(half), "last10": mean(accuracy[-10:])}[measure]


def compared(item, claim):
    """All that a claim compares, as two (method, condition)."""
    methods, conditions = PAPER["items"][item]["methods"], PAPER["items"][item]["conditions"]
    for first, second in claim.get("pairs", [claim["ratio"]] if "ratio" in claim else []):
        if " @ " in first:
            (a, at), (b, other) = first.split(" @ "), second.split(" @ ")
            yield from (((a, at), (b, other)),) if a != "every" else (((m, at), (m, other)) for m in methods)
        else:
            rivals = [m for m in methods if m != first] if second == "others" else [second]
            yield from (((first, c), (r, c)) for c, r in product(claim.get("where", conditions), rivals))


def decide(item, claim, measure, curves):
    """The decision, the smallest difference of those that made it (against a claim: on the most seeds), and on how many
    seeds it rests."""
    outcomes = []
    for (a, at), (b, other) in compared(item, claim):
        one, two = curves(item, a, at), curves(item, b, other)
        seeds = one.keys() & two.keys()
        values = [(number(one[seed], measure), number(two[seed], measure)) for seed in seeds]
        if not values:
            outcomes.append(("not run", 0.0, 0))
        elif "ratio" in claim:
            ratio = mean(x / y for x, y in values)
            outcomes.append(("held" if ratio <= claim["most"] else "did not hold", -ratio, len(values)))
        else:
            gaps = [x - y for x, y in values]
            error = stdev(gaps) / len(gaps) ** 0.5 if len(gaps) > 1 else 0.0
            gap, margin = mean(gaps), claim.get("margin", 0.0)
            tolerance = max(error, 0.0 if "margin" in claim or "bare" in claim else 0.5)
            low, high = margin - tolerance, margin + tolerance
            outcomes.append(("held" if gap > high else "did not hold" if gap < low else "too close", gap, len(values)))
    kinds = {kind for kind, _, _ in outcomes}
    if "did not hold" in kinds:
        decision = "did not hold"
    elif "not run" in kinds:
        decision = "not run" if kinds == {"not run"} else "partly run"
    else:
        decision = "too close" if "too close" in kinds else "held"
    run = [outcome for outcome in outcomes if outcome[0] != "not run"]
    deciding = [(gap, seeds) for kind, gap, seeds in run if kind == decision] or [(gap, seeds) for _, gap, seeds in run]
    if not deciding:
        return decision, None, 0
    if decision == "did not hold":
        deciding = [each for each in deciding if each[1] == max(seeds for _, seeds in deciding)]
    gap, seeds = min(deciding)
    return decision, gap, min(seeds for *_, seeds in run) if decision == "held" else seeds


def rows_of_the_page():
    """By the claim's name: the verdict, the number, on how many seeds, and by what it was judged."""
    lines = [line.strip("|").split(" | ") for line in PAGE.splitlines() if re.match(r"\| \[[\w-]+\.\d+\]\(#", line)]
    return {
        re.search(r"\[(.+?)\]", name)[1]: (verdict.strip(" *"), value.strip(" *"), seeds.strip(), measures)
        for name, _, verdict, value, _, seeds, measures, *_ in lines
    }


CLAIMS = {
    f"{name}.{place}": (name, claim)
    for name, item in PAPER["items"].items()
    for place, claim in enumerate(item.get("claims", []), 1)
    if claim["measure"] != "race"
}


@pytest.mark.parametrize("name", CLAIMS)
def test_the_verdict_on_the_page_is_what_the_files_say(name, curves):
    item, claim = CLAIMS[name]
    measures = ("second_half", "best") if claim["measure"] == "best" else (claim["measure"],)
    found = [decide(item, claim, measure, curves) for measure in measures]
    decisions = {decision for decision, *_ in found}
    together = "partly run" if decisions & {"partly run", "not run"} else "depends"
    verdict, value, seeds, judged_by = rows_of_the_page()[name]
    assert verdict == (decisions.pop() if len(decisions) == 1 else together)
    if verdict == "depends":
        assert all(decision in judged_by for decision, *_ in found)
    _, difference, expected = found[0]
    assert seeds == str(expected or "")
    if difference is None:
        assert value == ""
    else:
        assert float(value.split(" ")[0]) == pytest.approx(
            abs(difference) if "ratio" in claim else difference, abs=0.006
        )


def test_how_many_verdicts_rest_on_one_seed_is_said_first():
    decided = [seeds for verdict, _, seeds, _ in rows_of_the_page().values() if verdict in ("held", "did not hold")]
    said = f"Of the {len(decided)} that held or did not hold, {decided.count('1')} rest on one seed."
    assert said in PAGE.splitlines()[2]


def test_all_claims_are_on_the_page():
    assert rows_of_the_page().keys() - CLAIMS.keys() == {"cost.1"}, "which the benchmark decides"
    assert not CLAIMS.keys() - rows_of_the_page().keys()


def test_the_gaps_on_the_page_are_what_the_files_say(curves):
    """In each cell that the paper prints, of each file once, FedDyn by its cloud model."""
    gaps, places = {}, dict[str, list[bool]]()
    for item, conditions in PRINTED.items():
        if item in ("clustered", "authors-draw"):  # commented out in the paper's source; those of table1 again
            continue
        for condition, methods in conditions.items() if isinstance(conditions, dict) else ():
            for method, theirs in methods.items():
                if runs := list(curves(item, method, condition).values()):
                    runs = [run | {"accuracy": run.get("cloud_accuracy", run["accuracy"])} for run in runs]
                    if (key := json.dumps(runs)) in gaps:
                        continue
                    half, best = (mean(number(run, m) for run in runs) - theirs for m in ("second_half", "best"))
                    gaps[key] = [half, best]
                    places.setdefault(f"{item}: {condition}", []).append(abs(half) < abs(best))
    said = {line.split(" | ")[0].strip("| "): line.split(" | ")[1:3] for line in PAGE.splitlines()[:20]}
    nearer = sum(abs(half) < abs(best) for half, best in gaps.values())
    assert f"In {f'{nearer} of the' if nearer < len(gaps) else 'all'} {len(gaps)} cells that were run" in PAGE
    for place, nearer_there in places.items():
        assert f"{place}: {sum(nearer_there)} of {len(nearer_there)}" in PAGE.splitlines()[6]
    for name, all_gaps in zip(("second half", "best"), zip(*gaps.values(), strict=True), strict=True):
        assert [float(text) for text in said[name]] == pytest.approx(
            [mean(map(abs, all_gaps)), max(map(abs, all_gaps))], abs=0.006
        )


CLOUD = "its cloud model"
FOUND = {
    "Fashion-MNIST, 20 clients, half of them there": ("table1", "fashion-mnist m=20"),
    "CIFAR-10, 20 clients, half of them there": ("table1", "cifar-10 m=20"),
    "Fashion-MNIST, 20 clients, classes and rounds as the ReBaFL authors' code draws them": (
        "authors-draw",
        "fashion-mnist m=20",
    ),
    "Fashion-MNIST, 50 clients, a tenth of them there": ("fig-dropout", "Fashion-MNIST, p = 0.1"),
    "CIFAR-10, 50 clients, a tenth of them there": ("fig-dropout", "CIFAR-10, p = 0.1"),
    "Fashion-MNIST, 20 clients, 2 to 5 classes, a fifth to half of them there": ("clustered", "fashion-mnist"),
    "CIFAR-10, 20 clients, 2 to 5 classes, a fifth to half of them there": ("clustered", "cifar-10"),
    "CIFAR-10, 100 clients with 500 images each, a tenth of them there": ("table-scale", "m=100"),
    "CIFAR-10, 500 clients with 100 images each, a tenth of them there": ("table-scale", "m=500"),
}


def test_the_readme_counts_the_claims_as_the_page_does():
    """How many were decided how, from the page's own rows; the line that begins the page has the same words."""
    kinds = ("held", "did not hold", "depends", "too close", "partly run", "not run")
    verdicts = [verdict for verdict, *_ in rows_of_the_page().values()]
    words = {kind: kind for kind in kinds} | {"depends": "dependent on the measure"}
    counts = ", ".join(f"{verdicts.count(kind)} {words[kind]}" for kind in kinds if kind in verdicts)
    said = f"[the paper's {len(verdicts)} claims](docs/reproduction.md#the-claims), at its own scale: {counts}."
    assert said in (REPOSITORY / "README.md").read_text()
    assert f"**Of the paper's {len(verdicts)} claims, at its own scale: {counts}**" in PAGE


def test_what_the_readme_says_of_other_windows_is_what_the_files_say(curves):
    """FedTrack's leads over the better of ReBaFL and FedDyn (by either model) in the last ten rounds; who has the best
    round."""
    text = (REPOSITORY / "README.md").read_text()
    leads: dict[str, dict[str, float]] = {"last10": {}, "second_half": {}, "best": {}}
    for (label, (item, condition)), measure in product(FOUND.items(), leads):
        ours = curves(item, "FedTrack", condition)
        rivals = [(curves(item, "ReBaFL", condition), "accuracy")]
        rivals += [(curves(item, "FedDyn", condition), of) for of in ("accuracy", "cloud_accuracy")]
        leads[measure][label] = min(
            mean(
                number(ours[s], measure) - number({"accuracy": runs[s][of]}, measure) for s in ours.keys() & runs.keys()
            )
            for runs, of in rivals
        )
    last, (behind,) = leads["last10"], [name for name, lead in leads["last10"].items() if lead < 0]
    assert behind.startswith("CIFAR-10, 500 clients")
    low, high = min(lead for lead in last.values() if lead > 0), max(last.values())
    assert (
        f"its lead is {low:.1f} to {high:.1f} points, but with 500 clients FedDyn is {-last[behind]:.1f} ahead" in text
    )
    lowest, highest = min(leads["second_half"].values()), max(leads["second_half"].values())
    assert lowest > 0
    behind_by_best = {name: lead for name, lead in leads["best"].items() if lead < 0}
    assert behind_by_best.keys() == {name for name in FOUND if name.startswith(("Fashion-MNIST", "CIFAR-10, 500"))}
    of_method = " ".join((DOCS / "algorithms" / "fedtrack.md").read_text().split())
    numbers = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
    assert (
        f"in each of the {numbers[len(FOUND) - 1]} conditions that were run, by {lowest:.1f} to {highest:.1f} "
        in of_method
    )
    assert f"by the best round FedDyn is ahead in {numbers[len(behind_by_best) - 1]} of them" in of_method
    beyond = " ".join((DOCS / "beyond.md").read_text().split())
    furthest = max(-lead for name, lead in behind_by_best.items() if name.startswith("Fashion-MNIST"))
    assert f"on Fashion-MNIST by up to {furthest:.1f} (" in beyond
    assert f"ten by {low:.1f} to {high:.1f} points, and with 500 clients" in beyond
    usual = [lead for name, lead in leads["second_half"].items() if "00 clients" not in name]
    assert f"by {min(usual):.1f} to {max(usual):.1f} (with 100 clients by {highest:.1f}" in beyond
    for item, condition in (("fig-dropout", "Fashion-MNIST, p = 0.1"), ("clustered", "fashion-mnist")):
        track, rebafl = curves(item, "FedTrack", condition), curves(item, "ReBaFL", condition)
        half = [number(track[seed], "second_half") - number(rebafl[seed], "second_half") for seed in (0, 1)]
        late = number(rebafl[1], "last10") - number(track[1], "last10")
        assert f"{half[0]:+.1f}{' on seed 0' * (item == 'fig-dropout')} and {half[1]:+.1f}" in beyond
        assert re.search(rf"{half[1]:.1f} behind( in the second half)?, {late:.1f} ahead", " ".join(text.split()))
    close = [name for name, lead in behind_by_best.items() if lead >= -0.5]
    assert close == [name for name in FOUND if name.startswith("Fashion-MNIST")][:2]


def test_what_the_readme_says_was_found_is_what_the_files_say(curves):
    """Second half and best round at the paper's scale, cell by cell, on the seeds that are named: all that all have."""
    text = (REPOSITORY / "README.md").read_text().split("**What was found so far**")[1].split("\n\n")[1]
    (_, *methods, _), _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()]
    assert [row[0] for row in rows] == list(FOUND)
    for label, *numbers, seeds in rows:
        item, condition = FOUND[label]
        runs = [curves(item, "FedDyn" if method == CLOUD else method, condition) for method in methods]
        common = set[int].intersection(*(set(by_seed) for by_seed in runs))
        assert seeds == ", ".join(map(str, sorted(common)))
        for method, by_seed, said in zip(methods, runs, numbers, strict=True):
            of = "cloud_accuracy" if method == CLOUD else "accuracy"
            scored = [{"accuracy": by_seed[seed][of]} for seed in common]
            means = (mean(number(run, measure) for run in scored) for measure in ("second_half", "best"))
            assert said == " / ".join(f"{value:.1f}" for value in means), (label, method)


def test_what_is_said_of_scaffold_in_the_authors_form_is_what_the_files_say(curves):
    def of(method, measure="second_half"):
        (run,) = curves("authors-draw", method, "fashion-mnist m=20").values()
        return number(run, measure)

    own, theirs = of("Scaffold"), of("Scaffold (authors' code)")
    printed = PRINTED["authors-draw"]["fashion-mnist m=20"]["Scaffold"]
    page = (DOCS / "algorithms" / "scaffold.md").read_text()
    assert f"is {own - theirs:.1f} points below the form above over the second half" in page
    assert f"{theirs:.1f} against {own:.1f}, printed {printed:.1f}" in page
    (of_table1,) = [text for text in PAPER["items"]["table1"]["findings"] if text.startswith("Scaffold's printed")]
    assert f"is {printed - theirs:.1f} points below it" in of_table1
    assert f"has it {own - printed:.1f} above" in of_table1
    best = of("Scaffold (authors' code)", "best") - printed
    assert f"By the best round it is {best:.1f} above, too." in of_table1
    (of_draw,) = [text for text in PAPER["items"]["authors-draw"]["findings"] if text.startswith("Scaffold in")]
    assert f"is {own - theirs:.1f} points below Scaffold as its own paper has it over the second half" in of_draw
    assert f"with {theirs:.1f} there {printed - theirs:.1f} below the number" in of_draw
