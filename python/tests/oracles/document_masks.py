"""Which tokens of a row see each other, pair by pair; and attention, document by document."""

import torch


def sees(mask, q, k, prefix):
    """Whether place ``q`` of a document sees place ``k``; tensors are compared element by element."""
    near = torch.ones_like(q == k) if mask.window is None else (q - k).abs() <= mask.window
    near = near & (k <= q) if mask.kind == "causal" else near
    return near | ((q < prefix) & (k < prefix))


def mask_mod(mask, rows, tokens):
    """The function that torch's ``create_block_mask`` takes, for rows of documents: lists of ``(length, prefix)``."""
    documents, places = torch.full((len(rows), tokens), -1), torch.zeros((len(rows), tokens), dtype=torch.long)
    prefixes = torch.zeros((len(rows), tokens), dtype=torch.long)
    for row, lengths in enumerate(rows):
        start = 0
        for number, (length, prefix) in enumerate(lengths):
            documents[row, start : start + length] = number
            places[row, start : start + length] = torch.arange(length)
            prefixes[row, start : start + length] = prefix
            start += length

    def function(b, h, q, k):
        same = (documents[b, q] == documents[b, k]) & (documents[b, q] >= 0)
        return same & sees(mask, places[b, q], places[b, k], prefixes[b, q])

    return function


def attention(mask, documents, query, key, value):
    """The attention of ``[heads, tokens, width]``, one document after the other; zeros after them."""
    out, start = torch.zeros_like(value), 0
    for length, prefix in documents:
        own = slice(start, start + length)
        places = torch.arange(length)
        allowed = sees(mask, places[:, None], places[None, :], torch.tensor(prefix))
        scores = query[:, own] @ key[:, own].transpose(-1, -2) / query.shape[-1] ** 0.5
        out[:, own] = scores.masked_fill(~allowed, -torch.inf).softmax(-1) @ value[:, own]
        start += length
    return out
