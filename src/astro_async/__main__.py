"""The way in: the scripts `astro` and `astro-async`, and `python -m astro_async`."""

from __future__ import annotations

from importlib import import_module

from astro_async.cli.interrupt import leave_on_interrupt

__all__ = ["main"]


def main() -> None:
    """Run `astro` with the arguments of the process."""
    leave_on_interrupt()
    # Only now: it takes longer than it takes to press Ctrl-C.
    import_module("astro_async.cli.app").main()


if __name__ == "__main__":
    main()
