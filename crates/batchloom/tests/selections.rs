//! Selections and splits: a selected dataset is one whose data was copied, batch for batch; parts of a split are disjoint,
//! whole, and as large as their shares say.

use std::collections::{BTreeMap, BTreeSet};

use batchloom::batching::{FixedSize, LengthBuckets, Packing, Rule, TokenBudget};
use batchloom::dataset::{
    Dataset, GroupLayout, GroupOversize, Groups, MapDataset, PartEnd, Sample, Selection, Sequences, Short,
    SparseLayout, SparseRows, TokenExtras, TokenMode, WindowShape,
};
use batchloom::ranks::Uneven;
use batchloom::{
    GroupDataset, Kind, Loader, SequenceDataset, Tensor, TensorDataset, TokenDataset, WindowDataset,
};
use proptest::prelude::*;

use crate::errors::{is, refused};

/// The lengths of samples, and the numbers of those to select.
fn picks() -> impl Strategy<Value = (Vec<usize>, Vec<u64>)> {
    let lengths = prop::collection::vec(0_usize..9, 1..40);
    lengths.prop_flat_map(|lengths| {
        let samples = lengths.len() as u64;
        let range = (0..samples, 1..=samples);
        let range =
            range.prop_map(move |(start, len)| (start..(start + len).min(samples)).collect::<Vec<u64>>());
        let list = prop::collection::vec(0..samples, 1..30);
        (Just(lengths), prop_oneof![range, list])
    })
}

fn rules() -> impl Strategy<Value = Rule> {
    prop_oneof![
        (1_u64..9).prop_map(|size| FixedSize::new(size).unwrap().into()),
        (1_u64..9).prop_map(|size| LengthBuckets::new(size).unwrap().into()),
        (20_u64..80).prop_map(|most| TokenBudget::new(most).unwrap().into()),
        (20_u64..80).prop_map(|most| Packing::new(most).unwrap().into()),
    ]
}

fn numbers(values: impl Iterator<Item = u64>) -> Tensor {
    let values: Vec<i64> = values.map(u64::cast_signed).collect();
    let len = values.len();
    Tensor::from_vec(values, &[len]).unwrap()
}

/// The values of samples of these lengths, in `all`: sample `k` holds 100 * k, 100 * k + 1, and so on.
fn sequences(lengths: &[usize], all: &[u64]) -> Sequences {
    let length = |&sample: &u64| lengths[sample as usize] as u64;
    let values =
        numbers(all.iter().flat_map(|sample| (0..length(sample)).map(move |step| 100 * sample + step)));
    let ends = all.iter().scan(0, |end, sample| {
        *end += length(sample) as i64;
        Some(*end)
    });
    Sequences::new("x", values, &[0].into_iter().chain(ends).collect::<Vec<_>>()).unwrap()
}

/// Sequences with a field of lengths of its own, and a fixed one.
fn sequence_dataset(lengths: &[usize], all: &[u64], own: bool) -> Dataset {
    let other: Vec<usize> = lengths.iter().map(|length| 8 - length).collect();
    let dataset = SequenceDataset::new()
        .variable("x", sequences(lengths, all))
        .fixed("y", numbers(all.iter().copied()));
    let dataset =
        if own { dataset.variable("z", sequences(&other, all)).own_lengths(["z"]) } else { dataset };
    dataset.build().unwrap().into()
}

fn tensor_dataset(lengths: &[usize], all: &[u64], layout: SparseLayout) -> Dataset {
    let sequences = sequences(lengths, all);
    let total = sequences.values().shape()[0];
    let ends = all.iter().scan(0, |end, &sample| {
        *end += lengths[sample as usize] as i64;
        Some(*end)
    });
    let offsets: Vec<i64> = [0].into_iter().chain(ends).collect();
    let columns: Vec<i64> = offsets.windows(2).flat_map(|pair| 0..pair[1] - pair[0]).collect();
    let offsets = Tensor::from_vec(offsets, &[all.len() + 1]).unwrap();
    let columns = Tensor::from_vec(columns, &[total]).unwrap();
    let rows = SparseRows::new("s", offsets, columns, sequences.values().as_tensor().unwrap().clone(), 9)
        .unwrap()
        .layout(layout);
    let dense = numbers(all.iter().copied());
    TensorDataset::new([("d", dense.into()), ("s", batchloom::dataset::TensorField::from(rows))])
        .unwrap()
        .into()
}

