"""Which method is best under label skew and dropout, if all are tuned alike? Runs, and the tables of docs/beyond.md.

    python tools/beyond.py tuning --jobs 2      # seeds 100 to 102, scored on 5,000 held-out training images
    python tools/beyond.py report --seeds 0,1   # the chosen settings on the test images
    python tools/beyond.py ablation
    python tools/beyond.py ceiling              # all there, iid: a reference
    python tools/beyond.py table

What is run is in tools/beyond.toml. Each run is resumable, and what is kept of it is a file in results/beyond.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
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
NOTHING, FEDDYN, CLOUD = "–", "FedDyn", "FedDyn, cloud model"
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
    found, methods = dict[tuple[str, str], list[Result]](), PLAN["paper"]["methods"]
    for condition, (item, at) in PLAN["paper"]["conditions"].items():
        results = ItemResults(find_item(item), find_scale(PAPER), RESULTS)
        found |= {(method, condition): list(results.lookup(method, at).values()) for method in methods}
        clouds = [result.of_cloud_model for result in found[FEDDYN, condition]]
        found[CLOUD, condition] = [cloud for cloud in clouds if cloud]
    return grid(found, PLAN["paper"]["conditions"], [*methods, CLOUD])


@dataclass(frozen=True)
class Bar:
    """FedTrack beside the better of its rivals under a condition, on the seeds that all of them have."""

    condition: str
    seeds: Sequence[int]
    rival: str
    leads: Sequence[float]
    lacking: float | None
    swing: tuple[float, float]
    rounds: tuple[float, float]
    worst: Sequence[float]

    def row(self) -> list[str]:
        share = f"{self.lead / self.lacking:.0%} of {self.lacking:.1f}" if self.lacking else NOTHING
        error = f" ± {stdev(self.leads) / len(self.leads) ** 0.5:.1f}" if len(self.leads) > 1 else ""
        return [
            self.condition,
            ", ".join(map(str, self.seeds)),
            f"{self.lead:+.1f}{error}",
            self.rival,
            share,
            " / ".join(f"{swing:.1f}" for swing in self.swing),
            " / ".join(f"{rounds:.0f}" for rounds in self.rounds),
            " / ".join(f"{recall:.0f}" for recall in self.worst),
        ]

    @property
    def lead(self) -> float:
        return fmean(self.leads)


def bars() -> str:
    """All conditions as a table, and where what was to be reached was not."""
    header = ("condition", "seeds", "lead", "over", "share of the gap", "swing", "rounds", "worst class")
    found = [bar for condition in PARTS["report"]["conditions"] if (bar := bar_of(condition))]
    lines = [
        missed("A lead of at least 3 points", found, {b.condition: f"{b.lead:+.1f}" for b in found if b.lead < 3}),
        missed("No more swing than ReBaFL's", found, {b.condition: "" for b in found if b.swing[0] > b.swing[1]}),
        missed(
            "At most half of ReBaFL's rounds", found, {b.condition: "" for b in found if 2 * b.rounds[0] > b.rounds[1]}
        ),
    ]
    return markdown_table(header, [bar.row() for bar in found]) + "\n\n" + "\n".join(lines)


def missed(goal: str, found: Sequence[Bar], where: Mapping[str, str]) -> str:
    places = "; ".join(f"{condition} ({number})" if number else condition for condition, number in where.items())
    reached = f"- {goal}: in {len(found) - len(where)} of {len(found)} conditions"
    return f"{reached}; not in: {places}." if where else f"{reached}."


def bar_of(condition: str) -> Bar | None:
    """None where a method is missing."""
    found = {method: by_seed(condition, method) for method in (OURS, *RIVALS)}
    seeds = sorted(set.intersection(*(set(results) for results in found.values())))
    if not seeds:
        return None
    runs = {method: [results[seed] for seed in seeds] for method, results in found.items()}
    rival = max(RIVALS, key=lambda method: mean_of(runs[method], "second_half"))
    ours, rebafl = runs[OURS], runs[RIVALS[0]]
    scores = [[result.measure("second_half") for result in runs[method]] for method in (OURS, rival)]
    top = ceiling(condition)
    return Bar(
        condition,
        seeds,
        rival,
        [us - them for us, them in zip(*scores, strict=True)],
        top - fmean(scores[1]) if top and top > fmean(scores[1]) else None,
        (mean_of(ours, "swing"), mean_of(rebafl, "swing")),
        (fmean(map(rounds_to, ours, rebafl)), fmean(map(rounds_to, rebafl, rebafl))),
        [mean_of(runs[method], WORST_RECALL) for method in (OURS, *RIVALS)],
    )


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
    """Methods by conditions: second half and swing, means over the seeds that are there; of a part that compares
    variants, the seeds that all of them have."""
    conditions, methods = PARTS[part]["conditions"], PARTS[part]["methods"]
    found = {(method, condition): by_seed(condition, method, part) for condition in conditions for method in methods}
    if PARTS[part].get("paired"):
        common = {c: set.intersection(*(set(found[method, c]) for method in methods)) for c in conditions}
        found = {side: {seed: of[seed] for seed in sorted(common[side[1]])} for side, of in found.items()}
    return grid({side: list(of.values()) for side, of in found.items()}, conditions, methods)


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
