"""Of which files is the page made, and are they those that were vendored? The same scripts serve page and report."""

from __future__ import annotations

import base64
import hashlib
import json
from functools import cache
from html import escape
from pathlib import Path

STATIC = Path(__file__).parent / "static"
STYLES = ("vendor/uPlot.css", "app.css")
SCRIPTS = (
    "vendor/preact.js",
    "vendor/hooks.js",
    "vendor/htm.js",
    "vendor/uPlot.js",
    "core.js",
    "heat.js",
    "charts.js",
    "run.js",
    "runs.js",
    "main.js",
)
NO_OTHERS = "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data: blob:; "
    + NO_OTHERS
)
"""What the page may do: nothing but talk to the server it came from."""

HEAD = (
    '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
    '<meta name="color-scheme" content="light dark"><link rel="icon" href="data:,">'
)
BODY = '<div id="app"></div><noscript>These views are drawn by scripts; allow them for this page.</noscript>'


@cache
def text_of(name: str) -> str:
    return (STATIC / name).read_text(encoding="utf-8")


def vendored() -> dict[str, dict[str, str]]:
    """What was taken from others: package, version, file and SHA-256 of each."""
    files: dict[str, dict[str, str]] = json.loads(text_of("vendor/versions.json"))["files"]
    return files


def page() -> str:
    """The page that the server hands out; everything else it asks for."""
    styles = "".join(f'<link rel="stylesheet" href="/static/{name}">' for name in STYLES)
    scripts = "".join(f'<script defer src="/static/{name}"></script>' for name in SCRIPTS)
    head = f"{HEAD}<title>rebafl</title>{styles}{scripts}"
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{BODY}</body></html>'


def standalone(title: str, blocks: dict[str, str]) -> str:
    """One file that needs no other: `blocks` are data, by the id of the element that holds each."""
    style = "\n".join(text_of(name) for name in STYLES)
    scripts = [text_of(name) for name in SCRIPTS]
    policy = (
        f"default-src 'none'; script-src {' '.join(map(_hash, scripts))}; style-src {_hash(style)}; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
    data = "".join(f'<script type="text/plain" id="{name}">{text}</script>' for name, text in blocks.items())
    return (
        f'<!doctype html><html lang="en"><head><meta http-equiv="Content-Security-Policy" content="{policy}">{HEAD}'
        f"<title>{escape(title)}</title><style>{style}</style></head><body>{BODY}{data}"
        + "".join(f"<script>{script}</script>" for script in scripts)
        + "</body></html>\n"
    )


def _hash(text: str) -> str:
    """How a policy names an inline script or style: by what is in it."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
