"""Measurements that need a CUDA GPU."""
