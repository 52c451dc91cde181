"""Define PatchTST, the model of table 3: a transformer over patches of each column.

Written from its paper and its published settings (PatchTST/42: 336 steps, patches of 16 that begin every 8 steps). The
42nd patch comes from repeating the last value. Columns share all weights. Each window is brought to mean 0 and
deviation 1 column by column, and its forecast is brought back. Attention adds its scores to those of the layer before.

Promise: padding the end copies x once, so nothing after it depends on the strides of x: equal windows have equal
forecasts to the last bit, viewed or stacked.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, pad

LEAST_VARIANCE = 1e-5


@dataclass(frozen=True)
class Width:
    """The size of the transformer."""

    hidden: int
    heads: int
    inner: int
    layers: int
    dropout: float
    patch: int = 16
    patch_stride: int = 8


# Of the published scripts: for the sets of hours and for those of minutes.
HOURS = Width(hidden=16, heads=4, inner=128, layers=3, dropout=0.3)
MINUTES = Width(hidden=128, heads=16, inner=256, layers=3, dropout=0.2)


class Dropout(nn.Module):
    """Zeroes values at random. It draws a byte for each: torch's own took a third of a step on a CPU."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.dropped = round(rate * 256)

    def forward(self, hidden: Tensor) -> Tensor:
        """Return the values, some of them zero and the others larger."""
        if not self.training:
            return hidden
        draws = torch.empty(-(-hidden.numel() // 8), dtype=torch.int64, device=hidden.device).random_(-(2**63), None)
        kept = draws.view(torch.uint8)[: hidden.numel()].view(hidden.shape) >= self.dropped
        return hidden * kept.to(hidden.dtype).mul_(256 / (256 - self.dropped))


class Attention(nn.Module):
    """Attends over patches; its scores begin with those of the layer before."""

    def __init__(self, width: Width) -> None:
        super().__init__()
        self.heads, self.scale = width.heads, (width.hidden // width.heads) ** -0.5
        self.into, self.out = nn.Linear(width.hidden, 3 * width.hidden), nn.Linear(width.hidden, width.hidden)

    def forward(self, hidden: Tensor, before: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the new hidden states and the scores."""
        query, key, value = self.into(hidden).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        scores = query * self.scale @ key.mT
        if before is not None:
            scores = scores + before
        found = scores.softmax(-1) @ value
        return self.out(found.transpose(1, 2).flatten(2)), scores


class Layer(nn.Module):
    """Attends, then transforms each patch on its own; each is added and normalised over the batch."""

    def __init__(self, width: Width) -> None:
        super().__init__()
        self.attention, self.dropout = Attention(width), Dropout(width.dropout)
        self.into, self.out = nn.Linear(width.hidden, width.inner), nn.Linear(width.inner, width.hidden)
        self.norms = nn.ModuleList(nn.BatchNorm1d(width.hidden) for _ in range(2))

    def forward(self, hidden: Tensor, before: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the hidden states and the scores for the next layer."""
        attended, scores = self.attention(hidden, before)
        hidden = normalised(self.norms[0], hidden + self.dropout(attended))
        inner = self.dropout(gelu(self.into(hidden)))
        return normalised(self.norms[1], hidden + self.dropout(self.out(inner))), scores


def normalised(norm: nn.Module, hidden: Tensor) -> Tensor:
    """Normalise each hidden state over all patches of the batch."""
    flat: Tensor = norm(hidden.flatten(0, 1))
    return flat.unflatten(0, hidden.shape[:2])


class PatchTST(nn.Module):
    """Forecasts each column from its patches."""

    def __init__(self, length: int, horizon: int, width: Width) -> None:
        super().__init__()
        self.length, self.width = length, width
        self.patches = (length - width.patch) // width.patch_stride + 2
        self.embed = nn.Linear(width.patch, width.hidden)
        self.position = nn.Parameter(torch.empty(self.patches, width.hidden).uniform_(-0.02, 0.02))
        self.dropout = Dropout(width.dropout)
        self.layers = nn.ModuleList(Layer(width) for _ in range(width.layers))
        self.head = nn.Linear(self.patches * width.hidden, horizon)

    def forward(self, x: Tensor) -> Tensor:
        """Return the next steps, ``[batch, horizon, columns]``, for ``[batch, length, columns]``."""
        series = pad(x.mT, (0, self.width.patch_stride), mode="replicate")
        variance, mean = torch.var_mean(series[..., : self.length], dim=-1, correction=0, keepdim=True)
        deviation = (variance + LEAST_VARIANCE).sqrt()
        patches = ((series - mean) / deviation).unfold(-1, self.width.patch, self.width.patch_stride)
        hidden, scores = self.dropout(self.embed(patches.flatten(0, 1)) + self.position), None
        for layer in self.layers:
            hidden, scores = layer(hidden, scores)
        forecast: Tensor = self.head(hidden.flatten(1).unflatten(0, x.shape[::2]))
        return (forecast * deviation + mean).mT