/// Groups of one row more than `lengths`, whose rows lie scattered.
fn group_dataset(
    lengths: &[usize],
    all: &[u64],
    layout: GroupLayout,
    most: Option<(u32, GroupOversize)>,
) -> Dataset {
    let rows = |&(place, sample): &(usize, u64)| {
        (0..=lengths[sample as usize]).map(move |step| (step, place, sample))
    };
    let members: Vec<(usize, u64)> = all.iter().copied().enumerate().collect();
    let mut rows: Vec<_> = members.iter().flat_map(rows).collect();
    rows.sort_unstable();
    let groups = Groups::of(&rows.iter().map(|&(_, place, _)| place as i64).collect::<Vec<_>>()).unwrap();
    let values = numbers(rows.iter().map(|&(step, _, sample)| 100 * sample + step as u64));
    let builder =
        GroupDataset::new(groups).rows("x", values).unwrap().fixed("id", numbers(all.iter().copied()));
    let builder = most
        .into_iter()
        .fold(builder.layout(layout), |builder, (most, oversize)| builder.max_rows(most, oversize));
    builder.offsets().build().unwrap().into()
}

/// Documents, in pieces.
fn token_dataset(lengths: &[usize], all: &[u64], separator: Option<i64>) -> TokenDataset {
    let sequences = sequences(lengths, all);
    let ends = all.iter().scan(0, |end, &sample| {
        *end += lengths[sample as usize] as i64;
        Some(*end)
    });
    let offsets: Vec<i64> = [0].into_iter().chain(ends).collect();
    let offsets = Tensor::from_vec(offsets, &[all.len() + 1]).unwrap();
    let dataset = TokenDataset::new(sequences.values().clone(), 3).unwrap().documents(&offsets).unwrap();
    let extras = TokenExtras::default().position_ids(true).segment_ids(true).resets(true);
    separator.into_iter().fold(dataset.extras(extras), TokenDataset::separator)
}

fn map_dataset(lengths: &[usize], all: &[u64]) -> Dataset {
    let (sizes, all) = (all.iter().map(|&sample| lengths[sample as usize] as u32).collect(), all.to_vec());
    let (lengths, samples) = (lengths.to_vec(), all.len() as u64);
    let read = move |sample: u64, _: &mut _| {
        let sample = all[sample as usize];
        let length = lengths[sample as usize] as u64;
        Ok(Sample::new([("x", numbers((0..length).map(|step| 100 * sample + step)))]))
    };
    MapDataset::new((samples, read)).sizes(sizes).build().unwrap().into()
}

/// A field of a batch: its name, its shape and its bytes.
type Field = (String, Vec<usize>, Vec<u8>);

/// The fields of all batches of an epoch.
fn epoch(loader: &Loader) -> Vec<Vec<Field>> {
    let field = |(name, field): (&String, &Tensor)| {
        let bytes = field.layout().offset()
            ..field.layout().offset() + field.shape().iter().product::<usize>() * field.dtype().size();
        (name.clone(), field.shape().to_vec(), field.bytes()[bytes].to_vec())
    };
    let batch = |batch: batchloom::Result<batchloom::loader::Batch>| {
        let batch = batch.unwrap();
        batch.names().iter().zip(batch.fields()).map(field).collect()
    };
    loader.iter().map(batch).collect()
}

/// The same selection in one step, and by a selection of another one.
fn both_ways(picks: &[u64], samples: u64) -> [Vec<Selection>; 2] {
    let distinct: Vec<u64> = picks.iter().copied().collect::<BTreeSet<_>>().into_iter().collect();
    let place = |number: &u64| distinct.iter().position(|other| other == number).unwrap() as u64;
    let inner: Vec<u64> = picks.iter().map(place).collect();
    let one = Selection::list(picks, samples).unwrap();
    let outer = Selection::list(&distinct, samples).unwrap();
    [vec![one], vec![outer, Selection::list(&inner, distinct.len() as u64).unwrap()]]
}

