"""What the modes that were taken cost beyond the others, judged by the samples in which another one was really taken.

The one place for this rule. Knows seconds only as they are given to it.
"""

from __future__ import annotations

from quire.core.recovery.interface import RecoveryMode


class Regret:
    """Sums over samples: what the mode that is usually taken was predicted to cost, and what the other one then cost.

    One sample that turns out cheaper than was predicted of the usual mode says little, since both scatter: had each its
    own say where it is in favour of the other mode, and none where it is not, noise alone would add up to a regret.
    """

    def __init__(self) -> None:
        self._usual_s = 0.0
        self._sampled_s = 0.0

    def note(self, predicted: dict[str, float], mode: RecoveryMode, actual: float) -> bool:
        """A sample is over.

        Args:
            predicted: seconds by `RecoveryMode.value`.
            mode: that was taken on purpose.
            actual: seconds that it cost.

        Returns:
            Whether it tells anything: not where it cost nothing, or nothing else was weighed.
        """
        usual = min((seconds for name, seconds in predicted.items() if name != mode.value), default=None)
        if usual is None or actual <= 0.0:
            return False
        self._usual_s += usual
        self._sampled_s += actual
        return True

    @property
    def seconds(self) -> float:
        """That the other mode would have saved in the samples; none where it was the dearer one."""
        return max(0.0, self._usual_s - self._sampled_s)

    @property
    def share(self) -> float | None:
        """`seconds`, relative to what the samples cost; None without any."""
        return self.seconds / self._sampled_s if self._sampled_s > 0.0 else None
