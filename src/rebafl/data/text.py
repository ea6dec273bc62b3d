"""How does a model read a text? As a bag of words, each counted in a place that follows from the word alone."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

WIDTH = 2048  # places; words that share one are added
WORD = re.compile(r"\w+")


def is_text(array: Any) -> bool:
    """A list of texts?"""
    return isinstance(array, np.ndarray) and array.ndim == 1 and array.dtype.kind in "US" and bool(len(array))


def hashed_words(texts: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """A row of length 1 for each text: how often its words occur, by place; small letters, no order, no dictionary.

    Nothing is learned from the texts, so clients need not agree on words, and a new text is read as the old ones were.
    """
    rows = np.zeros((len(texts), WIDTH), dtype=np.float32)
    for row, text in zip(rows, texts, strict=True):
        plain = text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text)
        for word, count in Counter(WORD.findall(plain.lower())).items():
            row[_place(word)] += count
        row /= np.linalg.norm(row) or 1.0
    return rows


@lru_cache(maxsize=200_000)
def _place(word: str) -> int:
    return int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest(), "little") % WIDTH
