"""Supervised fine-tuning: conversations of files, of dicts or of jobs as batches of tokens."""
