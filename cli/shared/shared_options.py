"""Options that every command accepts and only the program's own help describes."""

from __future__ import annotations

import click

__all__ = ["SharedOption"]


class SharedOption(click.Option):
    """An option of the whole program that may also follow a command.

    A command's help names the first of them and refers to the program's help for all.
    """

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Return the option's lines for a help page; None if the program's own help has them."""
        root = ctx.find_root()
        if ctx is root or not any(self._is_same(one) for one in root.command.params):
            return super().get_help_record(ctx)
        shared = [one for one in ctx.command.params if isinstance(one, SharedOption)]
        if shared[0] is not self:
            return None
        words = ", ".join(one.opts[0] for one in shared[:3])
        return f"{words}, ...", f"Connection and other common options: see {root.info_name} --help."

    def _is_same(self, other: click.Parameter) -> bool:
        return isinstance(other, SharedOption) and other.name == self.name
