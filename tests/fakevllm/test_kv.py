"""KV blocks: given out whole, shared by content, kept until needed."""

import pytest

from e2e.fakevllm.kv import BlockPool, Table

BLOCK = 4


@pytest.fixture
def pool() -> BlockPool:
    return BlockPool(6, BLOCK)


def test_a_pool_is_full_one_block_below_its_number(pool):
    assert pool.grow(Table(), 5 * BLOCK)
    assert pool.usage == 1.0
    assert not pool.grow(Table(), 1)


@pytest.mark.parametrize(("tokens", "blocks"), [(0, 0), (1, 1), (4, 1), (5, 2), (20, 5)])
def test_a_sequence_owns_whole_blocks(pool, tokens, blocks):
    table = Table()
    assert pool.grow(table, tokens)
    assert len(table.blocks) == blocks
    assert pool.usage == pytest.approx(blocks / 5)


def test_growth_is_all_or_nothing(pool):
    first, second = Table(), Table()
    pool.grow(first, 3 * BLOCK)
    assert not pool.grow(second, 3 * BLOCK)
    assert second.blocks == []
    assert pool.usage == pytest.approx(3 / 5)


def test_growing_within_the_last_block_takes_none(pool):
    table = Table()
    pool.grow(table, 2)
    before = list(table.blocks)
    assert pool.grow(table, BLOCK)
    assert table.blocks == before


def test_released_blocks_are_free_again(pool):
    table = Table()
    pool.grow(table, 5 * BLOCK)
    pool.release(table)
    assert pool.usage == 0.0
    assert table.blocks == []


def _computed(pool: BlockPool, tokens: list[int]) -> Table:
    table = Table()
    assert pool.grow(table, len(tokens))
    pool.remember(table, tokens, computed=len(tokens))
    return table


def test_a_second_sequence_finds_the_full_blocks_of_the_first(pool):
    tokens = list(range(10))
    table = _computed(pool, tokens)
    assert pool.cached([*tokens[:8], 99, 98]) == table.blocks[:2]


def test_the_last_token_is_never_taken_from_the_cache(pool):
    tokens = list(range(8))
    table = _computed(pool, tokens)
    assert pool.cached(tokens) == table.blocks[:1]


def test_a_block_is_found_only_behind_the_same_beginning(pool):
    _computed(pool, [1, 2, 3, 4, 5, 6, 7, 8])
    assert pool.cached([9, 2, 3, 4, 5, 6, 7, 8, 9]) == []


def test_a_salt_keeps_caches_apart(pool):
    tokens = list(range(9))
    table = Table()
    pool.grow(table, 9)
    pool.remember(table, tokens, computed=9, salt="a")
    assert pool.cached(tokens, salt="b") == []
    assert len(pool.cached(tokens, salt="a")) == 2


def test_released_blocks_stay_known_until_they_are_given_out_again(pool):
    tokens = list(range(9))
    pool.release(_computed(pool, tokens))
    assert len(pool.cached(tokens)) == 2
    assert pool.usage == 0.0
    pool.grow(Table(), 5 * BLOCK)
    assert pool.cached(tokens) == []


def test_reused_blocks_are_shared_and_freed_by_the_last_user(pool):
    tokens = list(range(9))
    first = _computed(pool, tokens)
    second = Table()
    assert pool.grow(second, 9, reuse=pool.cached(tokens))
    assert second.blocks[:2] == first.blocks[:2]
    assert pool.usage == pytest.approx(4 / 5)
    pool.release(first)
    assert pool.usage == pytest.approx(3 / 5)
    pool.release(second)
    assert pool.usage == 0.0


def test_idle_cached_blocks_count_as_free_only_once(pool):
    tokens = list(range(9))
    pool.release(_computed(pool, tokens))
    blocker = Table()
    assert pool.grow(blocker, 3 * BLOCK)
    # Two blocks are left, and both are the cached ones: with them taken there is none for the rest.
    reuse = pool.cached(tokens)
    assert not pool.grow(Table(), 9, reuse=reuse)


def test_without_caching_nothing_is_found():
    pool = BlockPool(6, BLOCK, caching=False)
    tokens = list(range(9))
    _computed(pool, tokens)
    assert pool.cached(tokens) == []
