"""`rebafl federation`: keys for real machines, and a whole federation on this one to try it out."""

from __future__ import annotations

import json
import shlex
import time
from dataclasses import fields
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from ..base.config import Plain, parse_assignments
from ..base.errors import UserError
from ..data import check_name
from ..federation.app.options import WORDS, Options, read_run_config
from ..federation.ops.layout import PORT, Plan, create
from ..federation.ops.local import LocalFederation, open_or_create
from ..federation.ops.submission import need_submitted
from ..runs.events import RunStarted
from ..runs.opening import check_same
from ..runs.record import Record
from ..runs.settings import Settings
from ..runs.stopping import plateau_after, stopped_after
from .terminal import HELP, AsJson, Display, out, say, show

app = typer.Typer(
    no_args_is_help=True,
    context_settings=HELP,
    rich_markup_mode="markdown",
    help="A real federation on Flower: make its keys, or try a whole one out on this machine.\n\n"
    "Example: `rebafl federation up --nodes 5 --data fashion-mini rounds=6`, then `rebafl federation down`",
)
Folder = Annotated[Path, typer.Option("--dir", help="The federation's directory.")]
Nodes = Annotated[int, typer.Option("--nodes", min=1, max=1000, help="How many nodes.")]
NodeNumber = Annotated[int, typer.Argument(metavar="K", min=0, help="The node's number, from 0.")]
DEFAULT_FOLDER = Path("federation")
POLL, ASK_FLOWER = 0.5, 10.0  # seconds between two looks at the run directory, and two questions to Flower


@app.command()
def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new directory.")],
    nodes: Nodes = 5,
    host: Annotated[
        list[str] | None, typer.Option("--host", help="A name or IP address of the server; may be given several times.")
    ] = None,
    listen: Annotated[str, typer.Option("--listen", help="Where the server listens; 0.0.0.0: everywhere.")] = "",
    port: Annotated[int, typer.Option("--port", min=1, max=65535, help="The server's port.")] = PORT,
) -> None:
    """Make keys, certificates and start scripts for a new federation.

    Copy DIR/server and DIR/node-K to their machines, and nothing else; DIR/ca.key stays where it is. Without
    `--host` everything listens on 127.0.0.1 only.

    Examples:

    * `rebafl federation init fed --nodes 5`

    * `rebafl federation init fed --nodes 20 --host fl.example.org --host 192.0.2.7 --port 9092`
    """
    hosts = tuple(host or ())
    if port + nodes > 65535:
        raise UserError(f"--port {port} leaves no room for {nodes} nodes above it; choose a lower one.")
    ports = tuple(range(port + 1, port + 1 + nodes))
    create(folder, Plan(nodes, hosts, listen or ("0.0.0.0" if hosts else "127.0.0.1"), port, ports))
    out.print(Text(f"{folder}/server    start it there: ./start.sh"), soft_wrap=True)
    out.print(Text(f"{folder}/node-K    K = 0 to {nodes - 1}, one per device: ./start.sh"), soft_wrap=True)
    out.print(Text(f"Then, on the server: rebafl federation run --dir {folder} dataset=… rounds=…"), soft_wrap=True)


