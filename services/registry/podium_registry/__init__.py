"""The checkpoint registry: blobs by content, immutable versions, aliases, leases."""
