"""Bring the generated parts of docs/ up to date with the code:

python tools/make_docs.py
"""

from pathlib import Path

from rebafl.report.cards import pages, placed

DOCS = Path(__file__).parent.parent / "docs"

for name, text in pages().items():
    page = DOCS / name
    page.write_text(placed(page.read_text(), text))
    print(name)
