"""Podium: reinforcement learning for LLM agents on Kubernetes.

The generated contracts are `podium.<noun>.v1`; everything else in this
package is the shared library. Importing it loads neither torch nor vLLM.
"""

__version__ = "0.1.0"
