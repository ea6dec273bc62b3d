"""What does one client compute in a round, and from what? The same wherever it is computed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ..algorithms.aggregate import Upload
from ..algorithms.interface import Algorithm, Client, Sent, Training
from ..base.rng import Noise, NoiseSource, generator, seeded_noise, system_noise, torch_stream
from ..base.tensors import Tensors
from ..data import Data
from ..models.contract import Classifier
from ..population.partition import Indices, Split
from .device import CPU, brought_back, client_on, computing_on, sent_to
from .loop import Outgoing, train, unchanged
from .protections import NONE, Protections
from .schedule import in_round


@dataclass(frozen=True)
class Work:
    """Everything that stays the same during a run and that a worker needs to know.

    `protect` says what is done to every upload, `noise` where its random numbers come from. Clients are trained on
    `device`; all that goes in and comes out is on the processor.
    """

    algorithm: Algorithm
    training: Training
    data: Data
    split: Split
    seed: int
    make_net: Callable[[], Classifier]
    outgoing: Outgoing = unchanged
    protect: Protections = NONE
    noise: NoiseSource = "seed"
    device: str = CPU
    again: Callable[[], Work] | None = None
    """Makes the same work anew in a process that shares nothing with this one; None where that cannot be."""

    def net(self) -> Classifier:
        """A model to train and score with, where clients are trained."""
        return self.make_net().to(self.device)

    def client(self, number: int, round: int, state: Tensors | None) -> Client:
        training = in_round(self.training, self.seed, round, number)
        return self.client_of(number, self.split.indices(number), training, round, state)

    def client_of(
        self,
        number: int,
        indices: Indices,
        training: Training,
        round: int,
        state: Tensors | None = None,
    ) -> Client:
        """A client that holds the training samples at these positions."""
        index = torch.from_numpy(indices)
        labels = self.data.y_train[index]
        return Client(
            id=number,
            inputs=self.data.inputs(self.data.x_train[index]),
            labels=labels,
            counts=labels.bincount(minlength=len(self.data.classes)),
            black=self.data.inputs.black,
            training=training,
            shuffle=generator(self.seed, "client", round, number),
            random=generator(self.seed, "algorithm", round, number),
            state=state,
            noise=self.noise_of(number, round),
        )

    def noise_of(self, number: int, round: int) -> Noise:
        """Where a client, or the server, takes the noise of its protections from in a round."""
        return seeded_noise(self.seed, round, number) if self.noise == "seed" else system_noise

    def shown_counts(self, client: int) -> Tensor:
        """What a client says of its classes before it uploads, and then with its upload unless there is noise on it."""
        return self.protect.shown_counts(torch.from_numpy(self.split.counts(client)), prototypes=True)

    def train(
        self, net: Classifier, sent: Sent, client: int, round: int, state: Tensors | None
    ) -> tuple[Upload, Tensors]:
        """One client's round: a pure function of what is passed, wherever it is computed."""
        own, sent = client_on(self.client(client, round, state), self.device), sent_to(sent, self.device)
        with torch_stream(self.seed, "layers", round, client, self.device), computing_on(self.device):
            upload, after = train(net.to(self.device), self.algorithm, sent, own, self.outgoing, self.protect)
        return brought_back(upload, after, self.device)
