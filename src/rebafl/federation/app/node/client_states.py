"""Where does a client keep its state between rounds, and which of it counts?

A client stores its state after each round it trained in, under that round's number. The server says in its next
message which round's upload it used last: that state is the client's own, and all others, older ones and those of
uploads that were lost, are removed. So a client is never ahead of the server.

States are stored in a folder of the node if its config names one (`state`), and survive a restart of the node and
of the server; else in Flower's context, which lasts as long as the node's process and the Flower run. There a node also
counts the noisy uploads that it sent: its privacy budget is its own matter, whatever the server says.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Protocol

from flwr.app import ArrayRecord, ConfigRecord, Context

from ....base.errors import UserError
from ....base.files import sha256, write_whole
from ....base.tensors import Tensors, pack, unpack
from ..node_config import STATE
from ..records import Malformed, from_arrays, to_arrays

GROUP = "state"  # the name of the tensors in a file
UPLOADS = "uploads"
FILE = re.compile(r"round-(\d+)(?:-([0-9a-f]{64}))?\.safetensors")  # earlier versions wrote no digest
RECORD = re.compile(r"state-(\d+)")


class StateStore(Protocol):
    """States by round."""

    def rounds(self) -> list[int]: ...

    def get(self, round: int) -> Tensors: ...

    def put(self, round: int, state: Tensors) -> None: ...

    def drop(self, round: int) -> None: ...

    def uploads(self) -> int: ...

    def count_upload(self) -> None: ...


class FolderStore:
    """One file per round, with the SHA-256 of its bytes in its name."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def rounds(self) -> list[int]:
        return sorted(self._files())

    def get(self, round: int) -> Tensors:
        path, digest = self._files()[round]
        data = path.read_bytes()
        if digest and sha256(data) != digest:
            raise ValueError("its SHA-256 is not the one in its name")
        groups, _ = unpack(data)
        if others := sorted(groups.keys() - {GROUP}):
            raise ValueError(f"it holds an unknown group {others[0]!r:.80}")
        return groups.get(GROUP, {})

    def put(self, round: int, state: Tensors) -> None:
        self._make()
        self.drop(round)  # of an attempt whose upload the server did not use
        data = pack({GROUP: state})
        write_whole(self.folder / f"round-{round}-{sha256(data)}.safetensors", data)

    def drop(self, round: int) -> None:
        for path in self.folder.glob(f"round-{round}[-.]*"):
            path.unlink(missing_ok=True)

    def uploads(self) -> int:
        path = self.folder / UPLOADS
        try:
            return int(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return 0
        except (OSError, ValueError):
            raise UserError(f"{path} does not say how many uploads were sent; restore it, or leave the run.") from None

    def count_upload(self) -> None:
        count = self.uploads() + 1
        self._make()
        write_whole(self.folder / UPLOADS, f"{count}\n".encode())

    def _make(self) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(
                f"The node's state folder {self.folder} cannot be made ({error.strerror}); name another in its config."
            ) from None

    def _files(self) -> dict[int, tuple[Path, str]]:
        """Round -> its file, and the digest in the file's name."""
        matches = ((path, FILE.fullmatch(path.name)) for path in self.folder.glob("round-*"))
        return {int(match[1]): (path, match[2] or "") for path, match in matches if match}


class ContextStore:
    """One record per round, in the context that Flower keeps for a node."""

    def __init__(self, context: Context) -> None:
        self.records = context.state

    def rounds(self) -> list[int]:
        return [int(match[1]) for match in map(RECORD.fullmatch, list(self.records)) if match]

    def get(self, round: int) -> Tensors:
        record = self.records[f"state-{round}"]
        if not isinstance(record, ArrayRecord):
            raise Malformed("it is no record of arrays")
        return from_arrays(record)

    def put(self, round: int, state: Tensors) -> None:
        self.records[f"state-{round}"] = to_arrays(state)

    def drop(self, round: int) -> None:
        del self.records[f"state-{round}"]

    def uploads(self) -> int:
        counted = self.records.config_records.get(UPLOADS)
        return int(str(counted["count"])) if counted else 0

    def count_upload(self) -> None:
        self.records[UPLOADS] = ConfigRecord({"count": self.uploads() + 1})


def state_store(context: Context, run: str, client: int) -> StateStore:
    folder = context.node_config.get(STATE, "")
    if not isinstance(folder, str):
        raise UserError(f"{STATE} = {folder!r} in the node's config is no folder; give a path in quotes.")
    return FolderStore(Path(folder) / run / f"client-{client}") if folder else ContextStore(context)


def confirmed_state(store: StateStore, used: int) -> tuple[Tensors | None, str]:
    """The state of the round whose upload the server used last (0: none yet), and why it was lost if so."""
    for round in store.rounds():
        if round != used:
            store.drop(round)
    if used == 0:
        return None, ""
    if used not in store.rounds():
        return None, f"the state after round {used} is not here any more"
    try:
        return store.get(used), ""
    except (ValueError, OSError) as error:
        return None, f"the state after round {used} is damaged ({error})"
