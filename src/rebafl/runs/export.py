"""How does the trained model get out and answer questions?

`export_model` writes the weights as safetensors with a description, and optionally as ONNX with the
normalisation inside; `load_model` reads such a folder, `model_of_run` a run directory; `predict` gives
probabilities, corrected for known class frequencies if wanted.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import safetensors.torch
import torch
from torch import Tensor, nn

from ..algorithms.aggregate import mismatch
from ..base.config import build, plain
from ..base.errors import UserError
from ..base.files import ASIDE, sha256, write_whole
from ..base.kinds import importing_only_if
from ..base.reading import read_bytes
from ..base.sealed import seal, unseal
from ..base.tensors import Tensors
from ..base.words import one_line
from ..data import Inputs, read_image
from ..models.choice import KINDS as MODELS
from ..models.choice import Factory, ModelChoice, make_net
from ..models.contract import Classifier, evaluating, load_weights, weights_of
from .record import open_run
from .settings import complete, stored_settings
from .simulate import OWN_MODEL, trained_weights

DIGEST = "weights_sha256"
WEIGHTS, DESCRIPTION, ONNX, LOADER = "model.safetensors", "model.json", "model.onnx", "load_model.py"

LOADER_TEXT = '''"""Load the model beside this file and ask it about an image."""

from pathlib import Path

from rebafl import load_model, predict

model = load_model(Path(__file__).parent)
# predict(model, [Path("image.png")]) gives one row of class probabilities an image
print(model.classes)
'''

LOADER_OF_OWN_CODE = '''"""Load the model beside this file and ask it about an image.

