"""Bring the generated parts of docs/algorithms up to date with the code:

python tools/make_algorithm_docs.py
"""

from pathlib import Path

from rebafl.algorithms import KINDS
from rebafl.report.cards import card, overview, placed

FOLDER = Path(__file__).parent.parent / "docs" / "algorithms"

for name, text in [("README", overview()), *((name, card(kind)) for name, kind in KINDS.items())]:
    page = FOLDER / f"{name}.md"
    page.write_text(placed(page.read_text(), text))
    print(page.name)
