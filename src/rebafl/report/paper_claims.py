"""How did each claim fare? A table with one number each, and below it, item by item, everything that was compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from ..paper.gaps import Gap, by_the_authors_model
from ..paper.item_results import ItemResults
from ..paper.items import Claim, Item
from ..paper.readings import DECISIONS, DEPENDS, OPEN, TABLE_MEASURES, Reading
from ..paper.verdicts import FAILED, HELD, judge_printed
from .markdown import markdown_table

MEASURES = {
    "second_half": "second half",
    "best": "best",
    "last10": "last 10",
    "swing": "swing",
    "accuracy": "all rounds",
    "diversity": "Λ",
    "race": "seconds",
    "bytes_up": "bytes up",
}


def bold(decision: str) -> str:
    return f"**{decision}**" if decision in (HELD, FAILED) else decision


def counted(readings: Sequence[Reading]) -> str:
    """How many claims were decided how, in words."""
    count = Counter(reading.decision for reading in readings)
    words = {decision: decision for decision in DECISIONS} | {DEPENDS: "dependent on the measure"}
    return ", ".join(f"{count[decision]} {words[decision]}" for decision in DECISIONS if count[decision])


def on_one_seed(readings: Sequence[Reading]) -> tuple[int, int]:
    """How many of those that held or did not rest on one seed, and how many there are."""
    decided = [reading.first.seeds for reading in readings if reading.decision in (HELD, FAILED)]
    return decided.count(1), len(decided)


def claims_table(paper: Mapping[str, Sequence[Reading]], quick: Mapping[str, Sequence[Reading]]) -> str:
    """One row for each claim, those that are decided first: the verdict at the paper's scale, and the smaller one's
    while that is open."""
    claims = [
        (name, number, reading, smaller)
        for name, readings in paper.items()
        for number, (reading, smaller) in enumerate(zip(readings, quick[name], strict=True), 1)
    ]
    rows = [
        (
            f"[{name}.{number}](#{name})",
            reading.claim.text,
            bold(reading.decision),
            f"**{reading.first.number}**" if reading.first.number else "",
            reading.first.of,
            str(reading.first.seeds or ""),
            _by_measure(reading),
            bold(smaller.decision) if reading.decision in OPEN else "",
        )
        for name, number, reading, smaller in sorted(claims, key=lambda claim: DECISIONS.index(claim[2].decision))
    ]
    header = ("", "claim", "verdict", "number", "of", "seeds", "judged by", "quick, while open")
    return markdown_table(header, rows)


def _by_measure(reading: Reading) -> str:
    """The measures, each with its verdict where they differ; and what FedDyn's cloud model would decide otherwise."""
    verdicts = reading.by_measure
    if len({verdict.decision for verdict in verdicts.values()}) == 1:
        text = ", ".join(MEASURES[measure] for measure in verdicts)
    else:
        text = "; ".join(f"{MEASURES[measure]}: {bold(verdict.decision)}" for measure, verdict in verdicts.items())
    for measure, verdict in reading.by_cloud.items():
        text += f"; FedDyn's cloud model, {MEASURES[measure]}: {bold(verdict.decision)}"
    return text


def claims_of_item(paper: ItemResults, quick: ItemResults) -> str:
    """Every claim with all that was compared for it."""
    parts = []
    for number, (reading, smaller) in enumerate(zip(paper.readings, quick.readings, strict=True), 1):
        lines = compared(reading)
        if reading.decision in OPEN:
            lines += [f"quick, {line}" for line in compared(smaller)]
        lines += by_their_numbers(paper.item, reading.claim)
        claim = f"- {paper.item.name}.{number} {bold(reading.decision)}: {reading.claim.text}"
        parts += [claim, *(f"  - {line}" for line in lines)]
    return "\n".join(parts)


def compared(reading: Reading) -> list[str]:
    """By each measure what was decided, and from which numbers; by FedDyn's cloud model where that is otherwise."""
    lines = {MEASURES[measure]: verdict for measure, verdict in reading.by_measure.items()}
    lines |= {f"{MEASURES[name]}, FedDyn by its cloud model": verdict for name, verdict in reading.by_cloud.items()}
    return [
        f"{name}: {verdict.decision}" + (f": {verdict.evidence}" if verdict.evidence else "")
        for name, verdict in lines.items()
    ]


