"""Which modules does each module name, and does that follow the order of the code?

The order is in docs/architecture.toml. It is checked here, drawn as a picture and listed as a table.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from html import escape
from pathlib import Path
from textwrap import wrap

from rebafl.base.config import read_toml
from rebafl.report.markdown import markdown_table

ROOT = Path(__file__).parent.parent
PACKAGE = "rebafl"
INIT = "__init__"
IN_TEXT = re.compile(rf"(?<![\w./-]){PACKAGE}((?:\.[A-Za-z_]\w*)+)(?::([A-Za-z_]\w*))?")

Place = tuple[str, ...]
"""Where something stands: its packages and its own name, `("training", "loop")` or `("training", "__init__")`.

The last name is empty for files that are no modules: they belong to their package as a whole.
"""


@dataclass(frozen=True)
class Named:
    """A module, or something in one, that a file names in some line."""

    line: int
    parts: Place  # without the package's own name: `("training", "loop", "train")`
    kind: str  # "import"; "text" for a string that may be run; "prose" for docstrings, which only inform


@dataclass(frozen=True)
class Order:
    """What docs/architecture.toml says."""

    layers: Sequence[Sequence[str]]
    modules: Mapping[str, Sequence[str]]
    outside: Sequence[str] = ()
    exceptions: Sequence[Mapping[str, str]] = ()

    def before(self, first: Place, second: Place) -> bool:
        """May what stands at `second` name what stands at `first`?"""
        shared = 0
        while first[shared:] and second[shared:] and first[shared] == second[shared]:
            shared += 1
        if not first[shared:] or not second[shared:] or not second[shared]:
            return True  # itself, or a file beside the modules of its package
        if shared == 0:
            return self._layer(first[0]) < self._layer(second[0])
        return self._position(first[:shared], first[shared]) < self._position(second[:shared], second[shared])

    def _layer(self, name: str) -> int:
        return next(number for number, layer in enumerate(self.layers) if name in layer)

    def _position(self, package: Place, name: str) -> int:
        listed = self.modules[".".join(package)]
        return -1 if name == INIT and INIT not in listed else listed.index(name)

    def places(self) -> list[Place]:
        """All modules, in order."""
        return [place for layer in self.layers for name in layer for place in self.inside((name,))]

    def inside(self, package: Place) -> list[Place]:
        """The modules of a package, in order; of a module, itself."""
        listed = self.modules.get(".".join(package))
        if listed is None:
            return [package]
        names = listed if INIT in listed else [INIT, *listed]
        return [place for name in names for place in self.inside((*package, name))]


def read_order(path: Path = ROOT / "docs" / "architecture.toml") -> Order:
    return Order(**read_toml(path))


class Sources:
    """A package's files."""

    def __init__(self, folder: Path, outside: Sequence[str] = ()) -> None:
        self.folder = folder
        files = sorted(path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
        self.foreign = [path for path in files if self.name(path).startswith(tuple(f"{folder}/" for folder in outside))]
        self.files = [path for path in files if path not in self.foreign]

    def name(self, path: Path) -> str:
        return path.relative_to(self.folder).as_posix()

    @cached_property
    def modules(self) -> dict[Place, Path]:
        return {self.place(path): path for path in self.files if path.suffix == ".py"}

    def place(self, path: Path) -> Place:
        parts = path.relative_to(self.folder).with_suffix("").parts
        if path.suffix == ".py":
            return parts
        packages = parts[:-1]
        while packages and not (self.folder.joinpath(*packages) / f"{INIT}.py").exists():
            packages = packages[:-1]
        return (*packages, "")

    def find(self, parts: Place) -> tuple[Place, Place]:
        """The module that a dotted name leads to, and what is left of the name."""
        for length in range(len(parts), -1, -1):
            for place in (parts[:length], (*parts[:length], INIT)):
                if place in self.modules:
                    return place, parts[length:]
        raise LookupError(f"{PACKAGE} has no {INIT}.py")

    def exists(self, parts: Place) -> bool:
        place, rest = self.find(parts)
        return not rest or rest[0] in bound(parsed(self.modules[place])) or rest[0].startswith("__")


def parsed(path: Path) -> ast.Module:
    return _parsed(path.read_text(encoding="utf-8"))


@cache
def _parsed(text: str) -> ast.Module:
    return ast.parse(text)


def bound(tree: ast.AST) -> set[str]:
    """The names that a module binds, seen from outside."""
    names = set()
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
            continue
        if isinstance(node, ast.alias):
            names.add((node.asname or node.name).split(".")[0])
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        names |= bound(node)
    return names


def named(path: Path, place: Place) -> Iterator[Named]:
    """All that a file names of the package."""
    if path.suffix != ".py":
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:  # data
            return
        yield from in_text(text, "text")
        return
    tree = parsed(path)
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name.split(".") for alias in node.names]
            yield from (Named(node.lineno, tuple(parts[1:]), "import") for parts in names if parts[0] == PACKAGE)
        elif isinstance(node, ast.ImportFrom):
            yield from _imported_from(node, place)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from in_text(node.value, "prose" if id(node) in prose else "text", node.lineno)


