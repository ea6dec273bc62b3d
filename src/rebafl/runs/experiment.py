"""What does a run start from? Settings brought to life: the data, who holds what, the initial model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F

from .. import data as datasets
from ..algorithms.aggregate import Upload
from ..algorithms.hooks import checked_tensors
from ..algorithms.interface import Server, Task, Training
from ..algorithms.robust import NoDefence
from ..base.config import Plain
from ..base.errors import UserError
from ..base.rng import NoiseSource, generator, torch_stream
from ..base.tensors import Tensors
from ..base.words import Say
from ..data import with_side
from ..models.choice import Factory, make_net
from ..models.contract import Part, load_weights, part_of, weights_of
from ..population.given import Natural
from ..population.holdout import held_out, split_rest
from ..population.participation import Roster, Trace, roster
from ..population.partition import Indices, Split, pooled
from ..population.splitting import split_by
from ..training.attacks import Liars
from ..training.claims import claims, uncovered
from ..training.client_work import Work
from ..training.device import resolve
from ..training.loop import fit
from .origin import own_code
from .settings import KINDS, Settings, make_settings
from .summed import Averages, averages_of, impossible

TRACED = ("participation", "delivery")  # settings that may be traces
SERVER = -1  # the server's own number where it trains like a client
SECAGG_SIMULATED = (
    "With protect.secagg this simulation adds the integers that masked uploads add up to; it masks nothing, and "
    "protects nobody."
)
SECAGG_REAL = (
    "Uploads are masked (protect.secagg) against a server that is curious but follows the protocol; no cryptographer "
    "has reviewed the masks, and the sum itself is not protected."
)


@dataclass(frozen=True)
class Experiment:
    """All that stays the same during a run."""

    settings: Settings
    work: Work
    task: Task
    warnings: tuple[str, ...]
    parameters: frozenset[str]
    server_index: Indices
    own_code: dict[str, str]

    def roster(self, round: int) -> Roster:
        s = self.settings
        if s.algorithm.pooled:
            return Roster((0,), (0,))
        return roster(s.participation, s.dropout, s.delivery, self.task.clients, s.seed_of("dropout"), round)

    def first_server(self) -> Server:
        net = self.work.make_net()
        algorithm = self.settings.algorithm
        state = algorithm.server_state(net, self.task)
        return Server(weights_of(net), checked_tensors(algorithm, "server_state", state))

    def expected_upload(self, server: Server) -> Upload:
        """What every upload looks like in names, shapes and types, and so in size."""
        algorithm = self.settings.algorithm
        counts = torch.zeros(self.task.classes, dtype=torch.int64)
        shared = checked_tensors(algorithm, "shared_template", algorithm.shared_template(server))
        return Upload(-1, algorithm.uploaded(server.weights), counts, shared)

    def expected_state(self, server: Server) -> Tensors:
        """What every client's state looks like in names, shapes and types."""
        algorithm = self.settings.algorithm
        return checked_tensors(algorithm, "client_state_template", algorithm.client_state_template(server))

    def averages(self, server: Server, held: int = 0) -> Averages:
        """How uploads are summed; a client holds at most so many samples, 0: as many as the data set has."""
        settings, task = self.settings, self.task
        most = settings.protect.most_samples(held or len(self.work.data.y_train), task.classes)
        return averages_of(settings.algorithm, self.expected_upload(server), task.clients, most, settings.protect)

    def fit(self, round: int, weights: Tensors, part: Part, training: Training) -> Tensors:
        """Train one part of the model on the server's own samples, with the loop that clients use."""
        net = self.work.make_net()
        load_weights(net, weights)
        client = self.work.client_of(SERVER, self.server_index, training, round)
        with torch_stream(self.work.seed, "layers", round, SERVER):
            fit(net, client, lambda trained: trained == part, lambda batch: F.cross_entropy(net(batch.x), batch.y))
        tuned = {name: tensor for name, tensor in weights_of(net).items() if part_of(name) == part}
        return {**weights, **tuned}


