"""Which of the paper's results were reproduced? One page: all tables, figures and verdicts, ours beside the paper's."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf
from pathlib import Path
from statistics import fmean

from ..base.config import Plain
from ..base.errors import UserError
from ..base.files import write_text
from ..paper.gaps import gaps
from ..paper.item_results import FAR, ItemResults, counted_once
from ..paper.items import PAPER, deviations, find_item, find_scale, item_names, scale_names
from ..paper.readings import OPEN, Reading
from ..paper.results import Result
from ..paper.two_models import REFERENCE, TwoModels, two_models
from .markdown import markdown_table
from .paper_claims import claims_of_item, claims_table, counted, folded, gaps_in_words, on_one_seed
from .paper_figures import ENDINGS, draw, draw_two_models, names_of_figures
from .paper_tables import tables

TWO_MODELS = "feddyn-two-models-paper"
RULES = """\
How verdicts are made:

- A claim on accuracy that does not say which is judged by the mean over the second half of the rounds *and* by the best
  round. It **held** or **did not hold** if both say so, it *depends* if they differ, and it is open (*partly run*,
  *not run*) while one of them is. Other claims have one measure. *Judged by* names them.
- The number is the lowest of the differences that decide: the narrowest lead of what held; of what did not, the
  clearest opposite on the most seeds; while a claim is open, the lowest so far. It is by the second half, where there
  are two measures. Over several seeds, ± is its standard error. *Seeds* are those that it rests on; of what held, the
  fewest that anything was compared on.
- **One seed is one draw** of classes and of who is there. Most cells are of seed 0, where with 20 clients of two
  classes one class has a single holder (`rebafl partition seed=0`): methods may fare otherwise on other seeds.
- A difference counts if it is more than half a point and, over several seeds, more than its standard error. Of claims
  that name their points (*within a point*, *by more than 3 points*) it counts from these points on, again by more than
  its standard error. Of Λ, which is no accuracy, any difference counts. One clear opposite is enough for *did not
  hold*; all that is compared must be there for *held*.
- FedDyn counts by the mean of its clients' models; what its cloud model would decide otherwise is said.
- Methods of this project are shown beside the paper's, marked *ours*; no claim counts them.

In full: [readings.py](../src/rebafl/paper/readings.py), [verdicts.py](../src/rebafl/paper/verdicts.py).
"""
WORDS = """\
- Accuracy is that of the global model on the whole test set, in percent.
- **Second half** and **last 10**: the mean over these rounds. **Best**: the best round, chosen on the test set, so it
  is too good. **Swing**: the mean change from one round to the next, up or down, over the second half. **Worst class**:
  the recall of the class that is recognised worst, over the second half; empty where a result of the row lacks it, as
  older ones do. **Λ**: the paper's weight diversity of the local models, mean over all rounds.
- With several seeds, ± is the standard deviation over seeds. Tables and figures show the seeds that all the paper's
  methods have; where two or more methods have more in common, these are shown once again on them. Claims are judged on
  the seeds that both of a pair have: the same data, the same dropout.
- Every cell can be run again with `rebafl paper run ITEM --scale SCALE`, and gives the same curve to the bit on the
  same kind of machine. What decides open claims soonest is run by `rebafl paper run --open-claims`.
