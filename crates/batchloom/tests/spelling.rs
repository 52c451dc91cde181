//! Rules as text: what is printed reads as the same rule, and what cannot be read is an error that says why.

use batchloom::Kind;
use batchloom::batching::{
    Budgets, CostModel, CostOptimal, Count, FixedSize, LengthBuckets, Oversize, PackedOversize, Packing,
    PackingOrder, Pool, Rule, TokenBudget,
};
use proptest::option;
use proptest::prelude::*;

use crate::errors::is;

fn pool() -> impl Strategy<Value = Pool> {
    prop_oneof![Just(Pool::Auto), Just(Pool::All), (1_u64..1 << 40).prop_map(Pool::Of)]
}

fn oversize() -> impl Strategy<Value = Oversize> {
    prop::sample::select(vec![Oversize::Error, Oversize::Alone, Oversize::Drop, Oversize::Truncate])
}

fn length_buckets() -> impl Strategy<Value = Rule> {
    (1_u64.., pool(), 1_u32..).prop_map(|(size, pool, multiple_of)| {
        let rule = LengthBuckets::new(size).unwrap().pool(pool).unwrap();
        rule.multiple_of(multiple_of).unwrap().into()
    })
}

fn token_budget() -> impl Strategy<Value = Rule> {
    let numbers = (1_u64.., 1_u32.., option::of(any::<u32>()), option::of(1_u64..));
    (numbers, any::<bool>(), oversize(), pool()).prop_map(
        |((tokens, multiple, spread, samples), real, policy, pool)| {
            let rule = TokenBudget::new(tokens).unwrap().oversize(policy).pool(pool).unwrap();
            let rule = rule.multiple_of(multiple.min(u32::try_from(tokens).unwrap_or(u32::MAX))).unwrap();
            let rule = if real { rule.count(Count::Real) } else { rule };
            let rule = spread.map_or(rule.clone(), |spread| rule.max_length_spread(spread));
            samples.map_or(rule.clone(), |samples| rule.max_samples(samples).unwrap()).into()
        },
    )
}

fn cost_optimal() -> impl Strategy<Value = Rule> {
    let cost = (0.0..1e9_f64, 1e-12..1.0_f64, prop_oneof![Just(0.0), 1e-15..1e-3_f64]);
    (cost, option::of(1_u64..), option::of(1_u64..), oversize(), pool()).prop_map(
        |((fixed, token, pair), tokens, samples, policy, pool)| {
            let rule = CostOptimal::new(CostModel::new(fixed, token, pair).unwrap()).oversize(policy);
            let rule = rule.pool(pool).unwrap();
            let rule = tokens.map_or(rule, |tokens| rule.max_tokens(tokens).unwrap());
            samples.map_or(rule, |samples| rule.max_samples(samples).unwrap()).into()
        },
    )
}

fn packing() -> impl Strategy<Value = Rule> {
    let policies =
        vec![PackedOversize::Error, PackedOversize::Drop, PackedOversize::Truncate, PackedOversize::Split];
    let numbers = (1_u64..1 << 28, option::of(1_u32..));
    (numbers, prop::sample::select(policies), pool(), any::<bool>()).prop_map(
        |((tokens, samples), policy, pool, decreasing)| {
            let rule = Packing::new(tokens).unwrap().oversize(policy).pool(pool).unwrap();
            let rule = if decreasing { rule.order(PackingOrder::Decreasing) } else { rule };
            samples.map_or(rule.clone(), |samples| rule.max_samples(samples).unwrap()).into()
        },
    )
}

fn rule() -> impl Strategy<Value = Rule> {
    let fixed = (1_u64.., 1_u32..)
        .prop_map(|(size, multiple)| FixedSize::new(size).unwrap().multiple_of(multiple).unwrap().into());
    prop_oneof![fixed, length_buckets(), token_budget(), cost_optimal(), packing(), several()]
}

/// Rules with several budgets, of any names.
fn several() -> impl Strategy<Value = Rule> {
    let budgets = prop::collection::btree_map("\\PC{1,9}|[%+=,\\\\\" a-c]{1,5}", 1_u64..1 << 28, 1..=8);
    (budgets, any::<bool>(), pool()).prop_map(|(budgets, packs, pool)| {
        let budgets = Budgets::new(budgets).unwrap();
        match packs {
            true => Packing::within(budgets).unwrap().pool(pool).unwrap().into(),
            false => TokenBudget::within(budgets).pool(pool).unwrap().into(),
        }
    })
}

