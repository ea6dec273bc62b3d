"""What does each machine of a federation need? One folder, made once, with its keys and the script that starts it."""

from __future__ import annotations

import json
import stat
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path
from string import Template

from ...base.config import write_toml
from ...base.errors import UserError, exists
from ...base.files import write_whole
from ..app.member_keys import MEMBERS
from ..app.node_config import PARTITION_ID
from ..flower_changes import need_flower
from ..machine_secret import make_secret

DESCRIPTION, NODE_CONFIG = "federation.json", "node-config"
PORT = 9092
KEEP_OUT = "# keys, certificates and runs of a federation: none of it belongs into a repository\n*\n"
COMPOSE_NAME = "server"  # what the compose example calls the server


@dataclass(frozen=True)
class Plan:
    """What a federation looks like from outside."""

    nodes: int
    hosts: tuple[str, ...]
    listen: str
    port: int
    node_ports: tuple[int, ...]
    removed: tuple[int, ...] = ()
    """Numbers whose nodes were taken out; new ones may have them."""

    @property
    def numbers(self) -> list[int]:
        """The nodes there are."""
        return [number for number in range(self.nodes) if number not in self.removed]

    @property
    def address(self) -> str:
        """Where nodes find the server."""
        host = self.hosts[0] if self.hosts else "127.0.0.1"
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"


def create(folder: Path, plan: Plan) -> None:
    """Keys, certificates, scripts and examples for a new federation."""
    need_flower()
    if exists(folder) and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder} is not empty; choose a new directory, so that no key is ever overwritten.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
        (folder / ".gitignore").write_text(KEEP_OUT, encoding="utf-8")  # first: no key is ever there without it
        _fill(folder, plan)
    except OSError as error:
        raise UserError(f"{folder} cannot hold a federation ({error.strerror}); choose another directory.") from None


def _fill(folder: Path, plan: Plan) -> None:
    from .credentials import make_authority, make_server_certificate  # its library comes with Flower

    make_authority(folder / "ca.crt", folder / "ca.key")
    server = _machine(folder, "server")
    make_server_certificate(folder / "ca.crt", folder / "ca.key", server, (*plan.hosts, COMPOSE_NAME))
    allowed = {number: add_machine(folder, plan, number) for number in plan.numbers}
    values = {"listen": plan.listen, "port": str(plan.port), "name": "server"}
    _write(server / "environment", "server-environment", values)
    _write(server / "start.sh", "server-start.sh", values)
    _write(server / "rebafl-server.service", "unit.service", values)
    write_plan(folder, plan, allowed)


def write_plan(folder: Path, plan: Plan, allowed: Mapping[int, str]) -> None:
    """Who is a member, by number and public key, and what follows from that."""
    lines = {str(number): key for number, key in sorted(allowed.items())}
    for name in machines(plan):  # nodes know each other without the server's help
        write_whole(folder / name / MEMBERS, write_toml({"clients": lines}).encode())
    write_whole(folder / "compose.yaml", _compose(plan).encode())
    write_whole(folder / DESCRIPTION, f"{json.dumps(asdict(plan), indent=2)}\n".encode())


def add_machine(folder: Path, plan: Plan, number: int) -> str:
    """A node's folder, new; returns its public key as one line."""
    from .credentials import make_node_key, make_runtime_certificate

    node = _machine(folder, f"node-{number}")
    key = make_node_key(node, node.name)
    make_runtime_certificate(node)
    (node / NODE_CONFIG).write_text(f"{node_config(number)}\n", encoding="utf-8")
    values = {"server": plan.address, "runtime_port": str(plan.node_ports[number]), "name": node.name}
    _write(node / "environment", "node-environment", values)
    _write(node / "start.sh", "node-start.sh", values)
    _write(node / f"rebafl-{node.name}.service", "unit.service", values)
    return key


def node_config(number: int) -> str:
    """The config of a node that holds the part of the run's data set with its own number."""
    return f"{PARTITION_ID}={number}"


def read_plan(folder: Path) -> Plan:
    path = folder / DESCRIPTION
    if not exists(path):
        raise UserError(f"{folder} holds no federation; make one with: rebafl federation init {folder}")
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        return Plan(
            int(values["nodes"]),
            tuple(map(str, values["hosts"])),
            str(values["listen"]),
            int(values["port"]),
            tuple(map(int, values["node_ports"])),
            tuple(map(int, values.get("removed", ()))),
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} is damaged ({error}); restore it.") from None


def _machine(folder: Path, name: str) -> Path:
    """A folder that can be copied to a machine as it is."""
    machine = folder / name
    machine.mkdir(mode=0o700)
    (machine / "ca.crt").write_bytes((folder / "ca.crt").read_bytes())
    make_secret(machine)
    return machine


def _write(path: Path, template: str, values: dict[str, str]) -> None:
    text = files(__package__).joinpath("templates", template).read_text(encoding="utf-8")
    path.write_text(Template(text).substitute(values), encoding="utf-8")
    if path.suffix == ".sh":
        path.chmod(path.stat().st_mode | stat.S_IXUSR)


def _compose(plan: Plan) -> str:
    services = [_service("server", {"LISTEN": "0.0.0.0"})]
    services += [_service(f"node-{k}", {"SERVER": f"{COMPOSE_NAME}:{plan.port}"}) for k in plan.numbers]
    head = files(__package__).joinpath("templates", "compose-head.yaml").read_text(encoding="utf-8")
    return head + "".join(services)


def _service(name: str, environment: dict[str, str]) -> str:
    pairs = ", ".join(f'{key}: "{value}"' for key, value in environment.items())
    return f"  {name}:\n    <<: *machine\n    volumes: [./{name}:/rebafl]\n    environment: {{{pairs}}}\n"


def machines(plan: Plan) -> Sequence[str]:
    return ["server", *(f"node-{number}" for number in plan.numbers)]
