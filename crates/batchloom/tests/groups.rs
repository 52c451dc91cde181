//! Groups against their slow definition: whole, in order, in every layout; scattered ids; subsampled as a function of
//! seed, epoch and group.

use batchloom::batching::{Count, FixedSize, LengthBuckets, PackedOversize, Packing, Rule, TokenBudget};
use batchloom::dataset::{GroupLayout, GroupOversize, Groups, TextIds};
use batchloom::loader::Batch;
use batchloom::{GroupDataset, Kind, Loader, Tensor};
use proptest::prelude::*;

use crate::errors::refused;

/// The rows of each group, in order of their first appearance.
fn members(ids: &[i64]) -> Vec<Vec<usize>> {
    let mut names: Vec<i64> = Vec::new();
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for (row, id) in ids.iter().enumerate() {
        let place = names.iter().position(|name| name == id).unwrap_or_else(|| {
            names.push(*id);
            groups.push(Vec::new());
            names.len() - 1
        });
        groups[place].push(row);
    }
    groups
}

fn rows(ids: &[i64]) -> Tensor {
    Tensor::from_vec((0..ids.len() as i64).flat_map(|row| [row, -row]).collect(), &[ids.len(), 2]).unwrap()
}

fn dataset(ids: &[i64], layout: GroupLayout, max_rows: Option<(u32, GroupOversize)>) -> GroupDataset {
    let groups = Groups::of(ids).unwrap();
    let wide = rows(ids);
    let one = Tensor::from_vec(ids.to_vec(), &[ids.len()]).unwrap();
    let builder = GroupDataset::new(groups).rows("id", one).unwrap().rows("x", wide).unwrap();
    let builder = builder.layout(layout).offsets();
    max_rows
        .into_iter()
        .fold(builder, |builder, (most, oversize)| builder.max_rows(most, oversize))
        .build()
        .unwrap()
}

fn read(batch: &Batch, field: &str) -> Vec<i64> {
    batch.field(field).unwrap().as_slice::<i64>().unwrap().to_vec()
}

fn ids() -> impl Strategy<Value = Vec<i64>> {
    let runs = prop::collection::vec((0_i64..12, 1_usize..6), 1..30);
    runs.prop_map(|runs| runs.into_iter().flat_map(|(id, count)| vec![id - 5; count]).collect())
}

fn rules() -> impl Strategy<Value = Rule> {
    prop_oneof![
        (1_u64..9).prop_map(|size| FixedSize::new(size).unwrap().into()),
        (1_u64..9).prop_map(|size| LengthBuckets::new(size).unwrap().into()),
        (60_u64..200).prop_map(|most| TokenBudget::new(most).unwrap().into()),
        (180_u64..300).prop_map(|most| Packing::new(most).unwrap().into()),
    ]
}

proptest! {
    // law: L1, L9
    #[test]
    fn groups_are_their_definition(ids in ids()) {
        let (groups, expected) = (Groups::of(&ids).unwrap(), members(&ids));
        prop_assert_eq!(groups.len(), expected.len());
        let row = |place: usize| groups.order().map_or(place, |order| order[place] as usize);
        for (pair, expected) in groups.offsets().windows(2).zip(&expected) {
            let rows: Vec<_> = (pair[0] as usize..pair[1] as usize).map(row).collect();
            prop_assert_eq!(&rows, expected);
        }
        let consecutive = expected.iter().flatten().is_sorted();
        prop_assert_eq!(groups.order().is_none(), consecutive);
    }

    /// Every group comes once and whole, in its order, under every rule; other ids for the same groups change nothing.
    // law: L8
    #[test]
    fn groups_stay_whole(ids in ids(), rule in rules(), shuffle in any::<bool>(), epoch in 0_u64..3) {
        let expected = members(&ids);
        let other: Vec<i64> = ids.iter().map(|id| id * 7 - 3).collect();
        let loader = |ids: &[i64]| {
            let dataset = dataset(ids, GroupLayout::Concatenated, None);
            let loader = Loader::builder(dataset).rule(rule.clone()).shuffle(shuffle).build().unwrap();
            loader.set_epoch(epoch);
            loader
        };
        let (first, second) = (loader(&ids), loader(&other));
        let (plan, mut seen) = (first.plan(epoch), Vec::new());
        for (step, (batch, twin)) in (0..).zip(first.iter().zip(second.iter())) {
            let (batch, twin) = (batch.unwrap(), twin.unwrap());
            let groups = plan.indices(step, 0).unwrap();
            let wanted: Vec<usize> = groups.iter().flat_map(|&group| expected[group as usize].clone()).collect();
            let x: Vec<i64> = wanted.iter().flat_map(|&row| [row as i64, -(row as i64)]).collect();
            prop_assert_eq!(read(&batch, "x"), x.clone());
            prop_assert_eq!(read(&twin, "x"), x);
            prop_assert_eq!(read(&batch, "id"), wanted.iter().map(|&row| ids[row]).collect::<Vec<_>>());
            let ends = groups.iter().scan(0, |end, &group| {
                *end += expected[group as usize].len() as i64;
                Some(*end)
            });
            prop_assert_eq!(read(&batch, "offsets"), [0].into_iter().chain(ends).collect::<Vec<_>>());
            seen.extend(groups);
        }
        seen.sort_unstable();
        prop_assert_eq!(seen, (0..expected.len() as u64).collect::<Vec<_>>());
    }

    /// Groups that are too long to pad are truncated, or subsampled in order: for each epoch another choice, the same each
    /// time.
    #[test]
    fn longer_groups(ids in ids(), most in 1_u32..8, subsample in any::<bool>(), seed in any::<u64>()) {
        let expected = members(&ids);
        let oversize = if subsample { GroupOversize::Subsample } else { GroupOversize::Truncate };
        for layout in [GroupLayout::Padded, GroupLayout::Concatenated] {
            let build = || {
                let dataset = dataset(&ids, layout, Some((most, oversize)));
                Loader::builder(dataset).batch_size(3).shuffle(true).seed(seed).build().unwrap()
            };
            let (one, two) = (build(), build());
            let plan = one.plan(0);
            for (step, (batch, again)) in (0..).zip(one.iter().zip(two.iter())) {
                let (batch, again) = (batch.unwrap(), again.unwrap());
                prop_assert_eq!(read(&batch, "x"), read(&again, "x"));
                let groups = plan.indices(step, 0).unwrap();
                let shape = batch.field("x").unwrap().shape().to_vec();
                let x = read(&batch, "x");
                let mut flat = x.chunks(2);
                for &group in &groups {
                    let rows = &expected[group as usize];
                    let taken = rows.len().min(most as usize);
                    let kept: Vec<_> = flat.by_ref().take(taken).map(|pair| pair[0] as usize).collect();
                    prop_assert!(kept.is_sorted() && kept.iter().all(|row| rows.contains(row)));
                    prop_assert_eq!(kept.iter().collect::<std::collections::HashSet<_>>().len(), taken);
                    if !subsample {
                        prop_assert_eq!(&kept[..], &rows[..taken]);
                    }
                    if layout == GroupLayout::Padded {
                        flat.by_ref().take(shape[1] - taken).for_each(drop);
                    }
                }
            }
        }
    }
}

