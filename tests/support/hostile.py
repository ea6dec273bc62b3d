"""Members that lie in every round, most of them within the protocol: each is a function of (round, honest reply)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from flwr.app import Message
from torch import Tensor

from rebafl.base.rng import generator
from rebafl.federation.app.records import from_arrays, to_arrays
from support.lies import METADATA, counts, crashed, every, within

Lie = Callable[[int, Message], Any]
"""Round and honest reply -> what arrives: a message, None for silence, "late", or an exception of Flower's."""

BACK, FAR = -5.0, 1e5


def told(group: str, act: Callable[[str, Tensor], Tensor]) -> Lie:
    """All tensors of a group, changed by name."""

    def lie(round: int, reply: Message) -> Message:
        content: Any = reply.content
        content[group] = to_arrays({name: act(name, tensor) for name, tensor in from_arrays(content[group]).items()})
        return reply

    return lie


def times(factor: float, group: str = "change", part: str = "") -> Lie:
    return told(group, lambda name, tensor: factor * tensor if part in name else tensor)


def filled(value: float, group: str = "change") -> Lie:
    return told(group, lambda name, tensor: torch.full_like(tensor, value))


def noise(scale: float, group: str = "change") -> Lie:
    def lie(round: int, reply: Message) -> Message:
        random = generator(0, "lie", round)
        draw = every(group, lambda each: scale * torch.from_numpy(random.standard_normal(each.shape)).to(each.dtype))
        return within(draw)(reply)

    return lie


def one_place(value: float, group: str = "change") -> Lie:
    """A single number in the whole upload is another."""

    def act(name: str, tensor: Tensor) -> Tensor:
        changed = tensor.clone()
        changed.reshape(-1)[0] = value
        return changed if name in ("head.weight", "prototypes") else tensor

    return told(group, act)


def rolled(group: str, part: str) -> Lie:
    """What belongs to one class is said of the next."""
    return told(group, lambda name, tensor: tensor.roll(1, 0) if part in name else tensor)


def towards(label: int, push: float) -> Lie:
    """Everything is to look like one class."""

    def act(name: str, tensor: Tensor) -> Tensor:
        changed = tensor.clone()
        if name == "head.bias":
            changed[label] += push
        return changed

    return told("change", act)


def drifting(step: float) -> Lie:
    return told("change", lambda name, tensor: tensor + step)


def from_round(first: int, lie: Lie) -> Lie:
    return lambda round, reply: lie(round, reply) if round >= first else reply


def in_turn(*lies: Lie) -> Lie:
    return lambda round, reply: lies[round % len(lies)](round, reply)


def both(*lies: Lie) -> Lie:
    def lie(round: int, reply: Message) -> Any:
        for each in lies:
            reply = each(round, reply)
        return reply

    return lie


def stale() -> Lie:
    """What was sent first is sent for ever."""
    first: dict[str, Any] = {}

    def lie(round: int, reply: Message) -> Message:
        for group in ("change", "shared"):
            if group in reply.content:
                reply.content[group] = first.setdefault(group, reply.content[group])
        return reply

    return lie


def counted(*numbers: int) -> Lie:
    return lambda round, reply: within(counts(*numbers))(reply)


def honest(round: int, reply: Message) -> Message:
    return reply


def refused(name: str) -> Lie:
    return lambda round, reply: METADATA[name][0](reply)


ABOUT_WEIGHTS: Mapping[str, Lie] = {
    **{f"the opposite, {factor:g} times": times(-factor) for factor in (1, 2, 5, 7.5, 50, 3e3)},
    **{f"too much of it, {factor:g} times": times(factor) for factor in (3, 10, 99, 2e4)},
    **{f"noise of {scale:g}": noise(scale) for scale in (0.1, 4, 1e4)},
    **{f"{value:g} everywhere": filled(value) for value in (0, 1e-40, 1, -7, FAR)},
    "a single weight far away": one_place(9e5),
    "a single weight a little off": one_place(-3.0),
    "only the head's opposite": times(BACK, part="head"),
    "only the body's opposite": times(BACK, part="hidden"),
    "classes in each other's place": both(rolled("change", "head"), times(8.0)),
    "everything is class 1": towards(1, 40.0),
    "a drift in one direction": drifting(0.05),
    "honest at first": from_round(3, times(-50.0)),
    "now this, now that": in_turn(times(-20.0), honest, filled(2.0)),
    "the same for ever": stale(),
}
ABOUT_SHARED: Mapping[str, Lie] = {
    **{f"the opposite shared, {factor:g} times": times(-factor, "shared") for factor in (1, 5, 42, 99)},
    **{f"{value:g} shared everywhere": filled(value, "shared") for value in (0, 0.5, -60)},
    "noise shared": noise(9.0, "shared"),
    "a single number of what is shared": one_place(70.0, "shared"),
    "what is shared is another class's": rolled("shared", ""),
    "the opposite of everything": both(times(BACK), times(BACK, "shared")),
}
ABOUT_SAMPLES: Mapping[str, Lie] = {
    "as many samples as may be": both(counted(1500, 1, 0, 1), times(-4.0)),
    "all samples of one class": both(counted(0, 0, 77, 0), times(-4.0)),
    "a single sample": counted(0, 1, 0, 0),
    "other samples later": from_round(2, counted(5, 5, 5, 5)),
}
BY_CONDUCT: Mapping[str, Lie] = {
    "silence": lambda round, reply: None,
    "always late": lambda round, reply: "late",
    "silence now and then": in_turn(lambda round, reply: None, times(-30.0)),
    "a crash": lambda round, reply: crashed(2, "boom")(reply),
    "what cannot be read": lambda round, reply: KeyError("?"),
    "a life of NaN": refused("a life of NaN"),
    "NaN": told("change", lambda name, tensor: tensor * float("nan")),
}
"""The liar may also not answer, or answer what is refused: in every round."""

HOSTILE: Mapping[str, Lie] = {**ABOUT_WEIGHTS, **ABOUT_SAMPLES, **BY_CONDUCT}
