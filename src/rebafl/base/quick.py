"""What can the command answer before torch is imported, which takes seconds? Which version it is."""

from __future__ import annotations

import sys

from . import interrupts


def answer() -> None:
    """Print the version and end the process, if that is all that was asked for."""
    if interrupts.COMMAND and sys.argv[1:] == ["--version"]:
        from .version import VERSION  # looks through what is installed

        print(f"rebafl {VERSION}")
        sys.exit()


answer()
