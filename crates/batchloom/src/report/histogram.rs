//! The lengths of samples, counted in bins.

use std::fmt;

use serde::Serialize;

use super::statistics::{count_in_words, group_digits};

/// The most bins.
const BINS: u32 = 32;

/// The longest sample over the median from which bins grow by a factor, not by a step: a few long samples would leave
/// all the rest in one bin.
const SKEWED: f64 = 8.0;

/// The width of the bars of text.
const BAR: usize = 40;

/// A histogram of lengths, and their quantiles.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Histogram {
    /// The number of samples.
    pub samples: u64,
    /// The sum of their lengths.
    pub tokens: u64,
    /// The mean length.
    pub mean: f64,
    /// The shortest length.
    pub least: u32,
    /// The longest length.
    pub most: u32,
    /// The lengths that 5, 25, 50, 75, 95 and 99 percent of samples do not exceed, each with its percentage.
    pub quantiles: Vec<(u32, u32)>,
    /// The bins, ascending. They hold all samples.
    pub bins: Vec<Bin>,
}

/// Some lengths that follow each other, and the number of samples that have them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Bin {
    /// The first length.
    pub first: u32,
    /// The last length.
    pub last: u32,
    /// The number of samples.
    pub samples: u64,
}

impl Histogram {
    /// Counts lengths. All numbers are 0 without lengths. O(n log n) for n samples, with a copy of the lengths.
    ///
    /// ```
    /// use batchloom::report::Histogram;
    ///
    /// let histogram = Histogram::new(&[3, 5, 5, 9]);
    /// assert_eq!((histogram.least, histogram.most, histogram.mean), (3, 9, 5.5));
    /// assert_eq!(histogram.bins.iter().map(|bin| bin.samples).sum::<u64>(), 4);
    /// ```
    pub fn new(lengths: &[u32]) -> Self {
        let mut sorted = lengths.to_vec();
        sorted.sort_unstable();
        let tokens = sorted.iter().map(|&length| u64::from(length)).sum();
        let at = |percent: u32| {
            let place = (sorted.len() as u64 * u64::from(percent)).div_ceil(100).max(1) - 1;
            sorted.get(usize::try_from(place).unwrap_or(usize::MAX)).copied().unwrap_or(0)
        };
        let quantiles = [5, 25, 50, 75, 95, 99].map(|percent| (percent, at(percent))).to_vec();
        let (least, most) = (sorted.first().copied().unwrap_or(0), sorted.last().copied().unwrap_or(0));
        Self {
            samples: sorted.len() as u64,
            tokens,
            mean: tokens as f64 / sorted.len().max(1) as f64,
            least,
            most,
            quantiles,
            bins: bins(&sorted, &edges(least, at(50), most)),
        }
    }
}

/// The first length of each bin.
fn edges(least: u32, median: u32, most: u32) -> Vec<u32> {
    let lengths = most - least;
    if lengths < BINS {
        return (least..=most).collect();
    }
    let is_skewed = f64::from(most) > SKEWED * f64::from(median.max(1));
    let (start, end) = (f64::from(least.max(1)), f64::from(most) + 1.0);
    let edge = |place: u32| match is_skewed {
        true => to_integer(start * (end / start).powf(f64::from(place) / f64::from(BINS))),
        false => least + to_integer(f64::from(place) * (f64::from(lengths) + 1.0) / f64::from(BINS)),
    };
    let mut edges: Vec<u32> = (0..BINS).map(edge).collect();
    edges[0] = least;
    edges.dedup();
    edges
}

/// The whole part of a number that is known to lie between two lengths.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a length, which was 32 bits before"
)]
fn to_integer(number: f64) -> u32 {
    number as u32
}

fn bins(sorted: &[u32], edges: &[u32]) -> Vec<Bin> {
    let ends = edges.iter().skip(1).map(|&edge| edge - 1).chain(sorted.last().copied());
    let mut start = 0;
    let bin = |(&first, last): (&u32, u32)| {
        let end = sorted.partition_point(|&length| length <= last);
        let samples = (end - start) as u64;
        start = end;
        Bin { first, last, samples }
    };
    edges.iter().zip(ends).map(bin).collect()
}

/// Prints the quantiles, and a bar for each bin: 60 columns.
impl fmt::Display for Histogram {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (samples, tokens) =
            (count_in_words(self.samples, "sample"), count_in_words(self.tokens, "token"));
        writeln!(formatter, "{samples}, {tokens}, mean {:.1}", self.mean)?;
        let quantiles = self.quantiles.iter().map(|(percent, length)| format!("{percent}%: {length}"));
        let quantiles = quantiles.collect::<Vec<_>>().join(", ");
        writeln!(formatter, "shortest {}, {quantiles}, longest {}", self.least, self.most)?;
        let width = self.most.to_string().len();
        let fullest = self.bins.iter().map(|bin| bin.samples).max().unwrap_or(0).max(1) as f64;
        for bin in &self.bins {
            let filled = eighths(bin.samples as f64 / fullest);
            let count = group_digits(bin.samples);
            let to = if bin.first == bin.last { String::new() } else { format!("-{}", bin.last) };
            let name = format!("{:>width$}{to:<wide$}", bin.first, wide = width + 1);
            writeln!(formatter, "{name} {filled} {count}")?;
        }
        Ok(())
    }
}

/// A bar for a share of 1: full blocks, and one of up to eight eighths.
fn eighths(share: f64) -> String {
    let all = to_integer((share * (BAR * 8) as f64).ceil());
    let rest = match all % 8 {
        0 => "",
        1 => "▏",
        2 => "▎",
        3 => "▍",
        4 => "▌",
        5 => "▋",
        6 => "▊",
        _ => "▉",
    };
    let full = usize::try_from(all / 8).unwrap_or(BAR);
    format!("{}{rest}", "█".repeat(full))
}
