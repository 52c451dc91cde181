//! The page that shows a plan: its costs, its steps, its order. HTML with inline SVG, and no links to load.
//!
//! Promise: a page is small, whatever the plan. Of more than a few thousand steps or samples, it shows some, evenly
//! spread.

use super::{Plan, Stats};

const TEMPLATE: &str = include_str!("report.html");

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 240.0;
const MOST_STEPS: u64 = 120;
const MOST_DOTS: u64 = 3000;

impl Plan {
    /// A page that shows this plan under a title: its costs, its steps and its order, as self-contained HTML.
    ///
    /// ```
    /// use batchloom::Plan;
    ///
    /// let plan = Plan::builder(1000).batch_size(64).shuffle(true).build()?;
    /// let page = plan.report("a thousand samples");
    /// assert!(page.contains(&plan.fingerprint()));
    /// # Ok::<(), batchloom::Error>(())
    /// ```
    pub fn report(&self, title: &str) -> String {
        let stats = self.stats();
        fill(TEMPLATE, |name| match name {
            "title" => escaped(title),
            "fingerprint" => self.fingerprint(),
            "stats" => table(&stats),
            "steps" => steps(self, &stats),
            "order" => order(self, &stats),
            "width" => WIDTH.to_string(),
            "height" => HEIGHT.to_string(),
            _ => String::new(),
        })
    }
}

/// The template with each `$name` replaced.
fn fill(template: &str, value: impl Fn(&str) -> String) -> String {
    let mut parts = template.split('$');
    let mut page = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find(|letter: char| !letter.is_ascii_alphabetic()).unwrap_or(part.len());
        page.push_str(&value(&part[..end]));
        page.push_str(&part[end..]);
    }
    page
}

fn escaped(text: &str) -> String {
    text.chars().fold(String::new(), |mut found, letter| {
        match letter {
            '&' => found.push_str("&amp;"),
            '<' => found.push_str("&lt;"),
            '>' => found.push_str("&gt;"),
            '"' => found.push_str("&quot;"),
            '\'' => found.push_str("&#x27;"),
            letter => found.push(letter),
        }
        found
    })
}

/// A row for each number, with its meaning.
fn table(stats: &Stats) -> String {
    let share = |share: f64| format!("{:.2}%", share * 100.0);
    let rows = [
        ("samples", count(stats.samples), "samples in the dataset"),
        ("tokens", count(stats.tokens), "elements in the dataset"),
        ("batches", count(stats.batches), "batches over all ranks, repeated ones included"),
        ("steps", count(stats.steps), "steps of the rank that has most"),
        ("world_size", count(u64::from(stats.world_size)), "ranks"),
        ("real", count(stats.real), "elements delivered that are data"),
        ("padded", count(stats.padded), "elements delivered, padding included"),
        ("padding", share(stats.padding), "share of padding"),
        (
            "efficiency",
            stats.efficiency.map_or("-".to_owned(), share),
            "how full batches are, where the rule limits them",
        ),
        ("shapes", count(stats.shapes), "distinct shapes of batches"),
        ("dropped", count(stats.dropped), "samples left out by drop_last or for their size"),
        ("dropped_tokens", count(stats.dropped_tokens), "their elements"),
        ("banned", count(stats.banned), "samples without weight, because they are banned"),
        ("banned_tokens", count(stats.banned_tokens), "their elements"),
        ("truncated", count(stats.truncated), "samples cut short"),
        ("truncated_tokens", count(stats.truncated_tokens), "elements that this cost"),
        ("split", count(stats.split), "samples delivered in several parts"),
        ("repeated", count(stats.repeated), "samples delivered again to fill the last step"),
        ("repeated_tokens", count(stats.repeated_tokens), "their elements"),
        ("earlier", count(stats.earlier), "samples delivered in earlier parts of the epoch"),
        ("earlier_tokens", count(stats.earlier_tokens), "their elements"),
        ("largest", count(stats.largest), "elements of the largest batch"),
        (
            "imbalance",
            share(stats.imbalance),
            "share of all ranks' time spent waiting for the largest batch of a step",
        ),
        (
            "mates_kept",
            stats.mates_kept.map_or("-".to_owned(), share),
            "share of batch mates that stay together in the next epoch",
        ),
        (
            "length_correlation",
            stats.length_correlation.map_or("-".to_owned(), |number| format!("{number:+.3}")),
            "rank correlation of the size of batches with their step",
        ),
    ];
    rows.map(|(name, value, meaning)| format!("<tr><th>{name}<td>{value}<td>{meaning}")).join("\n")
}

/// A number with a comma before every third digit.
fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut found = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            found.push(',');
        }
        found.push(digit);
    }
    found
}

/// A column for each step and a cell for each rank, as dark as its batch is large.
fn steps(plan: &Plan, stats: &Stats) -> String {
    let columns = spread(stats.steps, MOST_STEPS);
    let largest = stats.largest.max(1) as f64;
    let (width, height) = (WIDTH / columns.len().max(1) as f64, HEIGHT / f64::from(plan.world_size()));
    let mut cells = Vec::new();
    for (place, &step) in columns.iter().enumerate() {
        for rank in (0..plan.world_size()).filter(|&rank| step < plan.steps_of(rank)) {
            let Ok(size) = plan.batch_elements(step, rank) else { continue };
            let shade = 0.15 + 0.85 * size as f64 / largest;
            let (x, y) = (place as f64 * width, f64::from(rank) * height);
            cells.push(format!(
                "<rect x=\"{x:.2}\" y=\"{y:.2}\" width=\"{:.2}\" height=\"{:.2}\" fill-opacity=\"{shade:.2}\">\
                 <title>step {step}, rank {rank}: {size} elements</title></rect>",
                width * 0.9,
                height * 0.9,
            ));
        }
    }
    cells.join("\n")
}

/// A dot for each of some samples: the step at which it comes, and its place in storage.
fn order(plan: &Plan, stats: &Stats) -> String {
    let steps = stats.steps.max(1) as f64;
    let samples = plan.samples() as f64;
    let places = spread(plan.samples(), MOST_DOTS).into_iter().flat_map(|sample| {
        plan.places(sample).unwrap_or_default().into_iter().map(move |place| (sample, place.step))
    });
    let dots = places.map(|(sample, step)| {
        let (x, y) = ((step as f64 + 0.5) / steps * WIDTH, sample as f64 / samples * HEIGHT);
        format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"1.2\"/>")
    });
    dots.collect::<Vec<_>>().join("\n")
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
