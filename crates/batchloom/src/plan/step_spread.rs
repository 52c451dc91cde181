//! The distance of the composition of steps from random: what balancing costs.
//!
//! Steps of batches that cost about the same follow size more or less. The measure is the variance between steps of the
//! mean logarithm of the sizes in a step, over the variance that steps of as many random samples have.

use super::pool::length;

/// The logarithms of the sizes of all steps, added up, each less that of the first sample: sizes may be near each other.
#[derive(Debug, Default)]
pub(super) struct StepSpread {
    /// For each step: the number of samples, and the sum of the logarithms of their sizes.
    steps: Vec<(f64, f64)>,
    /// The sum of the squares of all logarithms.
    squares: f64,
    /// The logarithm of the first size.
    first: Option<f64>,
}

impl StepSpread {
    /// Adds samples of these sizes to `step`.
    pub(super) fn add(&mut self, step: u64, sizes: &[u32]) {
        let step = length(step);
        if self.steps.len() <= step {
            self.steps.resize(step + 1, (0.0, 0.0));
        }
        let (count, sum) = &mut self.steps[step];
        for &size in sizes {
            let logarithm = f64::from(size.max(1)).ln();
            let logarithm = logarithm - *self.first.get_or_insert(logarithm);
            *count += 1.0;
            *sum += logarithm;
            self.squares += logarithm * logarithm;
        }
    }

    /// The variance of the means of steps over its expectation for random samples. `None` if all sizes are equal.
    pub(super) fn ratio(&self) -> Option<f64> {
        let samples: f64 = self.steps.iter().map(|(count, _)| count).sum();
        let mean = self.steps.iter().map(|(_, sum)| sum).sum::<f64>() / samples;
        let variance = self.squares / samples - mean * mean;
        if self.squares <= 0.0 || variance <= 0.0 {
            return None;
        }
        let held = self.steps.iter().filter(|(count, _)| *count > 0.0);
        let ratios = held.clone().map(|(count, sum)| count * (sum / count - mean).powi(2) / variance);
        Some(ratios.sum::<f64>() / held.count() as f64)
    }
}
