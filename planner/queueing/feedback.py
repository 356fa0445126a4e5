"""What bursts do to a replica that slows down under them: the live count swings further than the arrivals.

A replica with n requests in decode makes n (1 − u) / step(n) tokens a second, u the share of its time that prompts
take. More arrivals than usual bring more requests, longer steps and less time for them: requests leave later, and the
count rises once more. Linearised about the steady state, with the count's excess x and the arrivals' excess y,

    dx/dt = y / (1 − u) − (1 − s) x / D,    D = E[O] w,

where s is the share of a step that grows with the number of sequences (its elasticity) and the first term counts,
beside the arrivals themselves, the departures that their prompts hold up: y u / (1 − u). Three things follow (the
first two by integration of the linear equation, the third by the mean of the departures to second order):

    relaxation  swings live 1 / (1 − s) times longer than a request
    dispersion  Var(n) / E[n] = [k (I + u^2 c) / (1 − u)^2 + 1 − k] / (1 − s)
    mean        E[n] grows by s Var(n) / E[n] + k u (I − 1) / (1 − u)^2

with I the index of dispersion of the arrivals over the time that swings live, c the squared coefficient of variation of
the prompts, and k the share of the arrivals' excess
that is still there on average: E[min(O, O')] / E[O], 1 where all outputs are equally long and 1/2 where they are
exponential. Without feedback (s = u = 0) the dispersion is that of M^[X]/G/infinity, 1 + k (I − 1). For swings much
slower than a request it is that of the steady state taken at each moment's rate.

The elasticity is that of a step with many sequences, s = (rho − u) / (1 − u) with rho the work share, hence
1 − s = (1 − rho) / (1 − u): it depends on the rate alone.

Own derivation; the linear equation is the Ornstein-Uhlenbeck limit of queues with many servers (D. L. Iglehart,
"Limiting diffusion approximations for the many server queue and the repairman problem", J. Appl. Prob. 2, 1965).
Checked against the simulator in `tests/queueing/test_feedback.py` and on real logs by replay.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.queueing.footprint import Moments
from planner.traffic.types import FloatArray

LEAST_ROOM = 1e-3
"""Beyond this work share there is no steady state to swing about."""


@dataclass(frozen=True)
class Feedback:
    """How a replica answers bursts, at its rate.

    Attributes
    ----------
    kept
        k: share of the arrivals' excess that lasts, between 0 and 1.
    prefill_share
        u.
    prompt_cv2
        Squared coefficient of variation of the prompts: their work comes in unequal parts.
    stretch
        1 / (1 − s): how many times longer swings live than requests.
    output_prompt_s
        Prefill work of a request over its output tokens, s a token.
    """

    kept: FloatArray
    prefill_share: FloatArray
    prompt_cv2: FloatArray
    stretch: FloatArray
    output_prompt_s: FloatArray

    def swing_s(self, decode_s: FloatArray) -> FloatArray:
        """Time that swings of the live count live, s: ``decode_s`` is a request's mean time in decode.

        Decode time / k is the width of the rectangle with the integral and the squared integral of the share of
        requests that is still there at each age, as in `planner.queueing.residence.dispersion_scale_s`.
        """
        return np.asarray(decode_s / self.kept * self.stretch)

    def dispersion(self, idc: FloatArray) -> FloatArray:
        """Variance of the live count over its mean, with arrivals of index of dispersion ``idc``."""
        return np.asarray(self.stretch * self.met_beyond_mean(idc))

    def passive_dispersion(self, idc: FloatArray) -> FloatArray:
        """The same of a replica whose speed does not change: 1 + k (I − 1)."""
        return np.asarray(1.0 + self.kept * (idc - 1.0))

    def met_beyond_mean(self, idc: FloatArray) -> FloatArray:
        """Sequences that a token meets in its step beyond the mean count.

        Tokens are made where many requests are, E[n^2 / w] / E[n / w] = E[n] + (1 − s) Var(n) / E[n]: the stretch of
        the dispersion cancels, what the prompts push stays.
        """
        pushed = (idc + self.prefill_share**2 * self.prompt_cv2) / (1.0 - self.prefill_share) ** 2
        return np.asarray(self.kept * pushed + 1.0 - self.kept)

    def held_up_s(self, idc: FloatArray) -> FloatArray:
        """What a token waits, on average, for prompts that came with its own request's burst, s.

        k (I − 1) x prefill work / E[O] x (1 − s) / (1 − u)^2: with the feedback of the step, which multiplies it by
        1 / (1 − s), it makes the second term of the mean.
        """
        room = self.stretch * (1.0 - self.prefill_share) ** 2
        return np.asarray(self.kept * (idc - 1.0) * self.output_prompt_s / room)


def feedback_of(m: Moments, prefill_share: FloatArray, work_share: FloatArray, prompt_s: FloatArray) -> Feedback:
    """From the shares of a replica's time that prompts and all work take, and the prefill work of a mean request."""
    room = np.maximum(1.0 - work_share, LEAST_ROOM)
    share = np.minimum(prefill_share, 1.0 - room)
    return Feedback(
        kept=m.kept_output,
        prefill_share=share,
        prompt_cv2=np.maximum(m.mean_prompt2 / m.mean_prompt**2 - 1.0, 0.0),
        stretch=np.asarray((1.0 - share) / room),
        output_prompt_s=prompt_s / m.mean_output,
    )
