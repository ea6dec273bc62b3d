"""What may the log of a federation hold? Text only: what another machine wrote must not act on a terminal."""

from __future__ import annotations

import logging

from ..base.words import printable


def keep_log_plain() -> None:
    """From now on, whatever Flower and this package log is shown with its control characters written out."""
    logging.getLogger("flwr").addFilter(as_plain)


def as_plain(record: logging.LogRecord) -> bool:
    record.msg, record.args = printable(record.getMessage()), ()
    if record.exc_info:
        record.exc_text = printable(logging.Formatter().formatException(record.exc_info))
    return True