/// Compares two epochs of a selected dataset to those of one whose data was copied.
fn check(
    whole: &Dataset,
    copied: &Dataset,
    picks: &[u64],
    samples: u64,
    rule: &Rule,
    shuffle: bool,
    uneven: Uneven,
) {
    for selections in both_ways(picks, samples) {
        let select = |dataset: Dataset, selection: &Selection| dataset.select(selection).unwrap();
        let selected = selections.iter().fold(whole.clone(), select);
        assert_eq!(selected.len(), copied.len());
        for (sample, _) in (0..).zip(0..copied.len()) {
            let read = |dataset: &Dataset| -> Vec<_> {
                let fields = dataset.sample(sample).unwrap();
                fields
                    .into_iter()
                    .map(|(name, field)| {
                        (name, field.shape().to_vec(), field.as_slice::<i64>().map(<[i64]>::to_vec))
                    })
                    .collect()
            };
            assert_eq!(read(&selected), read(copied));
        }
        let loader = |dataset: &Dataset| {
            let builder =
                Loader::builder(dataset.clone()).rule(rule.clone()).shuffle(shuffle).seed(3).num_threads(1);
            builder.uneven(uneven).build().unwrap()
        };
        let (selecting, expected) = (loader(&selected), loader(copied));
        for _ in 0..2 {
            assert_eq!(epoch(&selecting), epoch(&expected));
        }
        assert_ne!(selecting.plan(0).fingerprint(), expected.plan(0).fingerprint());
    }
}

