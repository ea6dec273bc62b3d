"""What is left of a run when its process is killed? Everything up to the last finished round. And is it undamaged?

A run is a directory:

    config.toml         all settings; `rebafl run` takes it as it is; its last line is its digest
    environment.json    the machine and versions it ran on, and was resumed with; checksums, warnings; its own digest
    rounds.jsonl        one line per round
    checkpoint/         manifest.json, server-ROUND.safetensors, client-ID-ROUND-DIGEST.safetensors,
                        and for some earlier rounds manifest-ROUND.json, to roll back to

A round is committed by renaming its manifest into place. Before that, only new files were written and
lines appended; resuming cuts off whatever the manifest does not know. The manifest holds the digests of all
that the next round depends on, and its own: what does not fit is refused, never computed with.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from ..base.config import Plain, read_toml, write_toml
from ..base.errors import UserError, exists
from ..base.files import ASIDE, LOCK, append, locked, sha256, sync, write_named, write_whole
from ..base.reading import read_bytes, read_text
from ..base.sealed import seal, unseal
from ..base.tensors import Tensors, save, unpack
from .checkpoint import (
    CLIENT_FILE,
    COUNTS,
    EARLIER_FILE,
    MANIFEST,
    SERVER_FILE,
    ClientState,
    Manifest,
    earlier_points,
    mark_of,
    states_digest,
)
from .events import RoundLine
from .measures import best_round
from .settings import complete

CONFIG, ENVIRONMENT, ROUNDS = "config.toml", "environment.json", "rounds.jsonl"
SETTINGS_DIGEST = "settings_sha256"  # in environment.json
CONFIG_DIGEST = re.compile(r"# sha256 of the lines above: ([0-9a-f]{64})\n\Z")


class Record:
    """One run directory. Nothing in it is changed in place but `rounds.jsonl`, which only grows."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoint = path / "checkpoint"
        self.round = 0
        self._length = 0
        self._rounds_hash = hashlib.sha256()
        self._states: dict[int, ClientState] = {}
        self._states_mark = 0
        self._pending: dict[int, ClientState] = {}
        self._settings = ""
        self.validation: list[float] = []  # accuracy of each round, if a part of the training data is held out
        self._best = ""

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
        others = sorted(names - unfinished, key=lambda name: (name != ROUNDS, name)) + inside
        return f"it holds {others[0]}, but no run" if others else ""

    def locked(self, patience: float = 0.0) -> AbstractContextManager[None]:
        """Keep a second writer out; waits so many seconds for one that is just ending."""
        return locked(self.path, patience)

    def create(self, config: Plain, environment: Mapping[str, Any]) -> None:
        """Start a run directory, the manifest last: without it, the directory holds no run yet."""
        self.checkpoint.mkdir(parents=True, exist_ok=True)
        self.write_config(config)
        self.write_environment(environment)
        sync(self.path)
        self._settings = str(environment.get(SETTINGS_DIGEST, ""))
        digests = (self._rounds_hash.hexdigest(), "", states_digest(0))
        self._write_manifest(Manifest(0, 0, 0, *digests, self._settings))
        sync(self.checkpoint)

    def write_environment(self, environment: Mapping[str, Any]) -> None:
        write_whole(self.path / ENVIRONMENT, seal(_json(environment, indent=2)))

    def write_config(self, config: Plain) -> None:
        text = write_toml(config)
        write_whole(self.path / CONFIG, f"{text}# sha256 of the lines above: {sha256(text.encode())}\n".encode())

    def config(self) -> Plain:
        """All settings, brought up to date; a line that was changed by hand or by accident is noticed."""
        values = read_toml(self.path / CONFIG)
        text = read_text(self.path / CONFIG)
        if (last_line := CONFIG_DIGEST.search(text)) and last_line[1] != sha256(text[: last_line.start()].encode()):
            raise UserError(f"{self.path / CONFIG} was changed; restore it, and give other settings as words instead.")
        if not last_line and self.begun and self._manifest().rounds:
            raise self._damaged(CONFIG, "its last line, the digest, is gone")
        return complete(values)

    def environment(self) -> dict[str, Any]:
        try:
            facts, has_digest = unseal(read_bytes(self.path / ENVIRONMENT))
            if not has_digest and self.begun and self._manifest().rounds:
                raise ValueError("its digest is gone")
        except (OSError, ValueError, RecursionError) as error:
            raise self._damaged(ENVIRONMENT, error) from None
        return facts

    def committed(self) -> Manifest:
        """What the last committed round left; it says how much of `rounds.jsonl` counts."""
        return self._manifest()

    def rounds(self) -> list[RoundLine]:
        """The committed rounds, oldest first."""
        manifest = self._manifest()
        data = self._committed_lines(manifest)
        try:
            lines = [RoundLine.read(json.loads(line)) for line in data.splitlines()]
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise self._damaged(ROUNDS, error) from None
        if len(lines) != manifest.round or any(line.round != number for number, line in enumerate(lines, 1)):
            raise self._damaged(ROUNDS, "its rounds are not those of the checkpoint")
        return lines

    def saved_server(self) -> dict[str, Tensors] | None:
        """The server at the last committed round, or None before the first. Changes nothing."""
        self.rounds()
        return self.server() if self._manifest().round else None

    def resume(self) -> None:
        """Stand at the last committed round, with all later traces removed. Look at everything else first."""
        manifest = self._manifest()
        states = self._committed_states(manifest)
        self._settings = str(self.environment().get(SETTINGS_DIGEST, ""))
        if manifest.settings not in ("", self._settings):
            raise self._damaged("checkpoint", "it is that of a run with other settings")
        self._rounds_hash = hashlib.sha256(self._committed_lines(manifest))
        self._states, self._states_mark, self._pending = states, mark_of(states.values()), {}
        self.round, self._length, self._best = manifest.round, manifest.bytes, manifest.best
        self.validation = validation_of(self.rounds())
        if not manifest.rounds:  # a run of an earlier version: from its next round on, digests are expected
            self.write_config(self.config())
            self.write_environment(self.environment())
        if len(self._rounds_file()) > self._length:
            os.truncate(self.path / ROUNDS, self._length)
        self._forget_uncommitted()

    def server(self) -> dict[str, Tensors]:
        """The server's weights and state at the last committed round."""
        return self._server(self._manifest())

    def best_server(self) -> tuple[int, dict[str, Tensors]]:
        """The round that is best on the validation part, and the server's weights and state after it."""
        manifest, validation = self._manifest(), validation_of(self.rounds())
        if not validation:
            raise UserError(
                f"{self.path} holds no validation part out, so no round could be chosen as its best; "
                "a new run with validation=0.1 does."
            )
        round = best_round(validation)
        return round, self._server(Manifest(round, server=manifest.best))

    def client_state(self, client: int) -> Tensors | None:
        """A client's committed state, or None if it has none yet."""
        saved = self._states.get(client)
        if saved is None:
            return None
        data = self._read(saved.file)
        if saved.digest and sha256(data)[:32] != saved.digest:
            raise self._damaged(f"checkpoint/{saved.file}", "its digest is another")
        return self._unpack(saved.file, data, {"state"}).get("state", {})

    def keep_state(self, client: int, state: Tensors) -> None:
        """Write down a client's next state; it counts once the round is committed."""
        new = ClientState(client, self.round + 1, None)
        digest = write_named(
            self.checkpoint / new.file,
            partial(save, {"state": state}),
            lambda digest: new._replace(digest=digest[:32]).file,
        )
        self._pending[client] = new._replace(digest=digest[:32])

    def commit(self, line: RoundLine, server: Mapping[str, Tensors], keep_states: bool = True) -> None:
        """Make one more round real: write new files, append the line, rename the manifest, tidy up.

        `keep_states` says whether the states that were written down in this round count.
        """
        round = self.round + 1
        new = self._pending if keep_states else {}
        path = self.checkpoint / f"server-{round}.safetensors"
        server_digest = write_named(path, partial(save, server), lambda _: path.name)
        for written in (path, *(self.checkpoint / saved.file for saved in new.values())):
            sync(written)  # all at once: workers would have to wait for each while they train
        text = (_json(line.packed()) + "\n").encode()
        append(self.path / ROUNDS, text)
        rounds_hash = self._rounds_hash.copy()
        rounds_hash.update(text)
        length = self._length + len(text)
        replaced = [self._states[client] for client in new if client in self._states]
        mark = self._states_mark ^ mark_of(replaced) ^ mark_of(new.values())
        count = len(self._states) + len(new) - len(replaced)
        if round == 1:
            sync(self.path)
        sync(self.checkpoint)
        self._keep_earlier(stateful=count > 0)
        digests = (rounds_hash.hexdigest(), server_digest, states_digest(mark))
        validation = [*self.validation, *validation_of([line])]
        best = server_digest if validation and best_round(validation) == round else self._best
        if not keep_states:  # before the round is real: after that they would be taken for its own
            self._remove(saved.file for saved in self._pending.values())
        self._write_manifest(Manifest(round, length, count, *digests, self._settings, best))
        sync(self.checkpoint)
        self.validation, self._best = validation, best
        self.round, self._length, self._rounds_hash = round, length, rounds_hash
        self._states |= new
        self._states_mark, self._pending = mark, {}
        self._remove(saved.file for saved in replaced)
        self._remove_earlier()

    def points(self) -> list[int]:
        """The rounds that the run can be rolled back to."""
        matches = (EARLIER_FILE.fullmatch(path.name) for path in self.checkpoint.glob("manifest-*"))
        return sorted(number for match in matches if match and (number := int(match[1])) < self._manifest().round)

    def check_point(self, round: int) -> Manifest:
        """What an earlier round left, if it was kept and is undamaged."""
        points = self.points()
        if round not in points:
            kept = ", ".join(map(str, points)) or "none (those of runs with client states are not)"
            raise UserError(f"{self.path} cannot go back to round {round}; rounds that were kept: {kept}.")
        earlier = self._read_manifest(f"manifest-{round}.json")
        if earlier.round != round:
            raise self._damaged(f"checkpoint/manifest-{round}.json", f"it is that of round {earlier.round}")
        self._committed_lines(earlier)
        self._server(earlier)
        return earlier

    def server_at(self, round: int) -> dict[str, Tensors]:
        """The server's weights and state after an earlier round, if it was kept. Changes nothing."""
        return self._server(self.check_point(round))

    def roll_back(self, round: int) -> None:
        """Go back to an earlier round that was kept; what came after it is removed."""
        self._write_manifest(self.check_point(round))
        sync(self.checkpoint)
        self.resume()

    def _keep_earlier(self, stateful: bool) -> None:
        """Keep the manifest that is replaced, unless client states are kept, which would have to be kept with it."""
        if self.round and not stateful:
            kept = self.checkpoint / f"manifest-{self.round}.json"
            kept.unlink(missing_ok=True)
            with suppress(OSError):  # a file system without hard links has no earlier rounds
                os.link(self.checkpoint / MANIFEST, kept)

    def _remove_earlier(self) -> None:
        """Remove the points that are not kept any longer."""
        kept = self._kept_points()
        before = {self.round - 1} | earlier_points(self.round - 1)
        servers = before | self._best_rounds(before)  # what is left of a best round that is none any more
        self._remove(f"manifest-{round}.json" for round in before - kept)
        self._remove(f"server-{round}.safetensors" for round in servers - kept - self._best_rounds(kept) - {self.round})

    def _kept_points(self) -> set[int]:
        """The earlier rounds that can be gone back to."""
        return set() if self._states else earlier_points(self.round)

    def _best_rounds(self, points: Iterable[int]) -> set[int]:
        """The best round on the validation part so far, and as of each of these."""
        return {best_round(self.validation[:point]) for point in (*points, self.round) if self.validation[:point]}

    def _remove(self, files: Iterable[str]) -> None:
        for name in files:
            (self.checkpoint / name).unlink(missing_ok=True)

    def _manifest(self) -> Manifest:
        return self._read_manifest(MANIFEST)

    def _read_manifest(self, name: str) -> Manifest:
        try:
            values, has_digest = unseal(read_bytes(self.checkpoint / name))
            if not has_digest and set(values) != set(COUNTS):  # else it is of a run of an earlier version
                raise ValueError("its digest is gone")
            manifest = Manifest(**values)
            if not all(type(number) is int and number >= 0 for number in map(asdict(manifest).get, COUNTS)):
                raise ValueError("its numbers are no counts")
            return manifest
        except (OSError, ValueError, TypeError, RecursionError) as error:
            raise self._damaged(f"checkpoint/{name}", error) from None

    def _write_manifest(self, manifest: Manifest) -> None:
        values = {name: value for name, value in asdict(manifest).items() if name != "best" or value}
        write_whole(self.checkpoint / MANIFEST, seal(_json(values)))

    def _rounds_file(self) -> bytes:
        path = self.path / ROUNDS
        try:
            return read_bytes(path) if path.exists() else b""
        except OSError as error:
            raise self._damaged(ROUNDS, error.strerror) from None

    def _committed_lines(self, manifest: Manifest) -> bytes:
        data = self._rounds_file()[: manifest.bytes]
        if len(data) != manifest.bytes or (manifest.rounds and sha256(data) != manifest.rounds):
            raise self._damaged(ROUNDS, "it is not what the checkpoint knows of it")
        return data

    def _server(self, manifest: Manifest) -> dict[str, Tensors]:
        name = f"server-{manifest.round}.safetensors"
        data = self._read(name)
        if manifest.server and sha256(data) != manifest.server:
            raise self._damaged(f"checkpoint/{name}", "its digest is another")
        return self._unpack(name, data, {"weights", "state"})

    def _read(self, name: str) -> bytes:
        try:
            return read_bytes(self.checkpoint / name)
        except OSError as error:
            raise self._damaged(f"checkpoint/{name}", error) from None

    def _unpack(self, name: str, data: bytes, known: set[str]) -> dict[str, Tensors]:
        try:
            groups, _ = unpack(data)
            if others := sorted(groups.keys() - known):
                raise ValueError(f"it holds an unknown group {others[0]!r:.80}")
            return groups
        except ValueError as error:
            raise self._damaged(f"checkpoint/{name}", error) from None

    def _committed_states(self, manifest: Manifest) -> dict[int, ClientState]:
        """For each client with a state, the newest that was committed."""
        states: dict[int, ClientState] = {}
        for path in self.checkpoint.iterdir():
            match = CLIENT_FILE.fullmatch(path.name)
            if match and int(match[2]) <= manifest.round:
                saved = ClientState(int(match[1]), int(match[2]), match[3])
                if saved.client not in states or saved.round > states[saved.client].round:
                    states[saved.client] = saved
        if len(states) != manifest.clients:
            raise self._damaged("checkpoint", f"it holds {len(states)} of {manifest.clients} client states")
        if manifest.states and states_digest(mark_of(states.values())) != manifest.states:
            raise self._damaged("checkpoint", "its client states are not those that were committed")
        return states

    def _forget_uncommitted(self) -> None:
        """Remove files of a round that never became real, and what was replaced."""
        kept = {MANIFEST, f"server-{self.round}.safetensors", *(saved.file for saved in self._states.values())}
        points = self._kept_points()
        kept |= {f"manifest-{round}.json" for round in points}
        kept |= {f"server-{round}.safetensors" for round in points | self._best_rounds(points)}
        for path in list(self.checkpoint.iterdir()):
            name = path.name.removesuffix(ASIDE)
            patterns = (CLIENT_FILE, SERVER_FILE, EARLIER_FILE)
            ours = name == MANIFEST or any(pattern.fullmatch(name) for pattern in patterns)
            if ours and path.name not in kept:
                path.unlink()

    def _damaged(self, name: str, reason: object) -> UserError:
        return UserError(f"{self.path / name} is damaged ({reason}); restore it, or start again in another directory.")


