"""Client of the checkpoint registry: publish and fetch whole versions."""

from podium.kit.registry_client.client import RegistryClient

__all__ = ["RegistryClient"]