/// The same samples in one dataset, in two, and in three, two of which were put together before.
fn put_together(all: &[u64], build: impl Fn(&[u64]) -> Dataset) -> Vec<Dataset> {
    let (first, rest) = all.split_at(all.len().div_ceil(2));
    let mut datasets = vec![build(all)];
    if !rest.is_empty() {
        datasets.push(Dataset::concat([build(first), build(rest)]).unwrap());
        let (begin, end) = first.split_at(first.len().div_ceil(3));
        // The middle comes out of order, and is selected back.
        let middle = || {
            let ends = [build(rest), build(end)].into_iter().filter(|part| !part.is_empty());
            let mixed = Dataset::concat(ends).unwrap();
            let (rest, end) = (rest.len() as u64, end.len() as u64);
            mixed.select(
                &Selection::list(&(rest..rest + end).chain(0..rest).collect::<Vec<_>>(), rest + end).unwrap(),
            )
        };
        if !end.is_empty() {
            datasets.push(Dataset::concat([build(begin), middle().unwrap()]).unwrap());
        }
    }
    datasets
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Rows, sequences, groups and samples on demand.
    // law: L1
    #[test]
    fn a_selection_is_a_copy(
        (lengths, picks) in picks(),
        rule in rules(),
        shuffle in any::<bool>(),
        uneven in prop_oneof![Just(Uneven::Pad), Just(Uneven::Mask)],
    ) {
        let samples = lengths.len() as u64;
        let all: Vec<u64> = (0..samples).collect();
        let fixed = FixedSize::new(4).unwrap().into();
        for layout in [SparseLayout::Dense, SparseLayout::Csr] {
            let build = |all: &[u64]| tensor_dataset(&lengths, all, layout);
            for whole in put_together(&all, build) {
                check(&whole, &build(&picks), &picks, samples, &fixed, shuffle, uneven);
            }
        }
        let packs = matches!(rule, Rule::Packing(_));
        for own in [false, true].into_iter().filter(|own| !(packs && *own)) {
            let build = |all: &[u64]| sequence_dataset(&lengths, all, own);
            for whole in put_together(&all, build) {
                check(&whole, &build(&picks), &picks, samples, &rule, shuffle, uneven);
            }
        }
        for layout in [GroupLayout::Concatenated, GroupLayout::Padded] {
            for most in [None, Some((3, GroupOversize::Truncate)), Some((3, GroupOversize::Subsample))] {
                let build = |all: &[u64]| group_dataset(&lengths, all, layout, most);
                if !(packs && layout == GroupLayout::Padded) {
                    for whole in put_together(&all, build) {
                        check(&whole, &build(&picks), &picks, samples, &rule, shuffle, uneven);
                    }
                }
            }
        }
        let build = |all: &[u64]| map_dataset(&lengths, all);
        check(&build(&all), &build(&picks), &picks, samples, &rule, shuffle, uneven);
    }

    /// Windows and pieces of streams, whose samples of one dataset never meet data of another.
    // law: L1
    #[test]
    fn windows_and_pieces_put_together(
        lengths in prop::collection::vec(3_usize..9, 2..20),
        documents in any::<bool>(),
        batch_size in 1_u64..6,
    ) {
        let all: Vec<u64> = (0..lengths.len() as u64).collect();
        let (first, rest) = all.split_at(lengths.len() / 2);
        let windows = |all: &[u64]| {
            let values = sequences(&lengths, all).values().clone();
            let offsets = [0].into_iter().chain(all.iter().scan(0, |end, &sample| {
                *end += lengths[sample as usize];
                Some(*end)
            }));
            let shape = WindowShape::new(3).horizon(2);
            let dataset = WindowDataset::new(&offsets.collect::<Vec<_>>(), shape).unwrap();
            Dataset::from(dataset.input("x", values.clone()).unwrap().target("y", values).unwrap().mask().unwrap())
        };
        let pieces = |all: &[u64]| Dataset::from(token_dataset(&lengths, all, Some(-7)).jitter(true));
        // Windows have no documents to shuffle.
        let kinds = [(&windows as &dyn Fn(&[u64]) -> Dataset, false), (&pieces, documents)];
        for (build, documents) in kinds {
            let parts: Vec<_> = [build(first), build(rest)].into_iter().filter(|part| !part.is_empty()).collect();
            if parts.is_empty() {
                continue;
            }
            let loader = |dataset: &Dataset, batch_size| {
                let builder = Loader::builder(dataset.clone()).batch_size(batch_size).shuffle_documents(documents);
                builder.seed(3).num_threads(1).build()
            };
            let whole = Dataset::concat(parts.clone()).unwrap();
            let alone = |part: &Dataset| {
                let loader = loader(part, 1).unwrap();
                [epoch(&loader), epoch(&loader)]
            };
            let alone: Vec<_> = parts.iter().map(alone).collect();
            let loader_of_whole = loader(&whole, batch_size).unwrap();
            for number in 0..2 {
                let expected: Vec<_> = alone.iter().flat_map(|epochs| epochs[number].clone()).collect();
                let batches = epoch(&loader_of_whole);
                for (batch, expected) in batches.iter().zip(expected.chunks(batch_size as usize)) {
                    for (place, (_, _, bytes)) in batch.iter().enumerate() {
                        let one_by_one: Vec<u8> = expected.iter().flat_map(|one| one[place].2.clone()).collect();
                        prop_assert_eq!(bytes, &one_by_one);
                    }
                }
                prop_assert_eq!(batches.len(), expected.len().div_ceil(batch_size as usize));
            }
        }
    }

    /// Documents of a stream, in stored order and shuffled.
    // law: L1
    #[test]
    fn selected_documents_are_a_stream((lengths, picks) in picks(), separator in prop::option::of(Just(-7_i64)), documents in any::<bool>()) {
        let samples = lengths.len() as u64;
        let all: Vec<u64> = (0..samples).collect();
        let (whole, copied) = (token_dataset(&lengths, &all, separator), token_dataset(&lengths, &picks, separator));
        for selections in both_ways(&picks, samples) {
            let selected = selections.iter().fold(whole.clone(), |dataset, selection| dataset.select(selection).unwrap());
            prop_assert_eq!(selected.len(), copied.len());
            prop_assert_eq!(selected.token_count(), copied.token_count());
            prop_assert_eq!(selected.counts(1), copied.counts(1));
            if selected.is_empty() {
                continue;
            }
            let loader = |dataset: &TokenDataset| {
                let builder = Loader::builder(dataset.clone()).batch_size(2).shuffle(true).shuffle_documents(documents);
                builder.num_threads(1).build().unwrap()
            };
            let (selecting, expected) = (loader(&selected), loader(&copied));
            for _ in 0..2 {
                prop_assert_eq!(epoch(&selecting), epoch(&expected));
            }
            prop_assert_ne!(selecting.plan(0).fingerprint(), expected.plan(0).fingerprint());
        }
    }

    /// Windows, by their numbers: as samples, in batches, as views where they are neighbours.
    #[test]
    fn selected_windows_are_windows(
        series in prop::collection::vec(1_usize..20, 1..5),
        seed in any::<u64>(),
        short in prop_oneof![Just(Short::Pad), Just(Short::Drop)],
        picks in prop::collection::vec(any::<prop::sample::Index>(), 1..20),
        run in any::<bool>(),
    ) {
        let offsets: Vec<usize> = [0].into_iter().chain(series.iter().scan(0, |end, len| { *end += len; Some(*end) })).collect();
        let rows = offsets[offsets.len() - 1];
        let values = numbers(0..rows as u64);
        let shape = WindowShape::new(3).horizon(2).short(short);
        let Ok(dataset) = WindowDataset::new(&offsets, shape) else { return Ok(()) };
        let dataset = dataset.input("x", values.clone()).unwrap().target("y", values).unwrap().mask().unwrap();
        let samples = dataset.len() as u64;
        let mut picks: Vec<u64> = picks.iter().map(|pick| pick.index(dataset.len()) as u64).collect();
        if run {
            picks = (picks[0].min(picks[picks.len() - 1])..=picks[0].max(picks[picks.len() - 1])).collect();
        }
        for selections in both_ways(&picks, samples) {
            let selected = selections.iter().fold(dataset.clone(), |dataset, selection| dataset.select(selection).unwrap());
            for (sample, &number) in (0..).zip(&picks) {
                prop_assert_eq!(selected.place(sample).unwrap(), dataset.place(number).unwrap());
            }
            for (start, end) in [(0, 1), (0, picks.len()), (picks.len() / 2, picks.len())] {
                let chosen = &picks[start..end];
                let neighbours = chosen.windows(2).all(|pair| pair[1] == pair[0] + 1);
                let expected = neighbours && dataset.is_view(chosen[0], chosen[0] + chosen.len() as u64);
                prop_assert_eq!(selected.is_view(start as u64, end as u64), expected);
            }
            let rows = Dataset::from(selected.clone());
            let covered = rows.rows(0..picks.len() as u64).unwrap();
            for &number in &picks {
                let (_, row, missing) = dataset.place(number).unwrap();
                prop_assert!(covered[0].1.start <= row && row + 5 - missing.min(5) <= covered[0].1.end);
            }
            let loader = Loader::builder(selected).batch_size(4).shuffle(true).seed(seed).num_threads(1).build().unwrap();
            let (plan, whole) = (loader.plan(0), Dataset::from(dataset.clone()));
            for (step, batch) in (0..).zip(loader.iter()) {
                let (batch, indices) = (batch.unwrap(), plan.indices(step, 0).unwrap());
                for (place, &index) in indices.iter().enumerate() {
                    for (name, expected) in whole.sample(picks[index as usize]).unwrap() {
                        let tensor = batch.field(&name).unwrap().index(place).unwrap();
                        let start = tensor.layout().offset();
                        let bytes = start..start + expected.bytes().len();
                        prop_assert_eq!(&tensor.bytes()[bytes], &expected.bytes()[..]);
                    }
                }
            }
        }
    }

    /// Parts hold every sample once, as many as their shares say, and each its share of every stratum.
    #[test]
    fn parts_of_a_split(
        samples in 1_u64..400,
        shares in prop::collection::vec(1_u32..10, 1..5),
        seed in prop::option::of(any::<u64>()),
        classes in 1_i64..6,
    ) {
        let total: u32 = shares.iter().sum();
        let names: Vec<String> = (0..shares.len()).map(|part| part.to_string()).collect();
        let ends: Vec<(&str, PartEnd)> = names.iter().map(String::as_str).zip(shares.iter().map(|&share| PartEnd::Share(f64::from(share) / f64::from(total)))).collect();
        let strata: Vec<i64> = (0..samples.cast_signed()).map(|sample| (sample * sample) % classes).collect();
        for strata in [None, seed.map(|_| strata.as_slice())] {
            let Ok(parts) = Selection::split(samples, &ends, seed, strata) else { return Ok(()) };
            let mut all: Vec<u64> = parts.iter().flat_map(Selection::to_vec).collect();
            prop_assert!(parts.iter().all(|part| part.to_vec().is_sorted()));
            all.sort_unstable();
            prop_assert_eq!(all, (0..samples).collect::<Vec<_>>());
            let mut end = 0;
            for (part, &share) in parts.iter().zip(&shares) {
                end += share;
                let before = u64::from(end - share) * samples / u64::from(total);
                prop_assert_eq!(part.len(), u64::from(end) * samples / u64::from(total) - before);
                for class in strata.map(|_| 0..classes).into_iter().flatten() {
                    let of = |numbers: &mut dyn Iterator<Item = u64>| numbers.filter(|&it| strata.unwrap()[it as usize] == class).count() as f64;
                    let (in_part, members) = (of(&mut part.iter()), of(&mut (0..samples)));
                    prop_assert!((in_part - members * part.len() as f64 / samples as f64).abs() < 2.0);
                }
            }
        }
    }
}

