"""How does a node answer without importing torch each time? A SuperExec imports it once and forks for each message.

It takes the options of `flower-superexec`, after the folder of the node, which holds the secret that its SuperNode asks
for:

    python -m rebafl.federation.warm . --runtime-api-address 127.0.0.1:9094 --root-certificates runtime.crt
"""

from __future__ import annotations

import sys
from pathlib import Path

from ..base.errors import UserError
from .flower_changes import need_flower, send_secret, start_superexec
from .machine_secret import read_secret
from .plain_log import keep_log_plain

PRELOADED = ("rebafl.federation.app.node.answer", "rebafl.federation.app.client_app")


def main() -> None:
    try:
        keep_log_plain()
        need_flower()
        if not sys.argv[1].startswith("--"):  # scripts that were made before there were secrets name no folder
            send_secret(read_secret(Path(sys.argv.pop(1))))
        start_superexec(PRELOADED)
    except UserError as error:
        print(error, file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
