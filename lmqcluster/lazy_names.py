"""Names that a package offers and imports only when they are asked for.

Every import of a module runs the ``__init__`` of the packages above it: a program that needs one small module of a package
must not pay for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module

__all__ = ["lazy_names"]


def lazy_names(package: str, modules: Mapping[str, str]) -> Callable[[str], object]:
    """The ``__getattr__`` of a package (PEP 562).

    Args:
        package: its ``__name__``.
        modules: by name, the module of the package that has it.
    """

    def attribute(name: str) -> object:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{modules[name]}"), name)

    return attribute
