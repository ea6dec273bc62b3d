"""How fast was it? What `rebafl bench` measured, as tables for a terminal and for a page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from .reference import markdown_table

Rows = tuple[Sequence[str], list[Sequence[str]]]
"""A header, and rows of as many cells."""


def tables(found: Mapping[str, Any]) -> Iterator[Rows]:
    """All tables of a measurement, whichever it was."""
    if "contenders" in found:
        yield _race(found)
        yield _facts(found)
    if found.get("training"):
        yield _training(found["training"])
    if "growth" in found:
        yield _growth(found["growth"])
    if "memory" in found:
        yield _memory(found)


def _race(found: Mapping[str, Any]) -> Rows:
    header = ("", "version", "seconds a round", "range", "ours / theirs", "range", "to reach", "of GEMM peak", "memory")
    return header, [_racer(row, found) for row in found["contenders"]]


def _racer(row: Mapping[str, Any], found: Mapping[str, Any]) -> Sequence[str]:
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


def _facts(found: Mapping[str, Any]) -> Rows:
    facts = [
        ("accuracies agree within a point after every round", "yes" if found["accuracies_agree"] else "NO", "yes"),
        ("start of the process to the end of its first step", f"{found['first_step_seconds']:.2f} s", "< 3 s"),
    ]
    if turns := found.get("rebafl_to_fedavg"):
        measured = f"{turns['ratio']:.2f} ({_range(turns['spread'], '.2f')})"
        facts.insert(1, ("ReBaFL / FedAvg, both here, round by round in turn", measured, "≤ 1.20"))
    return ("", "measured", "to reach"), [*facts]


def _training(measured: Iterable[Mapping[str, Any]]) -> Rows:
    header = (
        "training on one core",
        "samples/s",
        "MFLOP a sample",
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
        for row in measured
    ]


def _growth(found: Mapping[str, Any]) -> Rows:
    few, many = found["registered"]
    short, long = found["round_seconds"]
    return (f"{found['active']} active clients", "measured", "to reach"), [
        (f"a round, {few:,} registered", f"{short:.3f} s", ""),
        (f"a round, {many:,} registered", f"{long:.3f} s", ""),
        ("growth", f"{round(found['growth_ms'])} ms ({_range(found['growth_ms_spread'], '.0f')})", "< 50 ms"),
        (f"start with {many:,}", f"{found['start_seconds']:.1f} s", "< 10 s"),
        (f"memory with {many:,}", f"{found['memory_mb']:.0f} MB", "< 2 GB"),
    ]


def _memory(found: Mapping[str, Any]) -> Rows:
    header = (
        f"a model of {found['model_mb']:.0f} MB",
        "active clients",
        "main process",
        f"model sizes beyond {found['allowance_mb']:.0f} MB",
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
        for row in found["memory"]
    ]


def _range(pair: Sequence[float], style: str) -> str:
    low, high = pair
    return f"{low:{style}} to {high:{style}}"


def performance(race: Mapping[str, Any], scale: Mapping[str, Any], memory: Mapping[str, Any]) -> str:
    """The measured part of docs/performance.md."""
    texts = [markdown_table(*table) for found in (race, scale, memory) for table in tables(found)]
    names = ("the race", "what else was to be reached", "training alone", "registered clients", "memory")
    return "\n\n".join(
        [
            f"Measured on {_machine(race['machine'])}; {race['repeats']} repeats of "
            f"{race['workload']['rounds']} rounds each, the first of which is not counted.",
            *(f"{name.capitalize()}:\n\n{text}" for name, text in zip(names, texts, strict=True)),
        ]
    )


def _machine(facts: Mapping[str, Any]) -> str:
    return f"{facts['cores']} cores of {facts['processor']}, Python {facts['python']}, torch {facts['torch']}"
