"""How does the server learn the sum of a round's uploads and no upload? Stage by stage, each closed in time.

Every stage of `rebafl.secagg` is one question to those who are still there. Who does not answer before the stage is
closed, or answers with what cannot be used, has left the round; too few end it, and the next round has another id.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from ....secagg.abort import Abort
from ....secagg.fixed_point import Vector
from ....secagg.messages import Stage, sender_of
from ....secagg.server import Server
from ....secagg.terms import Terms
from ...flower_changes import send
from ..masking import Step, read_step
from ..records import failure_of, shown
from .ask import ask, message_to
from .fetch import Limit

log = logging.getLogger("flwr")

CLOSES = {Stage.ADVERTISE: 0.4, Stage.SHARE: 0.55, Stage.MASK: 0.75, Stage.AGREE: 0.88, Stage.UNMASK: 1.0}
"""When each stage closes at the latest, as a share of the round's deadline. Clients train in the first."""
INPUT_COUNTS = (Stage.ADVERTISE, Stage.SHARE, Stage.MASK)  # stages in which leaving costs a client its upload


@dataclass
class Outcome:
    """The exact sum of the survivors' vectors, or why there is none; who left and why; how many did each stage."""

    total: Vector | None = None
    survivors: tuple[int, ...] = ()
    failed: str = ""
    missing: dict[int, str] = field(default_factory=dict)
    refused: dict[int, str] = field(default_factory=dict)
    restarted: list[int] = field(default_factory=list)
    stages: dict[str, int] = field(default_factory=dict)


class MaskedRound:
    """One masked round with these nodes, by client."""

    def __init__(
        self, grid: Grid, nodes: Mapping[int, int], run: str, number: int, terms: Terms, deadline: float
    ) -> None:
        self.grid, self.nodes, self.run, self.group, self.deadline = grid, nodes, run, str(number), deadline
        self.terms, self.server = terms, Server(terms)
        self.round_id = terms.round_id.hex()
        self.outcome = Outcome(stages={"asked": len(nodes), "threshold": terms.threshold})
        self.present = set(nodes)

    def collect(self, orders: Mapping[int, RecordDict]) -> Outcome:
        """All stages, the first with these orders."""
        began, outcome = time.monotonic(), self.outcome
        contents = dict(orders)
        try:
            for stage, share in CLOSES.items():
                self._ask(stage, contents, began + share * self.deadline - time.monotonic())
                outcome.stages[stage.value] = len(self.present)
                messages = self.server.close()
                following = self.server.stage
                contents = {
                    client: Step(self.run, self.round_id, client, following, data).record()
                    for client, data in messages.items()
                }
            outcome.total, outcome.survivors = self.server.total, self.server.survivors
        except Abort as reason:
            outcome.failed = str(reason)
        self._dismiss()
        return outcome

    def _ask(self, stage: Stage, contents: Mapping[int, RecordDict], seconds: float) -> None:
        """One stage: who answers it as it must be is present in the next."""
        seconds = max(0.0, round(seconds, 1))
        present: set[int] = set()
        left: dict[int, str] = {}

        def use(client: int, reply: Message) -> None:
            try:
                left.pop(client, None)
                self._take(client, stage, reply)
                present.add(client)
            except Exception as error:  # a node may send anything
                left[client] = shown(str(error) if isinstance(error, Abort) else f"malformed: {error}")

        messages = {
            client: message_to(self.nodes[client], content, "train", self.group, seconds)
            for client, content in contents.items()
        }
        answers = ask(self.grid, messages, seconds, self._limit(stage), use)
        self._note(stage, answers.missing, self.outcome.missing)
        self._note(stage, {**answers.broken, **left}, self.outcome.refused)
        self.present = present

    def _take(self, client: int, stage: Stage, reply: Message) -> None:
        if failure := failure_of(reply.content):
            raise Abort(failure)
        step = read_step(reply.content, self._limit(stage).bytes)
        if (step.run, step.round_id, step.client, step.stage) != (self.run, self.round_id, client, stage):
            raise Abort("the answer is of another client, stage or round")
        if sender_of(step.data) != client:
            raise Abort("the answer holds the message of another client")
        self.server.take(step.data)
        if step.fresh and stage is Stage.ADVERTISE:
            self.outcome.restarted.append(client)

    def _limit(self, stage: Stage) -> Limit:
        return Limit.around(8 * self.terms.layout.length, 1) if stage is Stage.MASK else Limit()

    def _note(self, stage: Stage, reasons: Mapping[int, str], into: dict[int, str]) -> None:
        """Why clients left, unless their input is in the sum all the same."""
        for client, reason in reasons.items():
            if stage in INPUT_COUNTS:
                into[client] = f"{stage.value}: {reason}"
            else:
                log.warning("Round %s: client %s left at %s: %s.", self.group, client, stage.value, reason)

    def _dismiss(self) -> None:
        """Tell those who have not come to the end that the round is over; whether they hear it does not matter."""
        finished = self.present if self.server.stage is Stage.DONE else set()
        for client in self.nodes.keys() - finished:
            over = Step(self.run, self.round_id, client, Stage.CLOSED).record()
            send(self.grid, message_to(self.nodes[client], over, "train", self.group, self.deadline))
