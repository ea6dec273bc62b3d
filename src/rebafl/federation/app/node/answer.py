"""How does a node do its part of a round? With the pieces that the simulator trains its clients with."""

from __future__ import annotations

import json
import logging
from dataclasses import replace

import numpy as np
import torch
from flwr.app import Context, RecordDict

from ....algorithms.aggregate import Upload
from ....base.config import build
from ....base.errors import UserError
from ....data import Data, Inputs
from ....population.partition import Indices, Split
from ....runs.accountant import accountant_of
from ....runs.experiment import load_data, split_of, work_of
from ....runs.settings import Settings
from ....training.client_work import Work
from ....training.resources import keep_memory, one_thread
from ..node_config import DATA, PARTITION_ID
from ..options import read_run_config
from ..records import Malformed, Order, Reply, classes_record, read_order
from .client_states import StateStore, confirmed_state, state_store

log = logging.getLogger("flwr")


def answer(content: RecordDict, context: Context) -> RecordDict:
    """Train as asked and return the upload."""
    order = read_order(content)
    settings, _ = read_run_config(context.run_config)
    if settings.protect.secagg:
        raise UserError("This run masks its uploads (protect.secagg), and a plain one was asked for; it is not given.")
    upload, lost = trained(order, settings, context)
    return Reply(upload, order.round, fresh=lost).record()


def trained(order: Order, settings: Settings, context: Context) -> tuple[Upload, bool]:
    """The upload, and whether the client's state was gone; its next one is stored until the server used the upload."""
    store = state_store(context, order.run, order.client)
    within_budget(settings, store)
    state, lost = confirmed_state(store, order.state)
    if lost:
        log.warning("Client %s starts without a state: %s.", order.client, lost)
    keep_memory()
    with one_thread():
        work = own_work(settings, context, order)
        upload, after = work.train(work.make_net(), order.sent, order.client, order.round, state)
    if after:
        store.put(order.round, after)
    samples = len(work.split.indices(order.client))  # an upload need not say how many
    log.info("Client %s trained on %s samples in round %s.", order.client, samples, order.round)
    return upload, bool(lost)


def held_classes(content: RecordDict, context: Context) -> RecordDict:
    """Which classes this node will share, asked before a round in which prototypes of few holders stay with them."""
    order = read_order(content)
    settings, _ = read_run_config(context.run_config)
    if settings.protect.holders != "announced":
        raise UserError("This run does not announce classes (protect.holders); the node does not tell them.")
    shown = own_work(settings, context, order).shown_counts(order.client)
    return classes_record(order.client, order.round, (shown > 0).to(torch.int64))


def within_budget(settings: Settings, store: StateStore) -> None:
    """Count a noisy upload before it is made, or refuse it: a server that asks twice learns twice."""
    accountant = accountant_of(settings.protect)
    if accountant is None:
        return
    sent = store.uploads()
    if not accountant.allows(sent):
        raise UserError(
            f"One more noisy upload than the {sent} that this node sent would exceed "
            f"protect.budget={accountant.budget:g}; it does not take part any more."
        )
    store.count_upload()


def own_work(settings: Settings, context: Context, order: Order) -> Work:
    """What the simulator's workers know, with this node's samples in place of the others'."""
    try:
        inputs = build(Inputs, json.loads(order.inputs), "inputs")
    except (ValueError, TypeError, UserError) as error:
        raise Malformed(f"the order does not say how samples are normalised ({error})") from None
    data, own = _own_data(settings, context, order, inputs)
    labels = data.y_train.numpy()
    split = Split(settings.partition.clients, len(inputs.classes), labels, lambda client: own)
    return work_of(settings, data, split, noise="system")


def _own_data(settings: Settings, context: Context, order: Order, inputs: Inputs) -> tuple[Data, Indices]:
    """The data, and the positions of this node's samples in them."""
    part, path = context.node_config.get(PARTITION_ID), context.node_config.get(DATA)
    if isinstance(path, str) and part is None:
        data = matched_to_run(load_data(settings, log.info, path), inputs)
        return data, np.arange(len(data.y_train))
    if type(part) is not int or path is not None:
        raise UserError(f'The node\'s config must hold either {PARTITION_ID}=NUMBER or {DATA}="PATH".')
    if not 0 <= part < settings.partition.clients:
        raise UserError(f"{PARTITION_ID}={part}: there are {settings.partition.clients} parts, counted from 0.")
    data = load_data(settings, log.info)
    if data.digest != order.data:
        raise UserError(f"{settings.dataset} on this node holds other data than on the server; make them the same.")
    data, split = split_of(settings, data)
    return data, split.indices(part)


def matched_to_run(data: Data, inputs: Inputs) -> Data:
    """A device's own data under the run's class numbers and normalisation; named classes are matched by name."""
    if data.shape != inputs.shape or data.inputs.pixels != inputs.pixels:
        kinds = [f"{'images' if kind.pixels else 'numbers'} of shape {kind.shape}" for kind in (data.inputs, inputs)]
        raise UserError(f"{data.name} holds {kinds[0]}, the run learns from {kinds[1]}; make them alike.")
    own = inputs.classes[: len(data.classes)] if _unnamed(data.classes) else data.classes
    if unknown := sorted(set(own) - set(inputs.classes)) or data.classes[len(inputs.classes) :]:
        raise UserError(
            f"{data.name} holds the class {unknown[0]!r}, which the run does not know; rename or remove it."
        )
    numbers = torch.tensor([inputs.classes.index(name) for name in own])
    return replace(data, y_train=numbers[data.y_train], y_test=numbers[data.y_test], inputs=inputs)


def _unnamed(classes: tuple[str, ...]) -> bool:
    """Are these the numbers that classes without names have?"""
    return classes == tuple(map(str, range(len(classes))))
