//! A table of the options of a plan that exclude each other, with the reasons.
//!
//! Promise: the first row whose two choices are both made is the error. Nothing else compares two options, here or in
//! other languages.

use super::PlanOptions;
use super::error::PlanCause;
use crate::Result;
use crate::draws::Mix;
use crate::order::Shuffle;
use crate::ranks::Uneven;

/// The name of a choice, as errors have it, if some options make it.
type Choice = fn(&PlanOptions) -> Option<&'static str>;

/// A reason that ends with the way out of what chunks refuse: data that is not read chunk by chunk.
macro_rules! or_no_chunks {
    ($reason:literal) => {
        concat!(
            $reason,
            ", or data that is not read chunk by chunk: arrays in memory, or mapped files, as `batchloom convert FILES \
             --out FOLDER --to arrow` writes them"
        )
    };
}

/// Choices that exclude each other, and the reason, which ends with what to change.
const CONFLICTS: &[(Choice, Choice, &str)] = &[
    (distinct, homogeneous, "a batch holds one key or different ones; expected one of them"),
    (weights, sources, "samples of sources are drawn in passes; expected weights of sources alone"),
    (num_samples, measured, "shares are shares of tokens or labels; expected turns by samples"),
    (stored, weights, "samples are drawn at random; expected them to be shuffled"),
    (runs, drawn, "batches are no runs of neighbours; expected to shuffle samples, or nothing"),
    (shards, drawn, "samples are drawn from all of the data; leave it out"),
    (listed, drawn, "the list says which samples an epoch has; expected another rule"),
    (runs, grouped, "keys decide which samples share a batch; expected to shuffle samples"),
    (shards, grouped, "samples of one key lie in several shards; leave it out"),
    (balance, grouped, "batches of a step are chosen by their keys; leave one of them out"),
    (largest_first, grouped, "batches of a step are chosen by their keys; leave one of them out"),
    (listed, grouped, "the list says which samples share a batch; expected another rule"),
    (
        short,
        homogeneous,
        "steps that batches of one key do not fill lie anywhere; expected uneven pad or mask, or drop_last",
    ),
    (balanced, homogeneous, "a batch of one key may lack samples of a class; leave one of them out"),
    (stored, distinct, "samples move to other batches; expected them to be shuffled"),
    (drawn, distinct, "keys may then be too frequent in some epoch; expected every sample once"),
    (sorting, distinct, "samples move to other batches; expected batches of a fixed size"),
    (sorting, per_class, "samples move to other batches; expected batches of a fixed size"),
    (per_class, measured, "a class has as many samples in each turn; expected turns by samples"),
    (shuffle, listed, "the list is the order of batches; leave it out"),
    (shards, listed, "the list is the order of batches; leave it out"),
    (balance, listed, "the list is the order of batches; leave it out"),
    (largest_first, listed, "the list is the order of batches; leave it out"),
    (shards, chunks, or_no_chunks!("chunks are the shards of data that is read; expected no shard_size")),
    (
        stored_chunks,
        drawn,
        or_no_chunks!(
            "each chunk is read once in an epoch; expected every sample once, a mixture of sources"
        ),
    ),
    (
        runs,
        chunks,
        or_no_chunks!("batches mix samples of several chunks; expected to shuffle samples, or nothing"),
    ),
    (listed, chunks, or_no_chunks!("the list says which samples share a batch; expected another rule")),
    (
        grouped,
        chunks,
        or_no_chunks!(
            "samples of one key lie in many chunks, and each rank reads chunks of its own; expected batches of any keys"
        ),
    ),
    (
        balance,
        chunks,
        or_no_chunks!(
            "batches of a step would share their chunks, and each rank reads chunks of its own; expected no balance"
        ),
    ),
    (
        largest_first,
        chunks,
        or_no_chunks!(
            "the chunks of the largest batch would be read first, and again in their turn; expected no largest_first"
        ),
    ),
];

/// Refuses options that exclude each other.
///
/// # Errors
/// [`Kind::Argument`](crate::Kind::Argument) if options exclude each other.
pub(super) fn check(options: &PlanOptions) -> Result<()> {
    let conflict = CONFLICTS.iter().find_map(|(option, other, reason)| {
        let (option, other) = (option(options)?, other(options)?);
        Some(PlanCause::conflict(option, other, reason))
    });
    conflict.map_or(Ok(()), |cause| Err(cause.into()))
}

/// The option that makes an epoch other than every sample once.
pub(super) fn drawn(options: &PlanOptions) -> Option<&'static str> {
    sources(options).or_else(|| weights(options)).or_else(|| num_samples(options))
}

fn sources(options: &PlanOptions) -> Option<&'static str> {
    balanced(options).or_else(|| options.mix.is_some().then_some("a mixture"))
}

fn balanced(options: &PlanOptions) -> Option<&'static str> {
    options.mix.as_ref().is_some_and(Mix::is_balanced).then_some("balanced_by")
}

fn measured(options: &PlanOptions) -> Option<&'static str> {
    options.mix.as_ref().is_some_and(Mix::is_measured).then_some("a mixture")
}

fn per_class(options: &PlanOptions) -> Option<&'static str> {
    options.per_class.is_some().then_some("per_class")
}

fn weights(options: &PlanOptions) -> Option<&'static str> {
    options.weights.is_some().then_some("weights")
}

fn num_samples(options: &PlanOptions) -> Option<&'static str> {
    options.num_samples.is_some().then_some("num_samples")
}

fn grouped(options: &PlanOptions) -> Option<&'static str> {
    homogeneous(options).or_else(|| distinct(options))
}

fn homogeneous(options: &PlanOptions) -> Option<&'static str> {
    options.homogeneous_by.is_some().then_some("homogeneous_by")
}

fn distinct(options: &PlanOptions) -> Option<&'static str> {
    options.distinct_by.is_some().then_some("distinct_by")
}

fn shuffle(options: &PlanOptions) -> Option<&'static str> {
    (options.shuffle != Shuffle::Nothing).then_some("shuffle")
}

fn stored(options: &PlanOptions) -> Option<&'static str> {
    (options.shuffle == Shuffle::Nothing).then_some("stored order")
}

fn runs(options: &PlanOptions) -> Option<&'static str> {
    (options.shuffle == Shuffle::Runs).then_some("an order of runs")
}

fn shards(options: &PlanOptions) -> Option<&'static str> {
    options.shard_size.is_some().then_some("shard_size")
}

fn chunks(options: &PlanOptions) -> Option<&'static str> {
    stored_chunks(options).or_else(|| options.mix.as_ref().is_some_and(Mix::is_in_chunks).then_some("chunks"))
}

/// Chunks of all samples, and not of the sources of a mixture.
fn stored_chunks(options: &PlanOptions) -> Option<&'static str> {
    options.chunks.is_some().then_some("chunks")
}

fn balance(options: &PlanOptions) -> Option<&'static str> {
    options.balance.then_some("balance")
}

fn largest_first(options: &PlanOptions) -> Option<&'static str> {
    options.largest_first.then_some("largest_first")
}

fn listed(options: &PlanOptions) -> Option<&'static str> {
    options.rule.listed().is_some().then_some("a list of batches")
}

fn short(options: &PlanOptions) -> Option<&'static str> {
    (options.uneven == Uneven::Short && !options.drop_last).then_some("uneven short")
}

fn sorting(options: &PlanOptions) -> Option<&'static str> {
    options.rule.looks_at_sizes().then_some("a rule that sorts by size")
}
