"""Slots of the swap tier: owners, and the order of reuse."""

from __future__ import annotations

from quire.core.tier_index import TierIndex


def save(tier: TierIndex, key: bytes, *, failed: bool = False) -> None:
    tier.end(tier.begin_save(key), failed=failed)
    tier.check_integrity()


def test_what_somebody_holds_is_not_idle_and_keeps_its_slot() -> None:
    tier = TierIndex(2)
    save(tier, b"a")
    save(tier, b"b")
    assert tier.is_idle(b"a")
    assert tier.hold(b"a")
    assert not tier.is_idle(b"a")
    assert tier.num_available == 1
    save(tier, b"c")
    assert b"a" in tier
    assert b"b" not in tier
    tier.release(b"a")
    assert tier.is_idle(b"a")
    tier.check_integrity()


def test_what_is_absent_cannot_be_held() -> None:
    tier = TierIndex(1)
    assert not tier.hold(b"a")
    assert not tier.is_idle(b"a")


def test_who_held_what_was_lost_gives_up_nothing_of_who_saved_it_again() -> None:
    tier = TierIndex(1)
    entry = tier.begin_save(b"a")
    assert tier.hold(b"a")  # the first one, whose save fails
    tier.end(entry, failed=True)
    assert b"a" not in tier
    save(tier, b"a")
    assert tier.hold(b"a")  # the second one, whose save does not
    tier.release(b"a")
    assert tier.num_available == 0, "the second one's slot would be given away"
    tier.release(b"a")
    assert tier.is_idle(b"a")
    tier.check_integrity()


def test_what_is_saved_again_is_kept_for_whoever_held_it_before() -> None:
    tier = TierIndex(1)
    entry = tier.begin_save(b"a")
    assert tier.hold(b"a")
    tier.end(entry, failed=True)
    save(tier, b"a")
    assert tier.num_available == 0
    tier.release(b"a")
    tier.invalidate(b"a")
    tier.check_integrity()
    assert tier.num_available == 1
