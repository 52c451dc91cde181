//! The page: sections of HTML, each with its picture.

use super::pictures::{self, Drawn, HEIGHT, WIDTH};
use super::statistics::group_digits;
use super::{Comparison, Histogram};
use crate::Plan;
use crate::batching::Cost;

const TEMPLATE: &str = include_str!("page.html");

/// The note under the statistics of packs, if waiting is counted by elements.
const WARNING: &str = "\n<p class=\"note\">Imbalance counts tokens, which leave out attention: ranks wait longer where long \
                       samples are. A cost model counts both.</p>";

/// A page of HTML, to which sections are added.
///
/// ```
/// use batchloom::Plan;
/// use batchloom::batching::{Sizes, TokenBudget};
/// use batchloom::report::{Histogram, Page};
///
/// let lengths: Vec<u32> = (1..=1000).collect();
/// let plan = Plan::builder(1000).sizes(Sizes::new(lengths.clone())).rule(TokenBudget::new(8192)?).build()?;
/// let page = Page::new("a thousand samples").histogram(&Histogram::new(&lengths)).plan(&plan);
/// assert!(page.html().contains(&plan.fingerprint()));
/// # Ok::<(), batchloom::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    title: String,
    sections: Vec<String>,
}

impl Plan {
    /// A page that shows this plan under a title: lengths, costs, a batch, steps and order, as self-contained HTML.
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
        self.report_by(title, self.options().cost)
    }

    /// The same page, with the time that ranks wait by `cost`.
    pub fn report_by(&self, title: &str, cost: impl Into<Cost>) -> String {
        let page = Page::new(title);
        let lengths = self.options().sizes.as_ref().map(|sizes| Histogram::new(sizes.as_slice()));
        let page = lengths.iter().fold(page, |page, lengths| page.histogram(lengths));
        page.plan_by(self, cost).html()
    }
}

impl Page {
    /// A page without sections.
    pub fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), sections: Vec::new() }
    }

    /// Adds the lengths of samples.
    #[must_use]
    pub fn histogram(mut self, histogram: &Histogram) -> Self {
        let shares = histogram.quantiles.iter();
        let shares = shares.map(|(percent, length)| format!("{percent}% of them are at most {length} long."));
        let width = |bin: Option<&super::Bin>| bin.map_or(0, |bin| bin.last - bin.first);
        let grows = width(histogram.bins.last()) > 2 * width(histogram.bins.first()).max(1);
        let text = format!(
            "{} samples, {} tokens, mean {:.1}. {} Left to right: lengths{}.",
            group_digits(histogram.samples),
            group_digits(histogram.tokens),
            histogram.mean,
            shares.collect::<Vec<_>>().join(" "),
            if grows { "; each bar holds a wider range than the one before" } else { "" },
        );
        let ends = format!(
            "<p class=\"ends\"><span>{}</span><span>{}</span><span>{}</span></p>",
            histogram.least,
            histogram.bins.get(histogram.bins.len() / 2).map_or(histogram.most, |bin| bin.first),
            histogram.most
        );
        let picture = picture("lengths", "samples by length", &pictures::bins(histogram));
        self.sections.push(section("Lengths", &text, &format!("{picture}{ends}")));
        self
    }

    /// Adds rules side by side.
    #[must_use]
    pub fn comparison(mut self, comparison: &Comparison) -> Self {
        let text = format!(
            "{} samples over {} ranks, an epoch by each rule. {}",
            group_digits(comparison.samples),
            comparison.world_size,
            escape(&comparison.verdict()),
        );
        self.sections.push(section("Rules", &text, &format!("{}{}", areas(comparison), rules(comparison))));
        self
    }

    /// Adds a plan: its costs, a batch, its steps, and its order.
    #[must_use]
    pub fn plan(self, plan: &Plan) -> Self {
        self.plan_by(plan, plan.options().cost)
    }

    /// Adds a plan, with the time that ranks wait by `cost`.
    #[must_use]
    pub fn plan_by(mut self, plan: &Plan, cost: impl Into<Cost>) -> Self {
        let cost = cost.into();
        let (stats, drawn) = (plan.stats_by(cost), Drawn::of(plan, cost));
        let rows = stats.statistics().into_iter().map(|statistic| {
            format!("<tr><th>{}<td>{}<td>{}", statistic.name, statistic.value, statistic.meaning)
        });
        let table = format!("<table class=\"stats\">\n{}\n</table>", rows.collect::<Vec<_>>().join("\n"));
        let text = format!(
            "Rule <code>{}</code>, fingerprint <code>{}</code>.",
            escape(&plan.rule().to_string()),
            plan.fingerprint()
        );
        let is_misleading = (plan.options().concatenated || plan.rule().packs())
            && stats.imbalance_cost == Cost::Elements
            && stats.world_size > 1;
        let note = if is_misleading { WARNING } else { "" };
        self.sections.push(section("What it costs", &text, &format!("{table}{note}")));
        if let Some(batch) = pictures::batch(plan) {
            let text = match plan.options().concatenated || plan.rule().packs() {
                true => "A piece for each sample, one behind the other, in all the room that the batch has.",
                false => {
                    "A row for each sample, at most 64 of them, evenly spread. Strong: its elements. Faint: padding."
                }
            };
            let step = plan.steps() / 2;
            let picture = picture("batch", "a batch", &batch);
            self.sections.push(section(&format!("The batch of step {step}, rank 0"), text, &picture));
        }
        let text = format!(
            "Left to right: steps, at most 120 of them, evenly spread. Top to bottom: ranks, at most 64. The stronger, the \
             more the batch costs, by {}: in a step of one shade no rank waits. Ranks wait {:.2}% of the time.",
            escape(&stats.imbalance_cost.to_string()),
            stats.imbalance * 100.0
        );
        let steps = picture("steps", "cost by step and rank", &drawn.steps(plan, &stats));
        self.sections.push(section("Steps", &text, &steps));
        if plan.options().balance {
            let before = plan.without_balance();
            let (stats, drawn) = (before.stats_by(cost), Drawn::of(&before, cost));
            let text = format!(
                "The same epoch as batches come. Ranks wait {:.2}% of the time.",
                stats.imbalance * 100.0
            );
            let steps =
                picture("unbalanced", "cost by step and rank without balance", &drawn.steps(&before, &stats));
            self.sections.push(section("Steps without balance", &text, &steps));
        }
        let text = "A dot for a sample, at most 3,000 of them: left to right when it comes, top to bottom where it is \
                    stored.";
        let order = picture("order", "step by sample", &drawn.order(plan, &stats));
        self.sections.push(section("Order", text, &order));
        self
    }

    /// The page as text.
    pub fn html(&self) -> String {
        let title = escape(&self.title);
        let sections = self.sections.join("\n");
        let mut parts = TEMPLATE.split("$title");
        let page = parts.next().unwrap_or_default().to_owned();
        parts.fold(page, |page, part| page + &title + part).replacen("$sections", &sections, 1)
    }
}

