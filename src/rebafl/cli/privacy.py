"""`rebafl privacy`: what do uploads and broadcasts give away?"""

from __future__ import annotations

import json
import math
import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from ..base.errors import UserError, exists
from ..base.files import write_text
from ..base.kinds import importing_only_if
from ..data import check_name
from ..privacy.audit import audit_run
from ..privacy.curves import Plan, Tick
from ..privacy.measures import read_risk
from ..privacy.own_data import audit_model
from ..privacy.page import page, risk_sentences
from ..privacy.recompute import recomputed
from ..privacy.trade import BASE, ROWS, cells, trade
from ..privacy.trade_page import HEADER, table_of, trade_page
from ..report.markdown import markdown_table
from .terminal import HELP, AsJson, TrustCode, err, given_path, in_words, out, progress_bar, say, show, show_table
from .words import Words, parse_seeds, split_words

app = typer.Typer(
    no_args_is_help=True,
    context_settings=HELP,
    help="What do uploads and broadcasts give away?\n\nExample: `rebafl privacy audit runs/a`",
)


@app.command()
def audit(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="RUN|MODEL", help="A run directory, or with --data an exported model.", parser=given_path
        ),
    ],
    data: Annotated[str, typer.Option("--data", help="Own data to audit before joining: an .npz or a folder.")] = "",
    rounds: Annotated[str, typer.Option(help="Rounds to replay, such as 1,17,32; default: early, middle, late.")] = "",
    risk: Annotated[str, typer.Option(help="The risk that is accepted.")] = "tpr=0.05@fpr=0.01",
    ks: Annotated[str, typer.Option("--k", help="Sizes of means to attack.")] = "1,2,5,10,50,100,500",
    seed: Annotated[int, typer.Option(min=0, help="Of the audit's own random numbers.")] = 0,
    pictures: Annotated[bool, typer.Option("--pictures/--no-pictures", help="Reconstruct images; minutes.")] = True,
    to: Annotated[Path | None, typer.Option("--to", help="Folder; default: RUN/privacy.")] = None,
    trust_code: TrustCode = False,
    as_json: AsJson = False,
) -> None:
    """Attack a run's uploads and broadcasts, and say of each attack: leaks, no leak found, or too weak to tell.

    Uploads are not stored: the audited rounds are computed again. Images of the training set that no client holds are
    the attacker's public set. With `--data`, means of the training part under the model are attacked, and the test part
    is the public set. Written are `audit.json`, `audit.html` and, with all reconstructed images, `pictures.npz`; see
    docs/privacy.md.

    Examples:

    * `rebafl privacy audit runs/a`

    * `rebafl privacy audit runs/a --rounds 1,10 --risk tpr=0.02@fpr=0.01`

    * `rebafl privacy audit runs/a/export --data own.npz`
    """
    sizes = tuple(sorted({*_whole(ks, "--k"), 1}))  # single images are the positive control
    plan = Plan(rounds=_whole(rounds, "--rounds"), ks=sizes, risk=read_risk(risk), seed=seed, pictures=pictures)
    if not exists(path):
        raise UserError(f"{path} does not exist; give a run directory, or with --data an exported model.")
    if data and rounds:
        raise UserError("--rounds belongs to a run; with --data there are none: leave one of them out.")
    folder = to or path / "privacy" if not data else to or Path("privacy")
    with _progress("audit", as_json) as tick:
        result = _result(path, data, plan, tick, folder, trust_code)
    text = json.dumps(_finite(result), indent=1, allow_nan=False)
    write_text(folder / "audit.json", text + "\n")
    write_text(folder / "audit.html", page(result))
    if as_json:
        print(text)
        return
    table = Table("attack", "who is curious", "verdict", "why")
    for verdict in result["verdicts"]:
        table.add_row(*(Text(verdict[name]) for name in ("attack", "attacker", "word", "reason")))
    show(table)
    for sentence in risk_sentences(result["risk"]) if result["risk"] else ():
        out.print(Text(sentence), soft_wrap=True)
    if result["missing"]:
        out.print(Text(f"Not attacked: {'; '.join(result['missing'])}."), soft_wrap=True)
    files = ["audit.html", "audit.json", *([result["inversion"]["file"]] if result["inversion"] else [])]
    out.print(Text(f"Written in {folder}: {', '.join(files)}"), soft_wrap=True)


