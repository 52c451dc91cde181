//! The pictures of a page: inline SVG in the colours of the page.

use super::Histogram;
use super::statistics::group_digits;
use crate::Plan;
use crate::batching::Cost;
use crate::plan::Stats;

/// The size of a picture, in its own units: it is as wide as the page.
pub(super) const WIDTH: f64 = 720.0;
pub(super) const HEIGHT: f64 = 240.0;

const MOST_STEPS: u64 = 120;
const MOST_RANKS: u64 = 64;
const MOST_DOTS: u64 = 3000;
const MOST_ROWS: usize = 64;

/// Some of the batches and the samples of a plan, to be drawn.
pub(super) struct Drawn {
    /// The step, the rank and the cost of each batch, by `cost`, in this order.
    batches: Vec<(u64, u32, f64)>,
    /// The cost by which batches are drawn.
    cost: Cost,
    /// Each sample and its step, in this order.
    samples: Vec<(u64, u64)>,
}

impl Drawn {
    /// At most 120 steps, 64 ranks and 3000 samples, evenly spread. Where sizes decide, this makes the batches of every
    /// pool once; otherwise it is O(1).
    pub(super) fn of(plan: &Plan, cost: Cost) -> Self {
        let (steps, samples) = (spread(plan.steps(), MOST_STEPS), spread(plan.samples(), MOST_DOTS));
        let ranks = ranks(plan);
        let mut drawn = match plan.options().sizes.as_ref() {
            None => Self::by_number(plan, cost, &steps, &ranks, &samples),
            Some(_) => Self::by_pool(plan, cost, &steps, &ranks, &samples),
        };
        drawn.batches.sort_unstable_by_key(|&(step, rank, _)| (step, rank));
        drawn.samples.sort_unstable();
        drawn
    }

    fn by_number(plan: &Plan, cost: Cost, steps: &[u64], ranks: &[u32], samples: &[u64]) -> Self {
        let ranks = |&step: &u64| ranks.iter().map(move |&rank| (step, rank));
        let of_rows = |samples| cost.of_padded(samples, 1);
        let batch =
            |(step, rank)| plan.batch_len(step, rank).ok().map(|samples| (step, rank, of_rows(samples)));
        let places = |&sample: &u64| {
            let places = plan.places(sample).unwrap_or_default();
            places.into_iter().map(move |place| (sample, place.step))
        };
        Self {
            batches: steps.iter().flat_map(ranks).filter_map(batch).collect(),
            samples: samples.iter().flat_map(places).collect(),
            cost,
        }
    }

    fn by_pool(plan: &Plan, cost: Cost, steps: &[u64], ranks: &[u32], samples: &[u64]) -> Self {
        let mut drawn = Self { batches: Vec::new(), samples: Vec::new(), cost };
        plan.each_dealt(cost, |step, rank, parts, cost| {
            if steps.binary_search(&step).is_ok() && ranks.binary_search(&rank).is_ok() {
                drawn.batches.push((step, rank, cost));
            }
            let chosen = parts.samples.iter().filter(|sample| samples.binary_search(sample).is_ok());
            drawn.samples.extend(chosen.map(|&sample| (sample, step)));
        });
        drawn
    }

    /// A column for each step and a cell for each rank, as dark as its batch is costly.
    pub(super) fn steps(&self, plan: &Plan, stats: &Stats) -> String {
        let columns = spread(stats.steps, MOST_STEPS);
        let costliest = self.batches.iter().map(|&(_, _, cost)| cost).fold(f64::MIN_POSITIVE, f64::max);
        let counts_elements = self.cost == Cost::Elements;
        let rows = ranks(plan);
        let (width, height) = (WIDTH / columns.len().max(1) as f64, HEIGHT / rows.len().max(1) as f64);
        let cell = |&(step, rank, cost): &(u64, u32, f64)| {
            let shade = 0.15 + 0.85 * cost / costliest;
            let place = columns.partition_point(|&column| column < step);
            let row = rows.partition_point(|&row| row < rank);
            let (x, y) = (place as f64 * width, row as f64 * height);
            format!(
                "<rect x=\"{x:.2}\" y=\"{y:.2}\" width=\"{:.2}\" height=\"{:.2}\" fill-opacity=\"{shade:.2}\">\
                 <title>step {step}, rank {rank}: {}</title></rect>",
                width * 0.9,
                height * 0.9,
                if counts_elements { format!("{cost} elements") } else { format!("cost {cost}") },
            )
        };
        self.batches.iter().map(cell).collect::<Vec<_>>().join("\n")
    }