fn section(title: &str, text: &str, body: &str) -> String {
    format!("<section>\n<h2>{title}</h2>\n<p>{text}</p>\n{body}\n</section>")
}

fn picture(id: &str, label: &str, shapes: &str) -> String {
    format!(
        "<svg id=\"{id}\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" preserveAspectRatio=\"none\" role=\"img\" \
         aria-label=\"{label}\">\n{shapes}\n</svg>"
    )
}

/// A bar for each rule: elements of samples, padding and repeats, and elements that ranks could have computed while they waited.
fn areas(comparison: &Comparison) -> String {
    let computed = |entry: &super::Compared| {
        // What is delivered again to fill the last step is no more use than padding.
        let (real, padded) = (entry.stats.real - entry.stats.repeated_tokens, entry.stats.padded as f64);
        let all = padded / (1.0 - entry.waiting).max(f64::MIN_POSITIVE);
        [real as f64, padded - real as f64, all - padded]
    };
    let all = |entry: &super::Compared| computed(entry).iter().sum::<f64>();
    let most = comparison.rules.iter().map(all).fold(1.0, f64::max);
    let bar = |(place, entry): (usize, &super::Compared)| {
        let parts = computed(entry).into_iter().zip(["real", "padding", "waiting"]);
        let parts = parts.map(|(elements, name)| {
            let (width, count) = (elements / most * 100.0, format!("{elements:.0} {name}"));
            format!("<i class=\"{name}\" style=\"width:{width:.2}%\" title=\"{count}\"></i>")
        });
        let mark = if place == comparison.best { " class=\"best\"" } else { "" };
        let (rule, parts) = (escape(&entry.rule.to_string()), parts.collect::<String>());
        format!("<p{mark}><code>{rule}</code></p><div class=\"bar\">{parts}</div>")
    };
    let bars: String = comparison.rules.iter().enumerate().map(bar).collect();
    let key = ["real", "padding", "waiting"].map(|name| format!("<i class=\"{name}\"></i> {name} "));
    format!("<div class=\"bars\">{bars}<p class=\"key\">{}</p></div>", key.concat())
}

impl Comparison {
    /// The table and the verdict as a piece of HTML, for notebooks.
    pub fn html(&self) -> String {
        let style = "text-align:left;font-variant-numeric:tabular-nums";
        let verdict = escape(&self.verdict());
        let note = self.footnote().map(|note| format!("<p>{}</p>", escape(note))).unwrap_or_default();
        format!("<div style=\"{style}\">\n{}\n{note}<p>{verdict}</p></div>", table(self))
    }
}

/// The table of rules, and the meanings of its columns.
fn rules(comparison: &Comparison) -> String {
    let meanings = Comparison::columns().into_iter().map(|(name, meaning)| format!("{name}: {meaning}"));
    let meanings = escape(&meanings.collect::<Vec<_>>().join("; "));
    let note = comparison.footnote().map(|note| format!(" {}.", escape(note))).unwrap_or_default();
    format!("<div class=\"wide\">{}</div>\n<p class=\"note\">{meanings}.{note}</p>", table(comparison))
}

fn table(comparison: &Comparison) -> String {
    let head: String = Comparison::columns()
        .into_iter()
        .map(|(name, meaning)| format!("<th title=\"{}\">{name}", escape(meaning)))
        .collect();
    let row = |(entry, cells): (&super::Compared, Vec<String>)| {
        let cells: String = cells.into_iter().map(|cell| format!("<td>{cell}")).collect();
        format!("<tr><td><code>{}</code>{cells}", escape(&entry.rule.to_string()))
    };
    let rows: Vec<_> = comparison.rules.iter().zip(comparison.cells()).map(row).collect();
    format!("<table class=\"rules\">\n<tr><th>rule{head}\n{}\n</table>", rows.join("\n"))
}

fn escape(text: &str) -> String {
    text.chars().fold(String::new(), |mut html, letter| {
        match letter {
            '&' => html.push_str("&amp;"),
            '<' => html.push_str("&lt;"),
            '>' => html.push_str("&gt;"),
            '"' => html.push_str("&quot;"),
            '\'' => html.push_str("&#x27;"),
            letter => html.push(letter),
        }
        html
    })
}
