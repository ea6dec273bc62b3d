"""`rebafl federation add-node`, `remove-node`, `rotate-key` and `renew`: changes for which nobody else restarts."""

from __future__ import annotations

from typing import Annotated

import typer

from ..federation.ops import changes
from ..federation.ops.local import LocalFederation
from .federation import DEFAULT_FOLDER, Folder, NodeNumber, app
from .terminal import say

__all__ = ["add_node", "app", "remove_node", "renew", "rotate_key"]

ELSEWHERE = (
    "No server answers here: one on this machine follows when it starts. For one elsewhere, copy server/members.toml "
    "to its folder; it follows within seconds, without a restart."
)


@app.command("add-node")
def add_node(
    number: Annotated[
        int | None, typer.Option("--number", min=0, help="The number of a removed node that the new one takes over.")
    ] = None,
    folder: Folder = DEFAULT_FOLDER,
) -> None:
    """Add a node: a folder with its own key, which the running server lets in at once.

    A run has as many places as its `partition.clients` says; a node beyond them takes part in the next run that has
    more. If the federation is up on this machine, the node is started.

    Examples:

    * `rebafl federation add-node --dir fed`

    * `rebafl federation add-node --number 2`, after `rebafl federation remove-node 2`
    """
    federation = LocalFederation(folder)
    new, applied = changes.add_node(federation, number)
    say(f"Node {new} is {'let in' if applied else 'made'}; its folder, for its device: {folder}/node-{new}")
    _told(applied)


@app.command("remove-node")
def remove_node(number: NodeNumber, folder: Folder = DEFAULT_FOLDER) -> None:
    """Remove a node: its key is refused from now on, by the running server, too.

    Example: `rebafl federation remove-node 2 --dir fed`
    """
    applied = changes.remove_node(LocalFederation(folder), number)
    say(f"Node {number} is removed{'; the server refuses its key now' if applied else ''}.")
    _told(applied)


@app.command("rotate-key")
def rotate_key(number: NodeNumber, folder: Folder = DEFAULT_FOLDER) -> None:
    """Give a node a new key; its old one is refused from now on, and the node starts again with the new one.

    Example: `rebafl federation rotate-key 2 --dir fed`
    """
    applied = changes.rotate_key(LocalFederation(folder), number)
    said = "; the server refuses the old one now" if applied else ""
    say(
        f"Node {number} has a new key{said}. "
        f"If its device is another machine: copy {folder}/node-{number}/node.key there."
    )
    _told(applied)


@app.command()
def renew(folder: Folder = DEFAULT_FOLDER) -> None:
    """Renew the server's certificate, for five years; the running server shows it from then on, without a restart.

    The certificate of the federation's own authority is renewed with it if it would expire before. Needs DIR/ca.key.

    Example: `rebafl federation renew --dir fed`
    """
    longer, shown = changes.renew(LocalFederation(folder))
    say(f"The server has a new certificate{', and shows it' if shown else ''}.")
    if not shown:
        say("If the server is another machine: copy server/server.crt and server/server.key to its folder.")
    if longer:
        say("The authority's certificate is new, too: copy ca.crt to the folders of machines elsewhere.")


def _told(applied: bool) -> None:
    if not applied:
        say(ELSEWHERE)
    say("Masked rounds (protect.secagg) need members.toml on nodes, too: copy it to those that are other machines.")
