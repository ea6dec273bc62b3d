"""May this directory hold this run, and where does it stand? How a run is created, resumed and rolled back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any

from ..algorithms.aggregate import mismatch
from ..algorithms.interface import Server
from ..base.config import Plain, plain
from ..base.errors import UserError, exists
from ..training.device import CPU, described
from .environment import changed_facts, machine
from .experiment import Experiment
from .origin import DEVICE, OWN_CODE, TO_BE_ACCEPTED, WENT_ON, changes_to_accept, latest, refusal_of
from .record import CONFIG, SETTINGS_DIGEST, Record
from .settings import Settings, apart_from_kept, complete, differences

COMMON_TABLES = ("inputs", "instructions", OWN_CODE)  # tables of facts in environment.json that any run may have
SIMULATION = "simulation"


def check_same(record: Record, settings: Settings) -> None:
    """A directory belongs to its settings: resuming it under others would mix two experiments."""
    if not record.begun:
        if reason := record.in_the_way():
            raise UserError(f"{record.path} cannot hold a new run ({reason}); choose another out=DIRECTORY.")
        if not exists(record.path / CONFIG):
            return
    stored = complete(record.config(), settings)
    if unlike := differences(apart_from_kept(stored), apart_from_kept(settings.plain())):
        raise UserError(
            f"{record.path} holds a run with other settings ({'; '.join(unlike[:3])}); choose another out=DIRECTORY."
        )


def set_aside(record: Record) -> Path | None:
    """Move a run out of the way, so that another may begin in its directory; where it is now, if there was one."""
    return _set_aside(record.path, [record]) if exists(record.path / CONFIG) else None


def set_all_aside(folder: Path) -> Path | None:
    """The same, of a folder of runs, none of which may be in use."""
    there = [Record(path.parent) for path in sorted(folder.glob(f"*/{CONFIG}"))]
    return _set_aside(folder, there) if there else None


def _set_aside(folder: Path, there: Iterable[Record]) -> Path:
    beside = (folder.with_name(f"{folder.name}-before-{number}") for number in count(1))
    with ExitStack() as stack:
        for record in there:
            stack.enter_context(record.locked())
        aside = next(path for path in beside if not exists(path))
        folder.rename(aside)
    return aside


def kind_of_run(facts: Mapping[str, Any]) -> str:
    """What made the run of this environment: the name of the table of facts that only this kind of run has, if any."""
    names = (name for name, value in facts.items() if isinstance(value, Mapping) and name not in COMMON_TABLES)
    return next(names, SIMULATION)


def open_record(
    record: Record, experiment: Experiment, extra_facts: Plain | None = None, accept_changes: bool = False
) -> Server:
    """Create the directory, or pick up where it stands.

    `extra_facts` is a table of facts that only this kind of run has, by the name of the kind; a simulation has none.
    `accept_changes` is the user's word that a run may be resumed with other own code or another kind of bits.
    """
    settings = experiment.settings
    if not record.begun:
        first = experiment.first_server()
        record.create(settings.plain(), {**_environment(experiment), **(extra_facts or {})})
        return first
    facts = record.environment()
    if (kind := kind_of_run(facts)) != kind_of_run(extra_facts or {}):
        raise UserError(
            f"{record.path} holds the run of a {kind}, which keeps its clients' state elsewhere; "
            "choose another out=DIRECTORY."
        )
    if facts.get("data_sha256") != experiment.work.data.digest:
        raise UserError(f"{record.path} was run on other data than {settings.dataset} holds now; restore the data.")
    if facts.get(SETTINGS_DIGEST) != settings.digest:
        raise UserError(f"{record.path}: its config.toml, or a file that it names, was changed; restore it.")
    now = {**machine(), **_own_code(experiment)}
    unfinished = 0 < len(record.rounds()) < settings.rounds
    if unfinished and not accept_changes and (changes := changes_to_accept(latest(facts), now)):
        raise UserError(refusal_of(record.path, changes))
    server = _restored(record, experiment.first_server())
    record.resume()
    if record.round < settings.rounds:
        _note_changes(record, facts, now)
    if settings.plain() != complete(record.config(), settings):
        record.write_config(settings.plain())
    return server


def _note_changes(record: Record, facts: Plain, now: Plain) -> None:
    """A run that is resumed with other code or versions, or on another machine, says so: bits may depend on them."""
    known = latest(facts)
    unknown = {name: now[name] for name in TO_BE_ACCEPTED if name in now and name not in known}
    if changed := changed_facts(known, now) | unknown:
        changes = [*facts.get(WENT_ON, []), {"after_round": record.round, **changed}]
        record.write_environment(facts | {WENT_ON: changes})


def roll_back(record: Record, round: int) -> None:
    """Take a run back to an earlier round; what came after it is removed, and the record says so."""
    before = len(record.rounds())
    facts = record.environment()
    record.check_point(round)
    kept = [change for change in facts.get(WENT_ON, []) if change["after_round"] < round]
    record.write_environment(facts | {WENT_ON: [*kept, {"after_round": round, "rolled_back_from": before}]})
    record.roll_back(round)


def _restored(record: Record, first: Server) -> Server:
    """The saved server, if it is one of this model and algorithm; `first` shows what it must look like."""
    saved = record.saved_server()
    if saved is None:
        return first
    server = Server.saved(saved)
    if reason := mismatch(server.weights, first.weights) or mismatch(server.state, first.state):
        raise UserError(f"{record.path} holds a checkpoint that does not fit its settings ({reason}); restore it.")
    return server


def _environment(experiment: Experiment) -> Plain:
    """What else a number may depend on."""
    return {
        **machine(),
        **_own_code(experiment),
        "data_sha256": experiment.work.data.digest,
        SETTINGS_DIGEST: experiment.settings.digest,
        "inputs": plain(experiment.work.data.inputs),
        "warnings": list(experiment.warnings),
    }


def _own_code(experiment: Experiment) -> Plain:
    """What a run is computed with besides this package on this processor, if there is anything."""
    device = {} if experiment.settings.device == CPU else {DEVICE: described(experiment.work.device)}
    return {**({OWN_CODE: experiment.own_code} if experiment.own_code else {}), **device}