"""


@dataclass(frozen=True)
class Page:
    """All items at all scales, from the results in a folder and what the benchmark measured."""

    folder: Path
    race: Plain

    @cached_property
    def shown(self) -> dict[tuple[str, str], ItemResults]:
        return {
            (name, scale): ItemResults(find_item(name), find_scale(scale), self.folder, self.race)
            for name in item_names()
            for scale in scale_names()
        }

    def at(self, scale: str) -> list[ItemResults]:
        return [self.shown[name, scale] for name in item_names()]

    def readings(self, scale: str) -> dict[str, Sequence[Reading]]:
        return {shown.item.name: shown.readings for shown in self.at(scale)}

    @property
    def smaller(self) -> str:
        """The scale beside the paper's."""
        return next(scale for scale in scale_names() if scale != PAPER)

    @property
    def drawn(self) -> list[ItemResults]:
        return [shown for shown in self.shown.values() if shown.comparable]

    def text(self) -> str:
        items = [self._item(name) for name in item_names()]
        parts = [self._head(), self._claims(), self._two_models(), *items, _deviations()]
        return "\n".join(part.rstrip("\n") + "\n" for part in parts if part)

    def _head(self) -> str:
        readings = [reading for of_item in self.readings(PAPER).values() for reading in of_item]
        quick = [reading for of_item in self.readings(self.smaller).values() for reading in of_item]
        with_cloud = counted([reading.with_cloud_model for reading in readings])
        by_cloud = f" (with FedDyn by its cloud model, as the authors' code scores it: {with_cloud})"
        by_cloud = by_cloud if with_cloud != counted(readings) else ""
        cells = counted_once(self.at(PAPER))
        single, decided = on_one_seed(readings)
        return (
            "# Reproduction\n\n"
            f"**Of the paper's {len(readings)} claims, at its own scale: {counted(readings)}**{by_cloud}. "
            f"{f'Of the {decided} that held or did not hold, {single} rest on one seed. ' if decided else ''}"
            f"{cells.finished} of {cells.of} cells are finished there. "
            f"At the quick scale, which shows directions only: {counted(quick)}. "
            "Written by `rebafl paper report` from the files in [results](../results).\n\n"
            f"## Which number does the paper print?\n\n{gaps_in_words(gaps(self.at(PAPER)))}"
        )

    def _claims(self) -> str:
        table = claims_table(self.readings(PAPER), self.readings(self.smaller))
        scales = "\n".join(f"- `{name}`: {find_scale(name).about}" for name in scale_names())
        return f"## The claims\n\n{table}\n\n{RULES}\n## How to read what follows\n\n{WORDS}\nScales:\n\n{scales}\n"

    def _two_models(self) -> str:
        """FedDyn by both of its models."""
        found = two_models(self.at(PAPER))
        if not found:
            return ""
        rows = [(each.name, *_scores(each), f"{each.theirs:.2f}" if each.theirs is not None else "") for each in found]
        header = ("condition", "clients' mean", "cloud model", REFERENCE, "paper's FedDyn")
        return (
            "## FedDyn's two models\n\nFedDyn sends its cloud model to clients. Its own authors' code records means of "
            "the clients' models, of which that of the active ones is scored here; the code of ReBaFL's authors scores "
            "the cloud model. Mean over the second half, and "
            f"swing in brackets:\n\n{markdown_table(header, rows)}\n\n"
            f"![FedDyn's two models over rounds, at the paper's scale](figures/{TWO_MODELS}.png)\n"
        )

    def _item(self, name: str) -> str:
        paper, quick = self.shown[name, PAPER], self.shown[name, self.smaller]
        item, title = paper.item, "At the paper's scale"
        parts = [f'<a id="{name}"></a>\n\n## {item.title}\n', f"{item.note}\n" if item.note else ""]
        parts.append(f"{claims_of_item(paper, quick)}\n" if item.claims else "")
        parts.append(
            f"### `{name}` at the paper's scale\n\n{_tables(paper)}" if paper.results else f"{title}: nothing yet.\n"
        )
        if paper.results and item.findings:
            parts.append("What was found about differences:\n\n" + "".join(f"- {text}\n" for text in item.findings))
        answered = not item.claims or any(reading.decision not in OPEN for reading in paper.readings)
        if quick.results and paper.results and answered:
            parts.append(folded(f"<code>{name}</code> at the quick scale", _tables(quick)))
        elif quick.results:
            parts.append(f"### `{name}` at the quick scale\n\n{_tables(quick)}")
        return "\n".join(part for part in parts if part)


def _tables(shown: ItemResults) -> str:
    """Pictures and tables of an item at a scale, and what is missing."""
    pictures = names_of_figures(shown) if shown.comparable else []
    parts = [f"![{shown.item.title}, scale {shown.scale.name}](figures/{name}.png)\n" for name in pictures]
    parts += [f"{condition}:\n\n{markdown_table(*table)}\n" for condition, table in tables(shown)]
    if shown.pending:
        parts.append(f"Pending: {shown.pending}.\n")
    if troubles := shown.troubles():
        parts.append(f"Not everything was used: {'; '.join(troubles)}.\n")
    if far := shown.far_from_paper():
        parts.append(f"More than {FAR:.0f} points from the paper by the second half: {'; '.join(far)}.\n")
    return "\n".join(parts)


def _scores(models: TwoModels) -> list[str]:
    return [_score(results) for results in (models.clients, models.cloud, models.reference)]


def _score(results: Sequence[Result]) -> str:
    means = [fmean(result.measure(name) for result in results) for name in ("second_half", "swing")] if results else []
    return f"{means[0]:.2f} ({means[1]:.2f})" if means else ""


def _deviations() -> str:
    return "## Deviations and choices\n\n" + "".join(f"- {deviation}\n" for deviation in deviations())


def write_report(results: Path, page: Path, race: Path) -> None:
    """The page, and its figures in a folder beside it; figures of results that are gone are removed."""
    made, folder, drawn = Page(results, read_race(race)), page.parent / "figures", set[Path]()
    write_text(page, made.text())
    for shown in made.drawn:
        drawn |= set(draw(shown, folder))
    if found := two_models(made.at(PAPER)):
        drawn |= set(draw_two_models(found, folder / TWO_MODELS))
    names = (TWO_MODELS, *(f"{name}-{scale}" for name in item_names() for scale in scale_names()))
    kept = {path.with_name(path.name + ending) for path in drawn for ending in ENDINGS}
    for path in folder.glob("*"):
        if path not in kept and path.suffix in ENDINGS and path.stem.startswith(names):
            path.unlink()


def read_race(path: Path) -> Plain:
    """What `rebafl bench` measured of ReBaFL's seconds beside FedAvg's; empty if it was not run."""
    try:
        measured: Plain = json.loads(path.read_text(encoding="utf-8"))
        if not (ratios := measured.get("rebafl_to_fedavg")):
            return {}
        ratio, (low, high) = float(ratios["ratio"]), map(float, ratios["spread"])
        if not 0 < low <= ratio <= high < inf:
            raise ValueError(f"{ratio} with a spread from {low} to {high} is no ratio of seconds")
        return {"rebafl_to_fedavg": {"ratio": ratio, "spread": [low, high]}}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError, AttributeError, TypeError, KeyError) as error:
        raise UserError(f"{path} cannot be read ({error!r}); `rebafl bench` writes such a file.") from None
