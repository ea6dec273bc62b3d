"""How does the server's part of a run get a process, and another one when it was killed? A SuperExec forks it.

The run that was requested last is submitted when this process starts, and again when its app was killed, from its last
finished round. An app that is killed again and again without finishing a round is given up, and that is said.

    python -m rebafl.federation.server_apps SERVER-FOLDER <options of flower-superexec>
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..base.errors import UserError
from .flower_changes import need_flower, send_secret, start_superexec
from .machine_secret import read_secret
from .ops.submission import finished_rounds, forget_submission, give_up, submit_requested
from .plain_log import keep_log_plain

PRELOADED = ("rebafl.federation.app.server_app",)
MOST_KILLS = 3  # in a row, without a finished round in between


class Restarts:
    """Submits the requested run again whenever its app was killed."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.port = folder, port
        self.kills, self.done = 0, -1

    @contextmanager
    def __call__(self, number: int) -> Iterator[None]:
        forget_submission(self.folder)  # so that nobody takes the end of this app for the end of the run
        yield
        done = finished_rounds(self.folder)
        self.kills, self.done = (self.kills + 1 if done == self.done else 1), done
        if self.kills > MOST_KILLS:
            give_up(
                self.folder,
                f"the server's app was killed {self.kills} times in a row, last by signal {number}, without finishing "
                "a round; signal 9 often means that memory ran out",
            )
        else:
            print("The run is submitted again.", file=sys.stderr, flush=True)
            submit_requested(self.folder, self.port)


def main() -> None:
    try:
        keep_log_plain()
        need_flower()
        folder = Path(sys.argv.pop(1)).resolve()
        port = int(sys.argv[sys.argv.index("--runtime-api-address") + 1].rpartition(":")[2])
        send_secret(read_secret(folder))
        threading.Thread(target=submit_requested, args=(folder, port), daemon=True).start()
        start_superexec(PRELOADED, Restarts(folder, port))
    except UserError as error:
        print(error, file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
