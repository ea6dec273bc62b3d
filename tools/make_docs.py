"""Bring the generated parts of docs/ up to date with the code:

python tools/make_docs.py
"""

import json
import sys

import beyond
from architecture import PACKAGE, ROOT, Sources, picture, problems, read_order, table
from rebafl.advice.measured import SHIPPED, as_json, collect
from rebafl.report import which_method
from rebafl.report.chaos import chaos_table
from rebafl.report.markdown import with_generated
from rebafl.report.reference import pages
from rebafl.report.speed import performance

DOCS = ROOT / "docs"

measured = [
    json.loads((DOCS / "measured" / f"{name}.json").read_text()) for name in ("race", "methods", "scale", "memory")
]

chaos = chaos_table(json.loads((DOCS / "measured" / "chaos.json").read_text()))

order = read_order()
sources = Sources(ROOT / "src" / PACKAGE, order.outside)
if wrong := problems(sources, order):
    sys.exit("\n".join(wrong))
(DOCS / "architecture.svg").write_text(picture(sources, order))

own = {"performance.md": performance(*measured), "federation.md": chaos, "architecture.md": table(sources, order)}
own["beyond.md"] = beyond.tables()
known = collect(ROOT / "results", DOCS / "measured" / "methods.json")
SHIPPED.write_text(as_json(known))
own["which-method.md"] = which_method.page(known)
for name, text in {**pages(), **own}.items():
    page = DOCS / name
    if not page.exists():
        sys.exit(f"There is no page {page.relative_to(ROOT)}; write it, with the two marks of the other pages.")
    try:
        page.write_text(with_generated(page.read_text(), text))
    except ValueError as error:
        sys.exit(f"{page.relative_to(ROOT)}: {error}")
    print(name)
