"""How is the server of a federation started? Flower's SuperLink, guarded; then the allowed keys and the last run.

Other machines reach nothing but the interface for nodes. Once the SuperLink is up, exactly the keys in the members
file are registered with it (one that was removed from the file is unregistered), and the run that was requested last
is resumed.

    python -m rebafl.federation.superlink SERVER-FOLDER <options of flower-superlink>
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

from ..base.errors import UserError
from ..base.words import printable
from .app.member_keys import MEMBERS, read_keys
from .flower_changes import need_flower, start_superlink
from .ops.control import Link, register
from .ops.submission import submit_requested
from .plain_log import keep_log_plain


def main() -> None:
    try:
        keep_log_plain()
        need_flower()
        folder = Path(sys.argv.pop(1)).resolve()
        start_superlink(partial(_register_and_resume, folder, read_keys(folder / MEMBERS)))
    except UserError as error:
        print(printable(str(error)), file=sys.stderr)
        sys.exit(2)


def _register_and_resume(folder: Path, allowed: dict[int, bytes], port: int) -> None:
    """Beside the SuperLink, once it serves on this port."""
    register(Link(f"127.0.0.1:{port}", folder / "ca.crt"), allowed)
    print(f"{len(allowed)} node keys are registered.", file=sys.stderr, flush=True)
    submit_requested(folder, port)


if __name__ == "__main__":
    main()