def split_data(
    settings: Settings, data: datasets.Data | None = None, say: Say = print
) -> tuple[datasets.Data, Split, tuple[str, ...]]:
    """The data, who holds what of them, and what to warn of."""
    data, split = split_of(settings, with_side(data, settings.resize) if data else load_data(settings, say))
    return data, split, _warnings(data, split)


def load_data(settings: Settings, say: Say, dataset: str = "") -> datasets.Data:
    """The data of a run, or others that are to be read as they are."""
    column = settings.partition.column if isinstance(settings.partition, Natural) else ""
    return datasets.load(dataset or settings.dataset, say, settings.resize, column)


def split_of(settings: Settings, data: datasets.Data) -> tuple[datasets.Data, Split]:
    """Who holds what, after the validation part, if one is wanted, was taken away: the same for whoever asks."""
    labels, classes, seed = data.y_train.numpy(), len(data.classes), settings.seed_of("split")
    owners = None if data.client_train is None else data.client_train.numpy()
    if settings.validation:
        held = held_out(labels, classes, settings.validation, seed)
        data = replace(data, validation=torch.from_numpy(held))
        split = split_rest(settings.partition, labels, classes, seed, held, owners)
    else:
        split = split_by(settings.partition, labels, classes, seed, owners)
    return data, pooled(split) if settings.algorithm.pooled else split


def work_of(
    settings: Settings, data: datasets.Data, split: Split, model: Factory | None = None, noise: NoiseSource = "seed"
) -> Work:
    """What a client computes in a round: made here for simulations and for the machines of a federation alike."""
    make = partial(make_net, settings.model, data.shape, len(data.classes), settings.seed_of("init"), model)
    return Work(
        settings.algorithm,
        settings.training,
        data,
        split,
        settings.seed_of("order"),
        make,
        settings.attack.lies(split.clients, settings.seed_of("split")),
        settings.protect,
        noise,
        resolve(settings.device),
    )


def work_again(values: Plain) -> Work:
    """The work of a simulation with these settings, in a process that has nothing else of it."""
    settings = make_settings(values)
    data, split, _ = split_data(settings, say=lambda text: None)
    return work_of(settings, data, split)


def prepare(
    settings: Settings,
    data: datasets.Data | None = None,
    model: Factory | None = None,
    say: Say = print,
    noise: NoiseSource = "seed",
) -> Experiment:
    """Load the data, split it and build the model; every impossible request is refused here.

    `noise` says where clients take theirs from, if the settings ask for any.
    """
    if reason := undefended(settings):
        raise UserError(reason)
    if settings.stop.kind != "never" and not settings.validation:
        raise UserError("stop = 'plateau' looks at a validation part, which this run has not; add validation=0.1.")
    if reason := wrong_optimizer(settings):
        raise UserError(reason)
    algorithm = settings.algorithm
    code = own_code(settings, model, data)
    again = partial(work_again, settings.plain()) if data is None and model is None else None
    data, split, warnings = split_data(settings, data, say)
    work = replace(work_of(settings, data, split, model, noise), again=again)
    net = work.make_net()
    if settings.training.transform == "crop-flip" and len(data.shape) != 3:
        raise UserError("training.transform = 'crop-flip' needs images; use training.transform=none.")
    if not any(p.requires_grad and algorithm.trains(part_of(name)) for name, p in net.named_parameters()):
        raise UserError(
            f"{algorithm.name} trains a part of the model in which model {settings.model.kind!r} has nothing to train; "
            "take another model."
        )
    with torch.no_grad():
        features = net.features(data.inputs(data.x_train[:1])).shape[1]
    experiment = Experiment(
        settings,
        work,
        Task(len(data.classes), features, split.clients),
        warnings,
        frozenset(name for name, _ in net.named_parameters()),
        _unheld(data, split, settings.algorithm.server_samples(), settings.seed_of("split")),
        code,
    )
    experiment.roster(round=1)  # a trace that cannot be read is better noticed now
    more = (*_ended_traces(settings), *_claims(experiment, noise), *_liars(work))
    return replace(experiment, warnings=(*warnings, *more))