@app.command()
def recompute(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="With audit.json and pictures.npz of an audit.")],
    data: Annotated[str, typer.Option("--data", help="The data set, if it is elsewhere than the audit says.")] = "",
) -> None:
    """Compute every number about reconstructed images again, from the stored ones, and hold it against the audit's.

    Example: `rebafl privacy recompute runs/a/privacy`
    """
    rows = recomputed(folder, data, say)
    out.print(Text(f"{rows} rows of {folder / 'audit.json'} about images are computed again from the stored images."))


@app.command()
def protections(
    words: Words = None,
    seeds: Annotated[str, typer.Option(help="Seeds of the runs.")] = "0,1,2",
    to: Annotated[Path, typer.Option("--to", "-o", help="Folder for runs and results.")] = Path("runs/protections"),
    only: Annotated[
        list[str] | None,
        typer.Option("--row", help="Words of a row, in quotes, in place of the usual rows; repeat it."),
    ] = None,
    audit_seed: Annotated[int, typer.Option(min=0, help="Of the attacks' own random numbers.")] = 0,
    quick: Annotated[bool, typer.Option("--quick", help="One seed, three rounds: shows that it works.")] = False,
    as_json: AsJson = False,
) -> None:
    """Measure what each protection costs in accuracy and gains against attacks, in one table.

    The same small setting is run with each of them and attacked: words change the setting for all rows. Stopped, it is
    resumed by the same command. Written are `protections.json`, `protections.html` and `protections.md`.

    Examples:

    * `rebafl privacy protections -o runs/protections`

    * `rebafl privacy protections dataset=cifar-10 --seeds 0 --row "" --row "protect.clip=5 protect.noise=3"`
    """
    base, rest, _ = split_words(words or [])
    given = {word.partition("=")[0] for word in rest}  # `partition=iid` takes the place of all that BASE says of it
    usual = [] if base else [word for word in BASE if not {word.partition("=")[0].partition(".")[0]} & given]
    chosen = [*usual, *rest, *(["rounds=3"] if quick else [])]
    rows = [tuple(shlex.split(row)) for row in only] if only else ROWS
    made = cells(base, chosen, rows, parse_seeds(seeds)[:1] if quick else parse_seeds(seeds), to)
    for cell in made:
        check_name(cell.settings.dataset)
    with _progress("protections", as_json) as tick:
        result = _finite(trade(made, Plan(ks=(10, 100), seed=audit_seed), say=lambda text: None, tick=tick))
    text = json.dumps(result, indent=1, allow_nan=False)
    write_text(to / "protections.json", text + "\n")
    write_text(to / "protections.html", trade_page(result, chosen))
    write_text(to / "protections.md", markdown_table(HEADER, table_of(result)) + "\n")
    if as_json:
        print(text)
        return
    show_table(HEADER, table_of(result))
    out.print(Text(f"Written: {to / 'protections.html'}, .md and .json"), soft_wrap=True)


@contextmanager
def _progress(name: str, silent: bool) -> Iterator[Tick]:
    """A bar on a terminal; elsewhere one line per step, with the time that is left."""
    with progress_bar(disable=silent or not err.is_terminal) as progress:
        job = progress.add_task(name, total=None, facts="")
        began = time.monotonic()

        def tick(done: int, of: int, text: str) -> None:
            progress.update(job, total=of, completed=done, facts=text)
            if not err.is_terminal and not silent:
                left = (time.monotonic() - began) / max(1, done) * (of - done)
                say(f"[{done}/{of}] {text}; about {in_words(left)} left")

        yield tick


def _result(path: Path, data: str, plan: Plan, tick: Tick, to: Path, trust_code: bool) -> dict[str, Any]:
    if data:
        return audit_model(path, data, plan, say, tick, to, trust_code)
    with importing_only_if(trust_code, path):
        return audit_run(path, plan, say=say, tick=tick, to=to)


def _whole(text: str, option: str) -> tuple[int, ...]:
    try:
        numbers = tuple(int(word) for word in text.split(",")) if text else ()
    except ValueError:
        numbers = (0,)
    if any(number < 1 for number in numbers):
        raise UserError(f"{option} {text!r} is not a list of whole numbers from 1 up with commas between.")
    return numbers


def _finite(value: Any) -> Any:
    """JSON has no NaN and no infinity: they become null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list | tuple) else value
