"""Which version of Flower is this? All of this package was written for one, which fixes that of uvicorn, too."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

from ...base.errors import UserError

FLOWER = "1.41"  # the version that all of this was written for; pyproject.toml asks for the same


def need_flower() -> None:
    """Raise unless the right version of Flower is installed."""
    if find_spec("flwr") is None:
        raise UserError("A federation needs Flower; install it with: pip install 'rebafl[flower]'")
    try:
        installed = version("flwr")
    except PackageNotFoundError:
        installed = "of unknown version"
    if installed != FLOWER and not installed.startswith(f"{FLOWER}."):
        raise UserError(
            f"A federation needs Flower {FLOWER}, and flwr {installed} is installed; "
            f"install the right one with: pip install 'flwr=={FLOWER}.*'"
        )