def _ended_traces(settings: Settings) -> list[str]:
    """A trace that is shorter than the run leaves its last rounds empty."""
    ends = {name: part.last_round() for name in TRACED if isinstance(part := getattr(settings, name), Trace)}
    return [
        f"The trace of {name} ends with round {last}: in the rounds after it, up to {settings.rounds}, nobody is there."
        for name, last in ends.items()
        if last < settings.rounds
    ]


def _claims(experiment: Experiment, noise: NoiseSource) -> tuple[str, ...]:
    """What the protections of this run promise and what not; those that cannot be had are refused."""
    settings, server = experiment.settings, experiment.first_server()
    algorithm, protect = settings.algorithm, settings.protect
    shared, said = algorithm.shared_template(server), []
    if reason := uncovered(algorithm, protect, shared):
        raise UserError(reason)
    if protect.secagg:
        averages = experiment.averages(server)
        if reason := impossible(algorithm, KINDS["algorithm"].kind_of(type(algorithm)), averages):
            raise UserError(reason)
        said += [SECAGG_SIMULATED if noise == "seed" else SECAGG_REAL]
    return (*said, *claims(protect, shared, noise)) if protect.noisy else tuple(said)


def wrong_optimizer(settings: Settings) -> str:
    """Why the algorithm is wrong with the optimiser that is asked for, or ''."""
    training, algorithm = settings.training, settings.algorithm
    if not algorithm.needs_sgd or (training.optimizer == "sgd" and not training.nesterov):
        return ""
    return (
        f"{algorithm.name} needs SGD with plain momentum, since {algorithm.needs_sgd}; use training.optimizer=sgd "
        "training.nesterov=false, or another algorithm."
    )


def undefended(settings: Settings) -> str:
    """Why the defence that is asked for cannot be had in this run, or ''."""
    algorithm, rule = settings.algorithm, KINDS["robust"].kind_of(type(settings.robust))
    if isinstance(settings.robust, NoDefence):
        return ""
    if algorithm.needs_each_upload():
        return (
            f"robust={rule} takes the place of the mean, and algorithm={KINDS['algorithm'].kind_of(type(algorithm))} "
            "replaces aggregate(), which takes none; give it next_server() instead, or use robust=none."
        )
    if settings.protect.secagg:
        return (
            f"robust={rule} compares the uploads of single clients, and with protect.secagg only their sum is known; "
            "use robust=none, and protect.update_clip to have clients shorten their changes themselves."
        )
    if settings.protect.central_noise:
        return (
            f"protect.central_noise fits the mean of the changes, which robust={rule} is not; use robust=none, or "
            "protect.update_noise."
        )
    return ""


def _liars(work: Work) -> tuple[str, ...]:
    who = sorted(work.outgoing.who) if isinstance(work.outgoing, Liars) else []
    more = f" and {len(who) - 10} more" if len(who) > 10 else ""
    return (f"For the attack of this simulation lie: clients {', '.join(map(str, who[:10]))}{more}.",) if who else ()


def _warnings(data: datasets.Data, split: Split) -> tuple[str, ...]:
    held = np.zeros(split.classes, dtype=bool)
    for client in range(split.clients):
        held |= split.counts(client) > 0
        if held.all():
            return ()
    names = ", ".join(name for name, is_held in zip(data.classes, held, strict=True) if not is_held)
    return (f"No client holds any sample of: {names}. This limits the accuracy that can be reached.",)


def _unheld(data: datasets.Data, split: Split, count: int, seed: int) -> Indices:
    """Positions of `count` training samples of every class that no client holds."""
    if count == 0:
        return np.zeros(0, dtype=np.int64)
    free = np.ones(len(split.labels), dtype=bool)
    if data.validation is not None:
        free[data.validation.numpy()] = False
    for client in range(split.clients):
        free[split.indices(client)] = False
        if client % 1000 == 999 and not free.any():
            break
    random = generator(seed, "server data")
    chosen = []
    for label, name in enumerate(data.classes):
        pool = np.flatnonzero(free & (split.labels == label))
        if len(pool) < count:
            raise UserError(f"The server needs {count} samples of {name} that no client holds; there are {len(pool)}.")
        chosen.append(random.choice(pool, size=count, replace=False))
    return np.sort(np.concatenate(chosen))
