"""How does Flower start the server of a federation? By `flwr run .`, with the settings in `pyproject.toml`."""

from __future__ import annotations

import logging

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from ...base.errors import UserError
from ..flower_changes import need_flower
from ..plain_log import keep_log_plain
from .options import read_run_config
from .server.federate import federate

log = logging.getLogger("flwr")
app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """All rounds. A mistake of the user's is said in one line; raising it makes Flower call the run failed."""
    log.addFilter(_without_traceback)
    keep_log_plain()
    try:
        need_flower()
        settings, options = read_run_config(context.run_config)
        federate(grid, settings, options)
    except UserError as error:
        log.error("%s", error)
        raise


def _without_traceback(record: logging.LogRecord) -> bool:
    """Flower logs where an error was raised; for a user's mistake that says nothing."""
    if record.exc_info and isinstance(record.exc_info[1], UserError):
        record.exc_info = record.exc_text = None
    return True
