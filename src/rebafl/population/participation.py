"""Who takes part in a round, and whose upload is lost?

A `Participation` says who is there in a round: a pure function of (seed, round), so resuming needs no state.
It is read in one of two ways: those who are not there are *away* (did not train), or their upload is
*lost* (trained, but not used). A second participation, `delivery`, may lose further uploads.
"""

from __future__ import annotations

import csv
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from io import TextIOWrapper
from typing import Annotated, ClassVar, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from ..base.config import parameters
from ..base.errors import UserError
from ..base.kinds import Kinds, address_of, explained, no_subclass
from ..base.reading import located, opened
from ..base.rng import generator

Presence = npt.NDArray[np.bool_]
Chance = Annotated[float, Field(gt=0, le=1)]
Chances = Annotated[tuple[Chance, ...], Field(min_length=1)]
Dropout = Literal["away", "lost"]
MOST_DRAWS = 100_000


@parameters
class Participation(ABC):
    """Who is there, as a pure function of its arguments: a run that is resumed asks again."""

    name: ClassVar[str]

    @abstractmethod
    def present(self, clients: int, seed: int, round: int, purpose: str) -> Presence:
        """A truth value for each client. Rounds count from 1.

        `purpose` is "participation" or "delivery": two that are used in one run must be independent of each other.
        """


@parameters
class Always(Participation):
    """Everybody, always."""

    name = "always"

    def present(self, clients: int, seed: int, round: int, purpose: str) -> Presence:
        return np.ones(clients, dtype=bool)


@parameters
class Bernoulli(Participation):
    """Each client is there with probability p, independently; with several p, client i has p[i mod groups].

    A draw in which nobody is there is drawn again.
    """

    name = "bernoulli"
    p: Annotated[Chance | Chances, Field(description="probability, or one for each group")] = 0.5

    def present(self, clients: int, seed: int, round: int, purpose: str) -> Presence:
        return _independent(self.p, clients, seed, round, purpose)


@parameters
class Persistent(Participation):
    """As `bernoulli`, but drawn only every `period` rounds and held in between."""

    name = "persistent"
    p: Annotated[Chance | Chances, Field(description="probability, or one for each group")] = 0.5
    period: Annotated[int, Field(ge=1, description="rounds between two draws (s)")] = 5

    def present(self, clients: int, seed: int, round: int, purpose: str) -> Presence:
        return _independent(self.p, clients, seed, round - (round - 1) % self.period, purpose)


def _independent(p: float | tuple[float, ...], clients: int, seed: int, round: int, purpose: str) -> Presence:
    chances = np.resize(np.atleast_1d(p), clients)
    random = generator(seed, purpose, round=round)
    for _ in range(MOST_DRAWS):
        present = random.random(clients) < chances
        if present.any():
            return present
    raise UserError(f"p = {p} leaves all {clients} clients away in {MOST_DRAWS:,} draws; raise it.")


@parameters
class Fraction(Participation):
    """Exactly round(share * clients) clients, at least one, drawn again each round."""

    name = "fraction"
    share: Annotated[float, Field(gt=0, le=1, description="share of the clients")] = 0.1

    def present(self, clients: int, seed: int, round: int, purpose: str) -> Presence:
        present = np.zeros(clients, dtype=bool)
        count = max(1, int(self.share * clients + 0.5))
        present[generator(seed, purpose, round=round).choice(clients, size=count, replace=False)] = True
        return present


@parameters
class Markov(Participation):
    """Clients come and go: one that is there leaves with probability `leave`, one that is away joins with `join`.

    The first round is drawn from the long-run share join / (join + leave). A round may be empty.
    """

    name = "markov"
    leave: Annotated[Chance, Field(description="probability that a client that is there leaves")] = 0.2
    join: Annotated[Chance, Field(description="probability that a client that is away comes back")] = 0.2

    def present(self, clients: int, seed: int, round: int, purpose: str) -> Presence:
        return _chain(self.leave, self.join, clients, seed, purpose).at(round)


class _Chain:
    """Who is present, round after round. It remembers its last round, so that the next one costs one step."""

    def __init__(self, leave: float, join: float, clients: int, seed: int, purpose: str) -> None:
        self.leave, self.join, self.clients, self.seed, self.purpose = leave, join, clients, seed, purpose
        self.restart()

    def restart(self) -> None:
        self.round = 1
        self.present: Presence = self.draw(1) < self.join / (self.join + self.leave)

    def draw(self, round: int) -> npt.NDArray[np.float64]:
        return generator(self.seed, self.purpose, round=round).random(self.clients)

    def at(self, round: int) -> Presence:
        if round < self.round:
            self.restart()
        while self.round < round:
            self.round += 1
            draw = self.draw(self.round)
            self.present = np.where(self.present, draw >= self.leave, draw < self.join)
        return self.present


