from __future__ import annotations

import numpy as np
import pytest

from planner.errors import InputError
from planner.traffic.burstiness import idc_at
from planner.traffic.types import Burst


def _burst(idc: list[float], good: list[bool]) -> Burst:
    ones = np.ones(3)
    return Burst(np.array([1.0, 10.0, 100.0]), ones, ones, np.array(idc), ones, np.array(good))


def test_idc_is_read_between_the_resolved_scales() -> None:
    burst = _burst([2.0, 4.0, 8.0], [True, True, True])
    assert idc_at(burst, 10) == 4.0
    assert idc_at(burst, 10**0.5) == pytest.approx(3.0)
    assert idc_at(burst, 0.01) == 2.0
    assert idc_at(burst, 1e6) == 8.0
    assert idc_at(_burst([99.0, 4.0, np.nan], [False, True, True]), 1) == 4.0
    assert idc_at(_burst([0.5, 0.4, 0.3], [True, True, True]), 5) == 1.0
    with pytest.raises(InputError, match="no burst can be measured"):
        idc_at(_burst([1.0, 1.0, 1.0], [False, False, False]), 5)
