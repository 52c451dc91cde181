//! The page that shows a plan is self-contained, true to the numbers, and small for any plan. Rules side by side say what
//! their plans say.

use batchloom::Plan;
use batchloom::batching::{CostModel, FixedSize, Oversize, Packing, Rule, Sizes, TokenBudget};
use batchloom::ranks::Uneven;
use batchloom::report::{Budget, Comparison, Histogram, Page};
use proptest::prelude::*;

/// The numbers of an attribute, over all elements of a kind in the pictures of steps and order.
fn numbers(page: &str, element: &str, attribute: &str) -> Vec<f64> {
    let pictures = ["steps", "order"].map(|id| {
        let (_, rest) = page.split_once(&format!("<svg id=\"{id}\"")).unwrap();
        rest.split_once("</svg>").unwrap().0
    });
    let page = pictures.concat();
    let start = format!("<{element} ");
    let named = format!(" {attribute}=\"");
    let elements = page.split(&start).skip(1).map(|rest| format!(" {}", rest.split('>').next().unwrap()));
    elements
        .map(|text| text.split(&named).nth(1).unwrap().split('"').next().unwrap().parse().unwrap())
        .collect()
}

fn sized(sizes: &[u32], world_size: u32) -> Plan {
    with_uneven(sizes, world_size, Uneven::Pad, TokenBudget::new(100).unwrap())
}