def _imported_from(node: ast.ImportFrom, place: Place) -> Iterator[Named]:
    start = tuple(node.module.split(".")) if node.module else ()
    if node.level > len(place):  # beyond the package: a name that cannot exist
        start = ("",)
    elif node.level:
        start = place[: len(place) - node.level] + start
    elif start[0] == PACKAGE:
        start = start[1:]
    else:
        return
    yield from (Named(node.lineno, (*start, alias.name), "import") for alias in node.names)


def in_text(text: str, kind: str, line: int = 1) -> Iterator[Named]:
    for match in IN_TEXT.finditer(text):
        parts = match[1].split(".")[1:] + ([match[2]] if match[2] else [])
        yield Named(line + text[: match.start()].count("\n"), tuple(parts), kind)


def problems(sources: Sources, order: Order) -> list[str]:
    """Everything that is not as the order says, a sentence each."""
    listed, existing = set(order.places()), set(sources.modules)
    wrong = [f"{'/'.join(place)}.py is not listed in docs/architecture.toml" for place in sorted(existing - listed)]
    wrong += [
        f"{'/'.join(place)}.py is listed in docs/architecture.toml, but does not exist"
        for place in sorted(listed - existing)
    ]
    if wrong:
        return wrong  # what has no place cannot be compared
    excepted, needed = {(exception["file"], exception["names"]) for exception in order.exceptions}, set()
    for path in sources.files:
        file, place = sources.name(path), sources.place(path)
        for name in named(path, place):
            if reason := _objection(sources, order, place, name):
                if name.kind == "text" and (file, _dotted(name.parts)) in excepted:
                    needed.add((file, _dotted(name.parts)))
                else:
                    wrong.append(f"{file}:{name.line} {reason}")
    for path in sources.foreign:
        names = (name for name in named(path, sources.place(path)) if name.kind != "prose")
        wrong += [f"{sources.name(path)}:{name.line} names {_dotted(name.parts)}" for name in names]
    return wrong + [f"{file} needs no exception for {dotted}" for file, dotted in sorted(excepted - needed)]


def _objection(sources: Sources, order: Order, place: Place, named: Named) -> str:
    """Why a module at this place must not name this, or nothing."""
    name = _dotted(named.parts)
    if not sources.exists(named.parts):
        return f"names {name}, which does not exist"
    target, rest = sources.find(named.parts)
    informs = named.kind == "prose" or (named.kind == "text" and target == (INIT,) and rest)  # users of a public name
    return "" if informs or order.before(target, place) else f"names {name}, which does not stand before it"


def _dotted(parts: Place) -> str:
    return ".".join((PACKAGE, *parts))


def unknown_names(sources: Sources, text: str) -> list[str]:
    """What a text, such as pyproject.toml, names of the package although it does not exist."""
    return [_dotted(each.parts) for each in in_text(text, "text") if not sources.exists(each.parts)]


def defined_in(sources: Sources, name: str) -> Path | None:
    """The file that defines this function, class or method (`runs.record.Record.commit`), if any does."""
    place, rest = sources.find(tuple(name.split(".")))
    body: Sequence[ast.stmt] = parsed(sources.modules[place]).body
    for part in rest:
        kinds = (node for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef))
        if not (node := next((node for node in kinds if node.name == part), None)):
            return None
        body = node.body
    return sources.modules[place] if rest else None


def question(path: Path) -> str:
    """What a module says first of itself; a module that holds one class leaves that to the class."""
    tree = parsed(path)
    classes = (node for node in tree.body if isinstance(node, ast.ClassDef))
    text = ast.get_docstring(tree) or next((doc for each in classes if (doc := ast.get_docstring(each))), "")
    return " ".join(text.partition("\n\n")[0].split())


def table(sources: Sources, order: Order) -> str:
    """Every package with its question, and below it every module with its own, in order, as Markdown."""
    rows = []
    for layer in order.layers:
        for name in layer:
            for place in order.inside((name,)):
                if place[-1] != INIT or len(place) == 1:
                    continue
                package = place[:-1]
                rows.append((f"**{'/'.join(package)}/**", f"**{question(sources.modules[place])}**"))
                direct = [(*package, module) for module in order.modules[".".join(package)] if module != INIT]
                modules = [module for module in direct if ".".join(module) not in order.modules]
                rows += [(_link(sources, module), question(sources.modules[module])) for module in modules]
    rows += [(_link(sources, (name,)), question(sources.modules[(name,)])) for name in order.layers[-1]]
    return markdown_table(("", "the question it answers"), rows)


def _link(sources: Sources, place: Place) -> str:
    return f"[{place[-1]}](../src/{PACKAGE}/{sources.name(sources.modules[place])})"


