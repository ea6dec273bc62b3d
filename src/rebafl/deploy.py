"""Where do folders that version 0.1 exported find their loader? Here: their `load_model.py` names this module."""

from .runs.export import load_model as load
from .runs.export import predict

__all__ = ["load", "predict"]
