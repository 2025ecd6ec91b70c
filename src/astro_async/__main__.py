"""`python -m astro_async`, for environments where another `astro` lives."""

from __future__ import annotations

from astro_async.cli.app import main

if __name__ == "__main__":
    main()
