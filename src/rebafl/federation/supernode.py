"""How is a node started? Flower's SuperNode, which serves nobody on its machine who does not have the node's secret.

It waits while the server's certificate cannot be believed, and says why. When its key or the certificate of the
authority is replaced it ends, and its script starts it again with the new one.

    python -m rebafl.federation.supernode NODE-FOLDER <options of flower-supernode>
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from ..base.errors import UserError
from ..base.words import printable
from .flower_changes import need_flower, start_supernode
from .machine_secret import read_secret
from .ops.reach import distrust
from .plain_log import keep_log_plain
from .watch import follow

AGAIN = 5.0  # seconds between two looks at a certificate that cannot be believed
AUTHORITY, KEY = "ca.crt", "node.key"


def main() -> None:
    try:
        keep_log_plain()
        need_flower()
        folder = Path(sys.argv.pop(1)).resolve()
        secret = read_secret(folder)
        wait_for_trust(sys.argv[sys.argv.index("--superlink") + 1], folder / AUTHORITY)
        follow((folder / AUTHORITY, folder / KEY), start_again)
        start_supernode(secret)
    except UserError as error:
        print(printable(str(error)), file=sys.stderr)
        sys.exit(2)


def wait_for_trust(server: str, authority: Path) -> None:
    said = ""
    while reason := distrust(server, authority):
        if reason != said:
            print(reason, file=sys.stderr, flush=True)
        said = reason
        time.sleep(AGAIN)


def start_again() -> bool:
    print("The key or the certificate was replaced: this node starts again.", file=sys.stderr, flush=True)
    os.kill(os.getpid(), signal.SIGTERM)
    return True


if __name__ == "__main__":
    main()
