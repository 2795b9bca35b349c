"""The registry's Prometheus metrics."""

from __future__ import annotations

import os
from pathlib import Path

from prometheus_client import Counter, Gauge

VERSIONS_CREATED = Counter("podium_registry_versions_created_total", "Versions published.")
VERSIONS_DELETED = Counter("podium_registry_versions_deleted_total", "Versions deleted.")
BYTES_UPLOADED = Counter("podium_registry_blob_bytes_uploaded_total", "Bytes received.")
BYTES_DOWNLOADED = Counter("podium_registry_blob_bytes_downloaded_total", "Bytes sent.")
DAMAGED_BLOBS = Counter(
    "podium_registry_damaged_blobs_total",
    "Times that stored bytes were met damaged or missing, by a download or a look.",
)
UPLOADS_IN_PROGRESS = Gauge("podium_registry_uploads_in_progress", "Unfinished uploads.")
STORAGE_BYTES = Gauge(
    "podium_registry_storage_bytes",
    "Bytes of all stored blobs, as of this replica's last upload or collection.",
)
VOLUME_BYTES = Gauge(
    "podium_registry_volume_bytes",
    "Size of the volume with the data folder: unfinished uploads, and without a store of its own "
    "the blobs.",
)
VOLUME_FREE_BYTES = Gauge(
    "podium_registry_volume_free_bytes", "What of it the registry may still write."
)
COLLECTIONS = Counter(
    "podium_registry_gc_runs_total", "Garbage collections, by outcome.", ("outcome",)
)
BLOBS_COLLECTED = Counter("podium_registry_gc_deleted_blobs_total", "Blobs deleted as garbage.")
BYTES_COLLECTED = Counter("podium_registry_gc_freed_bytes_total", "Bytes deleted as garbage.")


def watch_volume(folder: Path) -> None:
    """Has each scrape look at the volume of a folder; NaN while there is none."""

    def look(of: str) -> float:
        try:
            found = os.statvfs(folder)
        except OSError:
            return float("nan")
        return float(getattr(found, of) * found.f_frsize)

    VOLUME_BYTES.set_function(lambda: look("f_blocks"))
    VOLUME_FREE_BYTES.set_function(lambda: look("f_bavail"))
