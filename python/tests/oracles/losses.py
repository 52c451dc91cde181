"""Losses by definition, slow and obvious: from the labels of all samples of an update, as one large batch."""

import itertools
import math

IGNORED = -100


def samples_of(batch):
    """The labels that count of each sample of a batch, and their weights, from what the batch holds."""
    labels, weights = batch["labels"], batch["loss_weight"]
    if "cu_seqlens" in batch:
        ends = batch["cu_seqlens"].tolist()
        rows = [(labels[a:b], weights[a:b]) for a, b in itertools.pairwise(ends)]
    else:
        rows = list(zip(labels, weights, strict=True))
    index = batch["index"].tolist() if "index" in batch else range(len(rows))
    lengths = batch["attention_mask"].tolist() if "attention_mask" in batch else [None] * len(rows)
    for (own, weight), sample, mask in zip(rows, index, lengths, strict=True):
        places = range(own.reshape(-1).shape[0])
        counted = [
            place
            for place in places
            if sample >= 0 and (mask is None or mask[place]) and own.reshape(-1)[place] != IGNORED
        ]
        flat = weight.reshape(-1).tolist()
        assert all(flat[place] == 0 for place in places if place not in counted)
        yield [int(own.reshape(-1)[place]) for place in counted], [flat[place] for place in counted]


def term(label):
    """The term of a label: any number that tells labels apart."""
    return 1 + math.sin(label)


def loss_of(kind, samples):
    """The loss of one large batch, of the labels of each sample, and the number that it is divided by."""
    labelled = [[term(label) for label in labels] for labels in samples if labels]
    if not labelled:
        return 0.0, 1
    if kind == "token-mean":
        terms = [term for sample in labelled for term in sample]
        return sum(terms) / len(terms), len(terms)
    each = [sum(sample) / (len(sample) if kind == "sequence-mean" else 1) for sample in labelled]
    return sum(each) / len(each), len(each)
