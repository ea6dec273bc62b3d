"""How does a whole run go? Round after round over an engine, each committed to the record before the next."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..algorithms.aggregate import mismatch
from ..algorithms.hooks import WHAT_NOW, own_mistakes
from ..algorithms.interface import Server
from ..base.errors import UserError
from ..base.tensors import Tensors
from ..base.words import Say
from ..data import Data
from ..engines import StateOf, start_engine
from ..models.choice import Factory
from ..training.resources import one_thread
from .events import ClientsTrained, Listener, RunStarted, nobody
from .experiment import prepare
from .loggers import Logs, need_loggers
from .opening import check_same, open_record, set_aside
from .record import Record
from .rounds import Checks, Run
from .settings import Settings, make_settings, resumed_settings
from .stopping import forget_stop, honours_stop, is_over
from .tally import why_nothing_was_learned

OWN_MODEL = "python"


class NothingLearned(UserError):
    """All rounds were run, and the model is the one that the first began with."""


def simulate(
    settings: Settings | Mapping[str, Any],
    out: str | Path | Record,
    data: Data | None = None,
    model: Factory | None = None,
    listen: Listener = nobody,
    say: Say = print,
    accept_changes: bool = False,
    fresh: bool = False,
) -> Record:
    """Run, or resume, the experiment in directory `out`, up to `settings.rounds` rounds, or until
    `settings.stop` or `rebafl stop` ends it.

    `data` (see `rebafl.from_torch`) and `model` (a callable that makes one) take the place of what
    `settings` names. A run whose own code was edited since is resumed only if `accept_changes` says so.
    With `fresh` nothing is resumed: a run that the directory holds is moved aside.
    """
    record = out if isinstance(out, Record) else Record(Path(out))
    if not isinstance(settings, Settings):
        resumes = record.begun and not fresh
        settings = resumed_settings(record.config(), settings) if resumes else make_settings(settings)
    if data is not None:
        settings = replace(settings, dataset=data.name)
    if model is not None:
        settings = replace(settings, model=replace(settings.model, kind=OWN_MODEL))
    if not fresh:
        check_same(record, settings)
    need_loggers(settings.log)
    with one_thread(), own_mistakes(settings.algorithm):
        experiment = prepare(settings, data, model, say)
    if fresh and (aside := set_aside(record)):
        say(f"What {record.path} held is now in {aside}.")
    with record.locked(), one_thread(), own_mistakes(settings.algorithm):
        check_same(record, settings)
        server = open_record(record, experiment, accept_changes=accept_changes)
        if is_over(record, settings):
            return record
        with closing(
            start_engine(experiment.work, settings.engine, settings.workers)
        ) as engine:  # forks before any display starts
            run = Run(experiment, record, engine, Checks(samples=len(experiment.work.data.y_train)), server)
            forget_stop(record.path)
            listen(RunStarted(record.round, experiment.warnings))
            with Logs(record, settings.log, say) as logs:
                while not is_over(record, settings) and not honours_stop(record.path, record.round):
                    _round(run, listen, say)
                    logs.follow()
    return record


def need_trained(record: Record, settings: Settings) -> None:
    """Who asked for a trained model must hear if a run is over and has none. Its record stays, to be looked at."""
    if is_over(record, settings) and (reason := why_nothing_was_learned(record.rounds())):
        raise NothingLearned(
            f"{record.path}: none of {record.round} rounds brought a new model, so nothing was trained ({reason}); "
            "put that right and start anew: --fresh, from Python fresh=True, or another out=DIRECTORY."
        )


def _round(run: Run, listen: Listener, say: Say) -> None:
    """One round: train, refuse what cannot be right, aggregate, score, commit."""
    who = run.roster()
    # A lost upload leaves no trace, not even at its client, whose state is rolled back: it need not be computed.
    clients = who.arrives
    with run.next_round() as round:
        round.progress.say("training", len(clients))
        if run.experiment.settings.protect.holders == "announced":
            round.announce([run.experiment.work.shown_counts(client) for client in who.trains])
        listen(ClientsTrained(0, len(clients)))
        outcomes = run.engine.train(round.number, round.sent, clients, _states(run.record, round.state))
        for done, outcome in enumerate(outcomes, 1):
            round.take(outcome)
            if outcome.traceback:
                say(f"Round {round.number}, client {outcome.client}:\n{outcome.traceback}")
            listen(ClientsTrained(done, len(clients)))
        if round.number == 1 and clients and len(round.failures) == len(clients):
            client, failure = next(iter(round.failures.items()))
            raise UserError(f"Every client of the first round failed, client {client} with {failure}; {WHAT_NOW}.")
        line = round.close(who)
    listen(line)


def _states(record: Record, expected: Tensors) -> StateOf:
    """Reads the state of a client when it is to train, and checks it."""

    def state_of(client: int) -> Tensors | None:
        state = record.client_state(client)
        if state is not None and (reason := mismatch(state, expected)):
            raise UserError(f"{record.path}: the saved state of client {client} is damaged ({reason}); restore it.")
        return state

    return state_of


def trained_weights(record: Record, settings: Settings, best: bool = False) -> Tensors:
    """The weights that the run's last accuracy belongs to, or that of its best round on the validation part."""
    saved = record.best_server()[1] if best else record.server()
    return settings.algorithm.evaluated(Server.saved(saved))
