"""What a trainer imports, in its order: for the program that forks trainers."""

from podium_trainer.adapters.openmp import prefer_intel_openmp

prefer_intel_openmp()

import podium_trainer.__main__  # noqa: E402
import podium_trainer.learner.session  # noqa: E402
import podium_trainer.servicer  # noqa: E402, F401