def arrows(sources: Sources, order: Order) -> list[tuple[str, str]]:
    """Which package imports which, without what follows from other arrows."""
    direct: dict[str, set[str]] = {name: set() for layer in order.layers for name in layer}
    for place, path in sources.modules.items():
        targets = (sources.find(each.parts)[0][0] for each in named(path, place) if each.kind == "import")
        direct[place[0]] |= {target for target in targets if target != place[0]}

    @cache
    def reached(name: str) -> frozenset[str]:
        return frozenset(direct[name]).union(*(reached(each) for each in direct[name]))

    return [
        (name, target)
        for name in direct
        for target in sorted(direct[name])
        if not any(target in reached(other) for other in direct[name])
    ]


WIDTH, MARGIN, GAP, RISE = 1080, 20, 30, 34  # of the picture; around it; between boxes beside and above each other
WIDE, PADDING, LINE, LETTER = 460, 12, 17, 6.7  # a box that stands alone; inside it; the height of a line; of a letter


@dataclass(frozen=True)
class Box:
    """A package in the picture."""

    name: str
    about: Sequence[str]
    modules: Sequence[str]
    x: float
    width: float
    y: float
    height: float

    @property
    def middle(self) -> float:
        return self.x + self.width / 2

    @property
    def level(self) -> float:
        return self.y + self.height / 2

    def svg(self) -> Iterator[str]:
        place = f'x="{self.x:g}" y="{self.y:g}" width="{self.width:g}" height="{self.height:g}"'
        yield f'<rect class="box" {place} rx="6"/>'
        styles = ["name"] + ["about"] * len(self.about) + ["modules"] * len(self.modules)
        for number, (style, text) in enumerate(zip(styles, (f"{self.name}/", *self.about, *self.modules), strict=True)):
            y = self.y + PADDING + LINE * (number + 0.75)
            yield f'<text x="{self.x + PADDING:g}" y="{y:g}" class="{style}">{escape(text, quote=False)}</text>'


def picture(sources: Sources, order: Order) -> str:
    """The packages as boxes, what is used below what uses it, as SVG."""
    boxes: dict[str, Box] = {}
    y = float(MARGIN)
    for layer in reversed(order.layers[:-1]):
        row = list(_row(sources, order, layer, y))
        boxes |= {box.name: box for box in row}
        y += row[0].height + RISE
    height = y - RISE + MARGIN
    shown = [(a, b) for a, b in arrows(sources, order) if a in boxes and b in boxes]
    size = f'width="{WIDTH}" height="{height:g}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {WIDTH} {height:g}">',
        "<title>The packages of rebafl, and which imports which</title>",
        "<style>",
        "text { font-family: sans-serif; font-size: 13px; fill: #1f2933 }",
        ".name { font-weight: bold; font-size: 15px }",
        ".modules { font-family: monospace; font-size: 11px; fill: #52606d }",
        ".box { fill: #f5f7fa; stroke: #486581 } .arrow { fill: none; stroke: #486581; stroke-width: 1.5 }",
        "</style>",
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        '<path d="M0 0L8 4L0 8z" fill="#486581"/></marker></defs>',
        f'<rect {size} fill="white"/>',
        *(f'<path d="{_arrow(boxes[a], boxes[b])}" class="arrow" marker-end="url(#head)"/>' for a, b in shown),
        *(line for box in boxes.values() for line in box.svg()),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _row(sources: Sources, order: Order, layer: Sequence[str], y: float) -> Iterator[Box]:
    """The packages of a layer side by side, all as high as the highest."""
    count = len(layer)
    width = WIDE if count == 1 else (WIDTH - 2 * MARGIN - (count - 1) * GAP) / count
    left = (WIDTH - count * width - (count - 1) * GAP) / 2
    letters = int((width - 2 * PADDING) / LETTER)
    texts = [(wrap(_asks(sources, name), letters), wrap(_listed(order, name), letters)) for name in layer]
    height = 2 * PADDING + LINE * (1 + max(len(about) + len(modules) for about, modules in texts))
    for number, (name, (about, modules)) in enumerate(zip(layer, texts, strict=True)):
        yield Box(name, about, modules, left + number * (width + GAP), width, y, height)


def _asks(sources: Sources, package: str) -> str:
    asked, mark, _ = question(sources.modules[(package, INIT)]).partition("?")
    return asked + mark


def _listed(order: Order, package: str) -> str:
    names = (name for name in order.modules[package] if name != INIT)
    return ", ".join(f"{name}/" if f"{package}.{name}" in order.modules else name for name in names)


def _arrow(user: Box, used: Box) -> str:
    """Straight down; or round a corner, where the one stands beside the column of the other."""
    if user.x < used.middle < user.x + user.width and used.x < user.middle < used.x + used.width:
        return f"M{user.middle:g} {user.y + user.height:g}V{used.y:g}"
    if user.width > used.width:  # from its side, then down onto the other
        side = user.x if used.middle < user.middle else user.x + user.width
        return f"M{side:g} {user.level:g}H{used.middle:g}V{used.y:g}"
    side = used.x if user.middle < used.middle else used.x + used.width
    return f"M{user.middle:g} {user.y + user.height:g}V{used.level:g}H{side:g}"
