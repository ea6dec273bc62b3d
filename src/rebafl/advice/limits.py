"""Which methods can a user not take? What a setting rules out, by what each algorithm declares of itself."""

from __future__ import annotations

from dataclasses import replace

from ..algorithms.interface import Algorithm, Server, Task
from ..models.choice import ModelChoice, make_net
from ..models.contract import weights_of
from ..runs.experiment import undefended, wrong_optimizer
from ..runs.settings import Settings
from ..training.claims import uncovered
from .measured import Condition, Entry

CLASSES, FEATURES = 10, 128


def shared_by(algorithm: Algorithm) -> set[str]:
    """What an upload holds besides the weights and class counts, by name."""
    net = make_net(ModelChoice(kind="mlp"), (1, 4, 4), CLASSES, seed=0)
    state = algorithm.server_state(net, Task(CLASSES, FEATURES, 20))
    return set(algorithm.shared_template(Server(weights_of(net), state)))


def shared_in_words(algorithm: Algorithm) -> str:
    shared = shared_by(algorithm)
    own = {name for name in shared if "." not in name}  # the others are those of the model's weights
    return ", ".join([*sorted(own), *(["one more number for each weight"] if shared - own else [])]) or "nothing"


def limits_in_words(algorithm: Algorithm) -> str:
    """What cannot be had together with a method, and what it needs, or ''."""
    bare = algorithm.unprotected()
    limits = [f"no protection but secure aggregation covers {' and '.join(bare)}"] if bare else []
    limits += ["no robust rule, no secure aggregation"] if algorithm.needs_each_upload() else []
    return "; ".join(filter(None, [*limits, no_competitor(algorithm)]))


def is_ours(algorithm: Algorithm) -> bool:
    """Whether a method is of no paper but of this project."""
    return not algorithm.paper and not no_competitor(algorithm)


def no_competitor(algorithm: Algorithm) -> str:
    """Why a method is measured as a mark beside the others only, or ''."""
    if images := algorithm.server_samples():
        return f"it needs {images} images of each class at the server"
    if algorithm.pooled or type(algorithm).scored is not Algorithm.scored:
        return "it is no federation"
    return ""


def competing(condition: Condition) -> list[Entry]:
    return [entry for entry in condition.entries if not no_competitor(entry.algorithm)]


def keeps_state(algorithm: Algorithm) -> bool:
    return algorithm.costs.state != "none"


def ruled_out(algorithm: Algorithm, settings: Settings, no_state: bool = False) -> str:
    """Why this method cannot be had with these settings, or ''."""
    if no_state and keeps_state(algorithm):
        return f"clients keep {algorithm.costs.state}"
    settings = replace(settings, algorithm=algorithm)
    protect = settings.protect
    if protect.secagg and algorithm.needs_each_upload():
        return "its server must see each upload, and with protect.secagg only their sum is known"
    return wrong_optimizer(settings) or undefended(settings) or uncovered(algorithm, protect, shared_by(algorithm))
