"""vLLM's own OpenAI HTTP API on the same engine, under the same gate."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager, nullcontext
from typing import Any

import uvicorn
from podium.core.errors import PodiumError
from podium.core.tool_calls import DEFAULT_FORMAT
from podium.core.tool_formats import FORMATS, TEXT
from podium.core.weight_modes import ADAPTER, MERGED

from podium_inference.adapters.engine import VllmEngine
from podium_inference.adapters.http.capture import Announce, How, asked, capture, wanted
from podium_inference.adapters.http.gate import Gate
from podium_inference.adapters.http.keys import Keys
from podium_inference.adapters.http.named_policies import NamedPolicies, named
from podium_inference.adapters.http.weight_mode import TellsWeightMode
from podium_inference.domain.captures import Captures
from podium_inference.domain.pool import PolicyPool
from podium_inference.domain.served import Served
from podium_inference.settings import Settings

logger = logging.getLogger(__name__)

HIDDEN_TOOLS = (
    "an agent offers tools in a rollout, and the model's chat template does not show them: the"
    " model never learns of them. PODIUM_INFERENCE_CHAT_TEMPLATE names another template"
)

_API_KEY = "VLLM_API_KEY"
"""vLLM's own variable: one more key that agents may show."""


def take_api_key() -> str:
    """The key in vLLM's variable, which is taken away: vLLM would refuse all others, on some of
    its routes. To be called before vLLM is imported."""
    return os.environ.pop(_API_KEY, "")


def parser_of(call_format: str) -> str:
    """vLLM's parser of a format of calls; that of Hermes where vLLM has none, or cannot load it."""
    from vllm.tool_parsers import ToolParserManager

    if call_format == TEXT:
        return DEFAULT_FORMAT
    try:
        ToolParserManager.get_tool_parser(call_format)
    except (ImportError, KeyError) as error:
        logger.warning(
            "vLLM cannot read the model's tool calls (%s: %s): agents that call the OpenAI API get"
            " them as text",
            call_format,
            error,
        )
        return DEFAULT_FORMAT
    return call_format


def build(settings: Settings, model: str, tasks: Any, model_config: Any) -> tuple[Any, Any]:
    """vLLM's application with all of its routes, and the arguments that it was made of.

    Args:
        model: its folder.
        tasks: what the engine supports.
    """
    from vllm.entrypoints.launchers.app import build_app
    from vllm.entrypoints.launchers.cli_args import make_arg_parser, validate_parsed_serve_args
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    parser = make_arg_parser(FlexibleArgumentParser())
    arguments = parser.parse_args(
        [
            f"--model={model}",
            f"--served-model-name={settings.model}",
            "--enable-auto-tool-choice",
            f"--tool-call-parser={settings.tool_parser or DEFAULT_FORMAT}",
            "--disable-fastapi-docs",
            *([f"--chat-template={settings.chat_template}"] if settings.chat_template else []),
        ]
    )
    validate_parsed_serve_args(arguments)
    # Where its server looks; the flag alone is read by who makes an engine of the arguments.
    arguments.structured_outputs_config.reasoning_parser = settings.reasoning_parser
    return build_app(arguments, tasks, model_config), arguments


class GatedClient:
    """The engine as vLLM's server sees it: every generation goes through the pool."""

    def __init__(
        self,
        engine: VllmEngine,
        pool: PolicyPool,
        captures: Captures,
        announce: Announce,
        call_format: str,
        reasoning_parser: str,
        *,
        shows_tools: bool = True,
        embeddings: int = 0,
    ) -> None:
        """Everything but `generate` is the engine's own.

        Args:
            call_format: how the model writes calls, for what is captured.
            embeddings: token ids are below it; 0 for any.
        """
        self._embeddings = embeddings
        self._hides_tools = not shows_tools
        self._llm = engine.llm
        self._pool = pool
        self._captures = captures
        self._announce = announce
        self._call_format = DEFAULT_FORMAT if call_format == TEXT else call_format
        self._parser = reasoning_parser

    def __getattr__(self, name: str) -> Any:
        return getattr(self._llm, name)

    async def generate(
        self, prompt: Any, sampling_params: Any, request_id: str, **kwargs: Any
    ) -> AsyncGenerator[Any, None]:
        """As AsyncLLM's, by the policy that was asked for; see `PolicyPool.use`.

        What comes with a rollout's key is captured.

        Raises:
            VLLMValidationError: a token has no embedding; vLLM's API answers it with 400.
        """
        self._check_tokens(prompt)
        request = asked()
        adapter = kwargs.get("lora_request")
        job, version = "", None
        if adapter is not None:
            job, _, number = adapter.lora_name.rpartition("@")
            version = int(number)
        elif self._pool.merged:
            # The API checked the name just before.
            job, version = named() or (await self._pool.merged_job(), None)
        # What is said of the prompt's tokens is of the weights of one version.
        moves = sampling_params.prompt_logprobs is None
        async with self._pool.use(job, version, moves=moves) as served:
            if adapter is not None:
                # Another than the API found, where it went and came back in between.
                kwargs["lora_request"] = served.adapter
            params = sampling_params
            if request is not None:
                fields = request.fields()
                params = wanted(params, fields)
                if self._hides_tools and fields.get("tools"):
                    self._hides_tools = False  # said once
                    logger.warning(HIDDEN_TOOLS)
            outputs = self._llm.generate(prompt, params, request_id, **kwargs)
            if request is not None:
                policy = (served.job, served.version)
                how = How(params, policy, self._call_format, self._parser)
                outputs = capture(outputs, request, how, self._captures, self._announce)
            async with aclosing(outputs):
                async for output in outputs:
                    yield output

    def _check_tokens(self, prompt: Any) -> None:
        """vLLM lets pass what the tokenizer knows. That may be more than the model does: Gemma 3's
        has a token for images in models of text, and the engine would end at its first one."""
        ids = prompt.get("prompt_token_ids") if isinstance(prompt, Mapping) else None
        if self._embeddings and ids and max(ids) >= self._embeddings:
            from vllm.exceptions import VLLMValidationError

            raise VLLMValidationError(
                f"the prompt has a token with id {max(ids)}, which the tokenizer knows and the"
                f" model does not; allowed are 0 to {self._embeddings - 1}",
                parameter="prompt",
            )


