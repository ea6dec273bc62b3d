"""Keep what `make demo` trained: its curves, and the picture in the README, which a test draws again from them:

python tools/keep_demo.py
"""

import shutil
from pathlib import Path

from rebafl.paper.results import write
from rebafl.runs.record import open_run
from rebafl.runs.settings import stored_settings

ROOT = Path(__file__).parent.parent

for name in ("fedavg", "rebafl"):
    record = open_run(ROOT / "demo" / name)
    write(ROOT / "docs" / "measured" / f"demo-{name}.json", stored_settings(record.config()), record)
shutil.copy(ROOT / "demo" / "curves.png", ROOT / "docs" / "demo.png")
