"""Where things are in this repository."""

from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
RESULTS = REPOSITORY / "results"
DOCS = REPOSITORY / "docs"
