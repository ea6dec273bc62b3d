"""What may an algorithm decide? The hooks below; the default of each is FedAvg.

An algorithm is a frozen set of parameters. All that changes while it runs is passed in and handed back:
the server's state, a client's state, and the context of one client's round. So the same object serves the
simulator, a cluster and a real federation, and nothing that matters can be missing from a checkpoint.

A whole algorithm, for example: pull every local model towards the one it started from.

    @parameters
    class Pulled(Algorithm):
        name = "pulled"
        strength: float = 0.1

        def correct(self, net, context):
            for name, parameter, gradient in gradients(net):
                gradient.add_(parameter.detach() - context.sent.weights[name], alpha=self.strength)
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch.nn.functional as F
from pydantic import Field, model_validator
from torch import Tensor, nn
from typing_extensions import Self

from ..base.config import Added, parameters
from ..base.errors import UserError
from ..base.rng import Noise, system_noise
from ..base.tensors import Tensors
from ..models.contract import Classifier, Part, extract, part_of
from .aggregate import Means, Upload, Weight, means_of, moved


@parameters
class Training:
    """How a client trains: by default plain SGD, fresh each round."""

    epochs: Annotated[int, Field(ge=1, description="passes over the local data per round (E)")] = 5
    batch: Annotated[int, Field(ge=1, description="samples per step (B)")] = 50
    lr: Annotated[float, Field(gt=0, description="learning rate")] = 0.01
    momentum: Annotated[float, Field(ge=0, lt=1, description="momentum of SGD")] = 0.5
    weight_decay: Annotated[float, Field(ge=0, description="weight decay")] = 5e-4
    transform: Annotated[Literal["none", "crop-flip"], Field(description="random changes to training images")] = "none"
    optimizer: Annotated[
        Literal["sgd", "adam", "adamw"], Field(description="how a step changes the weights"), Added(before="sgd")
    ] = "sgd"
    nesterov: Annotated[bool, Field(description="Nesterov's form of the momentum of SGD"), Added(before=False)] = False
    betas: Annotated[
        tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]],
        Field(description="how long Adam and AdamW remember gradients, and their squares"),
        Added(before=(0.9, 0.999)),
    ] = (0.9, 0.999)
    clip_norm: Annotated[
        float, Field(ge=0, description="bound on the norm of a step's gradient; 0: none"), Added(before=0.0)
    ] = 0.0
    schedule: Annotated[
        Literal["constant", "step", "decay", "cosine"],
        Field(description="the learning rate over rounds"),
        Added(before="constant"),
    ] = "constant"
    schedule_rounds: Annotated[
        int,
        Field(ge=0, description="step: rounds from one step to the next; cosine: rounds until it ends"),
        Added(before=0),
    ] = 0
    schedule_factor: Annotated[
        float,
        Field(gt=0, le=1, description="step, decay: what the rate is multiplied by, each step or each round"),
        Added(before=0.1),
    ] = 0.1
    warmup: Annotated[
        int, Field(ge=0, description="first rounds in which the rate grows to its value, evenly"), Added(before=0)
    ] = 0
    epochs_least: Annotated[
        int,
        Field(ge=0, description="partial work: a client manages a number of epochs from this to `epochs`; 0: all"),
        Added(before=0),
    ] = 0
    epochs_drawn: Annotated[
        Literal["round", "client"],
        Field(description="partial work: drawn anew each round, or once for each client"),
        Added(before="round"),
    ] = "round"

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.nesterov and (self.optimizer != "sgd" or not self.momentum):
            raise ValueError("nesterov is a form of SGD's momentum; set training.momentum and no other optimizer")
        if self.schedule in ("step", "cosine") and not self.schedule_rounds:
            raise ValueError(f"training.schedule={self.schedule} needs training.schedule_rounds, such as 50")
        if self.epochs_least > self.epochs:
            raise ValueError("training.epochs_least is more than training.epochs; lower it")
        return self


@dataclass(frozen=True)
class Task:
    """What is learned, in three numbers that both sides know."""

    classes: int
    features: int
    clients: int


@dataclass(frozen=True)
class Server:
    """All that the server knows between two rounds: the weights it will send, and the algorithm's own state."""

    weights: Tensors
    state: Tensors = field(default_factory=dict)

    @staticmethod
    def saved(groups: Mapping[str, Tensors]) -> Server:
        """As a checkpoint has it, which does not keep empty groups."""
        return Server(groups.get("weights", {}), groups.get("state", {}))


