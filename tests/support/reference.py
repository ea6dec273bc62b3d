"""What the paper says, written down a second time, as plainly as it can be. Nothing of the package is used here."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor

C = 10  # classes


LR, MOMENTUM, WEIGHT_DECAY = 0.01, 0.5, 5e-4  # docs/decisions.md, question 5


EPS, MU = 0.01, 0.1


Weights = dict[str, Tensor]


Prototypes = dict[int, Tensor]  # a class without a prototype has no key


Features = Callable[[Weights, Tensor], Tensor]


def conv_block(x: Tensor, weight: Tensor, bias: Tensor, padding: int) -> Tensor:
    return F.max_pool2d(F.leaky_relu(F.conv2d(x, weight, bias, padding=padding), 0.01), 2)


def fashion_features(w: Weights, x: Tensor) -> Tensor:
    """1x28x28 -> 16x24x24 -> 16x12x12 -> 32x10x10 -> 32x5x5 = 800 -> 128, with the activation."""
    x = conv_block(x, w["conv1.weight"], w["conv1.bias"], 0)
    x = conv_block(x, w["conv2.weight"], w["conv2.bias"], 1)
    return F.leaky_relu(x.reshape(len(x), 800) @ w["hidden.weight"].T + w["hidden.bias"], 0.01)


def cifar_features(w: Weights, x: Tensor) -> Tensor:
    """3x32x32 -> 16x28x28 -> 16x14x14 -> 32x12x12 -> 32x6x6 -> 64x6x6 -> 64x3x3 = 576 -> 128, linear."""
    x = conv_block(x, w["conv1.weight"], w["conv1.bias"], 0)
    x = conv_block(x, w["conv2.weight"], w["conv2.bias"], 1)
    x = conv_block(x, w["conv3.weight"], w["conv3.bias"], 1)
    return x.reshape(len(x), 576) @ w["hidden.weight"].T + w["hidden.bias"]


def head(w: Weights, h: Tensor) -> Tensor:
    z = h @ w["head.weight"].T
    return z + w["head.bias"] if "head.bias" in w else z


def cross_entropy(z: Tensor, y: Tensor) -> Tensor:
    """-1/n Σ_j log(e^z[y_j] / Σ_c e^z[c])."""
    e = torch.exp(z)
    q = e / e.sum(1, keepdim=True)
    return -torch.log(q[range(len(y)), y]).sum() / len(y)


def cross_entropy_with_prior(z: Tensor, y: Tensor, p: list[float]) -> Tensor:
    """-1/n Σ_j log(p[y_j] e^z[y_j] / Σ_c p[c] e^z[c])."""
    e = torch.tensor(p, dtype=z.dtype) * torch.exp(z)
    q = e / e.sum(1, keepdim=True)
    return -torch.log(q[range(len(y)), y]).sum() / len(y)


def smoothed_prior(labels: Tensor, eps: float) -> list[float]:
    """p̂(c) = (1 - ε) n_c / n + ε / C."""
    return [(1 - eps) * sum(int(y) == c for y in labels) / len(labels) + eps / C for c in range(C)]


def class_means(h: Tensor, y: Tensor) -> Prototypes:
    means: Prototypes = {}
    for c in range(C):
        rows = [h[j] for j in range(len(y)) if int(y[j]) == c]
        if rows:
            means[c] = sum(rows[1:], rows[0]) / len(rows)
    return means


@dataclass
class Client:
    """A client's images and labels; `orders(round)` are the batches of that round, as positions."""

    x: Tensor
    y: Tensor
    orders: Callable[[int], list[list[int]]]
    eps: float = EPS

    def count(self, c: int) -> int:
        return sum(int(y) == c for y in self.y)


def sgd(w: Weights, batches: list[list[int]], objective: Callable[[Weights, list[int]], Tensor], lr: float) -> Weights:
    """d = g + wd w; v = m v + d, at first v = d; w = w - lr v."""
    w, velocity = dict(w), Weights()
    for batch in batches:
        leaves = {name: tensor.clone().requires_grad_() for name, tensor in w.items()}
        gradients = torch.autograd.grad(objective(leaves, batch), list(leaves.values()))
        for name, gradient in zip(leaves, gradients, strict=True):
            d = gradient + WEIGHT_DECAY * w[name]
            velocity[name] = MOMENTUM * velocity[name] + d if name in velocity else d
            w[name] = w[name] - lr * velocity[name]
    return w


def local_fedavg(features: Features, w: Weights, client: Client, round: int, lr: float) -> Weights:
    def objective(now: Weights, batch: list[int]) -> Tensor:
        return cross_entropy(head(now, features(now, client.x[batch])), client.y[batch])

    return sgd(w, client.orders(round), objective, lr)


