"""The commands. Each turns words into calls of the library, and what comes back into tables and pictures."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from click import Context
from rich.table import Table
from rich.text import Text
from typer.core import TyperGroup

from ..algorithms import KINDS as ALGORITHMS
from ..base import interrupts
from ..base.config import Plain, describe, parse_assignments, write_toml
from ..base.errors import UserError, exists
from ..base.version import VERSION
from ..data import KNOWN, check_name, image_size, load, whereabouts
from ..report.cards import first_line
from ..report.summary import comparison_json, comparison_table, group_runs, mixed_bits, read_run
from ..runs import export as models
from ..runs.experiment import split_data
from ..runs.record import CONFIG, Record, open_run, read_settings
from ..runs.rounds import roll_back
from ..runs.settings import Settings, make_settings
from ..runs.simulate import OWN_MODEL
from ..runs.sweep import GridPoint, check_code, grid, rounds_done, run_on_ray
from . import bench as bench_command
from . import federation as federation_command
from . import paper as paper_command
from . import privacy as privacy_command
from . import verify as verify_command
from .terminal import HELP, AcceptChanges, AsJson, Png, err, out, progress_bar, run_shown, say, show, write_text


class Commands(TyperGroup):
    """All commands. Typer would end without a word, or with another code, when one is interrupted."""

    def invoke(self, ctx: Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            say("Stopped.")
            raise typer.Exit(130) from None


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    context_settings=HELP,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    add_completion=False,
    help="Train one good classifier across devices that hold few classes each and keep dropping out.\n\n"
    "Example: `rebafl run dataset=fashion-mini algorithm=rebafl partition.samples=300 rounds=20 out=runs/a`",
)
data_app = typer.Typer(
    no_args_is_help=True,
    context_settings=HELP,
    help="Data sets: which there are, and fetching them.\n\nExample: `rebafl data get cifar-10`",
)
app.add_typer(data_app, name="data")
app.add_typer(paper_command.app, name="paper")
app.add_typer(federation_command.app, name="federation")
app.add_typer(privacy_command.app, name="privacy")
app.command()(bench_command.bench)
app.command()(verify_command.verify)

Words = Annotated[
    list[str] | None,
    typer.Argument(metavar="[CONFIG.toml] [KEY=VALUE]…", help="A settings file, and settings that win over it."),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, no table.")]
RunDir = Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.")]


@app.callback(invoke_without_command=True)
def _version(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        print(f"rebafl {VERSION}")
        raise typer.Exit


@app.command()
def run(
    words: Words = None, quiet: Quiet = False, as_json: AsJson = False, accept_changes: AcceptChanges = False
) -> None:
    """Run an experiment, or go on with one.

    With an existing directory as `out`, training goes on where it stopped, to the bit. All settings have
    defaults: those of the paper. `rebafl settings` lists them.

    Examples:

    * `rebafl run dataset=fashion-mini partition.samples=300 rounds=20 out=runs/a`

    * `rebafl run dataset=fashion-mnist partition.clients=20 participation.p=0.5 algorithm=fedavg rounds=50`

    * `rebafl run runs/a/config.toml seed=1`  (the same with another seed)

    * `rebafl run out=runs/a`  (go on)

    * `rebafl run out=runs/a --accept-changes`  (go on although own code, algorithm=module:Class, was edited)

    * `rebafl run dropout=lost delivery=markov delivery.leave=0.1`  (uploads get lost)
    """
    settings, target = _read_words(words or [])
    silent = quiet or as_json
    if settings.model.kind == OWN_MODEL:
        raise UserError(f"{target} was run from Python; go on with rebafl.simulate(…, out={str(target)!r}) there.")
    before = rounds_done(target)
    record = run_shown(settings, target, silent, f"rebafl run out={target}", accept_changes)
    if before >= settings.rounds and not silent:
        say(f"It was finished already: {before} rounds. rounds={before + 50} would go further.")
    _report_run(record, silent, as_json)


@app.command()
def sweep(
    words: Words = None, quiet: Quiet = False, as_json: AsJson = False, accept_changes: AcceptChanges = False
) -> None:
    """Run every combination of several values and compare them.

    Killed or stopped, the same command goes on; finished runs are not run again. Seeds become mean ± std.
    With `engine=ray`, runs are spread over a Ray cluster (`RAY_ADDRESS`, or one started here).

    Example: `rebafl sweep dataset=fashion-mini partition.samples=300 algorithm=fedavg,rebafl seed=0,1,2 out=runs/s`
    """
    base, rest, target = _split_words(words or [])
    folder = target or Path("runs/sweep")
    cells = grid(base, rest, folder)
    for cell in cells:
        check_name(cell.settings.dataset)
    if not accept_changes:
        check_code(cells)
    again = f"rebafl sweep {' '.join(words or [])}"
    if {cell.settings.engine for cell in cells} == {"ray"}:
        _sweep_on_ray(cells, quiet or as_json, again, accept_changes)
    else:
        _sweep_here(cells, quiet or as_json, again, accept_changes)
    groups = group_runs([read_run(cell.out) for cell in cells])
    if as_json:
        print(json.dumps(comparison_json(groups)))
    else:
        from ..report import figures  # as above

        figures.draw_curves(groups, folder / "curves.png")
        show(comparison_table(groups))
        out.print(Text(f"Runs in {folder}, curves drawn in {folder / 'curves.png'}"), soft_wrap=True)


def _sweep_here(cells: list[GridPoint], silent: bool, again: str, accept_changes: bool) -> None:
    for number, cell in enumerate(cells, 1):
        if not silent:
            say(f"[{number}/{len(cells)}] {cell.label}")
        run_shown(cell.settings, cell.out, silent, again, accept_changes)


def _sweep_on_ray(cells: list[GridPoint], silent: bool, again: str, accept_changes: bool) -> None:
    with progress_bar(disable=silent or not err.is_terminal) as progress:
        bar = progress.add_task(
            f"{len(cells)} runs on Ray", total=sum(c.settings.rounds for c in cells), facts="rounds"
        )
        try:
            workers = cells[0].settings.workers
            run_on_ray(cells, workers, lambda done: progress.update(bar, completed=done), accept_changes)
        except KeyboardInterrupt:
            say(f"\nStopped; finished rounds are saved. Go on with: {again}")
            raise typer.Exit(130) from None


def _report_run(record: Record, silent: bool, as_json: bool) -> None:
    finished = read_run(record.path)
    if as_json:
        print(json.dumps({"out": str(record.path), **finished.summary()}))
    elif not silent:
        show(comparison_table(group_runs([finished])))
        out.print(Text(f"Saved in {record.path}; see also: rebafl compare {record.path}"), soft_wrap=True)


def _split_words(words: list[str]) -> tuple[Plain, list[str], Path | None]:
    """[CONFIG.toml] [KEY=VALUE …] -> the file's settings, the words without `out`, and what `out` says."""
    from_file = bool(words) and "=" not in words[0]
    base = read_settings(Path(words[0])) if from_file else {}
    rest = words[1:] if from_file else words
    chosen = [base.pop("out")] if "out" in base else []
    chosen += [word.removeprefix("out=") for word in rest if word.startswith("out=")]
    if any(not isinstance(value, str) or not value for value in chosen):
        raise UserError("out must be the path of a directory.")
    return base, [word for word in rest if not word.startswith("out=")], Path(chosen[-1]) if chosen else None


