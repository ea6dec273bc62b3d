"""How does a node answer without importing torch each time? A SuperExec imports it once and forks for each message.

It takes the options of `flower-superexec`:

    python -m rebafl.federation.warm --runtime-api-address 127.0.0.1:9094 --insecure
"""

from __future__ import annotations

import sys

from ..base.errors import UserError
from .flower_changes import need_flower, start_superexec
from .plain_log import keep_log_plain

PRELOADED = ("rebafl.federation.app.node.answer", "rebafl.federation.app.client_app")


def main() -> None:
    try:
        keep_log_plain()
        need_flower()
        start_superexec(PRELOADED)
    except UserError as error:
        print(error, file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
