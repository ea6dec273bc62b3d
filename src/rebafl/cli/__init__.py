"""What can be done from a terminal? Words become calls of the library; results become tables and pictures."""

from .main import app, main

__all__ = ["app", "main"]
