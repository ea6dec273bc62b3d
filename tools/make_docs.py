"""Bring the generated parts of docs/ up to date with the code:

python tools/make_docs.py
"""

import json
from pathlib import Path

from rebafl.report.cards import pages, placed
from rebafl.report.disturbed import account
from rebafl.report.speed import performance

DOCS = Path(__file__).parent.parent / "docs"

measured = [json.loads((DOCS / "measured" / f"{name}.json").read_text()) for name in ("race", "scale", "memory")]

chaos = account(json.loads((DOCS / "measured" / "chaos.json").read_text()))

for name, text in {**pages(), "performance.md": performance(*measured), "federation.md": chaos}.items():
    page = DOCS / name
    page.write_text(placed(page.read_text(), text))
    print(name)
