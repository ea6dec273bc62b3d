"""How does the protocol say no? With one exception, which carries the reason; no wrong sum is ever returned."""

from __future__ import annotations


class Abort(Exception):
    """A message, or a whole round, that is refused. The message says why.

    From a client: it takes no further part in the round. From `Server.take`: this message is not used, and its sender
    counts as lost unless a right one follows. From `Server.close` and `Server.total`: the round has failed.
    """
