"""How does a federation change while it runs? Nodes come and go, keys and certificates are replaced; nobody restarts.

The server follows its members file and its certificate, and a node its key and the authority's certificate: a change is
made by replacing files. Where server and nodes are other machines, the same files are copied there.
"""

from __future__ import annotations

import shutil
import ssl
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timezone

from ...base.config import read_toml
from ...base.errors import UserError, exists
from ..app.member_keys import MEMBERS, read_keys
from . import processes
from .control import registered_keys
from .layout import COMPOSE_NAME, Plan, add_machine, machines
from .local import LocalFederation
from .processes import free_ports, wait_until

APPLIED = 30.0  # seconds that a running server may take to follow its files


def add_node(federation: LocalFederation, number: int | None = None) -> tuple[int, bool]:
    """A new node: its number, and whether the server lets it in already. It is started if the federation is up here."""
    plan, keys = federation.plan, key_lines(federation)
    number = plan.nodes if number is None else number
    if number in plan.numbers or number > plan.nodes:
        raise UserError(
            f"A new node cannot have number {number}; free are {', '.join(map(str, [*plan.removed, plan.nodes]))}."
        )
    grown = _with_node(plan, number, is_up=federation.is_up)
    keys[number] = add_machine(federation.folder, grown, number)
    federation.write_plan(grown, keys)
    applied = wait_applied(federation)
    if federation.is_up:
        federation.start(f"node-{number}")
    return number, applied


def remove_node(federation: LocalFederation, number: int) -> bool:
    """From now on this node's key is refused; is it already? Its folder is put aside, with the key, now worthless."""
    name, keys = f"node-{number}", key_lines(federation)
    federation.number(name)
    if len(federation.plan.numbers) == 1:
        raise UserError(f"Node {number} is the only one; end the federation with: rebafl federation down")
    keys.pop(number, None)
    federation.write_plan(replace(federation.plan, removed=(*federation.plan.removed, number)), keys)
    applied = wait_applied(federation)
    federation.forget(name)
    folder = federation.folder / name
    if exists(folder):
        folder.rename(federation.folder / f"removed-{name}-{datetime.now(timezone.utc):%Y%m%dT%H%M%S}")
    return applied


def rotate_key(federation: LocalFederation, number: int) -> bool:
    """A new key for this node, which starts again with it; is the old one refused already?"""
    from .credentials import make_node_key  # its library comes with Flower

    name, keys = f"node-{number}", key_lines(federation)
    federation.number(name)
    node = federation.folder / name
    fresh = node / "next-key"
    shutil.rmtree(fresh, ignore_errors=True)  # of a command that was interrupted
    fresh.mkdir(mode=0o700)
    keys[number] = make_node_key(fresh, name)
    federation.write_plan(federation.plan, keys)
    applied = wait_applied(federation)
    (fresh / "node.key").replace(node / "node.key")
    fresh.rmdir()
    return applied


def renew(federation: LocalFederation) -> tuple[bool, bool]:
    """A new certificate of the server; was the authority's renewed, too, and does a server here show the new one?"""
    from .credentials import make_server_certificate, renew_authority  # their library comes with Flower

    folder, plan = federation.folder, federation.plan
    authority, key = folder / "ca.crt", folder / "ca.key"
    if not exists(key):
        raise UserError(f"{key} is not here, and only it makes certificates; renew where the keys were made.")
    longer = renew_authority(authority, key)
    for name in machines(plan):
        if longer and exists(folder / name):
            aside = folder / name / "ca.crt.aside"
            shutil.copyfile(authority, aside)
            aside.replace(folder / name / "ca.crt")
    make_server_certificate(authority, key, federation.server, (*plan.hosts, COMPOSE_NAME))
    return longer, "server" in federation.running() and wait_until(lambda: shows_certificate(federation), APPLIED)


def shows_certificate(federation: LocalFederation) -> bool:
    """Does the server show the certificate that is in its folder?"""
    try:
        shown = ssl.get_server_certificate(("127.0.0.1", federation.plan.port), timeout=5)
    except OSError:
        return False
    return shown.split() == (federation.server / "server.crt").read_text(encoding="utf-8").split()


def key_lines(federation: LocalFederation) -> dict[int, str]:
    """Client -> its public key as the members file has it."""
    path = federation.server / MEMBERS
    read_keys(path)  # says what is wrong with it
    lines: Mapping[str, str] = read_toml(path)["clients"]
    return {int(number): line for number, line in lines.items()}


def wait_applied(federation: LocalFederation) -> bool:
    """Does a server on this machine know exactly the members of its file? One that is not up does when it starts."""
    wanted = set(read_keys(federation.server / MEMBERS).values())
    if registered_keys(federation.link) is None:
        return False
    return wait_until(lambda: registered_keys(federation.link) == wanted, APPLIED)


def _with_node(plan: Plan, number: int, is_up: bool) -> Plan:
    """The plan with one node more; its port is free here, if that is where it starts."""
    if number < plan.nodes:
        return replace(plan, removed=tuple(other for other in plan.removed if other != number))
    taken = {plan.port, *plan.node_ports}
    port = max(taken) + 1
    if is_up or port > 65535 or processes.is_taken(port):
        port = next(port for port in free_ports(len(taken) + 1) if port not in taken)
    return replace(plan, nodes=plan.nodes + 1, node_ports=(*plan.node_ports, port))
