"""The page that says which method was best: each statement is derived again from the files it links.

Nothing of `rebafl.advice` is used for that: the page is read as text, the files as JSON.
"""

import json
import re
from functools import cache
from itertools import pairwise
from statistics import fmean, stdev

import pytest

from rebafl.advice.measured import Measured, collect
from rebafl.algorithms import KINDS
from rebafl.report.markdown import with_generated
from rebafl.report.which_method import page as generated
from support.advice import condition, entry
from support.paths import DOCS, RESULTS

PAGE = (DOCS / "which-method.md").read_text()
ROUNDS = {"paper": 200, "beyond/report": 40, "quick": 20}
SECTION = re.compile(r'<a id="([^"]+)"></a>\n\n### ([^\n]+)\n\n([^\n]+)\n\n(.+?)(?=\n\n|\n<)', re.DOTALL)
SECTIONS = {anchor: (title, said, table) for anchor, title, said, table in SECTION.findall(PAGE)}
LINK = re.compile(r"\[(-?\d+)\]\(\.\./results/(.+?)/([^/]+\.json)\)")
NAME = r"\[([^\]]+)\]\(algorithms/[\w-]+\.md\)"
MARKS = ("fedavg-ft", "alone", "centralised")
STATEFUL = {name for name, kind in KINDS.items() if kind.costs.state != "none"}


@cache
def stored(scale, file):
    return json.loads((RESULTS / scale / file).read_text())


def rows(anchor):
    """Of each method: what is printed of it, and its runs by seed."""
    table = SECTIONS[anchor][2].splitlines()[2:]
    for line in table:
        name, accuracy, swing, behind, seeds, up, down, keeps = (cell.strip() for cell in line.strip("|").split(" | "))
        runs = {int(seed): (scale, file) for seed, scale, file in LINK.findall(seeds)}
        yield re.fullmatch(NAME, name)[1], (accuracy, swing, behind, up, down, keeps), runs


def second_half(scale, file, curve="accuracy"):
    rounds = ROUNDS[scale]
    return stored(scale, file)["curves"][curve][:rounds][rounds // 2 :]


def accuracies(runs, curve="accuracy"):
    """By seed, to the four decimals that are kept: a half is rounded to even then."""
    return {seed: round(fmean(second_half(run[0], run[1], curve)), 4) for seed, run in runs.items()}


def spread(values):
    return f"{fmean(values):.1f}" + (f" ± {stdev(values):.1f}" if len(values) > 1 else "")


class Differences(list):
    """Seed by seed over the second half; `late`: the mean over the last ten rounds."""

    late = 0.0


def last_ten(runs):
    return {seed: round(fmean(second_half(*run)[-10:]), 4) for seed, run in runs.items()}


def differences(first, second):
    """Of two methods' runs by seed."""
    one, two = accuracies(first), accuracies(second)
    seeds = sorted(one.keys() & two.keys())
    found = Differences(one[seed] - two[seed] for seed in seeds)
    if found:
        found.late = fmean(last_ten(first)[seed] - last_ten(second)[seed] for seed in seeds)
    return found


def error(values):
    return stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0


def lead(values):
    return f"{fmean(values):+.1f}" + (f" ± {error(values):.1f}" if len(values) > 1 else "")


def close(values):
    return fmean(values) <= max(0.5, error(values)) + 1e-4 or values.late < -0.05


def family(name):
    return name.split()[0]


def ranked(anchor, keeping=True):
    """The best, and the differences to all methods of other kinds: first the smallest of the leads that are close."""
    runs = {name: runs for name, _, runs in rows(anchor) if family(name) not in MARKS}
    runs = {name: own for name, own in runs.items() if keeping or family(name) not in STATEFUL}
    pairs = {
        (one, other): found
        for one in runs
        for other in runs
        if family(one) != family(other) and (found := differences(runs[one], runs[other]))
    }
    if not pairs:
        return None, []
    wins = {one: sum(fmean(found) > 0 for (first, _), found in pairs.items() if first == one) for one in runs}
    best = max(runs, key=lambda one: (wins[one], fmean(accuracies(runs[one]).values())))
    leads = [(not close(found), fmean(found), other, found) for (first, other), found in pairs.items() if first == best]
    return best, [(other, found) for *_, other, found in sorted(leads)]


def sure(values):
    seeds = "one seed" if len(values) == 1 else f"{len(values)} seeds"
    if close(values):
        return f"too close, {seeds}"
    # Student's t at 97.5 % with 1, 2, … degrees of freedom, from a table
    table = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262]
    if len(values) == 1:
        return seeds
    return f"{'clear' if fmean(values) > table[len(values) - 2] * error(values) else 'not clear'}, {seeds}"


