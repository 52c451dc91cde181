"""Trains a small list-wise ranker on batches of whole queries, and tests it on queries that it never saw.

The queries are those of LightGBM's example if ../shared/data holds them (lambdarank.train.svm, in LETOR's format;
.query says how many documents each has). Otherwise they are made up. The documents are shuffled first, so those of one
query lie anywhere. Batches hold whole queries all the same, as many as fit a budget of documents. The loss is the
softmax cross-entropy over each query's documents. The output is NDCG@10 over all queries, each ranked by a model that
was trained without it, beside that of untrained models; then the contents of the batches, and the time of an epoch
beside batch-iter's.

    python examples/ranking.py
"""

import argparse
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import batchloom as bl
import numpy
import torch
from batch_iter import GroupBatchIter
from sklearn.datasets import load_svmlight_file
from torch import Tensor, nn
from tqdm import tqdm

LETOR = Path(__file__).parents[2] / "shared" / "data" / "lambdarank.train.svm"
DOCUMENTS, BATCH, FOLDS, EPOCHS, TOP = 256, 16, 5, 12, 10
WIDTH, LEARNING_RATE, WEIGHT_DECAY = 64, 3e-3, 1e-2


@dataclass
class Judged:
    """Documents in any order: the query, the features and the relevance of each."""

    query: Tensor
    features: Tensor
    relevance: Tensor

    def only(self, chosen: Tensor) -> "Judged":
        """Return some of the documents."""
        return Judged(self.query[chosen], self.features[chosen], self.relevance[chosen])

    def dataset(self, **options: Any) -> bl.GroupDataset:
        """Return a dataset whose samples are whole queries."""
        return bl.GroupDataset(self.query, self.features, self.relevance, **options)


def load(path: Path) -> Judged:
    """Read a LETOR file; queries come from its qids, or from the file beside it that counts their documents."""
    with path.open() as file:
        has_queries = "qid:" in file.readline()
    features, relevance, *query = load_svmlight_file(str(path), query_id=has_queries)
    if not has_queries:
        counts = numpy.loadtxt(path.with_suffix(".query"), dtype=int)
        query = [numpy.repeat(numpy.arange(len(counts)), counts)]
    dense = torch.from_numpy(features.toarray()).float()
    return Judged(torch.from_numpy(query[0]), dense, torch.from_numpy(relevance).float())


def made_up(queries: int = 200, features: int = 50) -> Judged:
    """Make documents whose relevance, from 0 to 4, follows a few of their features, and some noise."""
    random = torch.Generator().manual_seed(0)
    counts = torch.randint(1, 28, (queries,), generator=random)
    x = torch.randn(int(counts.sum()), features, generator=random)
    merit = x[:, :5].sum(1) + 2 * torch.randn(len(x), generator=random)
    return Judged(torch.arange(queries).repeat_interleave(counts), x, merit.clamp(0, 4).round())


def ranker(features: int) -> nn.Module:
    """Return a model that scores each document by itself."""
    hidden = [nn.Dropout(0.3), nn.Linear(features, WIDTH), nn.ReLU(), nn.Dropout(0.5)]
    return nn.Sequential(*hidden, nn.Linear(WIDTH, 1), nn.Flatten(-2))


def list_loss(scores: Tensor, relevance: Tensor, mask: Tensor) -> Tensor:
    """Return the cross-entropy between gains and the softmax of scores of each query, averaged over queries.

    All are ``[queries, documents]``; documents that ``mask`` excludes take no part.
    """
    chances = scores.masked_fill(~mask, -torch.inf).log_softmax(1).masked_fill(~mask, 0)
    gains = (2**relevance - 1) * mask
    return -(gains / gains.sum(1, keepdim=True).clamp(min=1) * chances).sum(1).mean()


def ndcg(scores: Tensor, relevance: Tensor, mask: Tensor) -> Tensor:
    """Return NDCG@10 of each query that has a relevant document; without one, every order is as good."""
    gains = (2**relevance - 1) * mask
    ranked = gains.gather(1, scores.masked_fill(~mask, -torch.inf).argsort(1, descending=True))
    best = gains.sort(1, descending=True).values
    weights = 1 / torch.arange(2, TOP + 2).log2()[: gains.shape[1]]
    reached, possible = (order[:, :TOP] @ weights for order in (ranked, best))
    return (reached / possible)[possible > 0]


@torch.no_grad()
def judge(model: nn.Module, loader: bl.DataLoader) -> Tensor:
    """Return NDCG@10 of each query."""
    model.eval()
    return torch.cat([ndcg(model(x), relevance, mask) for _, x, relevance, mask in loader])


