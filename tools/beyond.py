"""Which method is best under label skew and dropout, if all are tuned alike? Runs, and the tables of docs/beyond.md.

    python tools/beyond.py tuning --jobs 2      # seeds 100 to 102, scored on 5,000 held-out training images
    python tools/beyond.py report --seeds 0,1   # the chosen settings on the test images
    python tools/beyond.py ablation
    python tools/beyond.py ceiling              # all there, iid: what no method passes
    python tools/beyond.py table

What is run is in tools/beyond.toml. Each run is resumable, and what is kept of it is a file in results/beyond.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np

from rebafl.base.config import parse_assignments, read_toml
from rebafl.data import Data, load
from rebafl.paper.item_results import ItemResults
from rebafl.paper.items import PAPER, Cell, find_item, find_scale
from rebafl.paper.results import WORST_RECALL, Result, keep, missing, read
from rebafl.report.markdown import markdown_table
from rebafl.runs.settings import make_settings
from rebafl.runs.simulate import simulate

HERE = Path(__file__).parent
RESULTS, WORK = HERE.parent / "results", HERE.parent / "runs"
PLAN: dict[str, Any] = dict(read_toml(HERE / "beyond.toml"))
HELD_OUT, SEED = 5_000, 12_345
PARTS: dict[str, Any] = PLAN["parts"]
TUNING, TESTED, OTHERS = "beyond/tuning", "beyond/report", "beyond/others"
NOTHING = "–"
OURS, RIVALS = "FedTrack", ("ReBaFL, μ 5", "FedDyn, α 0.1")


def cells(part: str, seeds: Sequence[int] = (), where: Sequence[str] = (), only: Sequence[str] = ()) -> Iterator[Cell]:
    """The runs of a part, cheapest condition first, one seed after the other."""
    chosen = PARTS[part]
    for seed in seeds or chosen["seeds"]:
        for condition in chosen["conditions"]:
            for method in chosen["methods"]:
                if (where and condition not in where) or (only and method not in only):
                    continue
                words = f"{PLAN['conditions'][condition]} {PLAN['methods'][method]}".split()
                settings = replace(make_settings(parse_assignments(words)), seed=seed)
                yield Cell(method, condition, folder_of(part, method), settings)


def folder_of(part: str, method: str) -> str:
    """By the images that score it; what was not chosen on held-out ones is kept apart: no advice may rest on it."""
    return TUNING if part == "tuning" else TESTED if method in PARTS["report"]["methods"] else OTHERS


def held_out(name: str) -> Data:
    """The training images without those on which settings are chosen, which take the place of the test images."""
    data = load(name, lambda *_: None)
    order = np.random.default_rng(SEED).permutation(len(data.y_train))
    scored, trained = order[:HELD_OUT], np.sort(order[HELD_OUT:])
    return replace(
        data,
        x_train=data.x_train[trained],
        y_train=data.y_train[trained],
        x_test=data.x_train[scored],
        y_test=data.y_train[scored],
    )


def run(cell: Cell) -> Cell:
    """One run to its end, and what is kept of it."""
    data = held_out(cell.settings.dataset) if cell.scale == TUNING else None
    record = simulate(replace(cell.settings, workers=1), WORK / cell.key, data=data, say=lambda *_: None)
    keep(cell, record, RESULTS)
    return cell


def run_all(chosen: Sequence[Cell], jobs: int) -> None:
    """`jobs` at a time, each on one core."""
    waiting = missing(chosen, RESULTS)
    done = len(chosen) - len(waiting)
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        for future in as_completed([pool.submit(run, cell) for cell in waiting]):
            done += 1
            print(f"{done}/{len(chosen)}  {describe(future.result())}", flush=True)


def describe(cell: Cell) -> str:
    result = read(cell, RESULTS)
    return f"{cell.condition}  {cell.method}  seed {cell.settings.seed}  {numbers(result)}" if result else cell.key


def numbers(result: Result) -> str:
    return f"{result.measure('second_half'):.2f} ({result.measure('swing'):.2f})"


def tables() -> str:
    """What was to be reached, and what is there of each part, as Markdown."""
    parts = [f"### {part.capitalize()}\n\n{chosen['about']}\n\n{table(part)}" for part, chosen in PARTS.items()]
    return "\n\n".join([f"### Lead\n\n{bars()}", f"### At the paper's scale\n\n{paper_table()}", *parts])


def paper_table() -> str:
    """Methods by conditions at 200 rounds and 1000 images a client, as the paper sets them."""
    found = {
        (method, condition): list(ItemResults(find_item(item), find_scale(PAPER), RESULTS).lookup(method, at).values())
        for condition, (item, at) in PLAN["paper"]["conditions"].items()
        for method in PLAN["paper"]["methods"]
    }
    return grid(found, PLAN["paper"]["conditions"], PLAN["paper"]["methods"])


def bars() -> str:
    """FedTrack beside the better of its rivals, by condition, on the seeds that all of them have."""
    header = ("condition", "seeds", "lead", "over", "share of the gap", "swing", "rounds", "worst class")
    return markdown_table(header, list(filter(None, map(bar, PARTS["report"]["conditions"]))))


def bar(condition: str) -> list[str]:
    """One row of `bars`; empty where something is missing."""
    found = {method: by_seed(condition, method) for method in (OURS, *RIVALS)}
    seeds = sorted(set.intersection(*(set(results) for results in found.values())))
    if not seeds:
        return []
    runs = {method: [results[seed] for seed in seeds] for method, results in found.items()}
    means = {method: mean_of(own, "second_half") for method, own in runs.items()}
    rival = max(RIVALS, key=lambda method: means[method])
    ours, rebafl = runs[OURS], runs[RIVALS[0]]
    scores = [[result.measure("second_half") for result in runs[method]] for method in (OURS, rival)]
    leads = [us - them for us, them in zip(*scores, strict=True)]
    top = ceiling(condition)
    return [
        condition,
        ", ".join(map(str, seeds)),
        f"{fmean(leads):+.1f}" + (f" ± {stdev(leads) / len(leads) ** 0.5:.1f}" if len(leads) > 1 else ""),
        rival,
        f"{fmean(leads) / (top - means[rival]):.0%} of {top - means[rival]:.1f}" if top else "–",
        f"{mean_of(ours, 'swing'):.1f} / {mean_of(rebafl, 'swing'):.1f}",
        " / ".join(f"{fmean(map(rounds_to, own, rebafl)):.0f}" for own in (ours, rebafl)),
        " / ".join(f"{mean_of(runs[method], WORST_RECALL):.0f}" for method in (OURS, *RIVALS)),
    ]


def by_seed(condition: str, method: str, part: str = "report") -> dict[int, Result]:
    chosen = cells(part, where=[condition], only=[method])
    return {cell.settings.seed: result for cell in chosen if (result := read(cell, RESULTS))}


def ceiling(condition: str) -> float | None:
    """The second half of FedAvg where all are there with all classes; None where that was not run."""
    iid = PARTS["ceiling"]["of"].get(condition)
    results = list(by_seed(iid, "FedAvg", "ceiling").values()) if iid else []
    return mean_of(results, "second_half") if results else None


def mean_of(results: Sequence[Result], measure: str) -> float:
    return fmean(result.measure(measure) for result in results)


def rounds_to(result: Result, rebafl: Result) -> float:
    """The first round that is as good as ReBaFL's last ten are on average; one more than there are if none is."""
    goal = rebafl.measure("last10")
    return next((r for r, accuracy in enumerate(result.curves["accuracy"], 1) if accuracy >= goal), result.rounds + 1)


