//! Pieces of a stream against the stream itself, made the slow way: every token an input once, its label the token
//! after it, documents whole and in the order of the epoch, and rows that continue.

use std::collections::HashMap;

use batchloom::dataset::{Dataset, Tail, TokenExtras, TokenMode};
use batchloom::loader::Batch;
use batchloom::order::{Key, Permutation, Purpose};
use batchloom::ranks::Uneven;
use batchloom::{DType, Kind, Loader, Tensor, TokenDataset};
use proptest::prelude::*;

use crate::errors::{is, refused};

const SEPARATOR: i64 = -7;

#[derive(Debug, Clone)]
struct Corpus {
    lengths: Vec<usize>,
    separated: bool,
    kind: DType,
}

/// A token of the stream: its value, its document, and true if it begins the document.
type Token = (i64, usize, bool);

impl Corpus {
    fn offsets(&self) -> Vec<i64> {
        let ends = self.lengths.iter().scan(0, |end, &length| {
            *end += length as i64;
            Some(*end)
        });
        [0].into_iter().chain(ends).collect()
    }

    fn tokens(&self) -> Tensor {
        let total: usize = self.lengths.iter().sum();
        match self.kind {
            DType::U8 => Tensor::from_vec((0..total).map(|token| (token % 251) as u8).collect(), &[total]),
            DType::U16 => Tensor::from_vec((0..total).map(|token| token as u16).collect(), &[total]),
            DType::U32 => Tensor::from_vec((0..total).map(|token| token as u32).collect(), &[total]),
            DType::I32 => Tensor::from_vec((0..total).map(|token| token as i32).collect(), &[total]),
            _ => Tensor::from_vec((0..total).map(|token| token as i64).collect(), &[total]),
        }
        .unwrap()
    }

    /// The stream of the documents in this order.
    fn stream(&self, order: &[usize]) -> Vec<Token> {
        let offsets = self.offsets();
        let value = |token: i64| if self.kind == DType::U8 { token % 251 } else { token };
        let mut stream = Vec::new();
        for (place, &document) in order.iter().enumerate() {
            let (start, end) = (offsets[document], offsets[document + 1]);
            stream.extend((start..end).map(|token| (value(token), document, token == start)));
            if self.separated && place + 1 < order.len() {
                stream.push((SEPARATOR, document, start == end));
            }
        }
        stream
    }

    fn dataset(&self, seq_len: usize, mode: TokenMode) -> batchloom::Result<TokenDataset> {
        let offsets = self.offsets();
        let documents = Tensor::from_vec(offsets.clone(), &[offsets.len()])?;
        let extras = TokenExtras::default().position_ids(true).segment_ids(true).resets(true);
        let dataset = TokenDataset::new(self.tokens(), seq_len)?.mode(mode).extras(extras);
        let dataset = if self.separated { dataset.separator(SEPARATOR) } else { dataset };
        dataset.documents(&documents)
    }
}

fn corpus() -> impl Strategy<Value = Corpus> {
    let kinds =
        prop_oneof![Just(DType::U8), Just(DType::U16), Just(DType::U32), Just(DType::I32), Just(DType::I64)];
    (prop::collection::vec(prop_oneof![0_usize..4, 0_usize..30], 1..60), any::<bool>(), kinds)
        .prop_filter("two tokens", |(lengths, ..)| lengths.iter().sum::<usize>() > 1)
        .prop_map(|(lengths, separated, kind)| Corpus { lengths, separated, kind })
}

fn longs(batch: &Batch, field: &str) -> Vec<i64> {
    batch.field(field).unwrap().as_slice::<i64>().unwrap().to_vec()
}

fn flags(batch: &Batch) -> Vec<bool> {
    let resets = batch.field("resets").unwrap();
    let start = resets.layout().offset();
    resets.bytes()[start..start + resets.layout().elements()].iter().map(|&byte| byte == 1).collect()
}

/// Inputs, labels, positions, segments, resets.
type Said = (Vec<i64>, Vec<i64>, Vec<i64>, Vec<i32>, Vec<bool>);

/// The fields of a piece of the stream, by definition.
fn expected(piece: &[Token], after: i64) -> Said {
    let inputs: Vec<i64> = piece.iter().map(|token| token.0).collect();
    let labels = inputs[1..].iter().copied().chain([after]).collect();
    let (mut positions, mut segments) = (Vec::new(), Vec::new());
    for (place, token) in piece.iter().enumerate() {
        let same = place > 0 && piece[place - 1].1 == token.1;
        positions.push(if same { positions[place - 1] + 1 } else { 0 });
        segments.push(if place == 0 { 1 } else { segments[place - 1] + i32::from(!same) });
    }
    (inputs, labels, positions, segments, piece.iter().map(|token| token.2).collect())
}