def _read_words(words: list[str]) -> tuple[Settings, Path]:
    """[CONFIG.toml] [KEY=VALUE …] -> settings and the run's directory; an existing run brings its own settings."""
    base, rest, target = _split_words(words)
    layers = [base, parse_assignments(rest)]
    if target and exists(target / CONFIG):
        layers.insert(0, Record(target).config())
    settings = make_settings(*layers)
    if settings.model.kind != OWN_MODEL:
        check_name(settings.dataset)
    return settings, target or Path("runs") / settings.label


@app.command()
def compare(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN…", help="Run directories.")],
    png: Png = None,
    as_json: AsJson = False,
) -> None:
    """Compare runs in a table and a picture; seeds of one setting become mean ± std.

    Example: `rebafl compare runs/fedavg runs/rebafl --png curves.png`
    """
    from ..report import figures  # matplotlib is slow to import, and most commands draw nothing

    unique = {path.resolve(): path for path in runs}
    groups = group_runs([read_run(path) for path in unique.values()])
    if warning := mixed_bits(groups):
        say(f"Warning: {warning}")
    png = png or (None if as_json else Path("curves.png"))
    if png:
        figures.draw_curves(groups, png)
    if as_json:
        print(json.dumps(comparison_json(groups)))
        return
    show(comparison_table(groups))
    if len({group.runs[0].config["rounds"] for group in groups}) > 1:
        out.print("[yellow]The runs differ in their number of rounds.")
    out.print(Text(f"Curves drawn in {png}"), soft_wrap=True)


