"""How is the server of a federation started? Flower's SuperLink, guarded; then the allowed keys and the last run.

Other machines reach nothing but the interface for nodes, and other users of this machine no more than they. Once the
SuperLink is up, exactly the keys in the members file are registered with it, whenever that file changes: a key that was
removed from it is refused from then on. Then the process that runs the server's app is started, and again if it ends.

    python -m rebafl.federation.superlink SERVER-FOLDER <options of flower-superlink>
"""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from functools import partial
from pathlib import Path

from ..base.errors import UserError, exists
from ..base.words import one_line, printable
from .app.member_keys import MEMBERS, read_keys
from .flower_changes import database_errors, need_flower, start_superlink
from .machine_secret import SECRET, make_secret, read_secret
from .ops.control import Link, register
from .ops.reach import need_valid
from .plain_log import keep_log_plain
from .watch import follow

DATABASE = "superlink.db"
RESTART = 3.0  # seconds until the process that runs the server's app is started again


class AllowedKeys:
    """The keys in the members file as it is now."""

    def __init__(self, path: Path) -> None:
        self.path, self.keys = path, read_keys(path)

    def include(self, key: bytes) -> bool:
        return key in self.keys.values()

    def read_again(self) -> bool:
        """From now on what the file says; if it cannot be read, what it said before. Has it changed?"""
        try:
            before, self.keys = self.keys, read_keys(self.path)
        except UserError as error:
            print(printable(str(error)), file=sys.stderr, flush=True)
            return False
        return before != self.keys


def main() -> None:
    try:
        keep_log_plain()
        need_flower()
        folder = Path(sys.argv.pop(1)).resolve()
        allowed = AllowedKeys(folder / MEMBERS)
        for certificate in ("ca.crt", "server.crt"):
            need_valid(folder / certificate, f"rebafl federation renew --dir {folder.parent}")
        need_sound(folder / DATABASE)
        if not exists(folder / SECRET):  # the folder was made before there were secrets
            make_secret(folder)
        sys.argv += ["--isolation", "process", "--superexec-auth-secret-file", str(folder / SECRET)]
        try:
            start_superlink(partial(_once_served, folder, allowed), read_secret(folder), allowed.include)
        except database_errors() as error:
            raise damaged(folder / DATABASE, one_line(error)) from None
    except UserError as error:
        print(printable(str(error)), file=sys.stderr)
        sys.exit(2)


def need_sound(path: Path) -> None:
    """Raise if Flower's database is there and damaged."""
    if not exists(path):
        return
    try:
        with closing(sqlite3.connect(path)) as database:
            (answer,) = database.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.Error as error:
        raise damaged(path, str(error)) from None
    if answer != "ok":
        raise damaged(path, str(answer).strip().splitlines()[-1])


def damaged(path: Path, reason: str) -> UserError:
    return UserError(
        f"Flower's database {path} is damaged ({reason}); it holds only what is under way, so move it away and start "
        "the server again: the run is resumed from its last finished round."
    )


def _once_served(folder: Path, allowed: AllowedKeys, port: int) -> None:
    """Beside the SuperLink, once it serves on this port."""
    link = Link(f"127.0.0.1:{port}", folder)

    def registered() -> None:
        register(link, allowed.keys)
        print(f"{len(allowed.keys)} node keys are registered.", file=sys.stderr, flush=True)

    def members_changed() -> bool:
        try:
            if allowed.read_again():
                registered()
        except UserError as error:
            print(printable(str(error)), file=sys.stderr, flush=True)
        return True

    registered()
    follow([allowed.path], members_changed)
    members_changed()  # it may have changed meanwhile
    while True:
        subprocess.run(_apps_command(folder, port), check=False)
        time.sleep(RESTART)  # if this process is ending, too, nothing is started any more


def _apps_command(folder: Path, port: int) -> list[str]:
    module, files = "rebafl.federation.server_apps", (str(folder / "ca.crt"), str(folder / SECRET))
    return [
        *(sys.executable, "-m", module, str(folder)),
        *("--runtime-api-address", f"127.0.0.1:{port}", "--root-certificates", files[0]),
        *("--superexec-auth-secret-file", files[1], "--parent-pid", str(os.getpid())),
    ]


if __name__ == "__main__":
    main()
