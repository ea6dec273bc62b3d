"""What does `rebafl paper report` have to say? Its page with all figures, as one HTML page that refers to nothing else.

The page is Markdown, in whatever folder is looked at: HTML in it is text, but for the three forms that the report
itself writes, links lead within the page only, and pictures are those in `figures` beside it.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable
from html import escape
from pathlib import Path

from ..base.errors import exists

NAME = "reproduction.md"
PICTURE = re.compile(r"figures/[\w-]+\.png")
BREAK, ANCHOR = "&lt;br&gt;", re.compile(r"&lt;a id=&quot;([\w-]+)&quot;&gt;&lt;/a&gt;")
FOLDED = re.compile(r"<p>&lt;details&gt;&lt;summary&gt;(.+?)&lt;/summary&gt;</p>")
CODE, END_OF_FOLDED = re.compile(r"&lt;code&gt;([\w-]+)&lt;/code&gt;"), "<p>&lt;/details&gt;</p>"
STYLE = (
    "body { font: 1rem/1.5 system-ui, sans-serif; margin: 1.5rem auto; max-width: 75rem; padding: 0 1rem }"
    "table { border-collapse: collapse; display: block; overflow-x: auto }"
    "th, td { border: 1px solid #bbb; padding: 0.2rem 0.5rem; text-align: left; vertical-align: top }"
    "img { background: #fff; max-width: 100% } :root { color-scheme: light dark }"
)


def find_paper_page(places: Iterable[Path]) -> Path | None:
    """The first there is: in these folders, or where `rebafl paper report` writes it, below the folder we are in."""
    candidates = [*(place / NAME for place in places), Path("docs") / NAME]
    return next((path for path in candidates if exists(path)), None)


def paper_html(page: Path) -> str:
    """The page with its pictures in it."""
    from markdown_it import MarkdownIt  # comes with rich; only this page needs it

    reader = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = reader.parse(page.read_text(encoding="utf-8", errors="replace"))
    for token in (child for block in tokens for child in block.children or ()):
        if token.type == "link_open" and not str(token.attrs["href"]).startswith("#"):
            token.attrs = {}  # what it names is not served: the words stay, without a link
        if token.type == "image":
            token.attrs["src"] = _embedded(page.parent, str(token.attrs["src"]))
    body = _with_own_forms(reader.renderer.render(tokens, reader.options, {}))
    head = (
        f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{escape(page.stem)}</title>'
    )
    return f'<!DOCTYPE html><html lang="en"><head>{head}<style>{STYLE}</style></head><body>{body}</body></html>'


def _with_own_forms(body: str) -> str:
    """What the report writes as HTML made HTML again: line breaks, anchors, and parts that are folded away."""
    body = ANCHOR.sub(r'<a id="\1"></a>', body.replace(BREAK, "<br>"))
    if len(FOLDED.findall(body)) != body.count(END_OF_FOLDED):
        return body  # not what the report writes: it stays text
    return FOLDED.sub(_opened, body).replace(END_OF_FOLDED, "</details>")


def _opened(title: re.Match[str]) -> str:
    shown = CODE.sub(r"<code>\1</code>", title[1])
    return f"<details><summary>{shown}</summary>"


def _embedded(folder: Path, source: str) -> str:
    """The picture as an address that holds it; empty if it is not one of the report's, or leads out of their folder."""
    path = (folder / source).resolve()
    if not PICTURE.fullmatch(source) or path.parent != folder.resolve() / "figures" or not exists(path):
        return ""
    return f"data:image/png;base64,{b64encode(path.read_bytes()).decode()}"
