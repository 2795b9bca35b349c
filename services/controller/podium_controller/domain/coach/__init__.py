"""Whether a run can learn, told from its steps' numbers and its specification alone."""

from podium_controller.domain.coach.coach import WINDOW_STEPS, CoachEvent, findings, news

__all__ = ["WINDOW_STEPS", "CoachEvent", "findings", "news"]
