"""`rebafl device-check`: does training on a graphics card give what the processor gives?"""

from __future__ import annotations

from typing import Annotated

import torch
import typer

from ..base.errors import UserError
from ..base.version import VERSION
from ..runs.device_check import FAR, check_device
from ..training.device import described, known_device, resolve
from .terminal import out, say, show_table


def device_check(
    device: Annotated[str, typer.Argument(help="cuda, cuda:N, mps, cpu, or auto.")] = "auto",
) -> None:
    """Compare short training on a device with the same on the processor, and print what to report.

    Nobody of this project has run it on a graphics card: your report would be the first.

    Example: `rebafl device-check cuda`
    """
    try:
        chosen = resolve(known_device(device))
    except ValueError as error:
        raise UserError(f"device-check {device!r}: {error}.") from None
    rows, good = [], True
    for parity in check_device(chosen):
        say(f"{parity.model}, {parity.algorithm}: {'as on the processor' if parity.good else 'DIFFERENT'}")
        good &= parity.good
        seconds = (f"{parity.cpu_seconds:.2f}", f"{parity.device_seconds:.2f}")
        rows.append((parity.model, parity.algorithm, f"{parity.apart:.1e}", f"{parity.accuracy:+.2f}", *seconds))
    show_table(("model", "algorithm", "apart", "accuracy", "s on cpu", f"s on {chosen}"), rows)
    out.print(
        f"{'All' if good else 'NOT all'} changes are within {FAR:.0%} of each other. To report: this table, rebafl "
        f"{VERSION}, torch {torch.__version__}, {described(chosen)}."
    )
    if not good:
        raise typer.Exit(1)
