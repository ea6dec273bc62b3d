"""Which words did people give a run? They are for finding it again: no result and no setting depends on them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from ..base.errors import UserError
from ..base.files import write_whole
from .record import open_run

FILE = "tags.json"  # in the run directory
LONGEST = 40  # letters


def read_tags(folder: Path) -> list[str]:
    """The tags of a run, sorted; none where the file cannot be read."""
    try:
        found = json.loads((folder / FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    return sorted({tag for tag in found if isinstance(tag, str)}) if isinstance(found, list) else []


def change_tags(folder: Path, add: Iterable[str] = (), remove: Iterable[str] = ()) -> list[str]:
    """Give a run some tags and take others away; those that it has then."""
    added = set(add)
    for tag in added:
        if not tag.strip() or "," in tag or not tag.isprintable() or len(tag) > LONGEST:
            raise UserError(f"{tag!r} cannot be a tag: give a word of up to {LONGEST} letters without a comma.")
    open_run(folder)
    tags = sorted((set(read_tags(folder)) | added) - set(remove))
    write_whole(folder / FILE, json.dumps(tags).encode())
    return tags
