"""Which code is a run's own, and may the run be resumed although something about it changed?

A run names its algorithm, model, data set, partition and participation; if one lives outside this package, the name
alone does not say what was computed. So the record keeps the SHA-256 of its source: of the file that defines it, or of
the definition alone where that file is the script or notebook itself; and of the user's own modules that it imports.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from ..base.config import Plain
from ..base.files import sha256
from ..base.kinds import address_of
from ..base.words import is_users
from ..data import Data, own_function
from ..models.choice import KINDS as MODELS
from ..models.choice import Factory
from .settings import KINDS, Settings

OWN_CODE = "own_code"  # in environment.json: what is defined elsewhere -> SHA-256 of its source
WENT_ON = "went_on_with"  # in environment.json: what was different when a run was gone on with
DEVICE = "device"  # in environment.json, unless it is the processor by default
TO_BE_ACCEPTED = (OWN_CODE, "bits", DEVICE)
"""Facts of a run without which its rounds are no longer one experiment: if they changed, the user has to say so."""

UNKNOWN = "unknown"
NOT_OWN = {"rebafl", "torch", *sys.stdlib_module_names}  # their versions are among the facts already


def own_code(settings: Settings, model: Factory | None = None, data: Data | None = None) -> dict[str, str]:
    """What of a run is defined outside this package, with the digests of its source.

    `model` and `data` are those that were given from Python in place of what `settings` name.
    """
    parts = [type(getattr(settings, section)) for section in KINDS]
    factory = model or MODELS.find(settings.model.kind)
    function = own_function(settings.dataset) if data is None else None
    definitions = [own for part in (*parts, factory, function) if part for own in _definitions(part)]
    modules = {definition.__module__: sys.modules.get(definition.__module__) for definition in definitions}
    helpers = _helpers([module for module in modules.values() if module])
    return {
        **{address_of(definition): _digest(definition) for definition in definitions},
        **{name: sha256(file.read_bytes()) for name, file in sorted(helpers.items()) if name not in modules},
    }


def _helpers(modules: Iterable[ModuleType]) -> dict[str, Path]:
    """The user's modules that these import, and those that they import: names and files."""
    found: dict[str, Path] = {}
    waiting = list(modules)
    while waiting:
        module = waiting.pop()
        for name in _imports(module):
            helper = sys.modules.get(name)
            file = getattr(helper, "__file__", None)
            if helper and file and name not in found and is_users(file) and Path(file).suffix == ".py":
                found[name] = Path(file)
                waiting.append(helper)
    return {name: file for name, file in found.items() if file.exists()}


def _imports(module: ModuleType) -> set[str]:
    """The names of modules that a module's source imports, and some that are none."""
    try:
        tree = ast.parse(Path(module.__file__ or "").read_bytes())
    except (OSError, ValueError, SyntaxError, AttributeError):  # typed in by hand, or compiled
        return set()
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            package = (module.__package__ or "").split(".")
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join(filter(None, [*above, node.module]))
            names |= {f"{base}.{alias.name}" for alias in node.names}
    paths = [name.split(".") for name in names]
    return {".".join(path[:length]) for path in paths for length in range(1, len(path) + 1)}  # packages are run, too


def _definitions(thing: Any) -> Iterable[Any]:
    """The class or function behind something that is called, and the classes it is derived from, if own."""
    while isinstance(thing, partial):
        thing = thing.func
    if not hasattr(thing, "__qualname__"):  # an object that can be called
        thing = type(thing)
    definitions = inspect.getmro(thing) if isinstance(thing, type) else (thing,)
    return [own for own in definitions if (own.__module__ or "").partition(".")[0] not in NOT_OWN]


def _digest(thing: Any) -> str:
    try:
        if thing.__module__ == "__main__":
            return sha256(inspect.getsource(thing).encode())
        return sha256(Path(inspect.getsourcefile(sys.modules[thing.__module__]) or "").read_bytes())
    except (OSError, TypeError, KeyError):  # typed in by hand, or compiled
        return UNKNOWN


def latest(facts: Plain) -> Plain:
    """The facts of a run's environment as of its last round."""
    known = dict(facts)
    for change in facts.get(WENT_ON, []):
        known |= change
    return known


def changes_to_accept(known: Plain, now: Mapping[str, Any]) -> list[str]:
    """What changed that the user has to accept; facts that one side does not know are no change."""
    changes = []
    for name in TO_BE_ACCEPTED:
        old, new = known.get(name), now.get(name)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            pairs = {part: (old.get(part), new.get(part)) for part in sorted({*old, *new})}
            changes += [f"the source of {part}" for part, two in pairs.items() if _differs(part, *two)]
        elif old is not None and new is not None and old != new:
            changes.append(f"{name}, {old!r} there and {new!r} here")
    return changes


def _differs(part: str, old: str | None, new: str | None) -> bool:
    """A module that is imported no longer, or was not before, is no change by itself: what imports it is one."""
    is_helper = ":" not in part
    return old != new and UNKNOWN not in (old, new) and not (is_helper and None in (old, new))


def refusal_of(path: Path, changes: list[str]) -> str:
    """What changed, and how to resume all the same."""
    return (
        f"{path} was run with something else than what is here now ({'; '.join(changes[:3])}); restore it, start anew "
        "(--fresh, or another out=DIRECTORY), or say that both may be mixed: --changed-code, from Python "
        "accept_changes=True, in a federation accept-changes=true."
    )