@app.command()
def partition(
    words: Words = None,
    png: Png = Path("partition.png"),
    save: Annotated[Path | None, typer.Option("--save", help="Write it as JSON, for partition.kind=file.")] = None,
    quiet: Quiet = False,
) -> None:
    """Show who would hold what: a table of clients and classes, and a picture.

    Example: `rebafl partition dataset=fashion-mini partition=dirichlet partition.alpha=0.3`
    """
    from ..report import figures  # as above

    settings, _ = _read_words(words or [])
    data, split, warnings = split_data(settings, say=say)
    table, classes = split.table(), data.classes
    if not quiet:
        shown = Table(title=f"{settings.partition.name}, seed {settings.seed}", title_justify="left")
        for column in ("client", *classes, "samples"):
            shown.add_column(Text(column), justify="right")
        for client, row in enumerate(table[:50]):
            shown.add_row(str(client), *(str(n) if n else "[dim]·" for n in row), str(row.sum()))
        show(shown)
        if len(table) > 50:
            out.print(f"… and {len(table) - 50} more clients, all in the picture.")
    for warning in warnings:
        say(f"Warning: {warning}")
    if png:
        title = f"{settings.dataset}, {settings.partition.name}, seed {settings.seed}"
        figures.draw_partition(table, classes, title, png)
        if not quiet:
            out.print(Text(f"Drawn in {png}"), soft_wrap=True)
    if save:
        lists = [split.indices(client).tolist() for client in range(split.clients)]
        write_text(save, json.dumps(lists))
        use = f"partition=file partition.clients={split.clients} partition.path={save}"
        if not quiet:
            out.print(Text(f"Saved in {save}; use it with {use}"), soft_wrap=True)


@app.command()
def rollback(
    run: RunDir,
    to: Annotated[int | None, typer.Option("--to", min=1, help="The round to go back to; none: list them.")] = None,
) -> None:
    """Take a run back to an earlier round, such as one before a client poisoned the model; later rounds are removed.

    Some earlier rounds are kept, closer together the nearer they are; of runs whose clients' states are in the run
    directory only the last. The federation must be down.

    Examples:

    * `rebafl rollback federation/run`  (which rounds can be gone back to)

    * `rebafl rollback federation/run --to 16`, then resume with the command that started the run
    """
    record = open_run(run)
    with record.locked():
        if to is None:
            points = ", ".join(map(str, record.points())) or "none"
            out.print(Text(f"{run} is at round {rounds_done(run)}; it can go back to round: {points}"), soft_wrap=True)
            return
        before = rounds_done(run)
        roll_back(record, to)
    say(f"{run} is at round {to} again; it was at round {before}. Resume it with the command that started it.")


@app.command()
def export(
    run: RunDir,
    to: Annotated[Path | None, typer.Option("--to", help="Folder; default: RUN/export.")] = None,
    onnx: Annotated[bool, typer.Option("--onnx", help="Also write model.onnx.")] = False,
) -> None:
    """Write the trained model: safetensors, a description, a few lines that load it, and ONNX if asked.

    Example: `rebafl export runs/a --onnx`
    """
    for path in models.export_model(models.model_of_run(run), to or run / "export", onnx):
        out.print(Text(str(path)), soft_wrap=True)


@app.command()
def predict(
    run: RunDir,
    images: Annotated[list[Path], typer.Argument(metavar="IMAGES…", help="Image files.")],
    prior: Annotated[str, typer.Option(help="Known class frequencies where the model is used, such as 0.5,0.1,…")] = "",
    trained_prior: Annotated[str, typer.Option(help="Frequencies it was trained under; default: uniform.")] = "",
    as_json: AsJson = False,
) -> None:
    """Ask the trained model of a run, or an exported folder, about images.

    Example: `rebafl predict runs/a shoe.png shirt.png --prior 0.3,0.1,0.1,0.1,0.1,0.1,0.05,0.05,0.05,0.05`
    """
    model = models.load_model(run) if (run / models.DESCRIPTION).exists() else models.model_of_run(run)
    rows = models.predict(
        model, images, _numbers(prior, "--prior"), _numbers(trained_prior, "--trained-prior")
    ).tolist()
    if as_json:
        named = [dict(zip(model.classes, row, strict=True)) for row in rows]
        print(json.dumps([{"image": str(i), "probabilities": n} for i, n in zip(images, named, strict=True)]))
        return
    for image in images:
        _note_resize(image, model.inputs.shape)
    table = Table("image", "class", "probability", "next")
    for image, row in zip(images, rows, strict=True):
        ranked = sorted(zip(row, model.classes, strict=True), reverse=True)
        runners = ", ".join(f"{name} {p:.1%}" for p, name in ranked[1:3])
        table.add_row(Text(str(image)), Text(ranked[0][1]), f"{ranked[0][0]:.1%}", Text(runners))
    show(table)


