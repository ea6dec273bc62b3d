"""How does a person read an audit? As one HTML page that needs nothing else: verdicts, a curve, tables."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from .html import STYLE, bullets, facts_table, interval, table
from .pictures_page import pictures_section

COLOURS = ("#0b5fa5", "#c8501e", "#4b8b3b", "#7b4ea3", "#8a6d1a", "#b0306a", "#30807f", "#555555")
DASHES = {"server": "", "client": "6 4"}
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 380, 60, 200, 20, 50


def page(result: Mapping[str, Any]) -> str:
    what = result["what"]
    parts = [
        f"<h1>Privacy audit of {escape(str(what['run']))}</h1>",
        "<p>Each attack ends in one of three words. <b>Leaks</b>: it tells members from others, and its negative "
        "control does not. <b>No leak found</b>: it does not, although its positive control shows that it could. "
        "<b>Too weak to tell</b>: a control failed, or there was too little data; nothing follows.</p>",
        _verdicts(result["verdicts"]),
        _risk(result.get("risk")),
        "<h2>Tracing: leakage against k</h2><p>Means of k of a client's own images of one class. Full lines: the "
        "server, who knows the client's model; dashed: a client, who trains a similar one; black: Φ(√(d/2k)) for "
        f"d = {what['features']} independent Gaussian features. Bars are 95% intervals over clients.</p>",
        _chart(result["curves"]),
        _curves(result["curves"]),
        "<h3>Means that were sent</h3>",
        table(
            ("attacker", "what", "round", "k", "AUC", "TPR", "fake members", "permuted", "verdict"),
            (
                (r["attacker"], r["what"], r["round"], r["k"], *map(interval, _four(r)), r["verdict"])
                for r in result["sent"]
            ),
        ),
        "<h3>The same code on synthetic Gaussian features</h3>",
        table(
            ("dimensions", "k", "AUC", "known answer"),
            ((r["dimensions"], r["k"], interval(r["auc"]), f"{r['theory']:.3f}") for r in result["synthetic"]),
        ),
        pictures_section(result.get("inversion")),
        _exposure(result.get("exposure")),
    ]
    if result["linking"]:
        parts.append("<h2>Linking shuffled uploads across rounds</h2>")
        rows = ((r["way"], *_controls(r), f"{r['chance']:.3f}", r["verdict"]) for r in result["linking"])
        parts.append(table(("by", "found again", "positive control", "negative control", "guessing", "verdict"), rows))
    if result["membership"]:
        parts.append(
            "<h2>Membership inference from the change of the weights</h2><p>Simple scores, not LiRA: a stronger attack "
            "may find more. What FedAvg gives away anyway, for comparison.</p>"
        )
        some = (
            (r["attacker"], r["way"], *_controls(r), interval(r["tpr"]), r["verdict"]) for r in result["membership"]
        )
        names = ("attacker", "by", "AUC", "overfitted control", "fake members", "TPR", "verdict")
        parts.append(table(names, some))
    if result.get("counts"):
        parts.append("<h2>Class counts</h2>" + facts_table(result["counts"]))
    parts.append("<h2>What was audited</h2>" + facts_table(what))
    parts.append("<h2>What was not</h2>" + bullets(result["missing"]))
    body = "\n".join(parts)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Privacy audit</title>'
        f"<style>{STYLE}</style></head><body>\n{body}\n</body></html>\n"
    )


def _four(row: Mapping[str, Any]) -> list[Any]:
    return [row["auc"], row["tpr"], row["fakes"], row["permuted"]]


def _controls(row: Mapping[str, Any]) -> list[str]:
    return [interval(row[name]) for name in ("result", "positive", "negative")]


def _verdicts(verdicts: Sequence[Mapping[str, Any]]) -> str:
    rows = ((v["attack"], v["attacker"], v["word"], v["reason"]) for v in verdicts)
    return "<h2>Verdicts</h2>" + table(("attack", "who is curious", "verdict", "why"), rows)


def risk_sentences(risk: Mapping[str, Any]) -> list[str]:
    """The answer to a stated risk, in words."""
    asked = f"tpr={risk['tpr']:g} at fpr={risk['fpr']:g}"
    seen = risk["k_seen_kept"]
    said = [
        f"For {asked}, a mean needs k ≥ {risk['k']} images by {risk['k_by']} (theory for independent features: "
        f"{risk['k_theory']}); "
        + (
            f"of the k that were tried, {seen} and more keep it."
            if seen
            else "no k that was tried keeps it for certain."
        ),
    ]
    if risk.get("holders"):
        said.append(
            f"With {risk['typical_images_per_class']:g} images per class and client, that is {risk['holders']} holders "
            "of a class in a broadcast, one of whom may be the curious one."
        )
    if "noise_one_round" in risk:
        said.append(
            f"Or Gaussian noise on class sum and count together, of {risk['noise_one_round']:.2f} times the most that "
            f"one image can change both for one upload, {risk['noise_all_rounds']:.1f} times for "
            f"{risk['most_participations']} of the same client: then no attack on the prototypes alone does better."
        )
        for name, whom in (("rounds_broken_for_server", "the server"), ("rounds_broken_for_clients", "other clients")):
            said.append(f"Rounds of this run that broke it towards {whom}: {_ranges(risk[name]) or 'none'}.")
        weaker = risk["k_for_clients"]
        said.append(
            "Towards clients this assumes that they trace as well as the server does; "
            + (
                f"the client that was tried here needs means of fewer than {weaker} images."
                if weaker
                else "they know less."
            )
        )
        said.append(
            "Rounds add up: k is for the audited rounds together, and more rounds of the same images need more."
        )
    if "classes_that_would_break_it" in risk:
        broken = ", ".join(risk["classes_that_would_break_it"]) or "none"
        said.append(f"Classes of these data whose mean would break it: {broken}.")
        if risk["holders_alike"]:
            few = ", ".join(f"{name} {holders}" for name, holders in risk["holders_alike"].items())
            said.append(
                "Holders with as many images that a broadcast would need, one of whom may be the curious one: "
                + few
                + "."
            )
        if risk["min_holders"] < 2:
            said.append(
                "A round in which no other client that answers holds one of these classes broadcasts this client's own "
                "mean of it, with its count; protect.min_holders hides such classes, and this run does not set it."
            )
        noises = ", ".join(f"{noise:.2f} for {uploads}" for uploads, noise in risk["noise_for_uploads"].items())
        said.append(f"Or protect.noise, by the number of uploads: {noises}; then no attack on prototypes does better.")
    return said


def _ranges(rounds: Sequence[int]) -> str:
    """`1-3, 7`."""
    spans: list[list[int]] = []
    for number in rounds:
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in spans)


def _risk(risk: Mapping[str, Any] | None) -> str:
    return "<h2>The stated risk</h2>" + bullets(risk_sentences(risk)) if risk else ""


def _curves(curves: Sequence[Mapping[str, Any]]) -> str:
    rows = (
        (
            c["attacker"], c["round"], p["k"], *map(interval, _four(p)), f"{p['theory_auc']:.3f}",
            f"{p['theory_tpr']:.3f}", p["means"],
        )
        for c in curves
        for p in c["points"]
    )  # fmt: skip
    names = (
        "attacker", "round", "k", "AUC", "TPR", "fake members", "permuted", "AUC in theory", "TPR in theory", "means"
    )  # fmt: skip
    return table(names, rows)


def _exposure(facts: Mapping[str, Any] | None) -> str:
    if not facts:
        return ""
    shown = {name: value for name, value in facts.items() if name != "events"}
    events = facts["events"]
    rows = (
        (e["round"], e["label"], e["client"], e["count"], e["by"], ", ".join(map(str, e["to"]))) for e in events[:200]
    )
    more = f"<p>… and {len(events) - 200} more, all in the JSON file.</p>" if len(events) > 200 else ""
    return (
        "<h2>Whose prototypes each round handed to whom</h2>"
        + facts_table(shown)
        + table(("round", "class", "client", "images", "by", "to clients"), rows)
        + more
    )


def _chart(curves: Sequence[Mapping[str, Any]]) -> str:
    """AUC against k, k on a logarithmic axis."""
    ks = sorted({p["k"] for c in curves for p in c["points"]})
    if len(ks) < 2:
        return ""
    low, high = math.log(ks[0]), math.log(ks[-1])

    def x(k: float) -> float:
        return LEFT + (math.log(k) - low) / (high - low) * (WIDTH - LEFT - RIGHT)

    def y(auc: float) -> float:
        return TOP + (1 - min(max(auc, 0.45), 1.0)) / 0.55 * (HEIGHT - TOP - BOTTOM)

    def line(points: Iterable[tuple[float, float]], colour: str, dash: str, width: float = 1.8) -> str:
        path = " ".join(f"{x(k):.1f},{y(v):.1f}" for k, v in points)
        look = f'stroke="{colour}" stroke-width="{width}" stroke-dasharray="{dash}"'
        return f'<polyline points="{path}" fill="none" {look}/>'

    drawn = []
    for value in (0.5, 0.6, 0.7, 0.8, 0.9, 1.0):
        drawn.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(value):.1f}" y2="{y(value):.1f}" stroke="#ddd"/>')
        drawn.append(f'<text x="{LEFT - 8}" y="{y(value) + 4:.1f}" text-anchor="end">{value:.1f}</text>')
    drawn += [f'<text x="{x(k):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{k}</text>' for k in ks]
    drawn.append(
        f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 8}" text-anchor="middle">k, images in the mean</text>'
    )
    drawn.append(
        f'<text x="16" y="{HEIGHT / 2}" transform="rotate(-90 16 {HEIGHT / 2})" text-anchor="middle">AUC</text>'
    )
    longest = max(curves, key=lambda c: len(c["points"]))
    drawn.append(line(((p["k"], p["theory_auc"]) for p in longest["points"]), "#000", "", 2.4))
    names = [("theory", "#000", "")]
    for number, curve in enumerate(curves):
        colour, dash = COLOURS[number % len(COLOURS)], DASHES.get(curve["attacker"], "")
        points = [(p["k"], p["auc"]["value"]) for p in curve["points"]]
        drawn.append(line(points, colour, dash))
        for p in curve["points"]:
            at, ends = x(p["k"]), (y(p["auc"]["low"]), y(p["auc"]["high"]))
            drawn.append(f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{ends[0]:.1f}" y2="{ends[1]:.1f}" stroke="{colour}"/>')
        place = curve["round"] if not str(curve["round"]).isdigit() else f"round {curve['round']}"
        names.append((f"{curve['attacker']}, {place}", colour, dash))
    for number, (name, colour, dash) in enumerate(names):
        at = TOP + 12 + 18 * number
        ends = (WIDTH - RIGHT + 12, WIDTH - RIGHT + 40)
        drawn.append(
            f'<line x1="{ends[0]}" x2="{ends[1]}" y1="{at - 4}" y2="{at - 4}" stroke="{colour}" stroke-width="2" '
            f'stroke-dasharray="{dash}"/><text x="{ends[1] + 6}" y="{at}">{escape(name)}</text>'
        )
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" font-family="sans-serif" font-size="12" role="img" '
        f'aria-label="AUC of tracing against k">{"".join(drawn)}</svg>'
    )