@dataclass(frozen=True)
class Sent:
    """What a client receives; of the classes `unshared` it keeps the prototypes to itself."""

    weights: Tensors
    extra: Tensors = field(default_factory=dict)
    unshared: Sequence[int] = ()


@dataclass(frozen=True)
class Client:
    """What a client knows: who it is, its data, and its own state (None the first time).

    `shuffle` is the training loop's random stream, `random` the algorithm's: whether an algorithm draws
    numbers does not change the order of samples. `noise` is that of the protections.
    """

    id: int
    inputs: Tensor
    labels: Tensor
    counts: Tensor
    black: Tensor
    training: Training
    shuffle: np.random.Generator
    random: np.random.Generator
    state: Tensors | None = None
    noise: Noise = system_noise

    def features(self, net: Classifier) -> Tensor:
        """The features of all local data under this model: evaluation transforms, no random numbers."""
        return extract(net, self.inputs)


@dataclass(frozen=True)
class Batch:
    """One step's samples; `index` are their positions in the client's data."""

    x: Tensor
    y: Tensor
    index: Tensor


@dataclass(frozen=True)
class Context:
    """One client's round: what it was sent, what it is, and what the algorithm prepared once for all steps."""

    sent: Sent
    client: Client
    prepared: Tensors = field(default_factory=dict)

    def __getattr__(self, name: str) -> Any:
        """Called for names that do not exist: what version 0.1 called otherwise is said."""
        hint = {"own": "prepared", "device": "client"}.get(name)
        raise AttributeError(f"context.{name} is called context.{hint} now" if hint else f"a context has no {name!r}")


Fit = Callable[[Tensors, Part, Training], Tensors]
"""Weights, the part to train, and how -> weights after training on the server's own data."""


@dataclass(frozen=True)
class Costs:
    """What an algorithm needs beyond FedAvg, in words."""

    state: str = "none"
    communication: str = "none"
    compute: str = "none"


def gradients(net: Classifier) -> Iterator[tuple[str, nn.Parameter, Tensor]]:
    """The parameters being trained, by name, with their gradients."""
    for name, parameter in net.named_parameters():
        if parameter.grad is not None:
            yield name, parameter, parameter.grad


OLD_HOOKS = {
    "finish": "share() and next_state()",
    "client_state": "client_state_template()",
    "shared": "shared_template()",
}
"""Hooks of version 0.1, and what took their place: a class that still defines one would be silently incomplete."""


def _check_spelling(cls: type, name: str) -> None:
    """A hook under a slightly other name would never be called, and nothing would say so."""
    hooks = [hook for hook, value in vars(Algorithm).items() if callable(value) and not hook.startswith("_")]
    near = get_close_matches(name, hooks, n=1, cutoff=0.85)
    if near and not name.startswith(near[0]) and not near[0].startswith(name):  # `shared` is a name of its own
        raise UserError(
            f"{cls.__module__}:{cls.__qualname__} defines {name}(), which nothing calls; did you mean {near[0]}()? "
            f"If it is a helper of your own, call it _{name}."
        )