def _note_resize(path: Path, shape: tuple[int, ...]) -> None:
    width, height = image_size(path)
    if (height, width) != shape[1:]:
        say(f"{path}: {width}x{height} resized to {shape[2]}x{shape[1]}.")


def _numbers(text: str, option: str) -> list[float] | None:
    try:
        return [float(word) for word in text.split(",")] if text else None
    except ValueError:
        raise UserError(f"{option} {text!r} is not a list of numbers with commas between.") from None


@app.command()
def algorithms() -> None:
    """List the algorithms: paper, parameters with defaults and ranges, state, communication and compute.

    Others come from outside: `algorithm=module:Class`, see docs/own-algorithm.md.

    Example: `rebafl algorithms`
    """
    for name, kind in ALGORITHMS.items():
        costs = kind.costs
        out.print(Text.assemble((name, "bold"), f"  {first_line(kind)}"), soft_wrap=True)
        out.print(Text(f"  {kind.paper}", "dim"), soft_wrap=True)
        facts = (("client state", costs.state), ("communication", costs.communication), ("compute", costs.compute))
        extra = "; ".join(f"{title}: {fact}" for title, fact in facts if fact != "none")
        out.print(Text(f"  beyond FedAvg: {extra or 'nothing'}"), soft_wrap=True)
        for parameter in describe(kind):
            words = (f"  algorithm.{parameter.name}={parameter.default}", f"  {parameter.about}")
            out.print(Text.assemble((words[0], "cyan"), words[1]), soft_wrap=True)
        out.print()


@app.command()
def settings(words: Words = None) -> None:
    """Print all settings that these words would run with, as a file for `rebafl run`.

    Example: `rebafl settings dataset=cifar-10 algorithm=fedavg > cifar.toml`
    """
    print(write_toml(_read_words(words or [])[0].plain()), end="")


@app.command(name="datasets")
def list_datasets() -> None:
    """List the data sets known by name and where they are.

    Example: `rebafl datasets`
    """
    table = Table("name", "what", "where")
    for known in KNOWN.values():
        table.add_row(known.name, known.about, whereabouts(known))
    for name, address in KNOWN.installed().items():
        table.add_row(Text(name), "of another package", Text(address))
    show(table)
    out.print(
        "Or your own: dataset=FILE.npz (x_train y_train x_test y_test), dataset=FOLDER of class folders, "
        "or dataset=module:function."
    )


data_app.command("list", help=list_datasets.__doc__)(list_datasets)


@data_app.command("get")
def get_data(name: Annotated[str, typer.Argument(help="A known data set.")]) -> None:
    """Fetch a data set, unless it is here already, and check it.

    Example: `rebafl data get cifar-10`
    """
    data = load(name, say)
    out.print(
        f"{data.name} is here and right: {len(data.y_train):,} + {len(data.y_test):,} samples, SHA-256 {data.digest}"
    )


def main(run_app: Callable[[], Any] = app) -> None:
    """The entry point: a user's mistake is one sentence and exit code 2, Ctrl-C one word and 130."""
    try:
        interrupts.as_usual()
        run_app()
    except UserError as error:
        err.print(Text.assemble(("Error: ", "red"), str(error)), soft_wrap=True, highlight=False)
        sys.exit(2)
    except KeyboardInterrupt:
        err.print("Stopped.")
        sys.exit(130)
    except OSError as error:  # a closed pipe, a full disk under standard output
        err.print(Text.assemble(("Error: ", "red"), str(error)), soft_wrap=True, highlight=False)
        sys.exit(2)
    finally:
        interrupts.ends_at_once()
        interrupts.forgotten()
