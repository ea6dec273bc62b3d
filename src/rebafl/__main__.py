"""`python -m rebafl` is the command `rebafl`."""

from .cli import main

main()