proptest! {
    #[test]
    fn text_of_a_rule_reads_as_the_rule(rule in rule()) {
        let text = rule.to_string();
        prop_assert_eq!(&text.parse::<Rule>().unwrap(), &rule, "{}", text);
        let json = serde_json::to_string(&rule).unwrap();
        prop_assert_eq!(&json, &format!("\"{text}\""));
        prop_assert_eq!(&serde_json::from_str::<Rule>(&json).unwrap(), &rule);
    }

    #[test]
    fn any_text_is_a_rule_or_an_error(text in "\\PC{0,40}") {
        if let Ok(rule) = text.parse::<Rule>() {
            prop_assert_eq!(rule.to_string().parse::<Rule>().unwrap(), rule);
        }
    }

    #[test]
    fn text_that_is_nearly_a_rule_is_a_rule_or_an_error(rule in rule(), place in any::<prop::sample::Index>(), letter in any::<char>()) {
        let mut letters: Vec<char> = rule.to_string().chars().collect();
        let place = place.index(letters.len());
        letters[place] = letter;
        let text: String = letters.into_iter().collect();
        if let Ok(rule) = text.parse::<Rule>() {
            prop_assert_eq!(rule.to_string().parse::<Rule>().unwrap(), rule);
        }
    }
}

#[test]
fn rules_are_spelled_as_documented() {
    for text in [
        "fixed-size:64",
        "length-buckets:32,pool=100,multiple_of=8",
        "token-budget:16384,count=real,max_length_spread=10,max_samples=64,multiple_of=64,oversize=drop,pool=all",
        "cost-optimal,fixed=1024,per_token=1",
        "cost-optimal:16384,fixed=0.004,per_token=0.0000002,per_pair=0.00000000001",
        "packing:8192,oversize=split,order=decreasing",
        "packing:images=48+patches=16384+text=8192,max_samples=9",
        "token-budget:edges=2000+nodes=300,count=real",
    ] {
        assert_eq!(text.parse::<Rule>().unwrap().to_string(), text);
    }
    assert_eq!(
        " packing:8192 , oversize=split".parse::<Rule>().unwrap().to_string(),
        "packing:8192,oversize=split"
    );
}

#[test]
fn errors_say_what_is_wrong_with_the_text() {
    for (text, reason) in [
        ("", "there is no rule \"\"; expected fixed-size:N"),
        ("token_budget:1", "there is no rule \"token_budget\""),
        ("token-budget", "there is no number; expected token-budget:N"),
        ("token-budget:many", "the number is \"many\""),
        ("token-budget:-1", "the number is \"-1\""),
        ("token-budget:8,multiple", "\"multiple\" is no option; expected name=value"),
        (
            "token-budget:8,multiple=8",
            "token-budget has no option \"multiple\"; expected count, max_length_spread",
        ),
        ("token-budget:8,oversize=split", "oversize is \"split\"; expected \"error\", \"alone\""),
        ("token-budget:8,pool=1,pool=2", "pool is given twice"),
        ("fixed-size:8,pool=1", "fixed-size has no option \"pool\"; expected multiple_of"),
        ("cost-optimal:8,fixed=nan", "found NaN"),
        ("packing:0", "max_tokens is 0"),
        ("listed", "lists have no text"),
    ] {
        let error = text.parse::<Rule>().unwrap_err();
        let message = error.to_string();
        let is_read = is(&error, Kind::Argument, &["cannot be read"]);
        assert!(message.contains(reason) || !is_read, "{text:?}: {message}");
    }
    assert!(
        serde_json::from_str::<Rule>("\"fixed-size:0\"").unwrap_err().to_string().contains("batch_size is 0")
    );
}

#[test]
fn options_are_read_by_name() {
    use batchloom::batching::{Oversize, Pool};
    use batchloom::order::Shuffle;

    assert_eq!("truncate".parse(), Ok(Oversize::Truncate));
    assert_eq!("runs".parse(), Ok(Shuffle::Runs));
    assert_eq!(("all".parse(), "4096".parse()), (Ok(Pool::All), Ok(Pool::Of(4096))));
    let error = "cut".parse::<Oversize>().unwrap_err();
    assert_eq!(error.kind(), Kind::Argument);
    assert_eq!(
        error.to_string(),
        "oversize is \"cut\"; expected \"error\", \"alone\", \"drop\" or \"truncate\""
    );
}