def test_the_page_is_what_the_result_files_give():
    known = collect(RESULTS, DOCS / "measured" / "methods.json")
    assert with_generated(PAGE, generated(known)) == PAGE, "run tools/make_docs.py"


def test_every_section_was_read():
    assert len(SECTIONS) == PAGE.count('<a id="') > 20


def test_every_result_that_counts_is_linked_and_no_other():
    linked = {(scale, file) for anchor in SECTIONS for _, _, runs in rows(anchor) for scale, file in runs.values()}
    assert not any("tuning" in scale for scale, _ in linked)
    for scale, rounds in ROUNDS.items():
        files = {path.name for path in (RESULTS / scale).glob("*.json") if stored(scale, path.name)["rounds"] >= rounds}
        shown = {file for own, file in linked if own == scale}
        assert shown <= files
        for file in files - shown:  # settings tried on test images, the other reading of dropout
            settings = stored(scale, file)["settings"]
            if (kind := settings["algorithm"]["kind"]) not in KINDS:
                continue  # own code, which is not there for others
            usual = KINDS[kind]()
            own = {key: value for key, value in settings["algorithm"].items() if key != "kind"}
            assert settings["dropout"] == "lost" or any(getattr(usual, key) != value for key, value in own.items()), (
                file
            )


@pytest.mark.parametrize("anchor", SECTIONS)
def test_cells_of_a_section_differ_in_method_and_seed_only(anchor):
    same = set()
    for name, _, runs in rows(anchor):
        for seed, (scale, file) in runs.items():
            result = stored(scale, file)
            settings = {key: value for key, value in result["settings"].items() if key not in ("algorithm", "dropout")}
            assert settings.pop("seed") == result["seed"] == seed
            assert result["settings"]["algorithm"]["kind"] == family(name)
            settings = {key: value for key, value in settings.items() if key not in ("rounds", "workers", "engine")}
            parts = ("dataset", "model", "partition", "participation", "delivery", "training")
            same.add(
                (
                    scale,
                    json.dumps({key: settings[key] for key in parts}, sort_keys=True),
                )
            )
    assert len({scale for scale, _ in same}) == 1
    assert anchor.startswith(next(iter(same))[0].replace("/", "-"))
    early = {text for _, text in same}  # later versions wrote down more settings, which are as before
    assert len({json.dumps(_known_to_all(text, early)) for text in early}) == 1


def _known_to_all(text, texts):
    tables = [json.loads(one) for one in texts]
    mine = json.loads(text)
    return {
        part: {key: value for key, value in values.items() if all(key in table[part] for table in tables)}
        if isinstance(values, dict)
        else values
        for part, values in mine.items()
    }


@pytest.mark.parametrize("anchor", SECTIONS)
def test_the_numbers_of_each_method(anchor):
    best, _ = ranked(anchor)
    of_best: dict[int, tuple[str, str]] = next((runs for name, _, runs in rows(anchor) if name == best), {})
    for name, (accuracy, swing, behind, up, down, keeps), runs in rows(anchor):
        own, scale = accuracies(runs), next(iter(runs.values()))[0]
        text = spread(list(own.values()))
        if family(name) == "feddyn":
            text += f" (cloud model {spread(list(accuracies(runs, 'cloud_accuracy').values()))})"
        assert accuracy == text
        swings = [round(fmean(abs(b - a) for a, b in pairwise(second_half(*run))), 4) for run in runs.values()]
        assert swing == f"{fmean(swings):.1f}"
        curves = stored(scale, runs[min(runs)][1])["curves"]
        assert (up, down) == tuple(
            f"{sum(curves[f'bytes_{way}']) / sum(curves['active']) / 1000:.0f}" for way in ("up", "down")
        )
        assert keeps == KINDS[family(name)].costs.state
        found = differences(runs, of_best)
        if family(name) in MARKS:
            assert behind.startswith("not compared: ")
        else:
            assert behind == (lead(found) if name != best and found else "")