/// Other seeds give other parts, and the samples of a part are no pattern: each sample is as often in it as any other.
#[test]
fn splits_are_random() {
    let ends = [("train", PartEnd::Share(0.8)), ("test", PartEnd::Share(0.2))];
    let strata: Vec<i64> = (0..50).map(|sample| sample % 5).collect();
    for strata in [None, Some(strata.as_slice())] {
        let mut counts = BTreeMap::new();
        for seed in 0..2000 {
            for sample in Selection::split(50, &ends, Some(seed), strata).unwrap()[1].iter() {
                *counts.entry(sample).or_insert(0_u32) += 1;
            }
        }
        // 400 expected; the standard deviation is 18.
        assert!(counts.len() == 50 && counts.values().all(|count| (320..480).contains(count)), "{counts:?}");
    }
}

#[test]
fn golden() {
    let mut lines = Vec::new();
    for (samples, seed) in [(10_u64, 0), (23, 1), (100, 7)] {
        let ends = [("a", PartEnd::Share(0.7)), ("b", PartEnd::Share(0.1)), ("c", PartEnd::Rest)];
        let strata: Vec<i64> = (0..samples.cast_signed()).map(|sample| sample % 3).collect();
        for strata in [None, Some(strata.as_slice())] {
            let parts = Selection::split(samples, &ends, Some(seed), strata).unwrap();
            let parts: Vec<_> = parts.iter().map(|part| (part.to_vec(), part.text().to_owned())).collect();
            lines.push(serde_json::json!(parts).to_string());
        }
    }
    let text = format!("[\n{}\n]\n", lines.join(",\n"));
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/splits.json");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(path, &text).unwrap();
    }
    assert_eq!(text, std::fs::read_to_string(path).unwrap());
}

