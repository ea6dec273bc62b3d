"""Which files does an installation take, to the byte? Their SHA-256 are added to pins.txt.

python tools/make_pins.py [PIP OPTION …]

Asks pip what it would install for development, with the versions of constraints.txt, and writes down the digest of each
file. Many files belong to a kind of machine: run it on each that is to be served, under the same version of Python.
What other machines added stays, as long as the version is the same.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PINS = ROOT / "pins.txt"
BUILDERS = ("hatchling", "editables")  # what installs this package itself
OWN = "rebafl"
HEAD = """# The files that `make install-hashed` installs, and their SHA-256: anything else is refused.
# Made by tools/make_pins.py, which adds the files of the machine that it is run on.
"""


def asked(options: list[str]) -> dict[str, str]:
    """What pip would install: `name==version` and the digest of the file."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        words = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", *options]
        words += ["--report", str(report), "--constraint", str(ROOT / "constraints.txt")]
        subprocess.run([*words, "--editable", f"{ROOT}[dev]", *BUILDERS], check=True)
        return digests(json.loads(report.read_text()))


def digests(report: Mapping[str, Any]) -> dict[str, str]:
    """Of pip's report of an installation: each file's digest, by name and version; without the package itself."""
    found = {}
    for item in report["install"]:
        name, version = item["metadata"]["name"], item["metadata"]["version"]
        if name != OWN:
            public = version.partition("+")[0]  # torch 2.13.0+cpu is a build of torch 2.13.0
            found[f"{canonical(name)}=={public}"] = item["download_info"]["archive_info"]["hashes"]["sha256"]
    return found


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def read_pins(text: str) -> dict[str, set[str]]:
    """`name==version` and the digests that are allowed for it."""
    lines = text.replace("\\\n", " ").splitlines()
    return {
        line.split()[0]: set(re.findall(r"--hash=sha256:([0-9a-f]{64})", line))
        for line in lines
        if line.strip() and not line.startswith("#")
    }


def written(pins: Mapping[str, set[str]]) -> str:
    parts = [" \\\n    ".join([pin, *(f"--hash=sha256:{each}" for each in sorted(pins[pin]))]) for pin in sorted(pins)]
    return HEAD + "\n".join(parts) + "\n"


def main() -> None:
    new = asked(sys.argv[1:])
    old = read_pins(PINS.read_text()) if PINS.exists() else {}
    pins = {pin: {digest} | old.get(pin, set()) for pin, digest in new.items()}
    PINS.write_text(written(pins))
    print(f"{PINS.name}: {len(pins)} files, {len(pins.keys() - old.keys())} of them new.")


if __name__ == "__main__":
    main()
