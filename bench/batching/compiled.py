"""Planners written by hand and compiled by numba: the strongest rivals that a user could write for one rule.

They promise the same batches as the textbook's algorithm, found with what small integers allow (counting
instead of comparing, a bitmap of the free spaces instead of a tree). They hold no seed, no ranks and no state.
"""

from __future__ import annotations

import numpy
from numba import njit
from numba.cpython.unsafe.numbers import trailing_zeros

Array = numpy.ndarray


@njit
def _longest_first(order: Array, lengths: Array, ends: Array, ordered: Array) -> None:
    """Write ``order`` to ``ordered``, the longest first; ``ends[length]`` is where the run of that length ends."""
    ends[:] = 0
    for sample in order:
        ends[lengths[sample]] += 1
    filled = 0
    for length in range(len(ends) - 1, -1, -1):
        filled, ends[length] = filled + ends[length], filled
    for sample in order:
        length = lengths[sample]
        ordered[ends[length]] = sample
        ends[length] += 1


@njit
def _smallest_space(words: Array, length: int) -> int:
    """Return the smallest marked number that is not below ``length``; -1 if there is none."""
    word = length >> 6
    found = words[word] >> numpy.uint64(length & 63)
    if found:
        return length + numpy.int64(trailing_zeros(found))
    for later in range(word + 1, len(words)):
        if words[later]:
            return (later << 6) + numpy.int64(trailing_zeros(words[later]))
    return -1


@njit
def best_fit_decreasing(order: Array, lengths: Array, capacity: int, pool: int) -> tuple[Array, Array]:
    """Pack each pool of the order into bins; return the samples, bin after bin, and where each bin ends.

    A space that fits one sample of a length best fits the next one of the same length best, too, as long as there is
    room: samples of equal length go into a bin together.
    """
    packed, ends = numpy.empty_like(order), numpy.empty(len(order), numpy.int64)
    ordered = numpy.empty(min(pool, len(order)), order.dtype)
    run_ends = numpy.empty(capacity + 1, numpy.int64)
    run_bins, run_sizes = numpy.empty(len(ordered), numpy.int32), numpy.empty(len(ordered), numpy.int32)
    samples_of, next_bin = numpy.empty(len(ordered), numpy.int64), numpy.empty(len(ordered), numpy.int32)
    first_bin = numpy.empty(capacity + 1, numpy.int32)
    words = numpy.empty((capacity >> 6) + 1, numpy.uint64)
    one, all_bins = numpy.uint64(1), 0
    for start in range(0, len(order), pool):
        samples = min(pool, len(order) - start)
        _longest_first(order[start : start + samples], lengths, run_ends, ordered)
        first_bin[:] = -1
        words[:] = 0
        bins, runs, placed = 0, 0, 0
        for length in range(capacity, 0, -1):
            while placed < run_ends[length]:
                space = _smallest_space(words, length)
                if space < 0:
                    space, chosen = capacity, bins
                    samples_of[chosen] = 0
                    bins += 1
                else:
                    chosen = first_bin[space]
                    first_bin[space] = next_bin[chosen]
                    if first_bin[space] < 0:
                        words[space >> 6] ^= one << numpy.uint64(space & 63)
                size = min(run_ends[length] - placed, space // length)
                run_bins[runs], run_sizes[runs] = chosen, size
                runs += 1
                placed += size
                samples_of[chosen] += size
                space -= size * length
                if space:
                    next_bin[chosen] = first_bin[space]
                    first_bin[space] = chosen
                    words[space >> 6] |= one << numpy.uint64(space & 63)
        place = start
        for chosen in range(bins):
            samples_of[chosen], place = place, place + samples_of[chosen]
            ends[all_bins + chosen] = place
        all_bins += bins
        taken = 0
        for run in range(runs):
            place = samples_of[run_bins[run]]
            for sample in range(run_sizes[run]):
                packed[place + sample] = ordered[taken + sample]
            taken += run_sizes[run]
            samples_of[run_bins[run]] += run_sizes[run]
    return packed, ends[:all_bins]


@njit
def cheapest_cut(
    order: Array, lengths: Array, longest: int, prices: tuple[float, float, float], max_tokens: int, pool: int
) -> tuple[Array, Array]:
    """Sort each pool, and cut it where the sum of the batches' prices is least; return as ``best_fit_decreasing``.

    The textbook's dynamic programme: for every sample, every batch that ends with it and keeps to the budget.
    """
    fixed, per_token, per_pair = prices
    ordered, ends = numpy.empty_like(order), numpy.empty(len(order), numpy.int64)
    run_ends = numpy.empty(longest + 1, numpy.int64)
    least = numpy.empty(min(pool, len(order)) + 1, numpy.float64)
    begin = numpy.empty(len(least), numpy.int64)
    batches = 0
    for start in range(0, len(order), pool):
        samples = min(pool, len(order) - start)
        sorted_pool = ordered[start : start + samples]
        _longest_first(order[start : start + samples], lengths, run_ends, sorted_pool)
        least[0] = 0.0
        for end in range(1, samples + 1):
            best, best_begin, first = numpy.inf, end - 1, end - 1
            while first >= 0:
                length, size = numpy.int64(lengths[sorted_pool[first]]), end - first
                if size * length > max_tokens:
                    break
                cost = least[first] + fixed + size * (per_token * length + per_pair * length * length)
                if cost < best:
                    best, best_begin = cost, first
                first -= 1
            least[end], begin[end] = best, best_begin
        first_batch, end = batches, samples
        while end:
            ends[batches] = start + end
            batches += 1
            end = begin[end]
        ends[first_batch:batches] = ends[first_batch:batches][::-1].copy()
    return ordered, ends[:batches]
