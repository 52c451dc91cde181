//! Results of a run, back in the order of the dataset.

use super::error::PlanCause;
use crate::Result;

/// Returns, for each sample, the place of its result among `results` that came in the order of `samples`.
///
/// A sample that came twice ([`Uneven::Pad`](crate::ranks::Uneven::Pad) repeats batches) has its last result. A negative
/// number is that of a place that only filled up ([`Uneven::Mask`](crate::ranks::Uneven::Mask)); its result is left out.
///
/// ```
/// use batchloom::Plan;
/// use batchloom::plan::restore_order;
///
/// let plan = Plan::builder(10).batch_size(4).shuffle(true).build()?;
/// let mut samples = Vec::new();
/// for step in 0..plan.steps() {
///     samples.extend(plan.indices(step, 0)?);
/// }
/// let results: Vec<_> = samples.iter().map(|sample| sample * 10).collect();
/// let places = restore_order(&samples, results.len())?;
/// let restored: Vec<_> = places.into_iter().map(|place| results[place]).collect();
/// assert_eq!(restored, [0, 10, 20, 30, 40, 50, 60, 70, 80, 90]);
/// # Ok::<(), batchloom::Error>(())
/// ```
///
/// # Errors
/// [`Kind::Data`](crate::Kind::Data) if there are more or fewer results than samples, or if a sample before the largest
/// one of `samples` is missing. (Samples after it cannot be known to be missing.)
pub fn restore_order<S: Copy + TryInto<u64>>(samples: &[S], results: usize) -> Result<Vec<usize>> {
    if results != samples.len() {
        return Err(PlanCause::Results { results, samples: samples.len() }.into());
    }
    let known = |&sample: &S| sample.try_into().ok();
    // If no sample is missing, none is larger than the number of samples.
    let mut places: Vec<Option<usize>> = vec![None; samples.len()];
    for (place, sample) in samples.iter().enumerate() {
        let sample: Option<u64> = known(sample);
        let slot = sample.and_then(|sample| places.get_mut(usize::try_from(sample).ok()?));
        if let Some(slot) = slot {
            *slot = Some(place);
        }
    }
    let restored: Vec<usize> = places.iter().map_while(|&place| place).collect();
    match samples.iter().filter_map(known).any(|sample| sample >= restored.len() as u64) {
        true => Err(PlanCause::MissingResult { sample: restored.len() as u64 }.into()),
        false => Ok(restored),
    }
}