@pytest.mark.parametrize("anchor", SECTIONS)
def test_what_is_said_of_a_condition(anchor):
    said = re.sub(NAME, r"\1", SECTIONS[anchor][1])
    sentence, _, other = said.partition(" **If clients keep no state:** ")
    for keeping, text in ((True, sentence), (False, other)):
        best, leads = ranked(anchor, keeping)
        if not best or (not keeping and STATEFUL.isdisjoint(map(family, level(anchor)))):
            assert text in ("There is nothing to compare yet.", "")
            continue
        (_, narrowest), kinds = leads[0], {family(name) for name, _ in leads}
        swing = {name: float(cells[1]) for name, cells, _ in rows(anchor)}
        expected = f"{best} is {'not clearly ' if close(narrowest) else ''}ahead of {len(kinds)} other method"
        assert text.startswith(expected)
        thin = {family(name) for name, found in leads if len(found) < len(narrowest)}
        assert (f"Over {len(thin)} of them it rests on fewer seeds." in text) is bool(thin)
        runs = next(runs for name, _, runs in rows(anchor) if name == best)
        last = fmean(fmean(stored(*run)["curves"]["accuracy"][: ROUNDS[run[0]]][-10:]) for run in runs.values())
        falls = fmean(accuracies(runs).values()) - last > 1
        assert (f"It falls: {last:.1f} over the last ten rounds." in text) is falls
        assert f"{lead(narrowest)} over {leads[0][0]}" in text
        assert f"({sure(narrowest)})" in text
        for name, found in leads:
            if name == "fedavg":
                assert f"{lead(found)} over fedavg" in text
        assert f"It changes by {swing[best]:.1f} points" in text
        steadier = re.search(r"round to round, (\S.*) by (\d+\.\d)\.$", text)
        least = min(value for name, value in swing.items() if family(name) in {family(best), *kinds})
        assert float(steadier[2]) == least if steadier else swing[best] <= least
        late, over = min((found.late, name) for name, found in leads)
        same = abs(late - fmean(narrowest)) <= 0.05 and over == leads[0][0]
        assert (f" In the last ten rounds: {late:+.1f} over {over}." in text) is not same


def short_answers():
    """Each line of the short table: its cells by their column's name."""
    header, _, *lines = PAGE.split("<!-- generated: card -->\n")[1].split("\n\n")[0].splitlines()
    columns = header.strip("| ").split(" | ")
    for line in lines:
        yield dict(zip(columns, line.strip("| ").split(" | "), strict=True))


def level(anchor, keeping=True):
    """The best, and those too close to it."""
    best, leads = ranked(anchor, keeping)
    return [best, *(name for name, found in leads if close(found))]


def level_in_words(anchor, keeping=True):
    return " or ".join(re.sub(r" (.+)", r"[\1]", name) for name in level(anchor, keeping))


def how_sure(leads):
    thin = {family(name) for name, found in leads if len(found) < len(leads[0][1])}
    fewer = f", over {len(thin)} of them on fewer seeds" if thin else ""
    return f"{sure(leads[0][1])}, of {1 + len({family(name) for name, _ in leads})} methods{fewer}"


