"""What a plan can be deployed to."""

from __future__ import annotations

from enum import StrEnum


class Target(StrEnum):
    """Where the fleet runs."""

    VLLM = "vllm"
    """Commands of vLLM, started by whatever starts processes."""
    SGLANG = "sglang"
    KUBERNETES = "kubernetes"
    """Plain manifests."""
    HELM = "helm"
    """Values for the vLLM production stack's chart."""
    LLM_D = "llm-d"
    """Values for llm-d's model service chart."""

    @property
    def engines(self) -> tuple[str, ...]:
        """Engines that it can start."""
        if self is Target.KUBERNETES:
            return ("vllm", "sglang")
        return ("sglang",) if self is Target.SGLANG else ("vllm",)

    @property
    def on_kubernetes(self) -> bool:
        """Whether Kubernetes runs it."""
        return self not in (Target.VLLM, Target.SGLANG)