_chain = lru_cache(maxsize=4)(_Chain)


@parameters
class Trace(Participation):
    """What was observed: a CSV whose first line names its columns.

    `client,round`: one line for each round a client is there. `client,first,last`: from round to round.
    `client,from,to`: times, in the unit of `round_length`; a client is there if it stays the whole round.
    Clients count from 0, rounds from 1. After the last line that it has, nobody is there.
    """

    name = "trace"
    path: Annotated[str, Field(description="the CSV file; `rebafl:paper/NAME`: one that comes with the package")]
    round_length: Annotated[float, Field(gt=0, description="length of a round, for columns from and to")] = 60.0

    def present(self, clients: int, seed: int, round: int, purpose: str) -> Presence:
        who, first, last = _trace(self.path, self.round_length)
        if len(who) and who.max() >= clients:
            raise UserError(f"{self.path} names client {who.max()}, but there are only {clients}, counted from 0.")
        present = np.zeros(clients, dtype=bool)
        present[who[(first <= round) & (round <= last)]] = True
        return present

    def last_round(self) -> int:
        """The last round in which anybody is there."""
        return int(_trace(self.path, self.round_length)[2].max())


COLUMNS = "the columns must be client,round or client,first,last or client,from,to"
Columns = tuple[npt.NDArray[np.int64], npt.NDArray[np.float64], npt.NDArray[np.float64]]


@lru_cache(maxsize=4)
def _trace(path: str, length: float) -> Columns:
    try:
        with TextIOWrapper(opened(located(path)), encoding="utf-8-sig", newline="") as file:
            header, *rows = [[cell.strip() for cell in row] for row in csv.reader(file) if row]
            cells = np.array(rows, dtype=np.float64).reshape(len(rows), len(header))
    except (OSError, ValueError, csv.Error) as error:
        raise UserError(f"{path} cannot be read as a trace ({error}); {COLUMNS}.") from None
    if not len(cells) or not np.isfinite(cells).all() or (cells < 0).any() or (cells > 2**31).any():
        raise UserError(f"{path}: every cell must be a number from 0 up, and there must be at least one line of them.")
    who = cells[:, 0].astype(np.int64)
    whole = cells if header[-1] in ("round", "last") else cells[:, :1]
    if (whole != np.floor(whole)).any() or (len(header) == 3 and (cells[:, 1] > cells[:, 2]).any()):
        raise UserError(f"{path}: clients and rounds are whole numbers, and no stay ends before it begins.")
    if header[-1] in ("round", "last") and (cells[:, 1] < 1).any():
        raise UserError(f"{path}: rounds count from 1, and it names round 0; add 1 to every round.")
    match header:
        case ["client", "round"]:
            return who, cells[:, 1], cells[:, 1]
        case ["client", "first", "last"]:
            return who, cells[:, 1], cells[:, 2]
        case ["client", "from", "to"]:  # round r lasts from (r - 1) to r lengths
            return who, np.ceil(cells[:, 1] / length) + 1, np.floor(cells[:, 2] / length)
        case _:
            raise UserError(f"{path}: {COLUMNS}.")


KINDS: Kinds[type[Participation]] = Kinds(
    "participation",
    {kind.name: kind for kind in (Always, Bernoulli, Persistent, Fraction, Markov, Trace)},
    no_subclass(Participation),
)


def present_by(participation: Participation, clients: int, seed: int, round: int, purpose: str) -> Presence:
    """Who is there, by this participation; what one that is own code gives back is looked at."""
    if type(participation) in KINDS.values():
        return participation.present(clients, seed, round, purpose)
    with explained(f"{purpose}: present() of {address_of(type(participation))}"):
        present = np.asarray(participation.present(clients, seed, round, purpose))
        if present.shape != (clients,) or present.dtype != bool:
            raise TypeError(
                f"it gave back {present.dtype} of shape {present.shape} where {clients} truth values are needed, "
                "one for each client"
            )
        return present


@dataclass(frozen=True)
class Roster:
    """One round: who trains, and whose upload arrives (a part of those)."""

    trains: tuple[int, ...]
    arrives: tuple[int, ...]


def roster(
    participation: Participation, dropout: Dropout, delivery: Participation, clients: int, seed: int, round: int
) -> Roster:
    """Both readings of dropout, and both participations together."""
    present = present_by(participation, clients, seed, round, "participation")
    delivered = present_by(delivery, clients, seed, round, "delivery")
    trains = present if dropout == "away" else np.ones(clients, dtype=bool)
    arrives = present & delivered
    return Roster(tuple(map(int, np.flatnonzero(trains))), tuple(map(int, np.flatnonzero(arrives))))