def test_the_short_table_says_what_its_sections_say():
    answers = list(short_answers())
    for row in answers:
        words, anchor = re.fullmatch(r"\[(.+)\]\(#(.+)\)", row["how sure"]).groups()
        title = SECTIONS[anchor][0]
        assert title.startswith(f"{row['data']}, {row['a client holds']}, {row['clients']} clients, {row['there']} ")
        rounds = row["rounds the same"]
        assert ("drawn anew each round" if rounds == "1" else f"the same for about {rounds} rounds") in title
        best, leads = ranked(anchor)
        scale = {"paper's": "paper", "40-round": "beyond-report", "quick": "quick"}[row["scale"]]
        assert anchor.startswith(scale)
        firm = len({family(name) for name, _ in leads}) > 1 and scale != "quick"
        assert row["best"] == (f"**{level_in_words(anchor)}**" if firm else level_in_words(anchor))
        assert (words, row["lead"]) == (how_sure(leads), lead(leads[0][1]))
        assert row["last ten rounds"] == f"{min(found.late for _, found in leads):+.1f}"
        assert row["swing"] == next(cells[1] for name, cells, _ in rows(anchor) if name == best)
        without = row["if clients keep nothing"]
        if STATEFUL.isdisjoint(map(family, level(anchor))):
            assert without == "the same"
        elif (other := ranked(anchor, False))[0]:
            _, rest = other
            said = how_sure(rest) if close(rest[0][1]) else f"{lead(rest[0][1])}, {how_sure(rest)}"
            assert without.startswith(f"{level_in_words(anchor, False)} ({said}")
        else:
            assert without == "not compared"
    assert 20 <= len(answers) <= 40, "short enough to be read"


def test_the_papers_scale_wins_where_it_exists():
    """A smaller scale answers only where its best method was not run at a larger."""
    for row in short_answers():
        anchor = row["how sure"].partition("(#")[2].rstrip(")")
        setting, scale = SECTIONS[anchor][0].partition(", model.")[0], anchor.rpartition("-")[0]
        scales = [own.replace("/", "-") for own in ROUNDS]
        larger = tuple(scales[: scales.index(scale)])
        for other, (title, *_) in SECTIONS.items():
            if title.partition(", model.")[0] == setting and larger and other.startswith(larger) and ranked(other)[0]:
                assert re.split(r"\W", row["best"].strip("*"))[0] not in {family(name) for name, _, _ in rows(other)}


def test_a_larger_scale_with_nothing_to_compare_hides_no_smaller_one():
    lone = condition(entry("rebafl", 70.0))
    tried = condition(entry("rebafl", 70.0), entry("fedavg", 60.0), other={"training.lr": "0.1"})
    quick = condition(entry("rebafl", 60.0), entry("fedavg", 50.0), scale="quick")
    for larger in (lone, tried):
        assert "| fashion-mnist | rebafl | +10.0 | +10.0 | [one seed, of 2" in generated(Measured((larger, quick)))
    compared = condition(entry("rebafl", 70.0), entry("fedavg", 71.0))
    assert generated(Measured((compared, quick))).count("| fashion-mnist | ") == 1


def test_costs_are_those_that_were_declared_and_measured():
    table = PAGE.split("## What each costs")[1].split("\n## ")[0]
    ratios = json.loads((DOCS / "measured" / "methods.json").read_text())["to_fedavg"]
    lines = {re.match(rf"\| {NAME}", line)[1]: line for line in table.splitlines() if line.startswith("| [")}
    assert {"fedtrack", "rebafl", "fedavg"} <= lines.keys()
    for name, line in lines.items():
        low, high = ratios[name]["spread"]
        assert f" | {ratios[name]['ratio']:.2f} ({low:.2f} to {high:.2f}) | " in line
    for name, line in lines.items():
        assert KINDS[name].costs.state in line
        assert KINDS[name].costs.compute in line
    assert "no protection but secure aggregation covers means and scatter" in lines["fedtrack"]


def test_a_page_is_made_of_whatever_there_is():
    """New conditions and methods come in by themselves; none at all is a page, too."""
    assert "## At the quick scale" in generated(Measured(()))
    few = condition(
        entry("fednova", 70.0, 71.0), entry("fedavg", 60.0, 60.0), skew="iid", holds="all classes", share=1.0
    )
    alone = condition(entry("fedavg", 60.0), skew="file", holds="as a file says", classes=None, share=None, held=None)
    other = condition(entry("fedtrack", 60.0), entry("rebafl", 50.0), dataset="svhn")
    text = generated(Measured((few, alone, other)))
    assert "| [fedtrack](algorithms/fedtrack.md) | none | length, means, scatter | not run beside FedAvg |" in text
    answer = "| fednova | +10.5 ± 0.5 | +10.5 | [clear, 2 seeds, of 2 methods](#paper-1) | 1.0 | the same | paper's |"
    assert f"| all classes | 100% | 1 | 20 | fashion-mnist {answer}" in text
    assert "There is nothing to compare yet." in text