#[test]
fn what_cannot_be_selected_is_refused() {
    let lengths = [3, 0, 4, 5];
    let whole = sequence_dataset(&lengths, &[0, 1, 2, 3], false);
    let (outside, empty) = (["sample 4", "sample < 4"], ["the selection holds no sample of 4"]);
    refused(Selection::list(&[1, 4], 4), Kind::Range, &outside);
    refused(Selection::list(&[], 4), Kind::Data, &empty);
    refused(Selection::range(2..2, 4), Kind::Data, &empty);
    refused(Selection::range(2..5, 4), Kind::Range, &outside);
    let other = Selection::range(0..2, 3).unwrap();
    let of_others = ["the selection was made for 3 samples", "expected one for 4"];
    refused(whole.select(&other), Kind::Data, &of_others);
    let map = map_dataset(&lengths, &[0, 1, 2, 3]);
    refused(map.select(&other), Kind::Data, &of_others);
    let tokens = token_dataset(&lengths, &[0, 1, 2, 3], None).mode(TokenMode::Continuous);
    let scattered = tokens.select(&Selection::list(&[0, 2], 4).unwrap());
    refused(scattered, Kind::Argument, &["documents", "no neighbours"]);
    assert_eq!(tokens.select(&Selection::range(1..3, 4).unwrap()).unwrap().token_count(), 4);
    let one = TokenDataset::new(numbers(0..9), 2).unwrap();
    let chosen = one.select(&Selection::range(0..1, 1).unwrap());
    refused(chosen, Kind::Argument, &["the stream is one document"]);
    let ends = [("a", PartEnd::Share(0.1)), ("b", PartEnd::Rest)];
    refused(Selection::split(4, &ends, Some(0), None), Kind::Data, &["part a ends at 0 of 4"]);
    let few = Selection::split(4, &ends[1..], Some(0), Some(&[1, 2]));
    refused(few, Kind::Data, &["2 strata for 4 samples"]);
    let unseeded = Selection::split(4, &ends[1..], None, Some(&[1, 2, 1, 2]));
    refused(unseeded, Kind::Data, &["strata", "without a seed"]);
    let long = Selection::split(4, &[("a", PartEnd::Step(5)), ("b", PartEnd::Rest)], Some(0), None);
    refused(long, Kind::Argument, &["part a", "5 samples", "4"]);
}