/// The field `name` of a batch, `[samples, length]`, row by row.
fn rows_of(batch: &Batch, name: &str) -> Vec<Vec<i64>> {
    let length = batch.field(name).unwrap().shape()[1];
    longs(batch, name).chunks(length).map(<[i64]>::to_vec).collect()
}

/// The tokens of each row of a stream of `targets` tokens with a label, cut in as equal rows as can be.
fn equal_rows(targets: usize, rows: usize) -> Vec<std::ops::Range<usize>> {
    let mut start = 0;
    (0..rows)
        .map(|row| {
            let end = start + targets / rows + usize::from(row < targets % rows);
            std::mem::replace(&mut start, end)..end
        })
        .collect()
}

/// Tells whether row `place` of a batch is that piece.
fn check(
    batch: &Batch,
    place: usize,
    seq_len: usize,
    piece: &[Token],
    after: i64,
) -> Result<(), TestCaseError> {
    let (inputs, labels, positions, segments, resets) = expected(piece, after);
    let range = place * seq_len..(place + 1) * seq_len;
    prop_assert_eq!(&longs(batch, "input_ids")[range.clone()], &inputs[..]);
    prop_assert_eq!(&longs(batch, "labels")[range.clone()], &labels[..]);
    prop_assert_eq!(&longs(batch, "position_ids")[range.clone()], &positions[..]);
    let numbers = batch.field("segment_ids").unwrap().as_slice::<i32>().unwrap();
    prop_assert_eq!(&numbers[range.clone()], &segments[..]);
    prop_assert_eq!(&flags(batch)[range], &resets[..]);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    // law: L1
    #[test]
    fn pieces_are_the_stream(corpus in corpus(), seq_len in 1_usize..20, batch_size in 1_u64..6, shuffle in any::<bool>()) {
        let order: Vec<usize> = (0..corpus.lengths.len()).collect();
        let stream = corpus.stream(&order);
        let dataset = corpus.dataset(seq_len, TokenMode::Chunk).unwrap();
        prop_assert_eq!(dataset.len(), (stream.len() - 1) / seq_len);
        let loader = match Loader::builder(dataset).batch_size(batch_size).shuffle(shuffle).build() {
            Ok(loader) => loader,
            Err(error) => {
                let words = [format!("the stream has {} tokens", stream.len()), format!("seq_len {seq_len}")];
                prop_assert!(is(&error, Kind::Data, &words.each_ref().map(String::as_str)), "{error}");
                prop_assert!(stream.len() < seq_len + 1);
                return Ok(());
            }
        };
        let (plan, mut seen) = (loader.plan(0), 0);
        for (step, batch) in (0..).zip(loader.iter()) {
            let batch = batch.unwrap();
            for (place, &piece) in plan.indices(step, 0).unwrap().iter().enumerate() {
                let start = piece as usize * seq_len;
                check(&batch, place, seq_len, &stream[start..start + seq_len], stream[start + seq_len].0)?;
                seen += 1;
            }
        }
        prop_assert_eq!(seen, (stream.len() - 1) / seq_len);
    }

    /// With jitter, each epoch slices the stream from another of its first tokens on, and every token that it has comes
    /// once.
    // law: L7
    #[test]
    fn jitter_moves_the_slices(corpus in corpus(), seq_len in 1_usize..20, batch_size in 1_u64..6, seed in any::<u64>(), shuffle in any::<bool>()) {
        let order: Vec<usize> = (0..corpus.lengths.len()).collect();
        let stream = corpus.stream(&order);
        let dataset = corpus.dataset(seq_len, TokenMode::Chunk).unwrap().jitter(true);
        prop_assert_eq!(dataset.len(), stream.len().saturating_sub(seq_len) / seq_len);
        prop_assume!(!dataset.is_empty());
        let loader = Loader::builder(dataset).batch_size(batch_size).shuffle(shuffle).seed(seed).build().unwrap();
        for epoch in 0..4 {
            loader.set_epoch(epoch);
            let key = Key::new(seed, epoch, Purpose::Jitter);
            let offset = Permutation::new(seq_len as u64, &key).get(0) as usize;
            let plan = loader.plan(epoch);
            for (step, batch) in (0..).zip(loader.iter()) {
                let batch = batch.unwrap();
                for (place, &piece) in plan.indices(step, 0).unwrap().iter().enumerate() {
                    let start = offset + piece as usize * seq_len;
                    check(&batch, place, seq_len, &stream[start..start + seq_len], stream[start + seq_len].0)?;
                }
            }
        }
    }

    /// The shuffled stream is some order of the documents, each whole: another in each epoch, the same each time,
    /// whatever the batches.
    // law: L8
    #[test]
    fn documents_are_shuffled_whole(lengths in prop::collection::vec(0_usize..30, 20..60), separated in any::<bool>(), seed in any::<u64>()) {
        let corpus = Corpus { lengths, separated, kind: DType::U16 };
        let read = |seq_len: usize, batch_size: u64, epoch: u64| {
            let dataset = corpus.dataset(seq_len, TokenMode::Chunk).unwrap();
            let loader = Loader::builder(dataset).batch_size(batch_size).shuffle_documents(true).seed(seed).build().unwrap();
            loader.set_epoch(epoch);
            let mut stream = Vec::new();
            for batch in &loader {
                stream.extend(longs(&batch.unwrap(), "input_ids"));
            }
            stream
        };
        let total: usize = corpus.stream(&(0..corpus.lengths.len()).collect::<Vec<_>>()).len();
        prop_assume!(total > 40);
        let (one, again, other) = (read(1, 7, 0), read(5, 3, 0), read(1, 7, 1));
        prop_assert_eq!(one.len(), total - 1);
        prop_assert_eq!(&one[..again.len()], &again[..]);
        prop_assert_ne!(&one, &other);
        for stream in [&one, &other] {
            let mut counts: HashMap<i64, usize> = HashMap::new();
            stream.iter().for_each(|&token| *counts.entry(token).or_default() += 1);
            let between = counts.remove(&SEPARATOR).unwrap_or(0);
            prop_assert!(counts.values().all(|&count| count == 1));
            prop_assert!(between < corpus.lengths.len());
            // Inside a document, a token is followed by the next one.
            let offsets = corpus.offsets();
            for pair in stream.windows(2).filter(|pair| pair[0] != SEPARATOR) {
                let ends = offsets.contains(&(pair[0] + 1));
                prop_assert!(ends || pair[1] == pair[0] + 1, "{pair:?}");
            }
        }
    }

    /// With the tail, every token but the first is a label exactly once, on whatever ranks and after a resume. Batches are
    /// as long as their longest piece, or all as long; what is after the end of a row is padding, and no label.
    // law: L1
    #[test]
    fn tails_are_kept(
        corpus in corpus(),
        seq_len in 1_usize..9,
        batch_size in 1_u64..4,
        world_size in 1_u32..4,
        stop in 0_usize..4,
        continues in any::<bool>(),
        shorter in any::<bool>(),
        shuffle in any::<bool>(),
    ) {
        let order: Vec<usize> = (0..corpus.lengths.len()).collect();
        let stream = corpus.stream(&order);
        let mode = if continues { TokenMode::Continuous } else { TokenMode::Chunk };
        let tail = if shorter { Tail::Short } else { Tail::Pad };
        let dataset = corpus.dataset(seq_len, mode).unwrap().tail(tail);
        let rows = if continues { batch_size * u64::from(world_size) } else { 1 };
        let cut = equal_rows(stream.len() - 1, rows as usize);
        let longest = cut[0].len();
        let counts = dataset.counts(rows);
        prop_assert_eq!((counts.inputs, counts.tail), (stream.len() as u64 - 1, 1));
        prop_assert_eq!(counts.samples, rows * longest.div_ceil(seq_len) as u64);
        let mut seen: Vec<(i64, i64)> = Vec::new();
        let (mut labels, mut padding) = (0, 0);
        for rank in 0..world_size {
            let build = || {
                let loader = Loader::builder(dataset.clone()).batch_size(batch_size).shuffle(shuffle && !continues);
                loader.uneven(Uneven::Mask).rank(rank, world_size).build().unwrap()
            };
            let loader = build();
            let plan = loader.plan(0);
            let mut batches: Vec<Batch> = loader.iter().take(stop).map(Result::unwrap).collect();
            let resumed = build();
            resumed.load(&loader.state()).unwrap();
            if resumed.epoch() == 0 {
                batches.extend(resumed.iter().map(Result::unwrap));
            }
            prop_assert_eq!(batches.len() as u64, plan.steps());
            for (step, batch) in (0..).zip(&batches) {
                let samples = plan.indices(step, rank).unwrap();
                let pieces: Vec<_> = samples.iter().map(|&piece| {
                    let (row, before) = (piece as usize % rows as usize, piece as usize / rows as usize);
                    let start = (cut[row].start + before * seq_len).min(cut[row].end);
                    start..(start + seq_len).min(cut[row].end)
                }).collect();
                let last = longest - (longest.div_ceil(seq_len) - 1) * seq_len;
                let are_last = samples.iter().all(|piece| *piece + rows >= counts.samples);
                let length = if shorter && are_last { last } else { seq_len };
                let weights = batch.field("weight").unwrap().as_slice::<f32>().unwrap().to_vec();
                let (inputs, targets) = (rows_of(batch, "input_ids"), rows_of(batch, "labels"));
                let segments = batch.field("segment_ids").unwrap();
                prop_assert_eq!(segments.shape(), &[samples.len(), length]);
                for (place, piece) in pieces.iter().enumerate() {
                    let real = |offset: usize| (offset < piece.len()).then(|| &stream[piece.start + offset..]);
                    let expected: Vec<i64> = (0..length).map(|it| real(it).map_or(0, |rest| rest[0].0)).collect();
                    prop_assert_eq!(&inputs[place], &expected);
                    let counts = weights[place] > 0.0;
                    let after = |it: usize| real(it).filter(|_| counts).map_or(-100, |rest| rest[1].0);
                    prop_assert_eq!(&targets[place], &(0..length).map(after).collect::<Vec<_>>());
                    if counts {
                        seen.extend(piece.clone().map(|token| (stream[token].0, stream[token + 1].0)));
                        padding += length - piece.len();
                    }
                    let padded = &segments.as_slice::<i32>().unwrap()[place * length..(place + 1) * length];
                    prop_assert!(padded.iter().enumerate().all(|(it, &segment)| (segment == 0) == (it >= piece.len())));
                }
            }
            if rank == 0 {
                labels = (0..plan.steps()).map(|step| plan.step(step).unwrap().labels.unwrap()).sum();
            }
            let late = Loader::builder(dataset.clone()).batch_size(batch_size).uneven(Uneven::Mask).build().unwrap();
            late.set_rank(rank, world_size).unwrap();
            if !shuffle || continues {
                let again = late.plan(0);
                prop_assert_eq!(again.options().labels.as_ref(), plan.options().labels.as_ref());
            }
        }
        let mut expected: Vec<_> = stream.windows(2).map(|pair| (pair[0].0, pair[1].0)).collect();
        prop_assert_eq!(labels, expected.len() as u64);
        if continues || !shorter {
            prop_assert_eq!(counts.padding, padding as u64);
        }
        seen.sort_unstable();
        expected.sort_unstable();
        prop_assert_eq!(seen, expected);
    }

    /// Each row of a batch continues the same row of the batch before it, on every rank and after a resume.
    #[test]
    fn rows_go_on(corpus in corpus(), seq_len in 1_usize..6, batch_size in 1_u64..4, world_size in 1_u32..4, stop in 0_usize..4) {
        let order: Vec<usize> = (0..corpus.lengths.len()).collect();
        let stream = corpus.stream(&order);
        let rows = batch_size * u64::from(world_size);
        let steps = (stream.len() - 1) / rows as usize / seq_len;
        let dataset = corpus.dataset(seq_len, TokenMode::Continuous).unwrap();
        for rank in 0..world_size {
            let build = || Loader::builder(dataset.clone()).batch_size(batch_size).rank(rank, world_size).build();
            let loader = match build() {
                Ok(loader) => loader,
                Err(error) => {
                    let few = is(&error, Kind::Argument, &["too few for", "use fewer or shorter rows"]);
                    let short = is(&error, Kind::Data, &["the stream has", "expected at least"]);
                    prop_assert!(few || short, "{error}");
                    prop_assert_eq!(steps, 0);
                    return Ok(());
                }
            };
            prop_assert_eq!(loader.len(), steps as u64);
            let mut batches: Vec<Batch> = loader.iter().take(stop.min(steps)).map(Result::unwrap).collect();
            let resumed = build().unwrap();
            resumed.load(&loader.state()).unwrap();
            if resumed.epoch() == 0 {
                prop_assert_eq!(resumed.remaining(), (steps - batches.len()) as u64);
                batches.extend(resumed.iter().map(Result::unwrap));
            }
            prop_assert_eq!(batches.len(), steps);
            for (step, batch) in batches.iter().enumerate() {
                for row in 0..batch_size as usize {
                    let global = rank as usize * batch_size as usize + row;
                    let start = (global * steps + step) * seq_len;
                    check(batch, row, seq_len, &stream[start..start + seq_len], stream[start + seq_len].0)?;
                }
            }
            // A loader that learns of the ranks after it was built divides the stream anew.
            let late = Loader::builder(dataset.clone()).batch_size(batch_size).build().unwrap();
            late.set_rank(rank, world_size).unwrap();
            prop_assert_eq!(late.plan(0).fingerprint(), loader.plan(0).fingerprint());
            for (batch, same) in late.iter().zip(&batches) {
                prop_assert_eq!(longs(&batch.unwrap(), "input_ids"), longs(same, "input_ids"));
            }
        }
    }
}

