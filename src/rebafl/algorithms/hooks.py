"""What if an algorithm's own code is wrong? A hook that raises, or gives back something else, is one sentence.

A client's hooks may fail alone: its upload is refused, and the round continues. What fails at the server would fail
in every round, so the run ends there; finished rounds are kept.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor

from ..base.errors import UserError
from ..base.tensors import Tensors
from ..base.words import one_line
from . import KINDS
from .aggregate import Upload, unlike
from .interface import Algorithm, Context, Server

PACKAGE = Path(__file__).parents[1]
WHAT_NOW = "put that right and run the same command again, with --changed-code; finished rounds are safe"
SEE = "a table in docs/own-algorithm.md says what each hook must return"


@contextmanager
def own_mistakes(algorithm: Algorithm) -> Iterator[None]:
    """What is raised in a hook of an algorithm that is not of this package becomes one sentence that says where."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        if (place := _place(error, algorithm)) is None:
            raise
        hook, where = place
        kind = KINDS.kind_of(type(algorithm))
        raise UserError(
            f"The algorithm {kind} failed in {hook}() at {where} ({one_line(error)}); {WHAT_NOW}."
        ) from error


def _place(error: Exception, algorithm: Algorithm) -> tuple[str, str] | None:
    """The hook that an error came through and the innermost line of its file, if the hook is own code."""
    hook, file, line = "", "", 0
    for frame, number in traceback.walk_tb(error.__traceback__):
        code = frame.f_code
        first = frame.f_locals.get(code.co_varnames[0]) if code.co_varnames else None
        if not hook and first is algorithm and PACKAGE not in Path(code.co_filename).parents:
            hook, file = code.co_name, code.co_filename
        if code.co_filename == file:
            line = number
    return (hook, f"{file}:{line}") if hook else None


def checked_server(algorithm: Algorithm, hook: str, after: Any, before: Server) -> Server:
    """What a hook made of a server, if it is one of the same names, shapes and types."""
    if not isinstance(after, Server):
        raise _wrong(algorithm, hook, f"a {type(after).__name__} where a Server is needed")
    for part in ("weights", "state"):
        tensors, expected = checked_tensors(algorithm, hook, getattr(after, part)), getattr(before, part)
        if reason := unlike(tensors, expected):
            raise _wrong(algorithm, hook, f"other {part} than it was given: {reason}")
    return after


def checked_tensors(algorithm: Algorithm, hook: str, returned: Any) -> Tensors:
    """What a hook gave back, if it is tensors by name."""
    if not isinstance(returned, Mapping):
        raise _wrong(algorithm, hook, f"a {type(returned).__name__} where tensors by name are needed")
    for name, value in returned.items():
        if not isinstance(name, str) or not isinstance(value, Tensor):
            raise _wrong(algorithm, hook, f"a {type(value).__name__} for {name!r} where a tensor is needed")
    return dict(returned)


def checked_weights(algorithm: Algorithm, hook: str, returned: Any, expected: Tensors) -> Tensors:
    """What a hook gave back as the model's weights, if it is them by names, shapes and types."""
    weights = checked_tensors(algorithm, hook, returned)
    if reason := unlike(weights, expected):
        raise _wrong(algorithm, hook, f"other weights than the model has: {reason}")
    return weights


def checked_context(algorithm: Algorithm, returned: Any) -> Context:
    """What `start` gave back, if the other hooks can do with it."""
    if not isinstance(returned, Context):
        raise _wrong(algorithm, "start", f"a {type(returned).__name__} where a Context is needed")
    return returned


def checked_loss(algorithm: Algorithm, returned: Any) -> Tensor:
    """What `loss` gave back, if it can be minimised."""
    if not isinstance(returned, Tensor):
        raise _wrong(algorithm, "loss", f"a {type(returned).__name__} where a tensor is needed")
    if returned.numel() != 1 or not returned.requires_grad:
        shape = tuple(returned.shape)
        lacks = f"of shape {shape} where one number is needed" if returned.numel() != 1 else "without a gradient"
        raise _wrong(algorithm, "loss", f"a tensor {lacks}")
    return returned


def checked_upload(algorithm: Algorithm, returned: Any) -> Upload:
    """What `upload` gave back, if it is one with tensors by name; their form is checked where it arrives."""
    if not isinstance(returned, Upload):
        raise _wrong(algorithm, "upload", f"a {type(returned).__name__} where an Upload is needed")
    checked_tensors(algorithm, "upload", returned.change)
    checked_tensors(algorithm, "share", returned.shared)
    return returned


def _wrong(algorithm: Algorithm, hook: str, what: str) -> UserError:
    kind = KINDS.kind_of(type(algorithm))
    return UserError(f"The algorithm {kind} gave back from {hook}() {what}; {WHAT_NOW} ({SEE}).")