def table(part: str) -> str:
    """Methods by conditions: second half and swing, means over the seeds that are there."""
    found = defaultdict[tuple[str, str], list[Result]](list)
    for cell in cells(part):
        if result := read(cell, RESULTS):
            found[cell.method, cell.condition].append(result)
    return grid(found, PARTS[part]["conditions"], PARTS[part]["methods"])


def grid(found: Mapping[tuple[str, str], Sequence[Result]], conditions: Iterable[str], methods: Iterable[str]) -> str:
    """A row for each method of which anything is there."""
    rows = [(method, [entry(found[method, condition]) for condition in conditions]) for method in methods]
    shown = [(method, *entries) for method, entries in rows if any(text != NOTHING for text in entries)]
    return markdown_table(("", *conditions), shown)


def entry(results: Sequence[Result]) -> str:
    if not results:
        return NOTHING
    accuracy = [result.measure("second_half") for result in results]
    spread = f" ± {stdev(accuracy):.1f}" if len(accuracy) > 1 else ""
    return f"{fmean(accuracy):.1f}{spread} ({fmean(result.measure('swing') for result in results):.1f}; {len(results)})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=[*PARTS, "table"])
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seeds", type=lambda text: [int(seed) for seed in text.split(",")], default=[])
    parser.add_argument("--where", action="append", default=[])
    parser.add_argument("--only", action="append", default=[])
    words = parser.parse_args()
    if words.part == "table":
        print(tables())
    else:
        run_all(list(cells(words.part, words.seeds, words.where, words.only)), words.jobs)


if __name__ == "__main__":
    main()
