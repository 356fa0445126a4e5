"""Formats of quantised matrices, each as the engines create its parameters, and the names that formats go by.

Sources: ``vllm/model_executor/layers/quantization`` of vLLM 0.11.0, 0.19.0 and 0.33.0 (``create_weights`` of each
method). Sizes are those of loading; repacking afterwards keeps them except where a docstring says otherwise.
"""

from __future__ import annotations

from planner.catalog.matrix import Stored

FLOAT32_BYTES = 4
MXFP_GROUP = 32
NVFP4_GROUP = 16
BNB_BLOCK = 64
"""Elements of a 4-bit bitsandbytes block, which has one float32 ``absmax``."""


def fp8_tensor(*, static: bool = False) -> Stored:
    """One float32 scale per matrix, and one for activations where they are static (``fp8.py``, ``modelopt.py``)."""
    return Stored(8, FLOAT32_BYTES, scale_rows=0, scalar_bytes=FLOAT32_BYTES if static else 0)


def fp8_channel() -> Stored:
    """One float32 scale per row (compressed-tensors ``channel``, ModelOpt ``FP8_PER_CHANNEL_PER_TOKEN``)."""
    return Stored(8, FLOAT32_BYTES)


def fp8_block(rows: int, columns: int, scale_bytes: int = FLOAT32_BYTES) -> Stored:
    """One scale per block, whose last row and column of blocks may be cut (``weight_scale_inv``)."""
    return Stored(8, scale_bytes, rows, columns)


def int8_channel() -> Stored:
    """int8 with one float32 scale per row (compressed-tensors ``int-quantized``, bitsandbytes ``SCB``)."""
    return Stored(8, FLOAT32_BYTES)


def awq(bits: int, group: int) -> Stored:
    """Packed weights, a 16-bit scale and a packed zero point per group (``awq.py``: ``qweight, scales, qzeros``)."""
    return Stored(bits, 2, scale_columns=group, zero_point_bits=bits)


def gptq(bits: int, group: int, *, ordered: bool, experts: bool, listed: bool = True) -> Stored:
    """As AWQ, with an int32 group index per column (``g_idx``; for experts also its sorting).

    In order of activation, ranks that split the columns keep every group's scales
    (``marlin_repeat_scales_on_all_ranks``). Unless the config lists what is quantised, the engine reads the modules'
    names from the checkpoint's headers (``maybe_update_config``), experts apart.
    """
    return Stored(
        bits,
        2,
        scale_columns=group,
        zero_point_bits=bits,
        index_bytes=8 if experts else 4,
        scales_repeated=ordered or not group,
        name=GPTQ if listed or experts else GPTQ_UNLISTED,
    )


GPTQ = "gptq"
GPTQ_UNLISTED = "gptq, modules not listed"


def packed_int(bits: int, group: int, *, symmetric: bool, index_bytes: int, experts: bool) -> Stored:
    """compressed-tensors ``pack-quantized``: 16-bit scales, zero points unless symmetric, the unpacked shape."""
    return Stored(
        bits,
        2,
        scale_columns=group,
        zero_point_bits=0 if symmetric else bits,
        index_bytes=index_bytes,
        scalar_bytes=8 if experts else 16,
        scales_repeated=not group,
        name=PACK_QUANTIZED,
    )


PACK_QUANTIZED = "pack-quantized"


def nvfp4(group: int = NVFP4_GROUP) -> Stored:
    """fp4 with an fp8 scale per 16 and two float32 scales per matrix, for weights and for activations."""
    return Stored(4, 1, scale_columns=group, scalar_bytes=2 * FLOAT32_BYTES)


def mxfp4() -> Stored:
    """fp4 with an 8-bit exponent per 32."""
    return Stored(4, 1, scale_columns=MXFP_GROUP)


def mxfp8() -> Stored:
    """fp8 with an 8-bit exponent per 32."""
    return Stored(8, 1, scale_columns=MXFP_GROUP)


def bnb_4bit() -> Stored:
    """Four bits (nf4 or fp4) and a float32 ``absmax`` per 64, which nested statistics are expanded to on loading."""
    return Stored(4, FLOAT32_BYTES, scale_columns=BNB_BLOCK)
