"""Write the embedded data set: the first 600 training and 100 test images of each Fashion-MNIST class, in order:

python tools/make_fashion_mini.py
"""

from pathlib import Path

import numpy as np

import rebafl.data
from rebafl.data.arrays import digest

TARGET = Path(rebafl.data.__file__).with_name("fashion-mini.npz")


def first(labels: np.ndarray, per_class: int) -> np.ndarray:
    return np.sort(np.concatenate([np.flatnonzero(labels == c)[:per_class] for c in range(10)]))


data = rebafl.data.load("fashion-mnist")
arrays = {}
for part, per_class in (("train", 600), ("test", 100)):
    y = getattr(data, f"y_{part}").numpy()
    kept = first(y, per_class)
    arrays[f"x_{part}"] = getattr(data, f"x_{part}").numpy()[kept]
    arrays[f"y_{part}"] = y[kept].astype(np.uint8)
np.savez_compressed(TARGET, **arrays)
print(TARGET.name, TARGET.stat().st_size, "bytes, SHA-256 of the arrays", digest(arrays))
