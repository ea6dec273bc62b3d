"""Which method was best where? The generated part of docs/which-method.md: a short table, then every condition."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ..advice.limits import competing, limits_in_words, no_competitor, shared_in_words
from ..advice.measured import ROUNDS, SCALES, SMALLEST, TITLES, Condition, Entry, Measured, order
from ..advice.verdict import Lead, Verdict, accuracy, judge, judge_stateless, mean, points, swing
from .markdown import markdown_table

HEADER = (
    "a client holds", "there", "rounds the same", "clients", "data", "best", "lead", "last ten rounds", "how sure",
    "swing", "if clients keep nothing",
    "scale",
)  # fmt: skip


@dataclass(frozen=True)
class Section:
    """A condition, where it stands on the page, and what is said of it."""

    anchor: str
    condition: Condition
    verdict: Verdict | None
    stateless: Verdict | None

    @property
    def fits_a_line(self) -> bool:
        """Whether methods were compared, and all columns of the short table can be told of the setting."""
        setting = self.condition.setting
        known = setting.share is not None and setting.held is not None and self.verdict is not None
        return known and all(name.startswith("model.") for name in setting.other)


def page(measured: Measured) -> str:
    """All of it."""
    sections = []
    for number, condition in enumerate(measured.conditions, 1):
        entries = competing(condition)
        anchor = f"{condition.scale.replace('/', '-')}-{number}"
        sections.append(Section(anchor, condition, judge(entries), judge_stateless(entries)))
    parts = [short_table(sections), costs(measured)]
    for scale, about in SCALES.items():
        text = [_section(section) for section in sections if section.condition.scale == scale]
        parts += [f"## At {TITLES[scale]}\n\n{about.capitalize()}.", *text]
    return "\n\n".join(parts)


def linked(entry: Entry) -> str:
    return f"[{entry.name.replace('[', ' ').replace(']', '')}](algorithms/{entry.kind}.md)"


def short_table(sections: Sequence[Section]) -> str:
    """One line for each setting."""
    chosen = sorted(_chosen(sections), key=lambda section: order(section.condition)[1:])
    table = markdown_table(HEADER, [_answer(section, section.verdict) for section in chosen if section.verdict])
    compared = [section.verdict.leads[0] for section in sections if section.verdict]
    single = sum(len(lead.differences) == 1 for lead in compared)
    return f"{table}\n\nOf {len(compared)} conditions that were measured, {single} rest on one seed."


def _chosen(sections: Sequence[Section]) -> Iterator[Section]:
    """Of each setting that of the largest scale; of smaller ones where their best method was not run at a larger."""
    run: set[tuple[str, str]] = set()
    for scale in ROUNDS:
        here = [section for section in sections if section.fits_a_line and section.condition.scale == scale]
        for section in here:
            if section.verdict and (_place(section), section.verdict.best.kind) not in run:
                yield section
        run |= {(_place(section), entry.kind) for section in here for entry in section.condition.entries}


def _place(section: Section) -> str:
    """The setting but for the model, which belongs to the scale where data are small."""
    return str(replace(section.condition.setting, other={}))


def _answer(section: Section, verdict: Verdict) -> Sequence[str]:
    """A line of the short table; bold is what more than a few methods were compared for, in more than a few rounds."""
    setting, scale = section.condition.setting, section.condition.scale
    there = setting.there.removesuffix(" there").removesuffix(" arriving")
    firm = not verdict.few and scale != SMALLEST
    names = f"**{verdict.names}**" if firm else verdict.names
    stateless = f"{section.stateless.names} ({section.stateless.lead})" if section.stateless else "not compared"
    stateless = stateless if verdict.needs_state else "the same"
    where = (setting.holds, there, f"{setting.held:.3g}", str(setting.clients), setting.dataset)
    lead = str(verdict.leads[0]), points(verdict.late.late), f"[{verdict.sure}](#{section.anchor})"
    title = TITLES[scale].removeprefix("the ").removesuffix(" scale")
    return *where, names, *lead, f"{swing(verdict.best):.1f}", stateless, title


def _section(section: Section) -> str:
    condition, verdict = section.condition, section.verdict
    said = verdict.sentence(linked) if verdict else "There is nothing to compare yet."
    if section.stateless:
        said += f" **If clients keep no state:** {section.stateless.sentence(linked)}"
    header = ("method", "second half", "swing", "to the best", "seeds", "kB up", "kB down", "clients keep")
    entries = sorted(condition.entries, key=lambda entry: -_standing(entry, verdict))
    rows = [_row(entry, verdict, condition.scale) for entry in entries]
    return f'<a id="{section.anchor}"></a>\n\n### {condition.setting}\n\n{said}\n\n{markdown_table(header, rows)}'


def _standing(entry: Entry, verdict: Verdict | None) -> float:
    """Its accuracy on the seeds of the best, as its difference says: means over other seeds are of other draws."""
    lead = Lead(entry, verdict.best) if verdict else None
    return mean(verdict.best) + lead.mean if verdict and lead and lead.differences else mean(entry)


def _row(entry: Entry, verdict: Verdict | None, scale: str) -> Sequence[str]:
    lead, mark = Lead(entry, verdict.best) if verdict else None, no_competitor(entry.algorithm)
    behind = str(lead) if lead and lead.differences and entry is not lead.over else ""
    seeds = " ".join(f"[{seed}](../results/{scale}/{cell.file}.json)" for seed, cell in sorted(entry.cells.items()))
    size = (f"{entry.up / 1000:.0f}", f"{entry.down / 1000:.0f}")
    numbers = accuracy(entry), f"{swing(entry):.1f}", f"not compared: {mark}" if mark else behind
    return linked(entry), *numbers, seeds, *size, entry.algorithm.costs.state


def costs(measured: Measured) -> str:
    """What each method asks for beside FedAvg, by its own declaration; bytes and seconds as measured."""
    kinds = {entry.kind: entry.algorithm for condition in measured.conditions for entry in condition.entries}
    rows = []
    for kind, algorithm in sorted(kinds.items()):
        ratio = measured.seconds.get(kind)
        seconds = "{:.2f} ({:.2f} to {:.2f})".format(*ratio) if ratio else "not measured"
        facts = (algorithm.costs.state, shared_in_words(algorithm), _bytes(measured, kind), algorithm.costs.compute)
        rows.append((f"[{kind}](algorithms/{kind}.md)", *facts, seconds, limits_in_words(algorithm)))
    header = (
        "method",
        "clients keep",
        "uploads beside weights and class counts",
        "bytes up",
        "more compute",
        "seconds",
        "limits",
    )
    return f"## What each costs\n\nBytes and seconds are multiples of FedAvg's.\n\n{markdown_table(header, rows)}"


def _bytes(measured: Measured, kind: str) -> str:
    """Beside FedAvg's with the same data set and model, wherever that was run."""
    up: dict[tuple[str, str], dict[str, int]] = {}
    for condition in measured.conditions:
        same = up.setdefault((condition.setting.dataset, condition.setting.other.get("model.kind", "")), {})
        same.update({entry.kind: entry.up for entry in condition.entries})
    ratios = [sizes[kind] / sizes["fedavg"] for sizes in up.values() if {kind, "fedavg"} <= sizes.keys()]
    edges = sorted({f"{edge(ratios):.2f}" for edge in (min, max)}) if ratios else ["not run beside FedAvg"]
    return " to ".join(edges)
