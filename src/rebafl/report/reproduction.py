"""How do our numbers compare with the paper's? Tables, verdicts and the page that shows them all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import compress
from pathlib import Path
from statistics import fmean, stdev

from ..base.config import Plain
from ..paper.items import (
    RACE,
    Claim,
    Item,
    Scale,
    cells,
    deviations,
    find_item,
    find_scale,
    item_names,
    printed,
    scale_names,
)
from ..paper.results import Result, read, seeds_kept
from ..paper.verdicts import DECISIONS, FAILED, HELD, NOT_RUN, Verdict, judge
from .reference import markdown_table
from .speed import Rows

PAPER = "paper"
FAR = 3.0  # points between ours and the paper's that call for a word


@dataclass(frozen=True)
class Shown:
    """An item at a scale, with all results that there are; `race` is what the benchmark measured."""

    item: Item
    scale: Scale
    folder: Path
    race: Plain = field(default_factory=dict)

    @cached_property
    def results(self) -> dict[tuple[str, str], dict[int, Result]]:
        found: dict[tuple[str, str], dict[int, Result]] = {}
        for cell in cells(self.item, self.scale, seeds_kept(self.scale.name, self.folder)):
            result, rounds = read(cell, self.folder), cell.settings.rounds
            if result is not None and result.rounds >= rounds:
                found.setdefault((cell.method, cell.condition), {})[cell.settings.seed] = result.cut(rounds)
        return found

    def lookup(self, method: str, condition: str) -> Mapping[int, Result]:
        return self.results.get((method, condition), {})

    def compared(self, method: str, condition: str) -> Mapping[int, Result]:
        """As `lookup`, but only seeds that all methods under this condition have, if there is such a seed."""
        every = [set(each) for (_, there), each in self.results.items() if there == condition]
        common, own = set[int].intersection(*every) if every else set[int](), self.lookup(method, condition)
        return {seed: result for seed, result in own.items() if seed in common} if common else own

    @property
    def comparable(self) -> bool:
        """Is there something for a picture: two conditions along a line, or two methods under one of them?"""
        methods = Counter(condition for _, condition in self.results)
        return len(methods) > 1 if self.item.shows[0] == "lines" else max(methods.values(), default=0) > 1

    @property
    def pending(self) -> str:
        """Cells without any seed yet, condition by condition; empty if there are none."""
        missing = {
            condition: [method for method in self.item.methods if not self.lookup(method, condition)]
            for condition in self.item.conditions
        }
        return "; ".join(
            f"{condition}: {'all' if len(methods) == len(self.item.methods) else ', '.join(methods)}"
            for condition, methods in missing.items()
            if methods
        )

    def verdicts(self) -> list[Verdict]:
        return [self._verdict(claim) for claim in self.item.claims]

    def _verdict(self, claim: Claim) -> Verdict:
        """By the claim's measure; of the best round, with a word if the second half as a whole says something else."""
        if claim.measure == RACE:
            return _judge_race(claim, self.race)
        verdict = judge(self.item, claim, self.lookup)
        if claim.measure != "best":
            return verdict
        other = judge(self.item, replace(claim, measure="second_half"), self.lookup)
        if other.decision == verdict.decision:
            return verdict
        evidence = f"{verdict.evidence}; by the second half {other.decision}: {other.evidence}"
        return replace(verdict, evidence=evidence, otherwise=other.decision)

    def tables(self) -> list[tuple[str, Rows]]:
        """One for each condition that has results: ours beside the paper's."""
        table = self._cost if "cost" in self.item.shows else self._accuracy
        there = [c for c in self.item.conditions if any(self.lookup(m, c) for m in self.item.methods)]
        return [(condition, table(condition)) for condition in there]

    def _accuracy(self, condition: str) -> Rows:
        # what the paper prints is at its own scale: beside anything smaller it would say nothing
        whole = self.scale.name == PAPER
        beside = whole and any(printed(self.item, condition, method) is not None for method in self.item.methods)
        columns = {
            "paper": beside,
            "difference": beside,
            "second half": whole,  # at smaller scales it is the last ten rounds
            "Λ": "diversity" in self.item.shows,
        }
        header = ("method", "best", "paper", "difference", "second half", "last 10", "swing", "Λ", "seeds")
        keep = [columns.get(name, True) for name in header]
        found = [self._row(method, condition) for method in self.item.methods if self.lookup(method, condition)]
        return tuple(compress(header, keep)), [tuple(compress(row, keep)) for row in found]

    def _row(self, method: str, condition: str) -> Sequence[str]:
        found = list(self.compared(method, condition).values())
        theirs = printed(self.item, condition, method)
        ours = fmean(result.measure("best") for result in found)
        return (
            method,
            _over(found, "best"),
            *(("", "") if theirs is None else (f"{theirs:.2f}", f"{ours - theirs:+.2f}")),
            _over(found, "second_half"),
            _over(found, "last10"),
            f"{fmean(result.measure('swing') for result in found):.2f}",
            f"{fmean(r.measure('diversity') for r in found):.3g}" if "diversity" in self.item.shows else "",
            _seeds(found),
        )

    def _cost(self, condition: str) -> Rows:
        rows: list[Sequence[str]] = []
        for method in self.item.methods:
            if found := list(self.compared(method, condition).values()):
                values = [fmean(result.measure(name) for result in found) for name in ("bytes_down", "bytes_up")]
                rows.append((method, *(f"{value:,.0f}" for value in values), _seeds(found)))
        return ("method", "bytes to a client", "bytes of its upload", "seeds"), rows

    def troubles(self) -> list[str]:
        """Runs in which uploads were refused or rounds brought nothing: their numbers look like any other's."""
        return [
            f"{method}, {condition}, seed {seed}: {words}"
            for (method, condition), found in self.results.items()
            for seed, result in found.items()
            if (words := str(result.tally))
        ]

    def far(self) -> list[str]:
        """Where ours and the paper's differ by more than a few points."""
        if self.scale.name != PAPER:
            return []
        found = []
        for method, condition in self.results:
            theirs = printed(self.item, condition, method)
            ours = fmean(result.measure("best") for result in self.compared(method, condition).values())
            if theirs is not None and abs(ours - theirs) > FAR:
                found.append(f"{method}, {condition}: {ours:.2f} against {theirs:.2f}")
        return found