def train(model: nn.Module, loader: bl.DataLoader, bar: tqdm) -> None:
    """Train for a few epochs."""
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    for _ in range(EPOCHS):
        losses = []
        for _, x, relevance, mask in loader:
            losses.append(list_loss(model(x), relevance, mask))
            optimizer.zero_grad()
            losses[-1].backward()
            optimizer.step()
        bar.set_postfix(loss=f"{losses[-1].item():.2f}")
        bar.update()


def cross_validate(data: Judged) -> tuple[Tensor, Tensor]:
    """Return NDCG@10 of every query under models that never saw it: before training, and after."""
    threads = torch.get_num_threads()
    # A model this small gains nothing from a second core, and loses much if something else runs there.
    torch.set_num_threads(1)
    before, after = [], []
    rule = bl.TokenBudget(DOCUMENTS, pool=64)
    with tqdm(total=FOLDS * EPOCHS, desc="training", unit="epoch", leave=False, disable=None) as bar:
        for fold in range(FOLDS):
            torch.manual_seed(fold)
            held_back = data.query % FOLDS == fold
            tests = bl.DataLoader(data.only(held_back).dataset(layout="padded"), batching=rule)
            trains = data.only(~held_back).dataset(layout="padded")
            model = ranker(data.features.shape[1])
            before.append(judge(model, tests))
            train(model, bl.DataLoader(trains, batching=rule, shuffle=True, seed=fold), bar)
            after.append(judge(model, tests))
    torch.set_num_threads(threads)
    return torch.cat(before), torch.cat(after)


def show_whole_queries(data: Judged) -> None:
    """Check that no query is divided, lost or repeated, and print what the batches hold."""
    dataset = data.dataset()
    loader = bl.DataLoader(dataset, batching=bl.TokenBudget(DOCUMENTS, pool=64), shuffle=True)
    counts = data.query.bincount()
    queries = 0
    for found, _, _ in loader:
        names, held = found.unique(return_counts=True)
        queries += len(names)
        if not torch.equal(held, counts[names]) or len(found) > DOCUMENTS:
            raise SystemExit(f"a batch holds a part of a query, or more than {DOCUMENTS} documents")
    if queries != len(dataset):
        raise SystemExit(f"there are {len(dataset)} queries, but {queries} came")
    lost = len(dataset) - sum(len(found.unique()) for found, *_ in theirs(data))
    print(
        f"{len(loader)} batches of at most {DOCUMENTS} documents: all {queries} queries came once, each of them whole"
    )
    print(f"batch-iter, {BATCH} queries a batch: {lost} of {queries} queries never came")


def theirs(data: Judged) -> Iterable[tuple[Tensor, ...]]:
    """Begin an epoch of batch-iter, which draws its order when it is made, so a new epoch needs a new object."""
    epoch: Iterable[tuple[Tensor, ...]] = GroupBatchIter(
        data.query, data.features, data.relevance, batch_size=BATCH, shuffle=True
    )
    return epoch


def epoch_time(begin: Callable[[], Iterable[Any]]) -> float:
    """Return the seconds of an epoch without a model: the median of fifteen."""
    times = []
    for _ in range(15):
        begun = time.perf_counter()
        for _ in begin():
            pass
        times.append(time.perf_counter() - begun)
    return statistics.median(times)


def main() -> None:
    """Train, test, and compare."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    torch.manual_seed(0)
    data = load(LETOR) if LETOR.exists() else made_up()
    data = data.only(torch.randperm(len(data.query)))
    stats, name = data.dataset().stats(), LETOR.name if LETOR.exists() else "made up"
    print(f"{name}: {stats.rows} documents of {data.features.shape[1]} features, shuffled")
    print(f"{stats.groups} queries, the longest of {stats.longest} documents")
    before, after = cross_validate(data)
    print(f"NDCG@{TOP} of {len(after)} queries, each held back once: {after.mean():.3f}, untrained {before.mean():.3f}")
    if after.mean() <= before.mean():
        raise SystemExit("training did not help")
    show_whole_queries(data)
    ours = bl.DataLoader(data.dataset(), batch_size=BATCH, shuffle=True)
    mine, other = epoch_time(lambda: ours) * 1e3, epoch_time(lambda: theirs(data)) * 1e3
    print(f"an epoch of {BATCH} queries a batch: {mine:.2f} ms, batch-iter {other:.2f} ms, {other / mine:.1f} times")


if __name__ == "__main__":
    main()
