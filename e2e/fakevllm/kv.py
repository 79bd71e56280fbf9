"""KV-cache blocks: a pool of numbered blocks, and the prefix cache that lives in those nobody uses.

A sequence owns whole blocks of `block_size` tokens. A full block is known by a key chained from the tokens before it,
so two prompts that begin alike share their first blocks. A freed block keeps its key until it is given out again,
oldest first; until then a new sequence may take it back without computing it. Block 0 is never given out: it stands for
"no block", which is why a pool of 12 is full at 11.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

Key = tuple[int, int]


@dataclass(slots=True)
class Table:
    """The blocks of one sequence, and the keys of those that are full."""

    blocks: list[int] = field(default_factory=list)
    keys: list[Key] = field(default_factory=list)


class BlockPool:
    """All blocks of one engine.

    Args:
        blocks: Blocks in all, the reserved one included; at least 2.
        block_size: Tokens per block.
        caching: Whether freed blocks can be found again by their contents.
    """

    def __init__(self, blocks: int, block_size: int, *, caching: bool = True) -> None:
        self.blocks = blocks
        self.block_size = block_size
        self._caching = caching
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(1, blocks))
        self._users: dict[int, int] = {}
        self._block_of: dict[Key, int] = {}
        self._key_of: dict[int, Key] = {}

    @property
    def usage(self) -> float:
        """Share of the usable blocks that belong to a sequence, 0 to 1."""
        return 1.0 - len(self._free) / (self.blocks - 1)

    def keys(self, tokens: Sequence[int], *, salt: str | None = None) -> list[Key]:
        """Return the chained key of every full block of these tokens."""
        chain = hash(salt)
        found: list[Key] = []
        for end in range(self.block_size, len(tokens) + 1, self.block_size):
            chain = hash((chain, tuple(tokens[end - self.block_size : end])))
            found.append((end, chain))
        return found

    def cached(self, tokens: Sequence[int], *, salt: str | None = None) -> list[int]:
        """Return the blocks that already hold the beginning of these tokens, the last token never among them."""
        if not self._caching:
            return []
        found = []
        for key in self.keys(tokens, salt=salt)[: (len(tokens) - 1) // self.block_size]:
            block = self._block_of.get(key)
            if block is None:
                break
            found.append(block)
        return found

    def grow(self, table: Table, tokens: int, *, reuse: Sequence[int] = ()) -> bool:
        """Give a sequence the blocks for that many tokens, all or none.

        Args:
            table: The sequence's blocks, extended on success.
            tokens: Tokens it must be able to hold.
            reuse: Blocks from `cached` to take first; only for an empty table.

        Returns:
            False when the pool has too few free blocks; nothing has changed then.
        """
        missing = -(-tokens // self.block_size) - len(table.blocks) - len(reuse)
        idle = sum(block in self._free for block in reuse)
        if max(missing, 0) + idle > len(self._free):
            return False
        for block in reuse:
            self._free.pop(block, None)
            self._take(table, block)
        for _ in range(missing):
            block, _ = self._free.popitem(last=False)
            key = self._key_of.pop(block, None)
            if key is not None:
                del self._block_of[key]
            self._take(table, block)
        return True

    def _take(self, table: Table, block: int) -> None:
        self._users[block] = self._users.get(block, 0) + 1
        table.blocks.append(block)

    def remember(self, table: Table, tokens: Sequence[int], *, computed: int, salt: str | None = None) -> None:
        """Note which of a sequence's blocks are full, given how many of its tokens are computed."""
        if not self._caching or computed // self.block_size == len(table.keys):
            return
        table.keys = self.keys(tokens[:computed], salt=salt)
        for key, block in zip(table.keys, table.blocks, strict=False):
            if key not in self._block_of and block not in self._key_of:
                self._block_of[key] = block
                self._key_of[block] = key

    def release(self, table: Table) -> None:
        """Take all blocks of a sequence back; its last block is the first to be given out again."""
        for block in reversed(table.blocks):
            self._users[block] -= 1
            if self._users[block] == 0:
                del self._users[block]
                self._free[block] = None
        table.blocks.clear()
        table.keys.clear()
