"""What changed in a model's weights between two versions. Its calls import torch.

After a step of full fine-tuning most weights, rounded to the type they are served in, are
what they were. A delta holds the others, and the checksum of every tensor that results.
"""

from podium.kit.deltas.delta import FOLDER, apply_delta, write_delta

__all__ = ["FOLDER", "apply_delta", "write_delta"]