@parameters
class Algorithm(ABC):
    """Every hook's default is FedAvg. A subclass overrides only what makes it different."""

    name: ClassVar[str]
    paper: ClassVar[str] = ""
    costs: ClassVar[Costs] = Costs()
    change_weight: ClassVar[Weight] = "samples"
    shared_weight: ClassVar[Weight | None] = None
    """By what the changes of weights, and what is shared, are averaged for `next_server`; None: not averaged."""
    needs_sgd: ClassVar[str] = ""
    """Why it is wrong with any other optimiser than SGD with plain momentum; empty if it is not."""
    pooled: ClassVar[bool] = False
    """Is it no federation: do the data of all clients lie in one place, and are they there in each round?"""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if old := [hook for hook in OLD_HOOKS if callable(vars(cls).get(hook))]:
            raise UserError(
                f"{cls.__module__}:{cls.__qualname__} defines {old[0]}(), which is called "
                f"{OLD_HOOKS[old[0]]} now; see docs/own-algorithm.md."
            )
        for name, value in vars(cls).items():
            if callable(value) and not name.startswith("_") and not hasattr(Algorithm, name):
                _check_spelling(cls, name)

    def server_state(self, net: Classifier, task: Task) -> Tensors:
        """What the server keeps besides the weights, before the first round."""
        return {}

    def broadcast(self, server: Server) -> Tensors:
        """What goes out besides the weights."""
        return {}

    def start(self, net: Classifier, sent: Sent, client: Client) -> Context:
        """Before the first step; `net` holds the received weights. Training starts from what it holds afterwards."""
        return Context(sent, client)

    def trains(self, part: Part) -> bool:
        """Is this part of the model trained and uploaded?"""
        return True

    def loss(self, net: Classifier, batch: Batch, context: Context) -> Tensor:
        """The loss of one step."""
        return F.cross_entropy(net(batch.x), batch.y)

    def correct(self, net: Classifier, context: Context) -> None:
        """Change the gradients in place, between the backward pass and the step."""
        return None

    def after_step(self, net: Classifier, context: Context) -> None:
        """Change the weights in place, after the step: what momentum shall not see."""
        return None

    def share(self, net: Classifier, context: Context, steps: int) -> Tensors:
        """After the last step: what goes up besides the change of the weights."""
        return {}

    def upload(self, net: Classifier, context: Context, steps: int) -> Upload:
        """All that leaves the client: the change of the trained parts, the class counts, and what is shared."""
        received = context.sent.weights
        change = {name: tensor - received[name] for name, tensor in self.uploaded(net.state_dict()).items()}
        return Upload(context.client.id, change, context.client.counts, self.share(net, context, steps))

    def next_state(self, net: Classifier, context: Context, upload: Upload, steps: int) -> Tensors:
        """The client's next state. `upload` is what was really sent: it may have been changed on its way out."""
        return {}

    def client_state_template(self, server: Server) -> Tensors:
        """What a client keeps from round to round, as tensors of the right shape: empty for most algorithms."""
        return {}

    def shared_template(self, server: Server) -> Tensors:
        """What an upload shares besides the weights, as tensors of the right shape: anything else is refused."""
        return {}

    def aggregate(self, server: Server, uploads: Sequence[Upload], clients: int) -> Server:
        """The next server, from uploads in client-id order; `clients` is how many there are in all.

        Where this is replaced, the server must see each upload, and `protect.secagg` is refused.
        """
        return self.next_server(server, means_of(uploads, self.change_weight, self.weight_of), clients)

    def weight_of(self, shared: str) -> Weight | None:
        """By what a tensor that is shared under this name is averaged for `next_server`; None: it is not."""
        return self.shared_weight

    def next_server(self, server: Server, means: Means, clients: int) -> Server:
        """The next server, from the means of the uploads: all that is known where uploads are only summed."""
        return replace(server, weights=moved(server.weights, means.change))

    def needs_each_upload(self) -> bool:
        """Does the server's part need more than means?"""
        return type(self).aggregate is not Algorithm.aggregate

    def unprotected(self) -> tuple[str, ...]:
        """What is shared that comes from the data and that no protection but secure aggregation covers."""
        return ()

    def server_samples(self) -> int:
        """How many samples of each class the server needs for itself, of those that no client holds."""
        return 0

    def refine(self, server: Server, fit: Fit) -> Server:
        """A last touch at the server, with data of its own."""
        return server

    def evaluated(self, server: Server) -> Tensors:
        """The weights that count as the result."""
        return server.weights

    def scored(self, server: Server) -> Sequence[Tensors]:
        """The models whose mean score is the round's: the result, unless clients end with models of their own."""
        return (self.evaluated(server),)

    def also_evaluated(self, server: Server) -> dict[str, Tensors]:
        """Other weights whose accuracy is worth a note in the record, by name."""
        return {}

    def uploaded(self, weights: Tensors) -> Tensors:
        """Those of the weights that are uploaded: the trained parts."""
        return {name: tensor for name, tensor in weights.items() if self.trains(part_of(name))}
