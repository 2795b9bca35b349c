"""SQL, the object store and files under upload."""
