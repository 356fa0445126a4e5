"""Rules of speculative decoding (vLLM; ``vllm/config/speculative.py``). No function raises."""

from __future__ import annotations

from planner.catalog.engine import EngineFacts
from planner.catalog.model_shape import ModelShape
from planner.memory.types import DRAFT_MODEL, Deployment, Refusal

RULE = "speculative decoding"
OWN_LAYERS = "mtp"


def drafts(shape: ModelShape, facts: EngineFacts, deployment: Deployment) -> list[Refusal]:
    """What drafts must exist: the model's own next-token layers, or a model of the same vocabulary."""
    speculative = deployment.speculative
    if speculative is None:
        return []
    found = []
    if speculative.num_tokens <= 0:
        message = f"Expected num_speculative_tokens to be greater than zero ({speculative.num_tokens})."
        found.append(Refusal(RULE, message, "Use at least 1 speculative token"))
    if speculative.method == OWN_LAYERS and not drafts_itself(shape, facts):
        message = f"Unsupported speculative method: 'mtp' ({shape.architecture} has no next-token layers)"
        found.append(Refusal(RULE, message, "Use a draft model, an EAGLE head or n-grams"))
    if speculative.method == DRAFT_MODEL and not facts.vllm.draft_model_allowed:
        message = (
            "Speculative decoding with draft model is not supported yet. Please consider using other speculative "
            "decoding methods such as ngram, medusa, eagle, or mtp."
        )
        found.append(Refusal(RULE, message, "Use another method or a newer version"))
    draft = speculative.draft
    if draft is not None and draft.vocab_size != shape.vocab_size:
        message = (
            f"Target and draft model should have the same vocabulary size. Target model vocab_size="
            f"{shape.vocab_size}. Draft model vocab_size={draft.vocab_size}."
        )
        found.append(Refusal(RULE, message, "Use a draft model of the same family"))
    return found


def drafts_itself(shape: ModelShape, facts: EngineFacts) -> bool:
    """Whether this release knows next-token layers of the model, or an assistant trained for it.

    By its type (nested or not) or its architecture.
    """
    family = shape.model_type.removesuffix("_text")
    names = {shape.architecture, shape.model_type, family, f"{family}_assistant"}
    return not names.isdisjoint(facts.vllm.mtp_models)