What makes the model is not in this folder: the module MODULE must be in the current folder or on PYTHONPATH.
"""

import sys
from pathlib import Path

from rebafl import UserError, load_model, predict

try:
    model = load_model(Path(__file__).parent, trust_code=True)
except UserError as error:
    sys.exit(f"Error: {error}")
# predict(model, [Path("image.png")]) gives one row of class probabilities an image
print(model.classes)
'''


@dataclass(frozen=True)
class Model:
    """A trained model with what is needed to use it."""

    net: Classifier
    choice: ModelChoice
    inputs: Inputs

    @property
    def classes(self) -> tuple[str, ...]:
        return self.inputs.classes

    def logits(self, raw: Tensor) -> Tensor:
        """Raw samples, stored as in the data set (channels last), to logits."""
        with evaluating(self.net):
            out: Tensor = self.net(self.inputs(raw))
        return out


def model_of_run(path: str | Path, model: Factory | None = None, trust_code: bool = False, best: bool = False) -> Model:
    """The model of a run as its last committed round left it; `model` if the run was given one from Python.

    `best` asks for that of the round which is best on the validation part, if the run holds one out.
    `trust_code` is the user's word that what the run's settings name, `module:Class`, may be imported, and so run.
    """
    with importing_only_if(trust_code, path):
        return _model_of_run(Path(path), model, best)


def _model_of_run(path: Path, model: Factory | None, best: bool) -> Model:
    record = open_run(path)
    settings, facts = stored_settings(record.config()), record.environment()
    if facts.get("settings_sha256") != settings.digest:
        raise UserError(f"{path}: its config.toml, or a file that it names, was changed; restore it.")
    if settings.model.kind == OWN_MODEL and model is None:
        raise UserError(
            f"{path} was run with a model from Python; use rebafl.model_of_run({str(path)!r}, MyNet) there."
        )
    if not record.rounds():
        raise UserError(f"{path} has no finished round yet, so there is no model.")
    trained = _assemble(settings.model, facts.get("inputs"), trained_weights(record, settings, best), path, model)
    return replace(trained, choice=replace(settings.model, kind=importable_as(model))) if model else trained


def importable_as(factory: Factory) -> str:
    """The address under which what makes a model can be imported elsewhere, too; the word for none if it cannot."""
    module, name = getattr(factory, "__module__", ""), getattr(factory, "__qualname__", "")
    found = module != "__main__" and getattr(sys.modules.get(module), name, None) is factory
    return f"{module}:{name}" if found else OWN_MODEL


def _assemble(
    choice: ModelChoice, inputs: object, weights: Tensors, where: Path, model: Factory | None = None
) -> Model:
    if not isinstance(inputs, dict):
        raise UserError(f"{where} does not say what its model's inputs are.")
    facts = build(Inputs, inputs, "inputs")
    net = make_net(choice, facts.shape, len(facts.classes), 0, model)
    if reason := mismatch(weights, weights_of(net)):
        raise UserError(f"{where} holds weights that do not fit its model ({reason}).")
    load_weights(net, weights)
    return Model(net, choice, facts)


def export_model(model: Model, folder: str | Path, onnx: bool = False) -> list[Path]:
    """Write the model into a folder of its own; the files written."""
    folder = Path(folder)
    if onnx and not all(importlib.util.find_spec(name) for name in ("onnx", "onnxscript")):
        raise UserError("ONNX export needs two more packages; install them with: pip install onnx onnxscript.")
    weights = safetensors.torch.save({k: v.contiguous() for k, v in weights_of(model.net).items()})
    facts = {"model": plain(model.choice), "inputs": plain(model.inputs), DIGEST: sha256(weights)}
    files = {WEIGHTS: weights, DESCRIPTION: seal(json.dumps(facts, indent=1)), LOADER: _loader(model).encode()}
    try:
        names = {path.name.removesuffix(ASIDE) for path in folder.iterdir()} if folder.exists() else set()
        if others := names - {*files, ONNX, "__pycache__"}:
            raise UserError(f"{folder} holds other things, such as {min(others)}; choose another folder.")
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            write_whole(folder / name, content)
        (folder / ONNX).unlink(missing_ok=True)
    except OSError as error:
        raise UserError(f"{folder} cannot be written ({error.strerror}).") from None
    if onnx:
        _export_onnx(model, folder / ONNX)
    return [folder / name for name in (*files, ONNX) if (folder / name).exists()]


def _loader(model: Model) -> str:
    """Whoever runs the loader of a folder trusts the folder already. Own code is not exported, and must be found."""
    module, colon, _ = model.choice.kind.partition(":")
    return LOADER_OF_OWN_CODE.replace("MODULE", module) if colon else LOADER_TEXT


def load_model(folder: str | Path, trust_code: bool = False, model: Factory | None = None) -> Model:
    """A model from a folder that `export_model` wrote; one without digests was written by an earlier version.

    `trust_code` is the user's word that code which the folder names, `module:callable`, may be imported, and so run;
    `model` is what makes an own one, in place of that.
    """
    with importing_only_if(trust_code, folder):
        return _load_model(Path(folder), model)


def _load_model(folder: Path, model: Factory | None) -> Model:
    try:
        description, sealed = unseal(read_bytes(folder / DESCRIPTION))
        if unknown := description.keys() - ({"model", "inputs", DIGEST} if sealed else {"model", "inputs"}):
            raise ValueError(f"it says {min(unknown)!r}, which nobody asked for")
    except (OSError, ValueError) as error:
        raise _damaged(folder / DESCRIPTION, error) from None
    try:
        data = read_bytes(folder / WEIGHTS)
        if sealed and sha256(data) != description[DIGEST]:
            raise ValueError(f"its SHA-256 is not the one that {DESCRIPTION} records")
        weights = safetensors.torch.load(data)
    except (OSError, ValueError, KeyError, safetensors.SafetensorError) as error:
        raise _damaged(folder / WEIGHTS, error) from None
    try:
        choice = build(ModelChoice, complete({"model": dict(description["model"])})["model"], "model")
        if model is None:
            _need_own_code(choice.kind, folder)
        return _assemble(choice, description["inputs"], weights, folder, model)
    except (ValueError, KeyError, TypeError) as error:
        raise _damaged(folder / DESCRIPTION, error) from None


def _need_own_code(kind: str, folder: Path) -> None:
    """If what makes the model is no part of this package, it must be found, or given."""
    give = f"rebafl.load_model({str(folder)!r}, model=MyNet)"
    if kind == OWN_MODEL:
        raise UserError(
            f"{folder} holds a model that was defined in a script or a notebook; give what makes it: {give}."
        )
    if ":" not in kind:
        return
    try:
        MODELS.find(kind)
    except UserError as error:
        if not isinstance(error.__cause__, Exception):
            raise
        raise UserError(
            f"{folder} holds the model {kind}, and that cannot be imported here ({one_line(error.__cause__)}): put the "
            f"module {kind.partition(':')[0]} into the current folder or on PYTHONPATH, or give what makes it: {give}."
        ) from None


def _damaged(path: Path, reason: object) -> UserError:
    return UserError(
        f"{path.parent} does not hold an exported model ({path.name}: {reason}); "
        f"export the run again: rebafl export RUN --to {path.parent}."
    )


class _Deployed(nn.Module):
    """Inputs as they were stored, pixels from 0 to 255, but (n, channels, height, width), to class probabilities."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.net, self.inputs = model.net, model.inputs

    def forward(self, pixels: Tensor) -> Tensor:
        rows = pixels.permute(0, 2, 3, 1) if pixels.dim() == 4 else pixels
        logits: Tensor = self.net(self.inputs(rows))
        return logits.softmax(1)


