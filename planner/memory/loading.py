"""How an engine loads weights: what it divides among ranks, what it pads, and what it leaves at 16 bits."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from planner.catalog.engine import EngineFacts
from planner.catalog.gpu import Gpu
from planner.catalog.quant import stored_formats as formats
from planner.memory.types import Deployment

HOPPER = "9.0"


@dataclass(frozen=True)
class Loading:
    """Rules of one engine release for one deployment.

    Attributes
    ----------
    expert_parallel
        Routed experts are divided whole among the ranks.
    attention_dp
        Data-parallel degree of attention inside the replica (SGLang): attention is divided by ``tp / attention_dp``,
        and every rank holds the whole embedding.
    extra_layers
        Which pipeline stages take the layers that do not divide: from the last but one backwards (vLLM), or the last
        ones (SGLang).
    mxfp4_width_multiple, mxfp4_hidden_multiple
        What the two dimensions of an mxfp4 expert are padded to.
    mxfp4_layout_multiple
        What the hidden size of mxfp4 weights, without their scales, is padded to for the kernels.
    fp8_least_block
        Blocks of fp8 experts that the ranks' shares cut are refined down to this side; 0 without refinement.
    expert_indexes
        Packed integer experts are created with an index of every column (``g_idx`` and its sorting, int32 each).
    nested_scales
        Scales of 4-bit bitsandbytes are bytes instead of float32.
    unread, kept
        Formats (by `Stored.name`) and modules that the release leaves at 16 bits.
    latents_copied
        Up-projections from a latent are kept a second time at 16 bits even where they are not quantised.
    shared_keys
        Whether layers that read another layer's cache have keys and values of their own built.
    vision
        Whether the vision tower is loaded.
    measure
        What the engine takes for loaded: bytes ``allocated`` to tensors, or ``reserved`` from the device for them.
    constructed
        Count parameters as the engine creates them, before it repacks them, and nothing else.
    """

    tp: int = 1
    pp: int = 1
    expert_parallel: bool = False
    attention_dp: int = 1
    extra_layers: Literal["before the last", "last"] = "before the last"
    mxfp4_width_multiple: int = 1
    mxfp4_hidden_multiple: int = 1
    mxfp4_layout_multiple: int = 1
    fp8_least_block: int = 0
    expert_indexes: bool = False
    nested_scales: bool = False
    unread: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    latents_copied: bool = False
    shared_keys: bool = True
    vision: bool = True
    measure: Literal["allocated", "reserved"] = "allocated"
    constructed: bool = False


def loading_of(facts: EngineFacts, deployment: Deployment, gpu: Gpu | None = None) -> Loading:
    """The loading of a deployment by this release of its engine; without a GPU, by a Hopper card."""
    if facts.name == "sglang":
        return Loading(
            deployment.tp,
            deployment.pp,
            deployment.expert_parallel,
            deployment.attention_dp,
            extra_layers="last",
            latents_copied=True,
            vision=not deployment.sglang.language_only,
            measure="reserved",
        )
    rules = facts.vllm
    on_hopper = gpu is None or gpu.compute_capability == HOPPER
    on_amd = gpu is not None and gpu.vendor == "AMD"
    padding = rules.mxfp4_padding_elsewhere
    return Loading(
        deployment.tp,
        deployment.pp,
        deployment.expert_parallel,
        deployment.attention_dp,
        mxfp4_width_multiple=1 if on_hopper else padding.width,
        mxfp4_hidden_multiple=1 if on_hopper else padding.hidden,
        mxfp4_layout_multiple=rules.mxfp4_layout_multiple if on_hopper else 1,
        fp8_least_block=rules.fp8_moe_least_block,
        nested_scales=rules.bnb_scales_nested,
        unread=rules.mixed_unread,
        kept=rules.modules_16bit,
        shared_keys=rules.shared_keys_built,
        vision=not (deployment.vllm.language_model_only and rules.language_model_only),
        measure="reserved" if on_amd and rules.rocm_measures_device else "allocated",
    )


def as_constructed(facts: EngineFacts, loading: Loading) -> Loading:
    """The same as vLLM creates the parameters, which is what its planning code sees without a checkpoint.

    There, GPTQ finds no module that is quantised unless the config lists them.
    """
    rules = facts.vllm
    return replace(
        loading,
        mxfp4_width_multiple=rules.mxfp4_padding.width,
        mxfp4_hidden_multiple=rules.mxfp4_padding.hidden,
        mxfp4_layout_multiple=1,
        expert_indexes=rules.packed_expert_indexes,
        unread=(*loading.unread, formats.GPTQ_UNLISTED),
        constructed=True,
    )
