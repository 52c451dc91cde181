//! The page that shows a plan is self-contained, true to the numbers, and small for any plan.

use batchloom::Plan;
use batchloom::batching::{Sizes, TokenBudget};
use proptest::prelude::*;

/// The numbers of an attribute, over all elements of a kind.
fn numbers(page: &str, element: &str, attribute: &str) -> Vec<f64> {
    let start = format!("<{element} ");
    let named = format!(" {attribute}=\"");
    let elements = page.split(&start).skip(1).map(|rest| format!(" {}", rest.split('>').next().unwrap()));
    elements
        .map(|text| text.split(&named).nth(1).unwrap().split('"').next().unwrap().parse().unwrap())
        .collect()
}

fn sized(sizes: &[u32], world_size: u32) -> Plan {
    let rule = TokenBudget::new(100).unwrap();
    let builder = Plan::builder(sizes.len() as u64).sizes(Sizes::new(sizes.to_vec())).rule(rule);
    builder.shuffle(true).world_size(world_size).build().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn report_draws_every_batch_and_every_sample(
        sizes in prop::collection::vec(1_u32..100, 1..300),
        world_size in 1_u32..5,
    ) {
        let plan = sized(&sizes, world_size);
        let page = plan.report("a plan");
        let steps = plan.steps();
        prop_assume!(steps <= 120);
        let widths = 720.0 / steps as f64;
        let cells = (0..steps).flat_map(|step| (0..world_size).map(move |rank| (step, rank)));
        let cells: Vec<_> = cells.filter(|&(step, rank)| step < plan.steps_of(rank)).collect();
        let columns = numbers(&page, "rect", "x");
        prop_assert_eq!(columns.len(), cells.len());
        for (x, (step, rank)) in columns.into_iter().zip(cells) {
            prop_assert!((x - step as f64 * widths).abs() < 0.01);
            let elements = plan.batch_elements(step, rank).unwrap();
            let title = format!("<title>step {step}, rank {rank}: {elements} elements</title>");
            prop_assert!(page.contains(&title));
        }
        let dots: Vec<_> = (0..sizes.len() as u64)
            .flat_map(|sample| plan.places(sample).unwrap().into_iter().map(move |place| (place.step, sample)))
            .collect();
        let found: Vec<_> = numbers(&page, "circle", "cx").into_iter().zip(numbers(&page, "circle", "cy")).collect();
        prop_assert_eq!(found.len(), dots.len());
        for ((x, y), (step, sample)) in found.into_iter().zip(dots) {
            prop_assert!((x - (step as f64 + 0.5) * widths).abs() < 0.06);
            prop_assert!((y - sample as f64 / sizes.len() as f64 * 240.0).abs() < 0.06);
        }
    }
}

#[test]
fn report_is_small_for_any_plan() {
    for samples in [1, 119, 3000, 3001, 1_000_000_007, 1 << 62] {
        for world_size in [1, 3] {
            let plan =
                Plan::builder(samples).batch_size(7).shuffle(true).world_size(world_size).build().unwrap();
            let page = plan.report("a plan");
            assert!(page.len() < 1_000_000);
            let rects = numbers(&page, "rect", "width").len() as u64;
            assert_eq!(rects, plan.steps().min(120) * u64::from(world_size));
            let dots = numbers(&page, "circle", "r").len() as u64;
            assert!((samples.min(3000)..=3000 + 21).contains(&dots), "{dots}");
            assert!(!page.contains("href") && !page.contains("src="));
            assert!(page.contains(&plan.fingerprint()));
        }
    }
}

#[test]
fn report_shows_the_numbers_of_the_stats() {
    let plan = sized(&[30; 12_345], 2);
    let (page, stats) = (plan.report("a plan"), plan.stats());
    assert!(page.contains("<tr><th>samples<td>12,345<td>"));
    assert!(page.contains("<tr><th>tokens<td>370,350<td>"));
    assert!(page.contains(&format!("<tr><th>padding<td>{:.2}%<td>", stats.padding * 100.0)));
    assert!(page.contains(&format!("<tr><th>efficiency<td>{:.2}%<td>", stats.efficiency.unwrap() * 100.0)));
    assert!(page.contains("<tr><th>largest<td>90<td>"));
    assert_eq!(page.matches("<tr><th>").count(), 25);
    let uniform = Plan::builder(10).batch_size(3).build().unwrap().report("a plan");
    assert!(uniform.contains("<tr><th>efficiency<td>-<td>"));
}

#[test]
fn report_escapes_its_title() {
    let page = Plan::builder(10).build().unwrap().report("<b> & \"$stats\" 'x'");
    assert_eq!(page.matches("&lt;b&gt; &amp; &quot;$stats&quot; &#x27;x&#x27;").count(), 2);
    assert!(!page.contains("<b>"));
}
