"""`python -m podium.cli`."""

from __future__ import annotations

from podium.cli.main import main

if __name__ == "__main__":
    main()
