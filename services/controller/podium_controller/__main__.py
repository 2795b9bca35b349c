"""`python -m podium_controller`: the controller service."""

from __future__ import annotations

from podium.kit.rpc import load_settings, run_service

from podium_controller.service import controller
from podium_controller.settings import Settings


def main() -> None:
    """Serves until SIGTERM or SIGINT."""
    settings = load_settings(Settings)
    run_service("controller", settings, lambda server: controller(server, settings))


if __name__ == "__main__":
    main()
