"""Where did `load` and `predict` live? Folders that version 0.1 exported hold a `load_model.py` that looks here."""

from .runs.export import load_model as load
from .runs.export import predict

__all__ = ["load", "predict"]
