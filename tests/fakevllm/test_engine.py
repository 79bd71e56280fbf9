"""The scheduler in virtual time: seats, budgets, preemption, prefix cache, ends."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from e2e.fakevllm.engine import Clock, Emission, Engine, Finish, Limits, Sequence, Wish
from e2e.fakevllm.sampler import Choice, Sampler

END = 0


def make(**limits) -> Engine:
    defaults = {"max_sequences": 4, "max_step_tokens": 64, "max_model_tokens": 256, "blocks": 33, "block_size": 8}
    return Engine(Limits(**{**defaults, **limits}), Sampler(range(10, 90), 100))


def wish(prompt: int = 4, tokens: int = 3, **fields) -> Wish:
    return Wish(prompt=tuple(range(prompt)), max_tokens=tokens, **fields)


def step(engine: Engine, now: float = 0.0) -> list[Emission]:
    return engine.complete(engine.schedule(now=now), now=now)


def run(engine: Engine, *, limit: int = 10_000) -> list[Emission]:
    found = []
    for number in range(limit):
        if not engine.busy:
            return found
        found += step(engine, float(number))
    raise AssertionError("the engine does not come to an end")


def answer(emissions: list[Emission], sequence: Sequence) -> list[int]:
    return [emission.token for emission in emissions if emission.sequence is sequence]


def test_a_sequence_gets_one_token_per_step_and_ends_at_its_limit():
    engine = make()
    sequence = engine.submit(wish(tokens=3), now=0.0)
    emissions = run(engine)
    assert len(answer(emissions, sequence)) == 3
    assert [emission.finish for emission in emissions] == [None, None, Finish.LENGTH]
    assert engine.counters.steps == 3
    assert engine.pool.usage == 0.0


def test_more_sequences_than_seats_wait_in_order():
    engine = make(max_sequences=2)
    sequences = [engine.submit(wish(), now=0.0) for _ in range(3)]
    step(engine)
    assert engine.running == sequences[:2]
    assert list(engine.waiting) == sequences[2:]


def test_a_freed_seat_is_taken_in_the_next_step():
    engine = make(max_sequences=1)
    first = engine.submit(wish(tokens=1), now=0.0)
    second = engine.submit(wish(tokens=1), now=0.0)
    assert [emission.sequence for emission in step(engine)] == [first]
    assert [emission.sequence for emission in step(engine)] == [second]


def test_long_prompts_are_prefilled_in_pieces():
    engine = make(max_step_tokens=10)
    engine.submit(wish(prompt=25, tokens=1), now=0.0)
    totals = []
    while engine.busy:
        scheduled = engine.schedule(now=0.0)
        totals.append(scheduled.total)
        engine.complete(scheduled, now=0.0)
    assert totals == [10, 10, 5]


def test_running_sequences_come_before_new_prompts_in_the_budget():
    engine = make(max_step_tokens=10)
    old = engine.submit(wish(prompt=4, tokens=9), now=0.0)
    step(engine)
    new = engine.submit(wish(prompt=20, tokens=1), now=0.0)
    assert engine.schedule(now=0.0).tokens == {old: 1, new: 9}


def test_without_free_blocks_the_youngest_is_preempted_and_nothing_is_lost():
    engine = make(blocks=6, block_size=8)
    alone = make(blocks=6, block_size=8)
    wishes = [wish(prompt=8 + number, tokens=16) for number in range(3)]
    sequences = [engine.submit(each, now=0.0) for each in wishes]
    emissions = run(engine)
    assert engine.counters.preemptions > 0
    assert sequences[0].preemptions == 0
    for each, sequence in zip(wishes, sequences, strict=True):
        undisturbed = alone.submit(each, now=0.0)
        assert answer(emissions, sequence) == answer(run(alone), undisturbed)


def test_a_preempted_sequence_goes_to_the_head_of_the_queue():
    engine = make(blocks=4, block_size=8, caching=False)
    first = engine.submit(wish(prompt=8, tokens=20), now=0.0)
    second = engine.submit(wish(prompt=8, tokens=20), now=0.0)
    third = engine.submit(wish(prompt=8, tokens=20), now=0.0)
    step(engine)
    assert engine.running == [first, second, third]
    step(engine)
    assert engine.running == [first]
    assert list(engine.waiting) == [second, third]


def test_the_same_prompt_again_is_served_from_the_cache():
    engine = make(block_size=8)
    first = engine.submit(wish(prompt=20, tokens=2), now=0.0)
    run(engine)
    second = engine.submit(wish(prompt=20, tokens=2), now=0.0)
    run(engine)
    assert (first.cached, second.cached) == (0, 16)
    assert (engine.counters.prefix_queries, engine.counters.prefix_hits) == (40, 16)


def test_caching_changes_no_answer():
    answers = []
    for caching in (True, False):
        engine = make(caching=caching)
        for _ in range(2):
            sequence = engine.submit(wish(prompt=30, tokens=10), now=0.0)
            answers.append(answer(run(engine), sequence))
    assert len({tuple(tokens) for tokens in answers}) == 1


@pytest.mark.parametrize(
    ("fields", "finish", "stop_token", "produced"),
    [
        ({"end_tokens": frozenset({END})}, Finish.STOP, None, 1),
        ({"stop_tokens": frozenset({END})}, Finish.STOP, END, 1),
        ({"end_tokens": frozenset({END}), "min_tokens": 3}, Finish.STOP, None, 4),
        ({}, Finish.LENGTH, None, 9),
    ],
    ids=["end token", "stop token", "end token held back", "no such token"],
)
def test_what_ends_a_sequence(fields, finish, stop_token, produced):
    engine = make()
    sequence = engine.submit(wish(tokens=9, choice=Choice(bias={END: 100.0}), **fields), now=0.0)
    last = run(engine)[-1]
    assert (last.finish, last.stop_token, sequence.produced) == (finish, stop_token, produced)


def test_the_context_ends_a_sequence_before_its_limit():
    engine = make(max_model_tokens=10)
    sequence = engine.submit(wish(prompt=6, tokens=100), now=0.0)
    assert run(engine)[-1].finish is Finish.LENGTH
    assert sequence.produced == 4


@pytest.mark.parametrize("steps", [0, 1], ids=["waiting", "running"])
def test_stopping_a_sequence_frees_its_blocks(steps):
    engine = make()
    sequence = engine.submit(wish(tokens=50), now=0.0)
    for _ in range(steps):
        step(engine)
    engine.stop(sequence, Finish.ABORT)
    engine.stop(sequence, Finish.STOP)
    assert sequence.finish is Finish.ABORT
    assert not engine.busy
    assert engine.pool.usage == 0.0


def test_a_sequence_stopped_within_a_step_gets_no_token_from_it():
    engine = make()
    sequence = engine.submit(wish(), now=0.0)
    scheduled = engine.schedule(now=0.0)
    engine.stop(sequence, Finish.ABORT)
    assert engine.complete(scheduled, now=0.0) == []


@pytest.mark.parametrize(
    ("priorities", "order"), [(True, ["urgent", "first", "later"]), (False, ["first", "later", "urgent"])]
)
def test_priorities_count_only_where_they_are_switched_on(priorities, order):
    engine = make(priorities=priorities)
    names = {}
    for name, priority in (("first", 0), ("later", 5), ("urgent", -1)):
        names[engine.submit(wish(priority=priority), now=0.0)] = name
    assert [names[sequence] for sequence in engine.waiting] == order


def test_times_are_those_the_caller_gave():
    engine = make(max_sequences=1)
    engine.submit(wish(tokens=2), now=1.0)
    late = engine.submit(wish(tokens=2), now=1.5)
    for now in (2.0, 3.0, 4.0, 5.0):
        scheduled = engine.schedule(now=now)
        engine.complete(scheduled, now=now + 0.5)
    assert (late.queued_at, late.scheduled_at, late.first_token_at, late.last_token_at) == (1.5, 4.0, 4.5, 5.5)


def test_prompt_tokens_in_prefill_are_counted_until_the_first_token():
    engine = make(max_sequences=1)
    engine.submit(wish(prompt=7), now=0.0)
    engine.submit(wish(prompt=5), now=0.0)
    assert engine.prefill_tokens == 12
    step(engine)
    assert engine.prefill_tokens == 5


@pytest.mark.parametrize(("clock", "tokens", "seconds"), [(Clock(0.01), 100, 0.01), (Clock(0.01, 0.001), 100, 0.11)])
def test_a_step_takes_as_long_as_the_clock_says(clock, tokens, seconds):
    assert clock.seconds(tokens) == pytest.approx(seconds)


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.integers(1, 60), st.integers(1, 40)), min_size=1, max_size=12),
    st.integers(14, 40),
    st.integers(4, 64),
    st.integers(1, 6),
)
def test_whatever_is_asked_every_sequence_ends_with_its_tokens_and_all_blocks_come_back(asked, blocks, budget, seats):
    engine = make(blocks=blocks, block_size=8, max_step_tokens=budget, max_sequences=seats)
    sequences = [engine.submit(wish(prompt=prompt, tokens=tokens), now=0.0) for prompt, tokens in asked]
    while engine.busy:
        emissions = step(engine)
        assert len(engine.running) <= seats
        assert len({emission.sequence for emission in emissions}) == len(emissions)
        assert 0.0 <= engine.pool.usage <= 1.0
    assert [sequence.produced for sequence in sequences] == [tokens for _, tokens in asked]
    assert engine.pool.usage == 0.0
