"""How is Flower's own command used on a guarded server? With the server's secret; else it is `flwr`.

python -m rebafl.federation.command SERVER-FOLDER <words of flwr>
"""

from __future__ import annotations

import sys
from pathlib import Path

from ..base.errors import UserError
from .flower_changes import need_flower, run_flwr, send_secret
from .machine_secret import read_secret


def main() -> None:
    try:
        need_flower()
        send_secret(read_secret(Path(sys.argv.pop(1))))
    except UserError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    run_flwr()


if __name__ == "__main__":
    main()