def local_bsm(features: Features, w: Weights, client: Client, round: int, lr: float) -> Weights:
    prior = [client.count(c) / len(client.y) for c in range(C)]

    def objective(now: Weights, batch: list[int]) -> Tensor:
        return cross_entropy_with_prior(head(now, features(now, client.x[batch])), client.y[batch], prior)

    return sgd(w, client.orders(round), objective, lr)


def local_rebafl(
    features: Features, w: Weights, received: Prototypes, client: Client, round: int, lr: float, mu: float
) -> tuple[Weights, Prototypes]:
    """The paper's LocalTraining: the local model and its prototypes."""
    prototypes = {**received, **class_means(features(w, client.x), client.y)}  # own classes: received extractor
    available = sorted(prototypes)
    prior = smoothed_prior(client.y, client.eps)

    def objective(now: Weights, batch: list[int]) -> Tensor:
        h, y = features(now, client.x[batch]), client.y[batch]
        targets = torch.tensor([available[j % len(available)] for j in range(len(batch))])
        moved = [prototypes[int(targets[j])] + (h[j].detach() - prototypes[int(y[j])]) for j in range(len(batch))]
        own = cross_entropy_with_prior(head(now, h), y, prior)
        augmented_prior = smoothed_prior(targets, client.eps)
        return own + mu * cross_entropy_with_prior(head(now, torch.stack(moved)), targets, augmented_prior)

    local = sgd(w, client.orders(round), objective, lr)
    return local, class_means(features(local, client.x), client.y)  # uploaded: own extractor


def average_models(w: Weights, locals_: list[Weights], sizes: list[int]) -> Weights:
    """w + Σ_i n_i / Σ n_i (w_i - w)."""
    pairs = list(zip(locals_, sizes, strict=True))
    return {k: w[k] + sum(n / sum(sizes) * (local[k] - w[k]) for local, n in pairs) for k in w}


def average_prototypes(tables: list[Prototypes], clients: list[Client]) -> Prototypes:
    """p[c] = Σ_i n_ic p_i[c] / Σ_i n_ic; no entry where nobody holds c."""
    mean: Prototypes = {}
    for c in range(C):
        held = [(client.count(c), table[c]) for table, client in zip(tables, clients, strict=True) if c in table]
        if held:
            first, *rest = [n * p for n, p in held]
            mean[c] = sum(rest, first) / sum(n for n, _ in held)
    return mean


def weight_diversity(locals_: list[Weights]) -> float:
    """Λ = 1/|S| Σ_i ||w_i - w̄||², w̄ the average of the local models."""
    flat = [torch.cat([tensor.reshape(-1) for tensor in local.values()]).double() for local in locals_]
    centre = sum(flat) / len(flat)
    return float(sum(((each - centre) ** 2).sum() for each in flat) / len(flat))


@dataclass
class Judged:
    """A model on the test set, by class: hits, samples, and samples whose best two logits differ by very little."""

    hits: list[int]
    samples: list[int]
    undecided: list[int]
    loss: float


def judge(features: Features, w: Weights, x: Tensor, y: Tensor) -> Judged:
    z = torch.cat([head(w, features(w, part)) for part in x.split(50)])
    judged = Judged([0] * C, [0] * C, [0] * C, float(cross_entropy(z, y)))
    for logits, label in zip(z.tolist(), y.tolist(), strict=True):
        best, second = sorted(logits, reverse=True)[:2]
        judged.samples[label] += 1
        judged.hits[label] += logits[label] == best
        judged.undecided[label] += best - second < 1e-2
    return judged


@dataclass
class Round:
    """What the reference's server holds after a round, and what can be said of that round."""

    weights: Weights
    prototypes: Prototypes
    diversity: float
    targets: dict[int, list[int]] = field(default_factory=dict)  # what each client could augment


def federate(
    kind: str, features: Features, w: Weights, clients: list[Client], active: list[Sequence[int]], lr: float, mu: float
) -> list[Round]:
    """The server's loop; round t is active[t - 1]."""
    prototypes: Prototypes = {}
    history = []
    for round, who in enumerate(active, start=1):
        here = [clients[i] for i in who]
        targets = {i: sorted({*prototypes, *clients[i].y.tolist()}) for i in who}
        if kind == "fedavg":
            locals_ = [local_fedavg(features, w, client, round, lr) for client in here]
        elif kind == "bsm-fedavg":
            locals_ = [local_bsm(features, w, client, round, lr) for client in here]
        else:
            results = [local_rebafl(features, w, prototypes, client, round, lr, mu) for client in here]
            locals_ = [local for local, _ in results]
            prototypes = average_prototypes([table for _, table in results], here)
        w = average_models(w, locals_, [len(client.y) for client in here])
        history.append(Round(w, prototypes, weight_diversity(locals_), targets))
    return history