/// A selection of a billion samples takes no memory where it is a run, and a split of a few counts them exactly.
#[test]
fn runs_cost_nothing() {
    let samples = 1 << 40;
    let half = Selection::range(samples / 2..samples, samples).unwrap();
    let quarter = Selection::range(0..samples / 4, samples / 2).unwrap().within(&half).unwrap();
    assert_eq!(quarter.as_range(), Some(samples / 2..samples * 3 / 4));
    assert_eq!(quarter.get(7), samples / 2 + 7);
    let cut = quarter.cut(samples / 2..samples).unwrap();
    assert_eq!((cut.as_range(), cut.text()), (Some(0..samples / 4), quarter.text()));
}

/// Datasets that do not fit together are refused, and the message names the field.
#[test]
fn datasets_of_other_fields_are_not_put_together() {
    let rows = |name: &str, tensor: Tensor| Dataset::from(TensorDataset::new([(name, tensor)]).unwrap());
    let (integers, floats) = (numbers(0..4), Tensor::from_vec(vec![0.5_f32; 4], &[4]).unwrap());
    let wide = Tensor::from_vec(vec![0_i64; 8], &[4, 2]).unwrap();
    let wrong = |parts: Vec<Dataset>, words: &[&str]| {
        let error = Dataset::concat(parts).unwrap_err();
        assert!(is(&error, Kind::Argument, &["the datasets cannot be put together"]), "{error}");
        words.iter().for_each(|word| assert!(error.to_string().contains(word), "{error}"));
    };
    wrong(vec![], &["none"]);
    wrong(vec![rows("x", integers.clone()), rows("y", integers.clone())], &["x", "dataset 1", "y"]);
    wrong(vec![rows("x", integers.clone()), rows("x", floats)], &["field x", "int64", "float32"]);
    wrong(vec![rows("x", integers.clone()), rows("x", wide)], &["field x", "[]", "[2]"]);
    let lengths = [3, 4];
    wrong(vec![rows("x", integers), sequence_dataset(&lengths, &[0, 1], false)], &["x", "dataset 1"]);
    wrong(vec![map_dataset(&lengths, &[0, 1])], &["demand"]);
    let stream = Dataset::from(token_dataset(&[9, 9], &[0, 1], None).mode(TokenMode::Continuous));
    let both = Dataset::concat([stream.clone(), stream]).unwrap();
    let error = Loader::builder(both).batch_size(1).build().unwrap_err();
    assert!(is(&error, Kind::Argument, &["cannot be put together", "dataset 0 continues"]), "{error}");
}
