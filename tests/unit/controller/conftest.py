from __future__ import annotations

from support.spans import exporter, spans

__all__ = ["exporter", "spans"]
