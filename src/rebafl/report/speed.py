"""How fast was it? What `rebafl bench` measured, as tables for a terminal and for a page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from .markdown import TextTable, markdown_table


def tables(measured: Mapping[str, Any]) -> Iterator[TextTable]:
    """All tables of a measurement, whichever it was."""
    if "contenders" in measured:
        yield _race(measured)
        yield _facts(measured)
    if measured.get("training"):
        yield _training(measured["training"])
    if "growth" in measured:
        yield _growth(measured["growth"])
    if "memory" in measured:
        yield _memory(measured)
    if "to_fedavg" in measured:
        yield _methods(measured)


def _race(measured: Mapping[str, Any]) -> TextTable:
    header = (
        "",
        "version",
        "seconds per round",
        "range",
        "ours / theirs",
        "range",
        "to reach",
        "of GEMM peak",
        "memory",
    )
    return header, [_racer(row, measured) for row in measured["contenders"]]


def _racer(row: Mapping[str, Any], measured: Mapping[str, Any]) -> Sequence[str]:
    if row.get("absent"):
        return (row["label"], f"absent ({row['absent']})", *[""] * 7)
    target = row["target"]
    return (
        row["label"],
        row["version"],
        f"{row['seconds']:.2f}",
        _range(row["spread"], ".2f"),
        f"{row['ours_to_theirs']:.2f}",
        _range(row["ratio_spread"], ".2f"),
        f"≤ {target}" if target else "",
        f"{row['peak_share']:.0%}",
        f"{row['memory_mb']:.0f} MB",
    )


def _facts(measured: Mapping[str, Any]) -> TextTable:
    facts = [
        ("accuracies agree within a point after every round", "yes" if measured["accuracies_agree"] else "NO", "yes"),
        ("start of the process to the end of its first step", f"{measured['first_step_seconds']:.2f} s", "< 3 s"),
    ]
    if ratios := measured.get("rebafl_to_fedavg"):
        text = f"{ratios['ratio']:.2f} ({_range(ratios['spread'], '.2f')})"
        facts.insert(1, ("ReBaFL / FedAvg, both here, round by round in turn", text, "≤ 1.20"))
    return ("", "measured", "to reach"), [*facts]


def _training(rows: Iterable[Mapping[str, Any]]) -> TextTable:
    header = (
        "training on one core",
        "samples/s",
        "MFLOP per sample",
        "GEMM GFLOP/s",
        "of GEMM peak",
        "range",
        "to reach",
    )
    return header, [
        (
            row["model"],
            f"{row['samples_a_second']:.0f}",
            f"{row['mflop_a_sample']:.2f}",
            f"{row['gemm_gflops']:.0f}",
            f"{row['share']:.0%}",
            _range(row["share_spread"], ".0%"),
            "≥ 50%",
        )
        for row in rows
    ]


def _growth(measured: Mapping[str, Any]) -> TextTable:
    few, many = measured["registered"]
    short, long = measured["round_seconds"]
    return (f"{measured['active']} active clients", "measured", "to reach"), [
        (f"one round, {few:,} registered", f"{short:.3f} s", ""),
        (f"one round, {many:,} registered", f"{long:.3f} s", ""),
        ("growth", f"{round(measured['growth_ms'])} ms ({_range(measured['growth_ms_spread'], '.0f')})", "< 50 ms"),
        (f"start with {many:,}", f"{measured['start_seconds']:.1f} s", "< 10 s"),
        (f"memory with {many:,}", f"{measured['memory_mb']:.0f} MB", "< 2 GB"),
    ]


def _memory(measured: Mapping[str, Any]) -> TextTable:
    header = (
        f"a model of {measured['model_mb']:.0f} MB",
        "active clients",
        "main process",
        f"model sizes beyond {measured['allowance_mb']:.0f} MB",
        "to reach",
    )
    return header, [
        (
            row["algorithm"],
            str(row["active"]),
            f"{row['parent_mb']:.0f} MB",
            f"{row['model_sizes']:.1f}",
            f"≤ {row['allowed']}",
        )
        for row in measured["memory"]
    ]


def _methods(measured: Mapping[str, Any]) -> TextTable:
    cheapest_first = sorted(measured["to_fedavg"].items(), key=lambda method: float(method[1]["ratio"]))
    return ("method", "a round's seconds / FedAvg's", "range"), [
        (name, f"{found['ratio']:.2f}", _range(found["spread"], ".2f")) for name, found in cheapest_first
    ]


def _range(pair: Sequence[float], style: str) -> str:
    low, high = pair
    return f"{low:{style}} to {high:{style}}"


def performance(
    race: Mapping[str, Any], methods: Mapping[str, Any], scale: Mapping[str, Any], memory: Mapping[str, Any]
) -> str:
    """The measured part of docs/performance.md."""
    texts = [markdown_table(*table) for measured in (race, methods, scale, memory) for table in tables(measured)]
    names = (
        "the race",
        "what else was to be reached",
        "training alone",
        f"each method beside FedAvg, rounds in turn ({len(methods['seconds']['fedavg'])} of each)",
        "registered clients",
        "memory",
    )
    return "\n\n".join(
        [
            f"Measured on {_machine(race['machine'])}; {race['repeats']} repeats of "
            f"{race['workload']['rounds']} rounds each, the first of which is not counted.",
            *(f"{name[0].upper()}{name[1:]}:\n\n{text}" for name, text in zip(names, texts, strict=True)),
        ]
    )


def _machine(facts: Mapping[str, Any]) -> str:
    return f"{facts['cores']} cores of {facts['processor']}, Python {facts['python']}, torch {facts['torch']}"