def _judge_race(claim: Claim, race: Plain) -> Verdict:
    """By the benchmark's rounds of both methods in turn: seconds of separate runs say more of the machine's load."""
    if not (turns := race.get("rebafl_to_fedavg")):
        return Verdict(NOT_RUN, "")
    low, high = turns["spread"]
    evidence = f"rounds in turn: ReBaFL / FedAvg = {turns['ratio']:.2f} ({low:.2f} to {high:.2f})"
    return Verdict(HELD if turns["ratio"] <= claim.most else FAILED, evidence)


def _own_numbers(item: Item, claim: Claim) -> str:
    """Does the claim hold on the numbers that the paper itself prints?"""

    def lookup(method: str, condition: str) -> Mapping[int, Result]:
        value = printed(item, condition, method)
        return {} if value is None else {0: Result(1, 0, {}, {}, {"accuracy": [value]})}

    decision = judge(item, claim, lookup).decision if claim.measure == "best" else NOT_RUN
    return "" if decision == NOT_RUN else decision


def _seeds(found: Sequence[Result]) -> str:
    return ", ".join(str(result.seed) for result in found)


def _over(found: Sequence[Result], name: str) -> str:
    values = [result.measure(name) for result in found]
    return f"{fmean(values):.2f}" + (f" ± {stdev(values):.2f}" if len(values) > 1 else "")


HEAD = """# Reproduction

Generated by `rebafl paper report` from the files in [results](../results). Every cell can be run again with
`rebafl paper run ITEM --scale SCALE`, and gives the same curve to the bit on the same kind of machine.

Accuracy is that of the global model on the whole test set, in percent. **Best** is the best round, chosen on the test
set, and it flatters; the paper's numbers are compared with it. **Second half** and **last 10** are means over these
rounds, **swing** is the mean change from one round to the next, up or down, over the second half. With several seeds, ±
is the standard deviation over seeds. Tables and figures show the seeds that all their methods have; claims are judged
on those that both of a pair have: the same data, the same dropout.
"""