def by_their_numbers(item: Item, claim: Claim) -> list[str]:
    """What the numbers that the paper prints decide, where they decide something."""
    own = judge_printed(item, claim)
    return [f"the paper's own numbers, by the same rules: {own}"] if own else []


def gaps_in_words(every: Sequence[Gap]) -> str:
    """Which of our numbers is the paper's: how far each is off, in words and as a table of all cells."""
    by_authors = by_the_authors_model(every)
    cells = [gap for gap in by_authors if not gap.not_counted]
    if not cells:
        return "No cell was run yet that the paper prints a number for.\n"
    left_out: dict[str, list[Gap]] = {}
    for gap in by_authors:
        if gap.not_counted:
            left_out.setdefault(gap.not_counted, []).append(gap)
    others = [gap for gap in every if gap not in by_authors and not gap.not_counted]
    header = ("our number", "mean gap", "largest gap", "where", "second largest")
    summary = markdown_table(header, [_summary(measure, cells) for measure in TABLE_MEASURES])
    rows = [
        (
            gap.name,
            f"{gap.theirs:.2f}",
            *(f"{gap.by_measure[name]:+.2f}" for name in TABLE_MEASURES),
            str(gap.seeds),
            gap.not_counted,
        )
        for gap in every
    ]
    table = markdown_table(("cell", "paper", "second half − paper", "best − paper", "seeds", "not counted"), rows)
    not_counted = "; ".join(
        f"{len(those)} {reason} ({_nearer_by_second_half(those)} of them nearer)" for reason, those in left_out.items()
    )
    by_clients = "; ".join(f"{gap.name} {gap.by_measure['second_half']:+.2f}" for gap in others)
    return (
        f"The paper does not say of which round its tables are. In {_nearer(cells)} cells that were run at "
        "its scale and that it prints a number for, the mean over the second half of the rounds is nearer to that "
        f"number than the best round ({_by_place(cells)})."
        f"{f' Not counted: {not_counted}.' if not_counted else ''} "
        "Absolute gaps in points, FedDyn by its cloud model as in the authors' code:\n\n"
        f"{summary}\n\n"
        + (
            f"By the mean of the clients' models FedDyn's gaps, second half, are: {by_clients}.\n\n"
            if by_clients
            else ""
        )
        + folded("Cell by cell; FedDyn by both of its models", table)
    )


def _nearer(cells: Sequence[Gap]) -> str:
    """Of how many the second half is nearer to the paper's number, in words."""
    nearer = _nearer_by_second_half(cells)
    return f"all {len(cells)}" if nearer == len(cells) else f"{nearer} of the {len(cells)}"


def _nearer_by_second_half(cells: Sequence[Gap]) -> int:
    return sum(abs(gap.by_measure["second_half"]) < abs(gap.by_measure["best"]) for gap in cells)


def _by_place(cells: Sequence[Gap]) -> str:
    """The same item by item and condition by condition: what holds for one table need not hold for the next."""
    places: dict[str, list[Gap]] = {}
    for gap in cells:
        places.setdefault(gap.place, []).append(gap)
    return "; ".join(f"{place}: {_nearer_by_second_half(those)} of {len(those)}" for place, those in places.items())


def _summary(measure: str, cells: Sequence[Gap]) -> Sequence[str]:
    first, *rest = sorted(cells, key=lambda gap: -abs(gap.by_measure[measure]))
    mean = sum(abs(gap.by_measure[measure]) for gap in cells) / len(cells)
    second = f"{abs(rest[0].by_measure[measure]):.2f} ({rest[0].name})" if rest else ""
    return (MEASURES[measure], f"{mean:.2f}", f"{abs(first.by_measure[measure]):.2f}", first.name, second)


def folded(title: str, text: str) -> str:
    """What is shown only when it is opened; blank lines let Markdown within be read as such."""
    return f"<details><summary>{title}</summary>\n\n{text.strip()}\n\n</details>\n"