    /// A dot for each sample: its step, and its place in storage.
    pub(super) fn order(&self, plan: &Plan, stats: &Stats) -> String {
        let (steps, samples) = (stats.steps.max(1) as f64, plan.samples() as f64);
        let dot = |&(sample, step): &(u64, u64)| {
            let (x, y) = ((step as f64 + 0.5) / steps * WIDTH, sample as f64 / samples * HEIGHT);
            format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"1.2\"/>")
        };
        self.samples.iter().map(dot).collect::<Vec<_>>().join("\n")
    }
}

/// The ranks that are drawn.
fn ranks(plan: &Plan) -> Vec<u32> {
    let ranks = spread(plan.world_size().into(), MOST_RANKS);
    ranks.into_iter().filter_map(|rank| u32::try_from(rank).ok()).collect()
}

/// The batch in the middle of the epoch: a row for each sample, as long as the sample, beside its padding. Of a packed
/// batch, a piece for each sample, one behind the other. `None` if all samples count the same.
pub(super) fn batch(plan: &Plan) -> Option<String> {
    plan.options().sizes.as_ref()?;
    let step = plan.steps() / 2;
    let (parts, elements) = (plan.parts(step, 0).ok()?, plan.batch_elements(step, 0).ok()?);
    match plan.options().concatenated || plan.rule().packs() {
        true => {
            Some(pieces(&parts.sizes, plan.rule().budget(plan.options().sizes.as_ref()).unwrap_or(elements)))
        }
        false => Some(rows(&parts.sizes, elements / (parts.sizes.len() as u64).max(1))),
    }
}

fn rows(sizes: &[u32], length: u64) -> String {
    let shown = spread(sizes.len() as u64, MOST_ROWS as u64);
    let height = HEIGHT / shown.len().max(1) as f64;
    let row = |(place, &number): (usize, &u64)| {
        let size = sizes.get(usize::try_from(number).unwrap_or(usize::MAX)).copied().unwrap_or(0);
        let real = f64::from(size) / length.max(1) as f64 * WIDTH;
        let (y, tall) = (place as f64 * height, height * 0.88);
        let padding = length.saturating_sub(size.into());
        format!(
            "<g><title>{size} elements, {padding} of padding</title>\
             <path d=\"M0 {y:.2}h{real:.2}v{tall:.2}H0z\"/>\
             <path class=\"padding\" d=\"M{real:.2} {y:.2}H{WIDTH}v{tall:.2}H{real:.2}z\"/></g>"
        )
    };
    shown.iter().enumerate().map(row).collect::<Vec<_>>().join("\n")
}

fn pieces(sizes: &[u32], capacity: u64) -> String {
    let scale = WIDTH / capacity.max(1) as f64;
    let mut start = 0_u64;
    let piece = |(place, &size): (usize, &u32)| {
        let (x, width) = (start as f64 * scale, f64::from(size) * scale);
        start += u64::from(size);
        let shade = if place.is_multiple_of(2) { 1.0 } else { 0.6 };
        format!(
            "<path fill-opacity=\"{shade}\" d=\"M{x:.2} 0h{width:.2}v{HEIGHT}h-{width:.2}z\">\
             <title>{size} elements</title></path>"
        )
    };
    sizes.iter().enumerate().map(piece).collect::<Vec<_>>().join("\n")
}

/// A bar for each bin.
pub(super) fn bins(histogram: &Histogram) -> String {
    let width = WIDTH / histogram.bins.len().max(1) as f64;
    let fullest = histogram.bins.iter().map(|bin| bin.samples).max().unwrap_or(0).max(1) as f64;
    let bar = |(place, bin): (usize, &super::Bin)| {
        let (x, tall) = (place as f64 * width, bin.samples as f64 / fullest * HEIGHT);
        let (y, wide) = (HEIGHT - tall, width * 0.92);
        let samples = group_digits(bin.samples);
        format!(
            "<path d=\"M{x:.2} {y:.2}h{wide:.2}V{HEIGHT}h-{wide:.2}z\">\
             <title>{} to {}: {samples} samples</title></path>",
            bin.first, bin.last
        )
    };
    histogram.bins.iter().enumerate().map(bar).collect::<Vec<_>>().join("\n")
}

/// At most `most` of the numbers below `count`, evenly spread, the last one included.
fn spread(count: u64, most: u64) -> Vec<u64> {
    if count <= most {
        return (0..count).collect();
    }
    // This is place * (count - 1) / (most - 1), whose product could exceed 64 bits.
    let (gap, rest) = ((count - 1) / (most - 1), (count - 1) % (most - 1));
    (0..most).map(|place| place * gap + place * rest / (most - 1)).collect()
}