def page(folder: Path, figures: Callable[[Shown], Sequence[str]], race: Plain) -> str:
    """The whole page; `figures` draws an item and says how to show it."""
    shown = {
        (name, scale): Shown(find_item(name), find_scale(scale), folder, race if scale == PAPER else {})
        for name in item_names()
        for scale in scale_names()
    }
    items = [_item(find_item(n), [shown[n, scale] for scale in scale_names()], figures) for n in item_names()]
    parts = [HEAD, _scales(), _verdicts(shown), _deviations(), *items]
    return "\n".join(part.rstrip("\n") + "\n" for part in parts)


def _scales() -> str:
    lines = [f"- `{name}`: {find_scale(name).about}" for name in scale_names()]
    return "Scales:\n\n" + "\n".join(lines) + "\n"


def _verdicts(shown: Mapping[tuple[str, str], Shown]) -> str:
    """A row a claim, with the verdict at each scale."""
    rows, tally = [], {scale: Counter[str]() for scale in scale_names()}
    for name in item_names():
        item = find_item(name)
        judged = {scale: shown[name, scale].verdicts() for scale in scale_names()}
        for number, claim in enumerate(item.claims):
            each = {scale: verdicts[number] for scale, verdicts in judged.items()}
            for scale, verdict in each.items():
                tally[scale][verdict.decision] += 1
            evidence = [f"{scale}: {verdict.evidence}" for scale, verdict in each.items() if verdict.evidence]
            decisions = [_decision(each[scale]) for scale in scale_names()]
            rows.append(
                (f"[{name}](#{name})", claim.text, _own_numbers(item, claim), *decisions, "<br>".join(evidence))
            )
    header = ("item", "claim", "the paper's own numbers", *scale_names(), "evidence: narrowest difference by condition")
    counted = "\n".join(
        f"- `{scale}`: {', '.join(f'{count[each]} {each}' for each in DECISIONS if count[each])}"
        for scale, count in tally.items()
    )
    return (
        f"## Verdicts\n\nOf {len(rows)} claims, at each scale:\n\n{counted}\n\n"
        "The rules are in [verdicts.py](../src/rebafl/paper/verdicts.py): a difference counts from half a point on, "
        "and one seed is one seed. Claims on tables are judged by the best round; where the mean over the second half "
        "decides otherwise, that is said. The numbers that the paper prints, judged by the same rules, do not always "
        f"decide for it either; a column says so.\n\n{markdown_table(header, rows)}"
    )


def _deviations() -> str:
    lines = "\n".join(f"- {each}" for each in deviations())
    return f"## Deviations and choices\n\n{lines}\n"


def _decision(verdict: Verdict) -> str:
    other = f" (by the second half: {_bold(verdict.otherwise)})" if verdict.otherwise else ""
    return _bold(verdict.decision) + other


def _bold(decision: str) -> str:
    return f"**{decision}**" if decision in (HELD, FAILED) else decision


def _item(item: Item, scales: Sequence[Shown], figures: Callable[[Shown], Sequence[str]]) -> str:
    parts = [f'<a id="{item.name}"></a>\n\n## {item.title}\n', f"{item.note}\n" if item.note else ""]
    for shown in scales:
        if not shown.results:
            parts.append(f"At scale `{shown.scale.name}`: pending.\n")
            continue
        parts.append(f"### `{item.name}` at scale `{shown.scale.name}`\n")
        parts.extend(f"{picture}\n" for picture in (figures(shown) if shown.comparable else ()))
        for condition, table in shown.tables():
            parts.append(f"{condition}:\n\n{markdown_table(*table)}\n")
        if shown.pending:
            parts.append(f"Pending: {shown.pending}.\n")
        if troubles := shown.troubles():
            parts.append(f"Not everything was used: {'; '.join(troubles)}.\n")
        if far := shown.far():
            parts.append(f"More than {FAR:.0f} points from the paper: {'; '.join(far)}.\n")
        if shown.scale.name == PAPER and item.findings:
            parts.append("What was found about differences:\n\n" + "".join(f"- {each}\n" for each in item.findings))
    return "\n".join(part for part in parts if part)
