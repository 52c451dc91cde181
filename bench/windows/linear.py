"""Define DLinear from its definition: two linear layers over time, of a moving average and of the rest."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import avg_pool1d, pad

KERNEL = 25


class DLinear(nn.Module):
    """Splits each feature in a moving average and the rest; one linear layer over time for each makes the forecast."""

    def __init__(self, length: int, horizon: int) -> None:
        super().__init__()
        self.trend = nn.Linear(length, horizon)
        self.rest = nn.Linear(length, horizon)

    def forward(self, x: Tensor) -> Tensor:
        """Return the next steps, ``[batch, horizon, features]``."""
        steps = x.mT
        trend = avg_pool1d(pad(steps, (KERNEL // 2, KERNEL // 2), mode="replicate"), KERNEL, stride=1)
        forecast: Tensor = (self.trend(trend) + self.rest(steps - trend)).mT
        return forecast