def validation_of(lines: Iterable[RoundLine]) -> list[float]:
    """The accuracy of each round on the validation part; empty if none is held out."""
    return [line.validation_accuracy for line in lines if line.validation_accuracy is not None]


def open_run(path: Path) -> Record:
    """A directory that holds a run, for reading."""
    if not exists(path / CONFIG):
        raise UserError(f"{path} holds no run: it has no {CONFIG}.")
    return Record(path)


def run_name(path: Path) -> str:
    """A run's short name: that of its folder; federations call theirs all `run`, and have the folder above in it."""
    whole = path.resolve()
    return f"{whole.parent.name}/{whole.name}" if whole.name == "run" and whole.parent.name else whole.name


def read_settings(path: Path) -> Plain:
    """A settings file: one that was written by hand, or that of a run, by whatever version."""
    values = read_toml(path)
    return complete(values) if CONFIG_DIGEST.search(read_text(path)) else values


def rounds_done(path: Path) -> int:
    """How many rounds are finished in a directory; 0 if it holds no run."""
    record = Record(path)
    return len(record.rounds()) if record.begun else 0


def _json(values: Any, indent: int | None = None) -> str:
    return json.dumps(_finite(values), indent=indent, allow_nan=False)


def _finite(value: Any) -> Any:
    """JSON has no NaN and no infinity: they become null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list | tuple) else value
