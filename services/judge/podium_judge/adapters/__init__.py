"""Judge models over HTTP."""