class OpenAiApi:
    """Serves HTTP, and keeps the list of model names."""

    def __init__(
        self, settings: Settings, keys: Keys, captures: Captures, announce: Announce
    ) -> None:
        """Nothing runs yet."""
        self._settings = settings
        self._keys = keys
        self._captures = captures
        self._announce = announce
        self._models: Any = None

    @asynccontextmanager
    async def run(
        self, engine: VllmEngine, pool: PolicyPool, *, call_format: str, shows_tools: bool = True
    ) -> AsyncIterator[None]:
        """Serves while the block runs; `call_format` and `shows_tools` are the renderer's."""
        from starlette.middleware import Middleware
        from vllm.entrypoints.launchers.api_server.app_state import init_app_state

        config = engine.llm.model_config
        tasks = await engine.llm.get_supported_tasks()
        named_parser = self._settings.tool_parser
        settings = self._settings.model_copy(
            update={"tool_parser": named_parser or parser_of(call_format)}
        )
        app, arguments = build(settings, config.model, tasks, config)
        client: Any = GatedClient(
            engine,
            pool,
            self._captures,
            self._announce,
            named_parser if named_parser in FORMATS else call_format,
            self._settings.reasoning_parser,
            shows_tools=shows_tools,
            # Tokens that stand for images have none, and vLLM sees to them.
            embeddings=0 if config.is_multimodal_model else engine.vocab_size,
        )
        await init_app_state(client, app.state, arguments, tasks)
        # The innermost: who may not call has nothing fetched.
        app.user_middleware.append(
            Middleware(
                NamedPolicies,
                want=pool.want,
                base_model=self._settings.model,
                text_only=not config.is_multimodal_model,
            )
        )
        mode = MERGED if pool.merged else ADAPTER
        app.user_middleware.append(Middleware(TellsWeightMode, mode=mode))
        # vLLM has built it already.
        app.middleware_stack = app.build_middleware_stack()
        self._models = app.state.openai_serving_models
        self.update(pool.served())
        server = _Server(
            uvicorn.Config(
                Gate(app, self._keys),
                host=self._settings.host,
                port=self._settings.http_port,
                log_level="warning",
                timeout_graceful_shutdown=int(self._settings.drain_seconds),
            )
        )
        task = asyncio.create_task(server.serve())
        while not server.started and not task.done():  # noqa: ASYNC110 - uvicorn has no event
            await asyncio.sleep(0.05)
        if task.done():
            raise PodiumError(f"the OpenAI API cannot listen on port {self._settings.http_port}")
        try:
            yield
        finally:
            server.should_exit = True
            await task

    def update(self, served: list[Served]) -> None:
        """Lists what is served now: `job@version`, and `job` for its newest."""
        if self._models is None:
            return
        from vllm.entrypoints.openai.models.protocol import BaseModelPath

        path = self._models.base_model_paths[0].model_path
        names = [s.model_name or self._settings.model for s in served]
        newest: dict[str, Served] = {}
        for item in served:
            if item.job:
                newest.setdefault(item.job, item)
        if any(item.adapter for item in served):
            self._models.lora_requests = {s.model_name: s.adapter for s in served if s.adapter}
            self._models.lora_requests |= {job: s.adapter for job, s in newest.items()}
            names = [self._settings.model]
        else:
            self._models.lora_requests = {}
            names += newest
        self._models.base_model_paths[:] = [
            BaseModelPath(name=name, model_path=path) for name in names
        ]


class _Server(uvicorn.Server):
    """Leaves signals to the service."""

    def capture_signals(self) -> Any:
        """Captures none."""
        return nullcontext()
