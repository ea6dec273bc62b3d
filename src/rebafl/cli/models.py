"""`rebafl export` and `predict`: how is a trained model used elsewhere, and what does it predict for an image?"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from ..data import image_size
from ..runs import export as trained
from .terminal import AsJson, RunDir, TrustCode, out, say, show_table
from .words import parse_numbers

Best = Annotated[bool, typer.Option("--best", help="Of the best round on the validation part, not of the last.")]


def export(
    run: RunDir,
    to: Annotated[Path | None, typer.Option("--to", help="Folder; default: RUN/export, RUN/export-best.")] = None,
    onnx: Annotated[bool, typer.Option("--onnx", help="Also write model.onnx.")] = False,
    best: Best = False,
    trust_code: TrustCode = False,
) -> None:
    """Write the trained model: safetensors, a description, a few lines that load it, and ONNX if asked.

    Example: `rebafl export runs/a --onnx`
    """
    model = trained.model_of_run(run, trust_code=trust_code, best=best)
    for path in trained.export_model(model, to or run / ("export-best" if best else "export"), onnx):
        out.print(Text(str(path)), soft_wrap=True)
    if ":" in (own := model.choice.kind):
        say(f"No code is exported: where the model is loaded, the module of {own} must be importable.")


def predict(
    run: RunDir,
    images: Annotated[list[Path], typer.Argument(metavar="IMAGES…", help="Image files.")],
    prior: Annotated[str, typer.Option(help="Known class frequencies where the model is used, such as 0.5,0.1,…")] = "",
    trained_prior: Annotated[str, typer.Option(help="Frequencies it was trained under; default: uniform.")] = "",
    trust_code: TrustCode = False,
    as_json: AsJson = False,
) -> None:
    """Ask the trained model of a run, or an exported folder, about images.

    Example: `rebafl predict runs/a shoe.png shirt.png --prior 0.3,0.1,0.1,0.1,0.1,0.1,0.05,0.05,0.05,0.05`
    """
    open_model = trained.load_model if (run / trained.DESCRIPTION).exists() else trained.model_of_run
    model = open_model(run, trust_code=trust_code)
    rows = trained.predict(
        model, images, parse_numbers(prior, "--prior"), parse_numbers(trained_prior, "--trained-prior")
    ).tolist()
    if as_json:
        named = [dict(zip(model.classes, row, strict=True)) for row in rows]
        print(json.dumps([{"image": str(i), "probabilities": n} for i, n in zip(images, named, strict=True)]))
        return
    for image in images:
        _note_resize(image, model.inputs.shape)
    answers = [(str(image), *_ranked(row, model.classes)) for image, row in zip(images, rows, strict=True)]
    show_table(("image", "class", "probability", "next"), answers)


def _ranked(probabilities: Sequence[float], classes: Sequence[str]) -> tuple[str, str, str]:
    """The likeliest class, its probability, and the next two with theirs."""
    (highest, name), *others = sorted(zip(probabilities, classes, strict=True), reverse=True)
    return name, f"{highest:.1%}", ", ".join(f"{other} {probability:.1%}" for probability, other in others[:2])


def _note_resize(path: Path, shape: tuple[int, ...]) -> None:
    width, height = image_size(path)
    if (height, width) != shape[1:]:
        say(f"{path}: {width}x{height} resized to {shape[2]}x{shape[1]}.")
