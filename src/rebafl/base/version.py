"""Which version is this?"""

from importlib.metadata import version

VERSION = version("rebafl")
