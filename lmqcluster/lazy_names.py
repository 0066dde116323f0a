"""Names that a package exports and imports on first use.

Importing a module runs the ``__init__`` of all its parent packages. A program that needs one small module of a package
should not pay for importing all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module

__all__ = ["lazy_names"]


def lazy_names(package: str, modules: Mapping[str, str]) -> Callable[[str], object]:
    """Return a module-level ``__getattr__`` (PEP 562).

    Args:
        package: the package's ``__name__``.
        modules: maps each exported name to the module of the package that defines it.
    """

    def attribute(name: str) -> object:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{modules[name]}"), name)

    return attribute