fn with_uneven(sizes: &[u32], world_size: u32, uneven: Uneven, rule: impl Into<Rule>) -> Plan {
    let builder = Plan::builder(sizes.len() as u64).sizes(Sizes::new(sizes.to_vec())).rule(rule);
    builder.shuffle(true).world_size(world_size).uneven(uneven).build().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn report_draws_every_batch_and_every_sample(
        sizes in prop::collection::vec(1_u32..100, 1..300),
        world_size in 1_u32..5,
        uneven in prop::sample::select(vec![Uneven::Pad, Uneven::Mask, Uneven::Short]),
        batch_size in 0_u64..9,
    ) {
        let rule: Rule = match FixedSize::new(batch_size) {
            Ok(rule) => rule.into(),
            Err(_) => TokenBudget::new(100).unwrap().into(),
        };
        let plan = with_uneven(&sizes, world_size, uneven, rule);
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
        let of_sample = |sample| plan.places(sample).unwrap().into_iter().map(move |place| (place.step, sample));
        let mut dots: Vec<_> = (0..sizes.len() as u64).flat_map(of_sample).collect();
        dots.sort_by_key(|&(step, sample)| (sample, step));
        let circles: Vec<_> = numbers(&page, "circle", "cx").into_iter().zip(numbers(&page, "circle", "cy")).collect();
        prop_assert_eq!(circles.len(), dots.len());
        for ((x, y), (step, sample)) in circles.into_iter().zip(dots) {
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
    assert_eq!(page.matches("<tr><th>").count(), 28);
    let uniform = Plan::builder(10).batch_size(3).build().unwrap().report("a plan");
    assert!(uniform.contains("<tr><th>efficiency<td>-<td>"));
}

#[test]
fn report_escapes_its_title() {
    let page = Plan::builder(10).build().unwrap().report("<b> & \"$stats\" 'x'");
    assert_eq!(page.matches("&lt;b&gt; &amp; &quot;$stats&quot; &#x27;x&#x27;").count(), 2);
    assert!(!page.contains("<b>"));
}

/// The time of a batch, as the slow way counts it.
fn batch_time(plan: &Plan, cost: &CostModel, step: u64, rank: u32) -> f64 {
    let sizes = plan.parts(step, rank).unwrap().sizes;
    match plan.rule().to_string().starts_with("packing") {
        true => {
            let parts = sizes.iter().map(|&size| cost.cost(1, u64::from(size)) - cost.fixed());
            cost.fixed() + parts.sum::<f64>()
        }
        false => {
            let samples = sizes.len() as u64;
            cost.cost(samples, plan.batch_elements(step, rank).unwrap() / samples)
        }
    }
}

/// The time of an epoch: that of the slowest rank of each step.
fn time(plan: &Plan, cost: &CostModel) -> f64 {
    let ranks = 0..plan.world_size();
    let slowest = |step| ranks.clone().map(|rank| batch_time(plan, cost, step, rank)).fold(0.0, f64::max);
    (0..plan.steps()).map(slowest).sum()
}

/// The time that all ranks work in an epoch.
fn busy(plan: &Plan, cost: &CostModel) -> f64 {
    let ranks = 0..plan.world_size();
    let all = |step| ranks.clone().map(|rank| batch_time(plan, cost, step, rank)).sum::<f64>();
    (0..plan.steps()).map(all).sum()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn rules_side_by_side_say_what_their_plans_say(
        sizes in prop::collection::vec(1_u32..100, 1..200),
        world_size in 1_u32..4,
    ) {
        let (all, cost) = (Sizes::new(sizes.clone()), CostModel::new(3.0, 0.5, 0.01).unwrap());
        let rules = Comparison::usual_rules(&all, Budget::Tokens(128), None).unwrap();
        let plain = Comparison::new(&all, &rules, world_size, None, |_| ()).unwrap();
        let timed = Comparison::new(&all, &rules, world_size, Some(cost), |_| ()).unwrap();
        for ((rule, plain), timed) in rules.iter().zip(&plain.rules).zip(&timed.rules) {
            let plan = with_uneven(&sizes, world_size, Uneven::Pad, rule.clone());
            prop_assert_eq!(&plain.stats, &plan.stats());
            prop_assert_eq!(&timed.stats, &plan.stats());
            let steps = (0..plan.steps()).map(|step| {
                (0..world_size).map(|rank| plan.batch_elements(step, rank).unwrap()).max().unwrap()
            });
            let computed = steps.sum::<u64>() as f64 * f64::from(world_size);
            prop_assert!((plain.work() - computed).abs() < 1e-6 * computed.max(1.0));
            let expected = time(&plan, &cost);
            prop_assert!((timed.work() - expected).abs() < 1e-9 * expected);
            prop_assert_eq!(plain.waiting, plan.stats().imbalance);
            let all = expected * f64::from(world_size);
            prop_assert!((timed.waiting - (all - busy(&plan, &cost)) / all).abs() < 1e-9);
        }
        for comparison in [plain, timed] {
            let least = comparison.rules.iter().map(|rule| rule.work()).fold(f64::INFINITY, f64::min);
            prop_assert!(comparison.rules[comparison.best].work() <= least * 1.005);
            let text = comparison.to_string();
            let notes = text.lines().filter(|line| line.starts_with("* ")).count();
            prop_assert_eq!(notes, usize::from(comparison.cost.is_none() && world_size > 1 && rules.iter().any(|rule| rule.to_string().starts_with("packing"))));
            prop_assert_eq!(text.lines().count(), rules.len() + 4 + notes);
            prop_assert!(text.contains(&rules[comparison.best].to_string()));
        }
    }

    #[test]
    fn histograms_hold_every_length_once(lengths in prop::collection::vec(
        prop_oneof![0_u32..50, 0_u32..100_000, Just(u32::MAX)], 0..300,
    )) {
        let histogram = Histogram::new(&lengths);
        prop_assert_eq!(histogram.samples, lengths.len() as u64);
        prop_assert_eq!(histogram.tokens, lengths.iter().map(|&length| u64::from(length)).sum::<u64>());
        for (place, bin) in histogram.bins.iter().enumerate() {
            prop_assert!(bin.first <= bin.last);
            prop_assert!(place == 0 || histogram.bins[place - 1].last + 1 == bin.first);
            let inside = lengths.iter().filter(|&&length| bin.first <= length && length <= bin.last);
            prop_assert_eq!(inside.count() as u64, bin.samples);
        }
        prop_assert_eq!(histogram.bins.iter().map(|bin| bin.samples).sum::<u64>(), histogram.samples);
        prop_assert!(histogram.bins.len() <= 32);
        for (percent, length) in histogram.quantiles {
            let shorter = lengths.iter().filter(|&&other| other <= length).count();
            prop_assert!(shorter * 100 >= lengths.len() * percent as usize);
            let below = lengths.iter().filter(|&&other| other < length).count();
            prop_assert!(lengths.is_empty() || below * 100 < lengths.len() * percent as usize);
        }
    }
}

#[test]
fn a_rule_that_loses_samples_is_best_only_if_all_do() {
    let sizes = Sizes::new(vec![5, 5, 5, 100]);
    let drops = TokenBudget::new(10).unwrap().oversize(Oversize::Drop).into();
    let keeps = TokenBudget::new(10).unwrap().oversize(Oversize::Alone).into();
    let comparison = Comparison::new(&sizes, &[drops, keeps], 1, None, |_| ()).unwrap();
    assert_eq!(comparison.best, 1);
    let only = Comparison::new(
        &sizes,
        &comparison.rules[..1].iter().map(|entry| entry.rule.clone()).collect::<Vec<_>>(),
        1,
        None,
        |_| (),
    );
    assert!(only.unwrap().verdict().contains("it loses data"));
    assert!(Comparison::new(&sizes, &[], 1, None, |_| ()).is_err());
    let rules =
        ["packing:100", "token-budget:10,oversize=drop", "fixed-size:2"].map(|text| text.parse().unwrap());
    let verdict = Comparison::new(&sizes, &rules, 1, None, |_| ()).unwrap().verdict();
    assert!(verdict.contains("without packing fixed-size:2 is best"), "{verdict}");
    let too_small: Rule = Packing::new(10).unwrap().into();
    let error = Comparison::new(&sizes, &[too_small], 1, None, |_| ()).unwrap_err();
    assert!(error.to_string().contains("sample 3"), "{error}");
}

proptest! {
    #[test]
    fn no_batch_exceeds_the_most_that_was_allowed(
        sizes in prop::collection::vec(1_u32..100, 1..200),
        most in 100_u64..1000,
    ) {
        let sizes = Sizes::new(sizes);
        let rules = Comparison::usual_rules(&sizes, Budget::Most(most), None).unwrap();
        let comparison = Comparison::new(&sizes, &rules, 2, None, |_| ()).unwrap();
        for rule in &comparison.rules {
            prop_assert!(rule.stats.largest <= most, "{}: {} of {most}", rule.rule, rule.stats.largest);
        }
    }
}

/// Samples of which one in a hundred is long.
fn long_tail() -> Sizes {
    Sizes::new(
        (0..2000).map(|sample| if sample % 100 == 0 { 1000 } else { 1 + sample % 40 }).collect::<Vec<u32>>(),
    )
}

#[test]
fn rules_are_compared_by_the_cost_that_is_named() {
    let (sizes, model) = (long_tail(), CostModel::new(0.0, 1.0, 1.0 / 64.0).unwrap());
    let rules = Comparison::usual_rules(&sizes, Budget::Tokens(1024), None).unwrap();
    let by_tokens = Comparison::new(&sizes, &rules, 4, None, |_| ()).unwrap();
    let packing = by_tokens.rules.len() - 1;
    assert_eq!(by_tokens.best, packing);
    let marked = |comparison: &Comparison| -> Vec<bool> {
        comparison.cells().iter().map(|row| row[2].ends_with('*')).collect()
    };
    // The line of a packing rule alone warns, where ranks wait and tokens are counted.
    assert_eq!(marked(&by_tokens), [false, false, false, false, false, true]);
    for text in [by_tokens.to_string(), by_tokens.html(), by_tokens.verdict()] {
        assert!(text.contains("by tokens, which leave out attention"), "{text}");
    }
    assert!(by_tokens.rules.iter().all(|entry| entry.balanced.is_none()));
    let by_cost = Comparison::new(&sizes, &rules, 4, Some(model), |_| ()).unwrap();
    assert!(marked(&by_cost).iter().all(|marked| !marked));
    assert!(by_cost.to_string().contains("cost per_token=1,per_pair=0.015625"));
    let entry = &by_cost.rules[packing];
    assert!(entry.waiting > by_tokens.rules[packing].waiting + 0.2, "{entry:?}");
    for (rule, entry) in rules.iter().zip(&by_cost.rules) {
        let plan = Plan::builder(2000).sizes(sizes.clone()).rule(rule.clone()).shuffle(true).world_size(4);
        let balanced = plan.balance(true).cost(model).build().unwrap().stats();
        assert_eq!(entry.balanced, Some(balanced.imbalance), "{rule}");
    }
    assert!(by_cost.verdict().contains("with balance)"));
    let alone = Comparison::new(&sizes, &rules, 1, None, |_| ()).unwrap();
    assert!(marked(&alone).iter().all(|marked| !marked), "one rank never waits");
}

#[test]
fn report_shows_the_cost_of_each_rank_with_and_without_balance() {
    let model = CostModel::new(0.0, 1.0, 1.0 / 64.0).unwrap();
    let builder =
        Plan::builder(2000).sizes(long_tail()).rule(Packing::new(1024).unwrap()).shuffle(true).world_size(4);
    let plain = builder.clone().build().unwrap();
    let balanced = builder.clone().balance(true).cost(model).build().unwrap();
    let page = balanced.report("balanced");
    let waits = |plan: &Plan| format!("Ranks wait {:.2}% of the time", plan.stats().imbalance * 100.0);
    let before = builder.cost(model).build().unwrap();
    assert!(page.contains("by per_token=1,per_pair=0.015625") && page.contains("<svg id=\"unbalanced\""));
    assert!(page.contains(&waits(&balanced)));
    let parts = balanced.parts(0, 1).unwrap();
    let squares = parts.sizes.iter().map(|&size| u128::from(size).pow(2)).sum();
    let cost = model.packed_cost(parts.sizes.iter().map(|&size| u64::from(size)).sum(), squares);
    assert!(page.contains(&format!("step 0, rank 1: cost {cost}")));
    assert!(
        !page.contains("which leave out attention")
            && !before.report("before").contains("leave out attention: ranks")
    );
    let page = plain.report("plain");
    assert!(page.contains("Imbalance counts tokens") && !page.contains("<svg id=\"unbalanced\""));
    assert!(page.contains(&waits(&plain)));
}

#[test]
fn pages_show_all_that_is_added() {
    let lengths: Vec<u32> = (1..500).collect();
    let sizes = Sizes::new(lengths.clone());
    let rules = Comparison::usual_rules(&sizes, Budget::Usual, None).unwrap();
    let comparison = Comparison::new(&sizes, &rules, 4, None, |_| ()).unwrap();
    let plan = Plan::builder(499).sizes(sizes).rule(rules[5].clone()).build().unwrap();
    let page =
        Page::new("lengths & rules").histogram(&Histogram::new(&lengths)).comparison(&comparison).plan(&plan);
    let html = page.html();
    for id in ["lengths", "batch", "steps", "order"] {
        assert_eq!(html.matches(&format!("<svg id=\"{id}\"")).count(), 1, "{id}");
    }
    for rule in &rules {
        assert_eq!(
            html.matches(&format!("<code>{rule}</code>")).count(),
            2 + usize::from(*rule == rules[5]),
            "{rule}"
        );
    }
    assert!(!html.contains("<script") && !html.contains("http"));
}
