"""Which method was best under a condition, by how much, and how sure is that?

Two methods are compared by their differences on the seeds that both have. A lead that is at most half a point, or at
most its standard error, or that the last ten rounds turn around, is too close; one seed is one seed. The best is the
one that fewest other methods are ahead of, and of these the one that was compared with most; the next is the one over
which its lead is smallest, of those that are too close to it, if any is. Two methods alone say little: they are few.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf
from statistics import fmean, stdev

from ..runs.paired import paired
from .limits import keeps_state
from .measured import Entry

CLOSE = 0.5  # points
FEW = 2  # methods: of so few, the best is only the better one
FALLS = 1.0  # points by which the last ten rounds are below the second half
SAME = 0.05  # points that make no difference where one decimal is printed
Named = Callable[[Entry], str]


@dataclass(frozen=True)
class Lead:
    """How far one method is ahead of another."""

    of: Entry
    over: Entry

    @cached_property
    def differences(self) -> dict[int, float]:
        """By seed."""
        common = sorted(self.of.cells.keys() & self.over.cells.keys())
        return {seed: self.of.cells[seed].accuracy - self.over.cells[seed].accuracy for seed in common}

    @property
    def mean(self) -> float:
        return fmean(self.differences.values())

    @property
    def error(self) -> float:
        """Standard error; 0 of a single seed, of which nobody knows it."""
        count = len(self.differences)
        return float(stdev(self.differences.values()) / count**0.5) if count > 1 else 0.0

    @cached_property
    def late(self) -> float:
        """The mean of the same differences over the last ten rounds."""
        return fmean(self.of.cells[seed].last - self.over.cells[seed].last for seed in self.differences)

    @property
    def close(self) -> bool:
        """Whether it is no lead to speak of, or none at all: a negative one, or negative in the last ten rounds."""
        return self.mean <= max(CLOSE, self.error) or self.late < -SAME

    @property
    def sure(self) -> str:
        """How sure it is, in words; clear: zero is outside of the 95 % interval of Student's t."""
        count = len(self.differences)
        seeds = "one seed" if count == 1 else f"{count} seeds"
        interval = paired(self.differences, dict.fromkeys(self.differences, 0.0))
        if self.close or interval is None:
            return f"too close, {seeds}" if self.close else seeds
        return f"{'clear' if interval.low > 0 else 'not clear'}, {seeds}"

    def __str__(self) -> str:
        return points(self.mean) + (f" ± {self.error:.1f}" if len(self.differences) > 1 else "")