#[test]
fn bad_input() {
    let tokens = || Tensor::from_vec((0..10_u16).collect(), &[10]).unwrap();
    refused(TokenDataset::new(tokens(), 0), Kind::Data, &["seq_len is 0"]);
    let short = Loader::builder(TokenDataset::new(tokens(), 10).unwrap()).build();
    refused(short, Kind::Data, &["the stream has 10 tokens; expected at least 11 with seq_len 10"]);
    let jitter = TokenDataset::new(tokens(), 4).unwrap().jitter(true).tail(Tail::Pad);
    refused(Loader::builder(jitter).build(), Kind::Data, &["jitter", "tail is \"pad\""]);
    let empty = TokenDataset::new(Tensor::from_vec(vec![1_u16], &[1]).unwrap(), 4).unwrap().tail(Tail::Short);
    let empty = Loader::builder(empty).build();
    refused(empty, Kind::Data, &["the stream has 1 tokens; expected at least 2 with seq_len 4"]);
    let short = TokenDataset::new(tokens(), 4).unwrap().tail(Tail::Short);
    let joined = Dataset::concat([short.clone().into(), short.into()]);
    refused(joined, Kind::Argument, &["the last piece of dataset 0", "tail is \"short\""]);
    let floats = TokenDataset::new(Tensor::from_vec(vec![0.0_f32; 10], &[10]).unwrap(), 2);
    refused(floats, Kind::Data, &["tokens are float32"]);
    let wide = TokenDataset::new(Tensor::from_vec(vec![0_u64; 10], &[10]).unwrap(), 2);
    refused(wide, Kind::Data, &["tokens are uint64"]);
    let table = TokenDataset::new(Tensor::from_vec(vec![0_i64; 10], &[5, 2]).unwrap(), 2);
    refused(table, Kind::Data, &["tokens have shape [5, 2]"]);
    let with = |offsets: Vec<i64>| {
        let len = offsets.len();
        TokenDataset::new(tokens(), 2).unwrap().documents(&Tensor::from_vec(offsets, &[len]).unwrap())
    };
    assert!(with(vec![0, 4, 10]).is_ok());
    for (offsets, words) in [
        (vec![0, 4, 9], "from 0 to 9; expected from 0 to 10"),
        (vec![1, 10], "from 1 to 10; expected from 0 to 10"),
        (vec![0, 6, 4, 10], "document 1 goes from token 6 to 4"),
        (vec![0, 11], "from 0 to 11; expected from 0 to 10"),
        (vec![], "offsets of documents are empty; expected from 0 to 10"),
    ] {
        refused(with(offsets), Kind::Data, &[words]);
    }
    let dataset = || TokenDataset::new(tokens(), 2).unwrap().mode(TokenMode::Continuous);
    let shuffled = Loader::builder(dataset()).batch_size(2).shuffle(true).build();
    refused(shuffled, Kind::Argument, &["shuffle is", "continues from batch to batch"]);
    let many = Loader::builder(dataset()).batch_size(5).build();
    refused(many, Kind::Argument, &["10 tokens, too few for 5 rows of 2"]);
    let loader = |world_size| Loader::builder(dataset()).batch_size(1).rank(0, world_size).build().unwrap();
    let state = loader(1).state();
    refused(loader(2).load(&state), Kind::State, &["another plan", &state.fingerprint]);
}