@app.command()
def up(
    words: Annotated[list[str] | None, typer.Argument(metavar="[KEY=VALUE]…", help="Settings of the run.")] = None,
    nodes: Nodes = 5,
    data: Annotated[str, typer.Option("--data", help="The data set, or a path.")] = "fashion-mini",
    folder: Folder = DEFAULT_FOLDER,
    detach: Annotated[bool, typer.Option("--detach", help="Return once the run was submitted.")] = False,
) -> None:
    """Start a whole federation on 127.0.0.1 and train: a server and nodes with TLS and keys, as on real machines.

    The same command resumes a run that was stopped. Killed nodes and a killed server cost no finished round.

    Examples:

    * `rebafl federation up --nodes 5 --data fashion-mini`

    * `rebafl federation up --nodes 3 rounds=4 algorithm=scaffold model=mlp training.epochs=1 --dir fed3`

    * in another terminal: `rebafl federation status`, `rebafl federation kill-node 2`, `rebafl federation down`
    """
    settings, plain = _settings(words or [], nodes, data)
    federation = open_or_create(folder, nodes)
    check_same(Record(federation.out), settings)
    federation.begin(plain)
    again = f"rebafl federation status --dir {folder}   (stop: rebafl federation down --dir {folder})"
    try:
        say("The server and the nodes are starting; the first round takes the longest.")
        need_submitted(federation.server, 90)
        if detach:
            say(f"Training continues in the background. See: {again}")
            return
        _watch(federation, settings)
    except KeyboardInterrupt:
        say(f"\nTraining continues in the background. See: {again}")
        raise typer.Exit(130) from None
    except UserError:
        federation.down()
        raise
    federation.down()
    say(f"Finished, and the federation is down. See: rebafl compare {federation.out}")


@app.command()
def run(
    words: Annotated[list[str] | None, typer.Argument(metavar="[KEY=VALUE]…", help="Settings of the run.")] = None,
    folder: Folder = DEFAULT_FOLDER,
) -> None:
    """On the server's machine: request a run, and submit it. It is resumed when the server restarts.

    Example: `rebafl federation run --dir fed dataset=fashion-mini rounds=50 deadline=120`
    """
    federation = LocalFederation(folder)
    settings, plain = _settings(words or [], federation.plan.nodes)
    check_same(Record(federation.out), settings)
    federation.submit(plain)
    say(f"Submitted. See: rebafl federation status --dir {folder}")


@app.command()
def resume(folder: Folder = DEFAULT_FOLDER) -> None:
    """Resume the run that was requested last, after `rebafl stop` or `rebafl federation down`.

    Example: `rebafl federation resume --dir fed`
    """
    LocalFederation(folder).resume()
    say(f"Submitted. See: rebafl federation status --dir {folder}")


@app.command()
def status(folder: Folder = DEFAULT_FOLDER, as_json: AsJson = False) -> None:
    """Show which nodes are connected, and how far the run is.

    Example: `rebafl federation status --json`
    """
    state = LocalFederation(folder).status()
    if as_json:
        print(json.dumps(state))
        return
    table = Table("", "process on this machine", "counted as connected by the server")
    server = state["server"]
    table.add_row("server", _coloured(server["process"]), "" if server["answers"] else "[red]it does not answer")
    for number, node in state["nodes"].items():
        table.add_row(f"node {number}", _coloured(node["process"]), "yes" if node["connected"] else "[yellow]no")
    show(table)
    done = f"{state['rounds']} of {state['of'] or '?'} rounds finished"
    out.print(done + (f", accuracy {state['accuracy']:.2f}" if state["accuracy"] is not None else ""))
    if state["problem"]:
        out.print(Text(f"Problem: {state['problem']}", "red"), soft_wrap=True)


@app.command("kill-node")
def kill_node(number: NodeNumber, folder: Folder = DEFAULT_FOLDER) -> None:
    """Kill a node and everything it started with SIGKILL, as if it lost power.

    Example: `rebafl federation kill-node 2`
    """
    federation = LocalFederation(folder)
    federation.need_up()
    federation.number(f"node-{number}")
    federation.kill(f"node-{number}")
    say(f"Node {number} is dead. Start it again with: rebafl federation start-node {number} --dir {folder}")


@app.command("start-node")
def start_node(number: NodeNumber, folder: Folder = DEFAULT_FOLDER) -> None:
    """Start a killed node again. The server lets it in once it has noticed the loss: up to a minute later.

    Example: `rebafl federation start-node 2`
    """
    federation = LocalFederation(folder)
    federation.need_up()
    federation.number(f"node-{number}")
    federation.start(f"node-{number}")
    say(f"Node {number} is starting; it takes part again within about a minute.")