/// Every row of a group has the same chance, and epochs choose differently.
#[test]
fn subsamples_are_fair() {
    let ids = vec![1; 10];
    let dataset = dataset(&ids, GroupLayout::Concatenated, Some((3, GroupOversize::Subsample)));
    let loader = Loader::builder(dataset).build().unwrap();
    let mut counts = [0_u32; 10];
    let epochs = 2000;
    for _ in 0..epochs {
        for batch in &loader {
            read(&batch.unwrap(), "x").chunks(2).for_each(|row| counts[row[0] as usize] += 1);
        }
    }
    // Binomial: 600 expected, a standard deviation of 20.
    assert!(counts.iter().all(|&count| (500..700).contains(&count)), "{counts:?}");
}

// law: L6
#[test]
fn budgets_count_rows() {
    let ids: Vec<i64> = [9, 1, 1, 1].iter().zip(0..).flat_map(|(&rows, id)| vec![id; rows]).collect();
    let dataset = dataset(&ids, GroupLayout::Concatenated, None);
    let budget = TokenBudget::new(12).unwrap();
    let loader = Loader::builder(dataset).rule(budget.count(Count::Padded)).build().unwrap();
    let stats = loader.plan(0).stats();
    assert_eq!((stats.batches, stats.padding), (1, 0.0));
}

#[test]
fn bad_input() {
    refused(Groups::of(&[]), Kind::Data, &["no samples"]);
    let groups = || Groups::of(&[1, 1, 2]).unwrap();
    let short = Tensor::from_vec(vec![0_i64; 2], &[2]).unwrap();
    refused(GroupDataset::new(groups()).rows("x", short), Kind::Data, &["field x has 2 rows for 3 ids"]);
    let full = || {
        let x = Tensor::from_vec(vec![0_i64; 3], &[3]).unwrap();
        GroupDataset::new(groups()).rows("x", x).unwrap()
    };
    let long = ["group 0 has 2 rows", "max_rows is 1"];
    refused(full().max_rows(1, GroupOversize::Error).build(), Kind::Data, &long);
    let split = Packing::new(2).unwrap().oversize(PackedOversize::Split);
    let built = Loader::builder(full().build().unwrap()).rule(split).build();
    refused(built, Kind::Argument, &["oversize", "divide groups"]);
    let padded = full().layout(GroupLayout::Padded).build().unwrap();
    let built = Loader::builder(padded).rule(Packing::new(4).unwrap()).build();
    refused(built, Kind::Argument, &["Packing", "layout \"concatenated\""]);
}

proptest! {
    /// Texts are numbered as a list that grows would number them, and group as their numbers do.
    #[test]
    fn groups_of_texts_are_those_of_their_numbers(texts in prop::collection::vec("[ab]{0,3}", 1..60)) {
        let mut names: Vec<&String> = Vec::new();
        let mut codes = Vec::new();
        for text in &texts {
            if !names.contains(&text) {
                names.push(text);
            }
            codes.push(names.iter().position(|name| *name == text).unwrap() as i64);
        }
        let ids = TextIds::new(&texts).unwrap();
        prop_assert_eq!(ids.codes(), &codes);
        let firsts: Vec<_> = ids.first_rows().iter().map(|&row| &texts[row]).collect();
        prop_assert_eq!(firsts, names);
        let (of_text, expected) = (Groups::of_text(&texts).unwrap(), Groups::of(&codes).unwrap());
        prop_assert_eq!((of_text.offsets(), of_text.order()), (expected.offsets(), expected.order()));
    }
}
