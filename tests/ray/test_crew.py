"""Which maker gets an order, and how many makers there should be: with a clock of the test's own."""

from __future__ import annotations

from headrace.ray._crew import Demand, Member, best


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def members(clock: Clock, count: int) -> list[Member]:
    return [Member(None, f"node{i}", f"host/{i}", clock=clock) for i in range(count)]


def test_an_order_goes_to_the_maker_with_the_fewest_and_to_none_that_has_enough() -> None:
    clock = Clock()
    a, b = members(clock, 2)
    a.give(1)
    assert best([a, b]) is b
    b.give(2)
    b.give(3)
    assert best([a, b]) is a
    a.give(4)
    assert best([a, b]) is None
    a.done(1, 16)
    assert best([a, b]) is a
    a.leaving = True
    assert best([a, b]) is None
    assert best([]) is None


def test_a_slow_maker_gets_few_orders_and_is_tried_again() -> None:
    clock = Clock()
    fast, slow = members(clock, 2)
    given = {fast.node: 0, slow.node: 0}
    due: list[tuple[float, int, Member]] = []
    for order in range(40):
        while (chosen := best([fast, slow])) is None:
            at, done, member = due.pop(due.index(min(due, key=lambda each: each[0])))
            clock.now = max(clock.now, at)
            member.done(done, 16)
        chosen.give(order)
        given[chosen.node] += 1
        due.append((clock.now + (0.1 if chosen is fast else 1.0) * len(chosen.busy), order, chosen))
    assert given[fast.node] > 3 * given[slow.node] > 0
    for _, order, member in due:
        member.done(order, 16)
    assert best([fast, slow]) is fast
    fast.give(100)
    clock.now += 120  # slow was idle meanwhile, fast was not done
    assert best([fast, slow]) is slow


def test_a_maker_that_hangs_gets_no_more_orders() -> None:
    clock = Clock()
    well, stuck = members(clock, 2)
    for member in (well, stuck):
        member.give(0)
        clock.now += 0.1
        member.done(0, 16)
    stuck.give(1)
    clock.now += 30
    for order in range(2, 6):
        assert best([well, stuck]) is well
        well.give(order)
        clock.now += 0.1
        well.done(order, 16)


def test_a_maker_hangs_if_an_order_takes_far_longer_than_its_others() -> None:
    for usual, at_most in ((0.1, 20), (3.0, 60)):
        clock = Clock()
        (member,) = members(clock, 1)
        for order in range(5):
            member.give(order)
            clock.now += usual
            member.done(order, 16)
        clock.now += 1000
        assert not member.hangs()  # it has nothing to do
        member.give(10)
        clock.now += 0.9 * at_most
        member.give(11)
        assert not member.hangs()
        clock.now += 0.2 * at_most
        assert f"within {at_most} s" in member.hangs()
        member.done(10, 16)
        assert not member.hangs()  # the next order only waited behind that one


def test_a_maker_s_first_order_may_take_two_minutes() -> None:
    clock = Clock()
    (member,) = members(clock, 1)
    member.give(1)
    clock.now += 119
    assert not member.hangs()
    clock.now += 2
    assert "within 120 s" in member.hangs()


def test_an_order_is_late_after_four_times_the_usual_time_and_one_that_waits_behind_it_is_not() -> None:
    clock = Clock()
    (member,) = members(clock, 1)
    member.give(1)
    clock.now += 100
    assert not member.is_late(1), "nobody knows how long an order takes"
    member.done(1, 16)
    member.mean = 2.0
    member.give(b"z")  # keys are random, so their order means nothing
    member.give(b"a")
    clock.now += 7
    assert not member.is_late(b"z")
    clock.now += 2
    assert member.is_late(b"z")
    assert not member.is_late(b"a")


def test_failures_count_only_in_a_row() -> None:
    (member,) = members(Clock(), 1)
    for order, rows in enumerate((0, 0, 16, 0)):
        member.give(order)
        member.done(order, rows)
    assert member.failures == 1


def test_trainers_that_wait_for_a_while_get_one_more_maker() -> None:
    clock = Clock()
    demand = Demand(clock)
    demand.order(0)
    assert demand.change(1, 1, 3) == 0  # not at once
    changes = 0
    for _ in range(20):
        clock.now += 0.5
        demand.order(0)
        changes += demand.change(1 + changes, 1, 3)
    assert changes == 2  # and never above the most


def test_many_makers_get_half_as_many_more_at_a_time() -> None:
    clock = Clock()
    demand, count, counts = Demand(clock), 1, []
    for _ in range(60):
        clock.now += 0.5
        demand.order(0)
        if change := demand.change(count, 1, 20):
            count += change
            counts.append(count)
    assert counts == [2, 3, 4, 6, 9, 13, 19, 20]


def test_a_maker_is_kept_if_the_others_have_no_time_for_its_orders() -> None:
    def change(orders: int) -> int:
        clock = Clock()
        demand = Demand(clock)
        for _ in range(orders):
            clock.now += 6.1 / orders
            demand.order(4)
        return demand.change(4, 1, 8, seconds=0.1)

    assert change(180) == 0  # the 3 others would need 18 s of 18
    assert change(120) == -1  # 12 s


def test_full_rings_need_one_maker_fewer_after_a_while() -> None:
    clock = Clock()
    demand = Demand(clock)
    clock.now += 5
    demand.order(4)
    assert demand.change(3, 1, 3) == 0
    clock.now += 5
    demand.order(4)
    assert demand.change(3, 1, 3) == -1
    clock.now += 1
    assert demand.change(2, 1, 3) == 0
    clock.now += 20  # nothing is ordered at all
    assert demand.change(2, 1, 3, busy=True) == 0
    assert demand.change(2, 1, 3) == -1
    clock.now += 20
    assert demand.change(1, 1, 3) == 0


def test_a_few_orders_without_a_wait_do_not_end_the_hunger_but_most_do() -> None:
    for pattern, change in (((0, 0, 5), 1), ((0, 5, 5, 5, 5, 5), 0), ((1, 1, 1), 0)):
        clock = Clock()
        demand = Demand(clock)
        changes = 0
        for count in range(24):
            clock.now += 0.1
            demand.order(pattern[count % len(pattern)])
            changes += demand.change(1, 1, 3)
        assert changes == change, pattern
