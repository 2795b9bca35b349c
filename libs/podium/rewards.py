"""ART's `art.rewards`: RULER as a function of a group, and of conversations."""

from __future__ import annotations

from podium.sdk.ruler import TrajectoryScore, ruler, ruler_score_group

__all__ = ["TrajectoryScore", "ruler", "ruler_score_group"]
