"""The commands: words become calls of the library, and what comes back becomes tables and pictures."""

from .main import app, main

__all__ = ["app", "main"]