@app.command("kill-server")
def kill_server(folder: Folder = DEFAULT_FOLDER) -> None:
    """Kill the server and everything it started with SIGKILL.

    Example: `rebafl federation kill-server`, then `rebafl federation start-server`
    """
    LocalFederation(folder).kill("server")
    say(f"The server is dead. Start it again with: rebafl federation start-server --dir {folder}")


@app.command("start-server")
def start_server(folder: Folder = DEFAULT_FOLDER) -> None:
    """Start a killed server again; the run is resumed from its last finished round.

    Example: `rebafl federation start-server`
    """
    federation = LocalFederation(folder)
    federation.need_up()
    federation.start("server")
    say("The server is starting; the run is resumed from its last finished round.")


@app.command()
def down(folder: Folder = DEFAULT_FOLDER) -> None:
    """Stop the federation: the processes that `up` and `start-node` started in this directory, and no others.

    Example: `rebafl federation down`
    """
    federation = LocalFederation(folder)
    federation.need_up()
    say(f"Stopped {federation.down()} processes and all they had started. The run is kept in {federation.out}.")


def _settings(words: list[str], nodes: int, data: str = "") -> tuple[Settings, Plain]:
    """The run's settings, checked, and the run config that says the same to Flower."""
    names = {field.name: field.name.replace("_", "-") for field in fields(Options)}
    chosen, rest = {}, []
    for word in words:
        key = word.partition("=")[0].replace("-", "_")
        if key in ("out", "members"):
            raise UserError(f"{key} follows from --dir; leave it out.")
        if key in names and "=" in word:
            chosen[names[key]] = next(iter(parse_assignments([word.replace(word.partition("=")[0], key, 1)]).values()))
        else:
            rest.append(word)
    parse_assignments(rest)
    chosen_split = any(word.startswith("partition") for word in rest)
    # the paper's split gives a client two classes: among few nodes some class would have no holder
    split = [] if chosen_split else ["partition=dirichlet"]
    rest = [*([f"dataset={data}"] if data else []), *split, f"partition.clients={nodes}", "rounds=10", *rest]
    plain = {"min-nodes": min(Options().min_nodes, nodes), **chosen, WORDS: shlex.join(rest)}
    settings, _ = read_run_config(plain)
    if settings.partition.clients < nodes:
        raise UserError(
            f"partition.clients={settings.partition.clients}, but there are {nodes} nodes; more clients are places for "
            "nodes that are added later. A run that had fewer before nodes were added: rebafl federation resume"
        )
    check_name(settings.dataset)
    return settings, {"rounds": settings.rounds, **plain}


def _watch(federation: LocalFederation, settings: Settings) -> None:
    """Show round after round until the last; a run that ends before that is an error."""
    record, asked = Record(federation.out), time.monotonic()
    while not record.begun:
        asked = _check_continues(federation, 0, settings.rounds, asked)
        time.sleep(POLL)
    shown = len(record.rounds())
    with Display(settings, federation.out, silent=False) as display:
        display.listen(RunStarted(shown, record.environment().get("warnings", [])))
        while shown < settings.rounds and plateau_after(federation.out) is None:
            lines = record.rounds()
            for line in lines[shown:]:
                display.listen(line)
            shown = len(lines)
            asked = _check_continues(federation, shown, settings.rounds, asked)
            time.sleep(POLL)


def _check_continues(federation: LocalFederation, done: int, rounds: int, asked: float) -> float:
    """Raise if the run is over too soon; returns when Flower was asked last, which is not done often."""
    if not federation.is_up:
        raise UserError(f"The federation was taken down after {done} of {rounds} rounds.")
    if done < rounds and time.monotonic() - asked > ASK_FLOWER:
        asked = time.monotonic()
        if end := federation.run_end():
            if (stopped := stopped_after(federation.out)) is not None:
                raise UserError(f"The run was stopped on request after round {stopped}; the same command resumes it.")
            raise UserError(
                f"The run ended after {done} of {rounds} rounds: {end.problem or 'Flower does not say why'}"
            )
    return asked


def _coloured(word: str) -> str:
    return {"alive": "[green]alive", "left over": "[red]left over", "dead": "[red]dead"}.get(word, word)
