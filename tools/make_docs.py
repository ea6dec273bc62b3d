"""Bring the generated parts of docs/ up to date with the code:

python tools/make_docs.py
"""

import json

from architecture import PACKAGE, ROOT, Sources, picture, read_order, table
from rebafl.report.cards import pages, placed
from rebafl.report.disturbed import account
from rebafl.report.speed import performance

DOCS = ROOT / "docs"

measured = [json.loads((DOCS / "measured" / f"{name}.json").read_text()) for name in ("race", "scale", "memory")]

chaos = account(json.loads((DOCS / "measured" / "chaos.json").read_text()))

order = read_order()
sources = Sources(ROOT / "src" / PACKAGE, order.outside)
(DOCS / "architecture.svg").write_text(picture(sources, order))

own = {"performance.md": performance(*measured), "federation.md": chaos, "architecture.md": table(sources, order)}
for name, text in {**pages(), **own}.items():
    page = DOCS / name
    page.write_text(placed(page.read_text(), text))
    print(name)
