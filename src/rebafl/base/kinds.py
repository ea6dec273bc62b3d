"""What may a word such as `algorithm=rebafl` name? A part of this package, or the user's own code.

Own code is found as `module:Class`, on the path or in the current folder, or by the short name that an installed
package gave it (an entry point). Every sort of part that can be chosen by a word has one `Kinds`.

Importing a module runs it. So words that stand in a folder which somebody else may have made are read under
`importing_only_if`: what they name is imported only if the user said that it may be.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.metadata import entry_points
from typing import Any, TypeVar

from .config import choices, import_name
from .errors import UserError
from .words import one_line, own_place

T = TypeVar("T")

_foreign: ContextVar[str] = ContextVar("_foreign", default="")
"""Whose words are being read, while nothing that they name may be imported."""


@contextmanager
def importing_only_if(trusted: bool, where: object) -> Iterator[None]:
    """While this folder's words are read, modules that they name are imported only if it is trusted."""
    before = _foreign.set("" if trusted else str(where))
    try:
        yield
    finally:
        _foreign.reset(before)


class Kinds(dict[str, T]):
    """The parts of one sort that this package has, by name, and a way to find others.

    `what` is the sort, in the singular; other packages offer theirs in the entry point group of its plural. `form`
    says how own code is named, and `wrong` why something that was imported is no part of this sort, if so.
    """

    def __init__(
        self,
        what: str,
        built_in: Mapping[str, T],
        wrong: Callable[[Any], str],
        form: str = "module:Class",
    ) -> None:
        super().__init__(built_in)
        self.what, self.wrong, self.form = what, wrong, form
        self.group = f"rebafl.{what}s"

    def find(self, word: object, where: str = "") -> T:
        """What a word names; `where` is the setting, for the message, if it is not called like the sort."""
        if isinstance(word, str) and word in self:
            return self[word]
        found: T = self.imported(word, where)
        return found

    def imported(self, word: object, where: str = "") -> Any:
        """What a word that is no name of this package's names."""
        where = where or self.what
        address = self.installed().get(word, word) if isinstance(word, str) else ""
        if ":" not in address:
            names = {*self, *self.installed()}
            raise UserError(f"{where}: there is no {word!r}{choices(str(word), names)}; or give {self.form}.")
        if ":" in str(word) and (folder := _foreign.get()):  # a short name is of a package that was installed here
            raise UserError(
                f"{folder} names code that would be imported and run ({where}: {address}); if you trust it, say so: "
                "--trust-code, from Python trust_code=True."
            )
        thing = import_name(address, where)
        if reason := self.wrong(thing):
            raise UserError(f"{where}: {address} {reason}.")
        return thing

    def installed(self) -> dict[str, str]:
        """What other installed packages offer: names and addresses."""
        return {point.name: point.value for point in entry_points(group=self.group)}

    def kind_of(self, thing: Any) -> str:
        """The word that finds this class or function again: its name, or where it lives."""
        for name, known in self.items():
            if known is thing:
                return name
        address = address_of(thing)
        return next((name for name, where in self.installed().items() if _same(where, address, thing)), address)


def _same(where: str, address: str, thing: Any) -> bool:
    """Does an entry point lead to this thing? It may name a module that only imports it."""
    module, _, attribute = where.partition(":")
    return where == address or getattr(sys.modules.get(module), attribute, None) is thing


def address_of(thing: Any) -> str:
    """Where a class or function lives."""
    return f"{thing.__module__}:{thing.__qualname__}"


def no_subclass(base: type[Any]) -> Callable[[Any], str]:
    """For sorts whose parts are classes with a name: why something is none of them."""

    def wrong(thing: Any) -> str:
        if not (isinstance(thing, type) and issubclass(thing, base) and isinstance(getattr(thing, "name", None), str)):
            return f"is not a class with a name, derived from rebafl.{base.__name__}"
        if missing := sorted(getattr(thing, "__abstractmethods__", ())):
            return f"does not define {missing[0]}()"
        declared = [n for n, kind in vars(thing).get("__annotations__", {}).items() if "ClassVar" not in str(kind)]
        if declared and "__dataclass_fields__" not in vars(thing):
            return f"has the parameter {declared[0]}, but no @rebafl.parameters above the class"
        return ""

    return wrong


def no_function(makes: str) -> Callable[[Any], str]:
    """For sorts whose parts are called: why something cannot be."""

    def wrong(thing: Any) -> str:
        return "" if callable(thing) else f"cannot be called to make a {makes}"

    return wrong


@contextmanager
def explained(what: str) -> Iterator[None]:
    """What own code raises becomes one sentence; `what` is the setting and the code that is called."""
    try:
        yield
    except UserError:
        raise
    except (Exception, SystemExit) as error:
        raise UserError(f"{what} failed{own_place(error)} ({one_line(error)}).") from error
