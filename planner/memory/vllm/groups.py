"""A group of layers that share a block table, the unit of vLLM's pool arithmetic."""

from __future__ import annotations

from dataclasses import dataclass


def ceil_div(a: int, b: int) -> int:
    """Smallest whole number of ``b`` that covers ``a``."""
    return -(-a // b)


@dataclass(frozen=True)
class Group:
    """``layers`` layers of one kind that share a block table.

    Attributes
    ----------
    page_bytes
        One layer's page.
    window_tokens
        ``None`` for layers that keep every token.
    chunked
        The window is a chunk that starts anew.
    recurrent
        Each block is the state of a sequence instead of a cache of tokens.
    held_blocks
        Blocks that a request holds however long it is; ``None`` where they follow the tokens.
    latent
        Rows are indexed by the kernels, so that a page cannot be padded.
    ranks
        Ranks that share a request's tokens (decode context parallelism).
    """

    layers: int
    block_tokens: int
    page_bytes: int
    window_tokens: int | None = None
    chunked: bool = False
    recurrent: bool = False
    held_blocks: int | None = None
    latent: bool = False
    ranks: int = 1

    @property
    def table_key(self) -> tuple[object, ...]:
        """What layers of different sizes must have in common to share a block table.

        States must also have pages of one size (vllm/v1/kv_cache_interface.py, ``is_uniform_with_collection``).
        """
        state_page = self.page_bytes if self.recurrent else None
        return (self.block_tokens, self.window_tokens, self.chunked, state_page, self.held_blocks, self.ranks)