@dataclass(frozen=True)
class Verdict:
    """The best of some methods, its leads over those of other kinds, the one that decides first, and the steadiest."""

    best: Entry
    leads: tuple[Lead, ...]
    calm: Entry

    @property
    def level(self) -> list[Entry]:
        """The best, and those that are too close to it."""
        return [self.best, *(lead.over for lead in self.leads if lead.close)]

    @property
    def names(self) -> str:
        """Those of the level ones, for people."""
        return " or ".join(entry.name for entry in self.level)

    @property
    def needs_state(self) -> bool:
        """Whether clients of a level one keep something, so that it is another question what is best without."""
        return any(keeps_state(entry.algorithm) for entry in self.level)

    @property
    def compared(self) -> int:
        """How many methods were, whatever their settings."""
        return 1 + len({lead.over.kind for lead in self.leads})

    @property
    def few(self) -> bool:
        return self.compared <= FEW

    @property
    def lead(self) -> str:
        """The one that decides, how sure it is, of how many methods, and the smallest of the last ten rounds."""
        first, late = self.leads[0], self.late
        said = self.sure if first.close else f"{first}, {self.sure}"
        over = "" if late.over is first.over else f" over {late.over.name}"
        return f"{said}; {points(late.late)}{over} in the last ten rounds" if self.ends_otherwise else said

    @property
    def sure(self) -> str:
        """How sure the lead that decides is, of how many methods."""
        thin = f", over {len(self._thin)} of them on fewer seeds" if self._thin else ""
        return f"{self.leads[0].sure}, of {self.compared} methods{thin}"

    @property
    def late(self) -> Lead:
        """The smallest over the last ten rounds."""
        return min(self.leads, key=lambda lead: lead.late)

    @property
    def ends_otherwise(self) -> bool:
        """Whether the last ten rounds say something else than the second half."""
        first, late = self.leads[0], self.late
        return late.over is not first.over or abs(late.late - first.mean) > SAME

    @property
    def falls(self) -> bool:
        """Whether the best is worse in the last ten rounds than before."""
        return mean(self.best) - self._last > FALLS

    @property
    def named(self) -> list[tuple[Entry, list[int]]]:
        """The best, all that are level with it or in the sentence, and the seeds that this rests on."""
        leads = [lead for lead in self.leads if lead.close or lead in self.deciding or lead is self.late]
        sides = [(side, [*lead.differences]) for lead in leads for side in (lead.of, lead.over)]
        return [*sides, (self.best, [*self.best.cells]), (self.calm, [*self.calm.cells])]

    @property
    def deciding(self) -> list[Lead]:
        """Over the next, and over FedAvg."""
        return [*self.leads[:1], *(lead for lead in self.leads[1:] if lead.over.name == "fedavg")]

    def sentence(self, named: Named) -> str:
        """Its accuracy, by how much it is ahead of whom, and how steady it is."""
        first, others = self.leads[0], self.compared - 1
        ahead = f"is {'not clearly ' if first.close else ''}ahead of {others} other method{'s' * (others > 1)}"
        leads = " and ".join(f"{lead} over {named(lead.over)}" for lead in self.deciding)
        seeds = len(self.best.cells)
        of = f"{accuracy(self.best)}{f' over {seeds} seeds' if seeds != len(first.differences) else ''}"
        text = f"{named(self.best)} {ahead}: {of}, {leads} ({first.sure}).{self._where_thin}"
        return f"{text}{self._at_the_end(named)} {self._how_steady(named)}"

    def _at_the_end(self, named: Named) -> str:
        late = f" In the last ten rounds: {points(self.late.late)} over {named(self.late.over)}."
        falls = f" It falls: {self._last:.1f} over the last ten rounds."
        return f"{late if self.ends_otherwise else ''}{falls if self.falls else ''}"

    def _how_steady(self, named: Named) -> str:
        own, calm = f"{swing(self.best):.1f}", f"{swing(self.calm):.1f}"
        steadier = f", {named(self.calm)} by {calm}" if calm != own else ""
        steadier = ", the least of all" if self.calm is self.best else steadier
        return f"It changes by {own} points from round to round{steadier}."

    @property
    def _last(self) -> float:
        """The best's accuracy over the last ten rounds."""
        return fmean(cell.last for cell in self.best.cells.values())

    @property
    def _thin(self) -> set[str]:
        """The methods over which a lead rests on fewer seeds than the one that is named."""
        seeds = len(self.leads[0].differences)
        return {lead.over.kind for lead in self.leads if len(lead.differences) < seeds}

    @property
    def _where_thin(self) -> str:
        return f" Over {len(self._thin)} of them it rests on fewer seeds." if self._thin else ""


def judge(entries: Sequence[Entry]) -> Verdict | None:
    """The best of these, or None if no two of different kinds have a seed in common."""
    ahead = {of.name: [lead for over in entries if _says(lead := Lead(of, over))] for of in entries}
    if not any(ahead.values()):
        return None
    best = min(entries, key=lambda entry: (*_beaten_by(ahead[entry.name]), -mean(entry)))
    leads = sorted(ahead[best.name], key=lambda lead: (not lead.close, lead.mean))
    return Verdict(best, tuple(leads), min(entries, key=swing))


def _beaten_by(leads: Sequence[Lead]) -> tuple[float, int]:
    """How many other methods are ahead, with any of their settings, and of how many; the fewest and most are best."""
    ahead, compared = {lead.over.kind for lead in leads if lead.mean < 0}, {lead.over.kind for lead in leads}
    return len(ahead) if leads else inf, -len(compared)  # of what has no seed in common nobody knows


def _says(lead: Lead) -> bool:
    return lead.of.kind != lead.over.kind and bool(lead.differences)


def judge_stateless(entries: Sequence[Entry]) -> Verdict | None:
    """The best of those whose clients keep nothing; None where all that is named does not, or none can be compared."""
    verdict = judge(entries)
    if verdict is None or not verdict.needs_state:
        return None
    return judge([entry for entry in entries if not keeps_state(entry.algorithm)])


def points(lead: float) -> str:
    """Signed, to one decimal; never -0.0."""
    return f"{round(lead, 1) + 0.0:+.1f}"


def mean(entry: Entry) -> float:
    return fmean(cell.accuracy for cell in entry.cells.values())


def swing(entry: Entry) -> float:
    return fmean(cell.swing for cell in entry.cells.values())


def accuracy(entry: Entry) -> str:
    """Mean and standard deviation over seeds; of FedDyn that of the model it sends out, too."""
    text = _spread([cell.accuracy for cell in entry.cells.values()])
    clouds = [cell.cloud for cell in entry.cells.values() if cell.cloud is not None]
    return f"{text} (cloud model {_spread(clouds)})" if clouds else text


def _spread(values: Sequence[float]) -> str:
    return f"{fmean(values):.1f}" + (f" ± {stdev(values):.1f}" if len(values) > 1 else "")
