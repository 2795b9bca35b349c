"""Whether a version can be resumed: it has files under `state/`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from podium.registry.v1 import registry_service_pb2 as pb

FOLDER = "state/"
"""Where in a version lies what resumes it."""


def has_state(version: pb.Version) -> bool:
    """Whether a job can go on from a version; without state it can only be served."""
    return bool(version.state_files) or state_in(version.manifest)


def state_in(manifest: pb.Manifest) -> bool:
    """Whether a version was published together with its state."""
    return any(file.path.startswith(FOLDER) for file in manifest.files)


def all_files(version: pb.Version) -> list[pb.File]:
    """Those of the manifest, and those of the state that was added to it."""
    return [*version.manifest.files, *version.state_files]
