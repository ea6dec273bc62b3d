"""How does a client train? This is the only training loop in the project."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from ..algorithms.aggregate import Upload
from ..algorithms.hooks import checked_context, checked_loss, checked_tensors, checked_upload
from ..algorithms.interface import Algorithm, Batch, Client, Sent
from ..base.tensors import Tensors
from ..models.contract import Classifier, Part, load_weights, part_of
from .images import bordered, crop_flip, rows_of
from .protections import NONE, Protections, without_prototypes
from .sgd import make_optimiser

Outgoing = Callable[[Upload, Client], Upload]
"""What an upload passes on its way out of a client, where it may be changed (clipped, rounded, masked)."""


def unchanged(upload: Upload, client: Client) -> Upload:
    return upload


def train(
    net: Classifier,
    algorithm: Algorithm,
    sent: Sent,
    client: Client,
    outgoing: Outgoing = unchanged,
    protect: Protections = NONE,
) -> tuple[Upload, Tensors]:
    """One client's round, in any engine: receive, train, hand back the upload and the next state.

    `protect` and then `outgoing` may change the upload. The next state is computed from what comes out of them: what
    was really sent.
    """
    load_weights(net, sent.weights)
    net.eval()
    context = checked_context(algorithm, algorithm.start(net, sent, client))
    steps = fit(
        net,
        client,
        algorithm.trains,
        lambda batch: checked_loss(algorithm, algorithm.loss(net, batch, context)),
        lambda: algorithm.correct(net, context),
        lambda: algorithm.after_step(net, context),
    )
    net.eval()
    protect.change_weights(net, sent.weights, algorithm.trains, client)  # before anything else is computed from them
    upload = checked_upload(algorithm, algorithm.upload(net, context, steps))
    upload = protect.change_upload(upload, net, client)
    upload = outgoing(without_prototypes(upload, sent.unshared), client)
    state = algorithm.next_state(net, context, upload, steps)
    return upload, checked_tensors(algorithm, "next_state", state)


def fit(
    net: Classifier,
    client: Client,
    trains: Callable[[Part], bool],
    loss: Callable[[Batch], Tensor],
    correct: Callable[[], None] = lambda: None,
    after_step: Callable[[], None] = lambda: None,
) -> int:
    """Minimise `loss` over the client's data; how many steps that took."""
    steps, settings = 0, client.training
    with _only(net, trains) as parameters:
        optimiser = make_optimiser(parameters, settings)
        _train_mode(net, trains)
        for batch in batches(client):
            optimiser.zero_grad()
            torch.autograd.backward(loss(batch))
            correct()
            if settings.clip_norm:
                nn.utils.clip_grad_norm_(parameters, settings.clip_norm)
            optimiser.step()
            after_step()
            steps += 1
    return steps


def _train_mode(net: Classifier, trains: Callable[[Part], bool]) -> None:
    """Parts that are not trained neither draw random numbers nor move running statistics."""
    net.train(trains("features"))
    net.head.train(trains("head"))


@contextmanager
def _only(net: Classifier, trains: Callable[[Part], bool]) -> Iterator[list[nn.Parameter]]:
    """Freeze the parts that are not trained for a while; what a model froze itself stays frozen."""
    frozen = [p for name, p in net.named_parameters() if p.requires_grad and not trains(part_of(name))]
    for parameter in frozen:
        parameter.requires_grad_(False)
    try:
        yield [parameter for parameter in net.parameters() if parameter.requires_grad]
    finally:
        for parameter in frozen:
            parameter.requires_grad_(True)
        net.zero_grad()


def batches(client: Client) -> Iterator[Batch]:
    """All steps of a round: each epoch in a new order, gathered and transformed a batch at a time."""
    training, random = client.training, client.shuffle
    crop = training.transform == "crop-flip"
    rows = rows_of(client.inputs)
    source = bordered(rows, client.black) if crop else rows
    for _ in range(training.epochs):
        order = torch.from_numpy(random.permutation(len(client.labels))).to(client.labels.device)
        for index in torch.split(order, training.batch):
            x = crop_flip(source, index, random) if crop else source.index_select(0, index)
            yield Batch(x.permute(0, 3, 1, 2) if x.dim() == 4 else x, client.labels[index], index)
