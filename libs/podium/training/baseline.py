"""A model that is called beside the one that trains."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from podium.core.packages import needed

if TYPE_CHECKING:
    import openai


@dataclass
class Model:
    """A model behind an OpenAI-compatible API that is called and not trained: a baseline."""

    name: str
    """What it is called in logs, and in requests without `inference_model_name`."""
    inference_base_url: str
    """Of its OpenAI API, such as `http://localhost:8000/v1`."""
    inference_api_key: str = "none"
    """The bearer token of its requests."""
    inference_model_name: str = ""
    """What to name in a request; empty for `name`."""

    def get_inference_name(self, step: int | None = None) -> str:
        """What to name in a request; a model that is not trained has no steps.

        Args:
            step: makes no difference here.
        """
        return self.inference_model_name or self.name

    def openai_client(self, **options: Any) -> openai.AsyncOpenAI:
        """OpenAI's client for it.

        Args:
            options: those of its constructor.

        Raises:
            FailedPreconditionError: PACKAGE_MISSING, the package `openai` is not installed.
        """
        library = needed("openai", "openai>=2.54", "an OpenAI client")
        client: openai.AsyncOpenAI = library.AsyncOpenAI(
            base_url=self.inference_base_url, api_key=self.inference_api_key, **options
        )
        return client