def _export_onnx(model: Model, path: Path) -> None:
    example = torch.zeros(2, *model.inputs.shape)
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # it warns of packages that are not needed
    with warnings.catch_warnings(), evaluating(model.net):
        warnings.simplefilter("ignore")  # the exporter's own deprecations are not the user's concern
        torch.onnx.export(
            _Deployed(model).eval(),
            (example,),
            str(path),
            input_names=["pixels"],
            output_names=["probabilities"],
            dynamic_shapes={"pixels": {0: torch.export.Dim("n")}},
            dynamo=True,
            external_data=False,
            verbose=False,
        )


def predict(
    model: Model,
    images: Sequence[str | Path],
    prior: Sequence[float] | None = None,
    trained: Sequence[float] | None = None,
) -> Tensor:
    """A row of class probabilities for each image file."""
    if len(model.inputs.shape) != 3 or not model.inputs.pixels:
        raise UserError(
            "This model was trained on arrays of numbers, not on image files; use its logits() from Python."
        )
    if isinstance(images, (str, Path)) or not all(isinstance(path, (str, Path)) for path in images):
        raise UserError("predict() takes a list of image files; for arrays there is the model's logits().")
    pixels = np.stack([read_image(Path(path), model.inputs.shape) for path in images])
    return corrected(model.logits(torch.from_numpy(pixels)), prior, trained)


def corrected(logits: Tensor, prior: Sequence[float] | None, trained: Sequence[float] | None = None) -> Tensor:
    """P(y|x) P_t(y) / P_s(y), normalised: the paper's Bayes decision for known class frequencies P_t.

    `trained` is P_s, the frequencies the softmax was trained under: uniform unless given, which is what
    balanced training aims at.
    """
    logits = logits.to(torch.float64)
    if prior is not None:
        logits = logits + _frequencies(prior, logits.shape[1], "prior").log()
    if trained is not None:
        logits = logits - _frequencies(trained, logits.shape[1], "trained prior").log()
    return logits.softmax(1)


def _frequencies(values: Sequence[float], classes: int, name: str) -> Tensor:
    frequencies = torch.tensor(list(values), dtype=torch.float64)
    low = frequencies.min().item() if len(frequencies) else -1
    if len(frequencies) != classes or not frequencies.isfinite().all() or low < 0 or frequencies.sum() <= 0:
        raise UserError(f"The {name} needs {classes} numbers from 0 up that are not all 0, one for each class.")
    if name == "trained prior" and low == 0:
        raise UserError("The trained prior must be above 0 for each class.")
    return frequencies / frequencies.sum()
