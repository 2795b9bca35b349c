"""HTTP: who may ask, what is answered, and the pages' files."""
