"""Rules of blobs and versions; no SQL and no object store."""
