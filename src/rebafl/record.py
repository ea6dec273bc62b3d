"""What is left of a run when its process is killed? Everything up to the last finished round.

A run is a directory:

    config.toml         all settings; `rebafl run` takes it as it is
    environment.json    the machine and versions it ran on, and went on with; checksums, warnings
    rounds.jsonl        one line a round
    checkpoint/         manifest.json, server-ROUND.safetensors, client-ID-ROUND.safetensors

A round is committed by renaming its manifest into place. Before that, only new files were written and
lines appended; resuming cuts off whatever the manifest does not know.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from .clientlists import packed, unpacked
from .config import Plain, read_toml, write_toml
from .errors import UserError, exists
from .files import ASIDE, LOCK, append, locked, sync, write_whole
from .tensors import Tensors, pack, unpack

CONFIG, ENVIRONMENT, ROUNDS, MANIFEST = "config.toml", "environment.json", "rounds.jsonl", "manifest.json"
MANIFEST_KEYS = ("round", "bytes", "clients")
CLIENT_FILE = re.compile(r"client-(\d+)-(\d+)\.safetensors")
SERVER_FILE = re.compile(r"server-\d+\.safetensors")


class Record:
    """One run directory. Nothing in it is changed in place but `rounds.jsonl`, which only grows."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoint = path / "checkpoint"
        self.round = 0
        self._length = 0
        self._client_rounds: dict[int, int] = {}

    @property
    def begun(self) -> bool:
        """Does the directory hold a run? Its manifest is the last file that `create` writes."""
        return (self.checkpoint / MANIFEST).exists()

    def in_the_way(self) -> str:
        """What a new run in this directory would destroy; what an interrupted start left does not count."""
        if not exists(self.path):
            return ""
        if not self.path.is_dir():
            return "it is a file"
        names = {path.name.removesuffix(ASIDE) for path in self.path.glob("*")} - {LOCK}
        unfinished = {"checkpoint", CONFIG, ENVIRONMENT} if (self.path / CONFIG).exists() else {"checkpoint", CONFIG}
        inside = [path.name for path in self.checkpoint.glob("*") if path.name != MANIFEST + ASIDE]
        others = sorted(names - unfinished) + inside
        return f"it holds {others[0]}, but no run" if others else ""

    def locked(self, patience: float = 0.0) -> AbstractContextManager[None]:
        """Keep a second writer out; waits so many seconds for one that is just ending."""
        return locked(self.path, patience)

    def create(self, config: Plain, environment: Mapping[str, Any]) -> None:
        """Start a run directory, the manifest last: without it, the directory holds no run yet."""
        self.checkpoint.mkdir(parents=True, exist_ok=True)
        self.write_config(config)
        self.write_environment(environment)
        write_whole(self.checkpoint / MANIFEST, _json(dict.fromkeys(MANIFEST_KEYS, 0)).encode())

    def write_environment(self, environment: Mapping[str, Any]) -> None:
        write_whole(self.path / ENVIRONMENT, _json(environment, indent=2).encode())

    def write_config(self, config: Plain) -> None:
        write_whole(self.path / CONFIG, write_toml(config).encode())

    def config(self) -> Plain:
        return read_toml(self.path / CONFIG)

    def environment(self) -> dict[str, Any]:
        try:
            loaded = json.loads((self.path / ENVIRONMENT).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise self._damaged(ENVIRONMENT, error) from None
        if not isinstance(loaded, dict):
            raise self._damaged(ENVIRONMENT, "it is no table of facts")
        return loaded

    def rounds(self) -> list[dict[str, Any]]:
        """The committed rounds, oldest first."""
        manifest = self._manifest()
        data = self._rounds_file()[: manifest["bytes"]]
        try:
            lines = [unpacked(json.loads(line)) for line in data.splitlines()]
            numbers = [line["round"] for line in lines]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise self._damaged(ROUNDS, error) from None
        if len(data) != manifest["bytes"] or numbers != list(range(1, manifest["round"] + 1)):
            raise self._damaged(ROUNDS, "its rounds are not those of the checkpoint")
        return lines

    def saved_server(self) -> dict[str, Tensors] | None:
        """The server at the last committed round, or None before the first. Changes nothing."""
        self.rounds()
        return self.server() if self._manifest()["round"] else None

    def resume(self) -> None:
        """Stand at the last committed round, with all later traces removed. Look at everything else first."""
        manifest = self._manifest()
        self._client_rounds = self._committed_clients(manifest["round"])
        if len(self._client_rounds) != manifest["clients"]:
            raise self._damaged(
                "checkpoint", f"it holds {len(self._client_rounds)} of {manifest['clients']} client states"
            )
        self.round, self._length = manifest["round"], manifest["bytes"]
        if len(self._rounds_file()) > self._length:
            os.truncate(self.path / ROUNDS, self._length)
        self._forget_uncommitted()

    def server(self) -> dict[str, Tensors]:
        """The server's weights and state at the last committed round."""
        return self._load(f"server-{self._manifest()['round']}.safetensors")

    def client_state(self, client: int) -> Tensors | None:
        """A client's committed state, or None if it has none yet."""
        round = self._client_rounds.get(client)
        return None if round is None else self._load(f"client-{client}-{round}.safetensors").get("state", {})

    def commit(self, line: Mapping[str, Any], server: Mapping[str, Tensors], clients: Mapping[int, Tensors]) -> None:
        """Make one more round real: write new files, append the line, rename the manifest, tidy up."""
        round = self.round + 1
        write_whole(self.checkpoint / f"server-{round}.safetensors", pack(server))
        for client, state in clients.items():
            write_whole(self.checkpoint / f"client-{client}-{round}.safetensors", pack({"state": state}))
        text = (_json(packed(line)) + "\n").encode()
        append(self.path / ROUNDS, text)
        length = self._length + len(text)
        states = len(self._client_rounds.keys() | clients.keys())
        sync(self.checkpoint)
        write_whole(self.checkpoint / MANIFEST, _json({"round": round, "bytes": length, "clients": states}).encode())
        sync(self.checkpoint)
        stale = [self.checkpoint / f"server-{self.round}.safetensors"]
        for client in clients:
            if client in self._client_rounds:
                stale.append(self.checkpoint / f"client-{client}-{self._client_rounds[client]}.safetensors")
            self._client_rounds[client] = round
        self.round, self._length = round, length
        for path in stale:
            path.unlink(missing_ok=True)

    def _manifest(self) -> dict[str, int]:
        path = self.checkpoint / MANIFEST
        try:
            manifest = json.loads(path.read_text(encoding="utf-8"))
            numbers = {name: manifest[name] for name in MANIFEST_KEYS}
            if not all(type(number) is int and number >= 0 for number in numbers.values()):
                raise ValueError("its numbers are no counts")
            return numbers
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise self._damaged(f"checkpoint/{MANIFEST}", error) from None

    def _rounds_file(self) -> bytes:
        path = self.path / ROUNDS
        return path.read_bytes() if path.exists() else b""

    def _load(self, name: str) -> dict[str, Tensors]:
        try:
            return unpack((self.checkpoint / name).read_bytes())[0]
        except (OSError, ValueError) as error:
            raise self._damaged(f"checkpoint/{name}", error) from None

    def _committed_clients(self, newest: int) -> dict[int, int]:
        """For each client with a state, the round it is of: the newest that was committed."""
        rounds: dict[int, int] = {}
        for path in self.checkpoint.iterdir():
            match = CLIENT_FILE.fullmatch(path.name)
            if match and int(match[2]) <= newest:
                rounds[int(match[1])] = max(int(match[2]), rounds.get(int(match[1]), 0))
        return rounds

    def _forget_uncommitted(self) -> None:
        """Remove files of a round that never became real, and what was replaced."""
        kept = {f"client-{client}-{round}.safetensors" for client, round in self._client_rounds.items()}
        kept.add(f"server-{self.round}.safetensors")
        for path in list(self.checkpoint.iterdir()):
            name = path.name.removesuffix(ASIDE)
            ours = CLIENT_FILE.fullmatch(name) or SERVER_FILE.fullmatch(name) or path.name == MANIFEST + ASIDE
            if ours and path.name not in kept:
                path.unlink()

    def _damaged(self, name: str, reason: object) -> UserError:
        return UserError(f"{self.path / name} is damaged ({reason}); restore it, or start anew in another directory.")


def open_run(path: Path) -> Record:
    """A directory that holds a run, for reading."""
    if not exists(path / CONFIG):
        raise UserError(f"{path} holds no run: it has no {CONFIG}.")
    return Record(path)


def _json(values: Any, indent: int | None = None) -> str:
    return json.dumps(_finite(values), indent=indent, allow_nan=False)


def _finite(value: Any) -> Any:
    """JSON has no NaN and no infinity: they become null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _finite(each) for key, each in value.items()}
    return [_finite(each) for each in value] if isinstance(value, list | tuple) else value
