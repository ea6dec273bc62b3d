"""How does a node do its part of a masked round? It trains, and gives its upload away only inside the masks.

The keys of the others are those in the node's own folder, not such as the server sends. What the server may not ask for
is refused by `rebafl.secagg.client`, and by what the node remembers: see `sessions`.
"""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec
from flwr.app import Context, RecordDict

from ....base.errors import UserError
from ....base.reading import read_bytes
from ....runs.settings import Settings
from ....runs.summed import averages_of
from ....secagg.abort import Abort
from ....secagg.client import Client
from ....secagg.crypto import read_public_key, read_signing_key, written
from ....secagg.fixed_point import Layout, Part
from ....secagg.messages import Stage
from ....secagg.terms import Terms
from ..masking import Step, read_call, read_step, stage_of
from ..member_keys import read_keys
from ..node_config import KEY, MEMBERS_FILE, STATE
from ..options import read_run_config
from ..records import Malformed, Order, read_order
from .answer import trained
from .sessions import EMPTY, Session, Sessions

log = logging.getLogger("flwr")

TWICE = "this node has given its upload of this round already, and two sums of it would tell it apart"


@dataclass(frozen=True)
class Member:
    """Who the node is and whom it knows, by the files that its config names."""

    context: Context

    @cached_property
    def key(self) -> ec.EllipticCurvePrivateKey:
        path = self._path(KEY)
        try:
            return read_signing_key(read_bytes(path))
        except OSError as error:
            raise UserError(f"{path}, the node's key, cannot be read ({error.strerror}).") from None

    @cached_property
    def keys(self) -> dict[int, bytes]:
        return read_keys(self._path(MEMBERS_FILE))

    def sessions(self, run: str, client: int) -> Sessions:
        """Those of the client that this node is, and no other."""
        known = self.keys.get(client)
        if known is None or written(read_public_key(known)) != written(self.key.public_key()):
            raise Abort(f"this node's key is not that of client {client}")
        return Sessions(self._path(STATE), run, client)

    def _path(self, name: str) -> Path:
        path = self.context.node_config.get(name)
        if not isinstance(path, str) or not path:
            raise UserError(
                f'A masked round (protect.secagg) needs {name}="PATH" in the node\'s config; the start.sh that '
                "`rebafl federation init` makes gives it."
            )
        return Path(path)


def masked_answer(content: RecordDict, context: Context) -> RecordDict:
    """One step of a masked round. Raises `Abort` for what could give the node's upload away."""
    settings, _ = read_run_config(context.run_config)
    if not settings.protect.secagg:
        raise UserError("This run does not mask its uploads (protect.secagg), and a masked one was asked for.")
    member = Member(context)
    if stage_of(content) is Stage.ADVERTISE:
        return _advertise(content, settings, member).record()
    return _next_step(read_step(content), member).record()


def _advertise(content: RecordDict, settings: Settings, member: Member) -> Step:
    """Train; then show the keys of this round. The upload waits until the masks are agreed."""
    order, call = read_order(content), read_call(content)
    sessions, round_id = member.sessions(order.run, order.client), call.id(order).hex()
    summed = _summed(order, settings)
    sessions.begin()
    if not sessions.mark(round_id):
        raise Abort("this node has answered in a round with the same id")
    if sessions.is_marked(summed):
        raise Abort(TWICE)
    upload, fresh = trained(order, settings, member.context)
    protect = settings.protect
    averages = averages_of(settings.algorithm, upload, settings.partition.clients, call.samples, protect)
    vector = averages.encoded(protect.received(upload))
    terms = call.terms(order, member.keys, averages, protect)
    client = Client(terms, order.client, member.key)
    data = client.advertise()
    sessions.put(round_id, Session(_written(terms), client.saved(), summed, vector))
    return Step(order.run, round_id, order.client, Stage.ADVERTISE, data, fresh)


def _next_step(step: Step, member: Member) -> Step:
    sessions = member.sessions(step.run, step.client)
    if step.stage is Stage.CLOSED:
        sessions.clear(step.round_id)
        return step
    session = sessions.take(step.round_id)
    if session is None:
        raise Abort(f"this node was asked to {step.stage.value}, and is in no such round")
    terms = _terms(session, step.round_id, member)
    client = Client.restored(terms, step.client, member.key, session.secrets)
    vector = session.vector
    if step.stage is Stage.MASK:
        data = client.mask(step.data, vector)
        if not sessions.mark(session.summed):  # before it leaves the node: another order may have been faster
            raise Abort(TWICE)
        vector = EMPTY
    else:
        data = _steps(client, step)
    if client.stage is not Stage.DONE:
        sessions.put(step.round_id, Session(session.terms, client.saved(), session.summed, vector))
    log.info("Client %s did its part of: %s.", step.client, step.stage.value)
    return Step(step.run, step.round_id, step.client, step.stage, data)


def _steps(client: Client, step: Step) -> bytes:
    if step.stage is Stage.SHARE:
        return client.share(step.data)
    if step.stage is Stage.AGREE:
        return client.agree(step.data)
    if step.stage is Stage.UNMASK:
        return client.unmask(step.data)
    raise Malformed(f"{step.stage.value} is nothing that a client does")


def _written(terms: Terms) -> dict[str, object]:
    parts = [[part.name, list(part.shape), part.bits, part.bound] for part in terms.layout.parts]
    return {"clients": list(terms.keys), "threshold": terms.threshold, "parts": parts, "most": terms.layout.clients}


def _terms(session: Session, round_id: str, member: Member) -> Terms:
    """As they were; the keys are read again from the node's own file."""
    values: dict[str, Any] = dict(session.terms)
    parts = tuple(Part(name, tuple(shape), bits, bound) for name, shape, bits, bound in values["parts"])
    keys = {int(client): member.keys[client] for client in values["clients"]}
    return Terms(bytes.fromhex(round_id), keys, values["threshold"], Layout(parts, values["most"]))


def _summed(order: Order, settings: Settings) -> str:
    """A digest of all that an upload is computed from, besides the node's own data; the same in another run."""
    digest = hashlib.sha256(f"{settings.digest} {order.client} {order.round}".encode())
    for group in (order.sent.weights, order.sent.extra):
        for name, tensor in sorted(group.items()):
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode() + tensor.numpy().tobytes())
    return digest.hexdigest()
