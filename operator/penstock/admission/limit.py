"""A limit that others move: an integer that is never outside its bounds and says why it has its value.

Two hands are on it. The loop that follows the engine calls `set` again and again; whoever knows what the engine can
take at all calls `pin`. A value outside the bounds is moved to the nearest bound and never refused, because the two do
not know of each other.
"""

from __future__ import annotations

BOUNDS = "bounds"
"""The reason of a value that the bounds gave."""


class Limit:
    """A bounded integer.

    Attributes:
        value: The limit in force, `floor <= value <= ceiling`.
        floor: The least it may be, at least 1.
        ceiling: The most it may be.
        reason: A short word for why it has this value: that of the last change.
    """

    __slots__ = ("ceiling", "floor", "reason", "value")

    def __init__(self, value: int, *, floor: int = 1, ceiling: int, reason: str = "initial") -> None:
        """Start with a value inside the bounds, or at the nearest of them.

        Raises:
            ValueError: the bounds are no range of numbers above 0.
        """
        self.floor = self.ceiling = self.value = value
        self.reason = reason
        self.pin(floor, ceiling)

    def set(self, value: int, reason: str) -> bool:
        """Move the limit as far towards `value` as the bounds allow; return whether it changed."""
        allowed = min(max(value, self.floor), self.ceiling)
        if allowed == self.value:
            return False
        self.value = allowed
        self.reason = reason
        return True

    def pin(self, floor: int, ceiling: int) -> bool:
        """Set new bounds and move the limit into them; return whether it changed.

        Raises:
            ValueError: the bounds are no range of numbers above 0.
        """
        if not 1 <= floor <= ceiling:
            raise ValueError(f"a limit needs 1 <= floor <= ceiling, not {floor} and {ceiling}")
        self.floor = floor
        self.ceiling = ceiling
        return self.set(self.value, BOUNDS)

    def __repr__(self) -> str:
        return f"Limit({self.value}, floor={self.floor}, ceiling={self.ceiling}, reason={self.reason!r})"
