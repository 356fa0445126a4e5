"""How long a request stays in a replica, and what it holds over that time on average."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.queueing.footprint import Marks, Moments
from planner.traffic.types import FloatArray, IntArray


@dataclass(frozen=True)
class Residence:
    """How long a request stays: ``s0 + s1 P + s2 P^2`` seconds in prefill, then ``token_s`` for each output token."""

    s0: FloatArray
    s1: FloatArray
    s2: FloatArray
    token_s: FloatArray

    def at(self, index: IntArray) -> Residence:
        """Of many candidates, those at ``index``."""
        return Residence(self.s0[index], self.s1[index], self.s2[index], self.token_s[index])

    def mean_s(self, moments: Moments) -> FloatArray:
        """Mean time in system, s."""
        prefill = self.s0 + self.s1 * moments.mean_prompt + self.s2 * moments.mean_prompt2
        return prefill + self.token_s * moments.mean_output

    def occupied_s(self, prompt: FloatArray) -> FloatArray:
        """Time that prompts keep others waiting, s: all of their prefill but ``s0``, the last step that they share.

        With candidates along the first axis of the residence, the result has shape (candidates, prompts).
        """
        return np.asarray(self.s1[..., None] * prompt + self.s2[..., None] * prompt**2)

    def resident_s(self, prompt: FloatArray) -> FloatArray:
        """Time from admission to the first token, s, shaped as `occupied_s`."""
        return np.asarray(self.s0[..., None] + self.occupied_s(prompt))


def footprint_integral(moments: Moments, stay: Residence, power: int) -> FloatArray:
    """E of the integral over a request's life of its footprint to ``power``, token-equivalents^power x s."""
    c = moments.prefill[power]
    return np.asarray(stay.s0 * c[0] + stay.s1 * c[1] + stay.s2 * c[2] + stay.token_s * moments.decode[power])


def squared_mean_integral(moments: Moments, stay: Residence) -> FloatArray:
    """Integral over age of E[footprint at that age]^2, token-equivalents^2 x s: what bursts add to the variance.

    The two phases are taken one after the other: decode of one request beside prefill of another is left out.
    """
    p = moments.prefill_overlap
    prefill = stay.s0 * p[0] + stay.s1 * p[1] + stay.s2 * p[2]
    return np.asarray(prefill + stay.token_s * moments.decode_overlap)


def dispersion_scale_s(moments: Moments, stay: Residence) -> FloatArray:
    """Time scale at which the burstiness of arrivals reaches the live tokens, s.

    The width of the rectangle with the integral and the squared integral of the mean footprint h(a) over age,
    (integral h)^2 / integral h^2: the lifetime itself when all requests live equally long, twice its mean when
    lifetimes are exponential.
    """
    return np.asarray(footprint_integral(moments, stay, 1) ** 2 / squared_mean_integral(moments, stay))


def mean_live_tokens(rate_per_s: FloatArray, moments: Moments, stay: Residence) -> FloatArray:
    """Mean live token-equivalents: rate x E[integral of the footprint] (Little's law for work held).

    It is the true mean, rate x E[P (s + O/v) + O^2 / (2 v)], not the product of means.
    """
    return rate_per_s * footprint_integral(moments, stay, 1)


def sampling_cv2(marks: Marks, stay: Residence, requests: float, arrivals: float) -> float:
    """Squared coefficient of variation of the mean load, from having seen only so many requests.

    Of ``arrivals`` Poisson arrivals the rate is known to 1 / arrivals; of ``requests`` footprints, integrated over
    their lives, the mean is known to their squared coefficient of variation over ``requests``.
    """
    filling = stay.resident_s(marks.prompt) * marks.prefilling(np.full_like(marks.prompt, 0.5))
    held = filling + stay.token_s * marks.output * marks.held(marks.output / 2.0)
    mean = float(marks.weight @ held)
    spread = float(marks.weight @ held**2) / mean**2 - 1.0
    return 1.0 / arrivals + max(spread, 0.0) / requests
