"""How does a person read reconstructions? As a figure like the paper's, and a table of what they are like."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .html import interval, table

WORDS = (
    "<h2>Reconstruction of images</h2><p>Each column is one client's class. Below an original and the mean of public "
    "images: what each attack of the server makes of the original's own feature (k = 1), of means of k of the client's "
    "images, and of the prototype that was sent.</p>"
)
MEANING = (
    "<p>SSIM and PSNR are those of the nearest of the k members. Beside it: the nearest of as many non-members, since "
    "something is always near when there are many, and the mean of public images, which needs no attack. Identified: "
    "one member and 99 non-members of the class, by pixels and by the features of a classifier of its own seed; "
    "guessing gives .010. Nearer: to a member than to any of as many non-members; guessing gives .5. Controls: fake "
    "members in the place of members, and another mean's reconstruction (by pixels / by features / nearer). <b>That "
    "pictures fail at some k does not make this k safe</b>: tracing needs no picture.</p>"
)
NAMES = (
    "attack", "attacker", "features", "round", "what", "k", "SSIM", "nearest of non-members", "mean of public images",
    "PSNR", "identified by pixels", "by features", "nearer", "fake members", "permuted", "verdict",
)  # fmt: skip


def pictures_section(part: Mapping[str, Any] | None) -> str:
    if not part:
        return ""
    shown = f'<img alt="originals and reconstructions" src="data:image/png;base64,{part["figure"]}">'
    kept = f"<p>All reconstructions and line-ups: {part['file']}.</p>" if part["file"] else ""
    return WORDS + shown + MEANING + table(NAMES, map(_row, part["rows"])) + kept


def _row(row: Mapping[str, Any]) -> tuple[object, ...]:
    return (
        row["attack"], row["attacker"], row["depth"], row["round"], row["what"], row["k"], interval(row["ssim"]),
        _plain(row["ssim_others"]), _plain(row["ssim_class_mean"]), _plain(row["psnr"], 1),
        interval(row["identified_pixels"]), interval(row["identified_features"]), interval(row["identified_nearest"]),
        _both(row, "fakes"), _both(row, "permuted"), row["verdict"],
    )  # fmt: skip


def _plain(value: Mapping[str, Any], digits: int = 3) -> str:
    return f"{value['value']:.{digits}f}" if value["units"] else "–"


def _both(row: Mapping[str, Any], name: str) -> str:
    """By each way of comparing."""
    return " / ".join(_plain(row[f"{name}_{way}"]) for way in ("pixels", "features", "nearest"))
