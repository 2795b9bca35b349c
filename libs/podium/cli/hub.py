"""A version's files on a Hugging Face hub, with a card that says what they are."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from podium.cli.checkpoint_files import FileFormat, name_of
from podium.cli.exits import CliError, Exit
from podium.core.hub_address import VARIABLE, wrong_hub_address
from podium.core.packages import needed
from podium.core.proxies import any_named, proxy_of

if TYPE_CHECKING:
    from podium.registry.v1 import registry_service_pb2 as pb

_LIBRARIES = {
    FileFormat.ADAPTER: "peft",
    FileFormat.MERGED: "transformers",
    FileFormat.GGUF: "gguf",
}
_USE = {
    FileFormat.ADAPTER: """from peft import AutoPeftModelForCausalLM

model = AutoPeftModelForCausalLM.from_pretrained("{repository}")""",
    FileFormat.MERGED: """from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("{repository}")""",
    FileFormat.GGUF: "# llama-cli -hf {repository}",
}


def card(item: pb.Version, form: FileFormat, repository: str) -> str:
    """The text of README.md: the hub's metadata, and what the version is.

    It tells of the job its name, step and numbers alone: a job's file may name what is not
    for the public.
    """
    import yaml

    from podium import __version__
    from podium.local.models import HUB_NAMES

    manifest = item.manifest
    base = HUB_NAMES.get(manifest.base_model, manifest.base_model)
    data: dict[str, object] = {
        "library_name": _LIBRARIES[form],
        "pipeline_tag": "text-generation",
        "tags": ["podium", "reinforcement-learning"],
    }
    if base.count("/") == 1 and not base.startswith(("/", ".")):
        data |= {"base_model": base}
        data["base_model_relation"] = "adapter" if form is FileFormat.ADAPTER else "finetune"
    numbers = dict(sorted(item.evaluation_metrics.items()))
    lines = [f"---\n{yaml.safe_dump(data, sort_keys=True)}---\n", f"# {repository.split('/')[-1]}"]
    lines.append(
        f"`{name_of(item)}`: trained from `{Path(base).name if base.startswith('/') else base}` "
        f"by reinforcement learning with Podium {__version__}, {manifest.version} steps."
    )
    if numbers:
        rows = "\n".join(f"| `{name}` | {value:.4g} |" for name, value in numbers.items())
        lines.append(f"| held out | |\n|---|---|\n{rows}")
    lines.append(f"```python\n{_USE[form].format(repository=repository)}\n```")
    return "\n\n".join(lines) + "\n"


def push(folder: Path, repository: str, revision: str | None, private: bool, message: str) -> str:
    """Makes the repository where there is none and adds the folder's files; gives its address.

    The token is the hub's own: `HF_TOKEN`, or what `hf auth login` stored; `HF_ENDPOINT` is the
    hub.

    Raises:
        CliError: the hub refused or cannot be reached, with its words.
    """
    if wrong := wrong_hub_address():
        raise CliError(f"{VARIABLE}: {wrong}", code=Exit.USAGE)
    hub = needed("huggingface_hub", "huggingface_hub>=1", "podium checkpoint push")
    errors = needed("huggingface_hub.errors", "huggingface_hub>=1", "podium checkpoint push")
    api = hub.HfApi()
    try:
        # None is the hub's own default, and does not change what is there.
        api.create_repo(repository, private=private or None, exist_ok=True)
        if revision is not None:
            api.create_branch(repository, branch=revision, exist_ok=True)
        done = api.upload_folder(
            repo_id=repository, folder_path=folder, revision=revision, commit_message=message
        )
    except errors.HFValidationError as error:
        raise CliError(str(error), "For example my-name/my-model.", Exit.USAGE) from error
    except errors.LocalTokenNotFoundError as error:
        raise CliError("no token of the hub is here", _TOKEN, Exit.AUTH) from error
    except errors.HfHubHTTPError as error:
        raise _refused(error, repository, str(api.endpoint)) from error
    except OSError as error:
        raise _away(error, str(api.endpoint)) from error
    except Exception as error:
        # Its HTTP client's own errors, which are not OSError and differ between its versions.
        theirs = type(error).__module__.split(".")[0] in ("httpx", "httpx2", "requests")
        of_a_proxy = isinstance(error, (ImportError, ValueError)) and any_named()
        if not (theirs or of_a_proxy):
            raise
        raise _away(error, str(api.endpoint)) from error
    return str(getattr(done, "commit_url", done))


_TOKEN = "Set HF_TOKEN to a token that may write, or run 'hf auth login'."


def _away(error: Exception, endpoint: str) -> CliError:
    words = str(error).rstrip(".") or type(error).__name__
    parts = urlsplit(endpoint)
    asked = proxy_of(parts.scheme, parts.hostname or "", parts.port)
    proxy = " The environment's proxy was asked." if asked else ""
    return CliError(f"{endpoint} cannot be reached: {words}.{proxy}", code=Exit.UNREACHABLE)


def _refused(error: Exception, repository: str, endpoint: str) -> CliError:
    response = getattr(error, "response", None)
    status = getattr(response, "status_code", None)
    # Its messages carry ids of requests and whole addresses in further lines.
    words = (getattr(error, "server_message", None) or str(error)).strip().split("\n")[0]
    if status in (401, 403):
        return CliError(
            f"{endpoint} does not let you write {repository}: {words}", _TOKEN, Exit.AUTH
        )
    return CliError(f"{endpoint} refused {repository} with status {status}: {words}")
