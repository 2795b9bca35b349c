"""The registry's Prometheus metrics."""

from __future__ import annotations

from prometheus_client import Counter, Gauge

VERSIONS_CREATED = Counter("podium_registry_versions_created_total", "Versions published.")
VERSIONS_DELETED = Counter("podium_registry_versions_deleted_total", "Versions deleted.")
BYTES_UPLOADED = Counter("podium_registry_blob_bytes_uploaded_total", "Bytes received.")
BYTES_DOWNLOADED = Counter("podium_registry_blob_bytes_downloaded_total", "Bytes sent.")
BLOBS_COLLECTED = Counter("podium_registry_blobs_collected_total", "Blobs deleted as garbage.")
UPLOADS_IN_PROGRESS = Gauge("podium_registry_uploads_in_progress", "Unfinished uploads.")
