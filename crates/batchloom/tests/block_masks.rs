//! Block masks: which tokens see each other by definition, pair by pair, and the blocks that follow.

use batchloom::batching::{Packing, Rests, TokenBudget};
use batchloom::dataset::{Tail, TokenDataset};
use batchloom::loader::{Batch, DocumentMask, MaskKind};
use batchloom::{ChunkedTensor, DType, Error, Kind, Loader, SequenceDataset, Tensor, TensorDataset};
use proptest::prelude::*;

/// A mask by its options, of which definitions are made.
#[derive(Debug, Clone, Copy)]
struct Options {
    full: bool,
    window: Option<u32>,
    has_prefix: bool,
    block: u32,
}

impl Options {
    fn mask(self) -> DocumentMask {
        let kind = if self.full { MaskKind::Full } else { MaskKind::Causal };
        let prefix = self.has_prefix.then(|| "prompt".to_owned());
        DocumentMask::new(kind).window(self.window).prefix(prefix).block_size(self.block).unwrap()
    }

    /// Returns true if token `q` sees token `k` of a document that begins at 0.
    fn sees(self, q: usize, k: usize, prefix: usize) -> bool {
        let near = self.window.is_none_or(|window| q.abs_diff(k) <= window as usize);
        (near && (self.full || k <= q)) || (q < prefix && k < prefix)
    }
}

fn options() -> impl Strategy<Value = Options> {
    let window = prop_oneof![Just(None), (0_u32..40).prop_map(Some)];
    (any::<bool>(), window, any::<bool>(), 1_u32..20).prop_map(|(full, window, prefix, block)| Options {
        full,
        window,
        has_prefix: prefix && !full,
        block,
    })
}

/// The pairs of places of a row that see each other: documents one after the other, each with its prefix.
fn pairs(options: Options, documents: &[(usize, usize)], tokens: usize) -> Vec<Vec<bool>> {
    let mut pairs = vec![vec![false; tokens]; tokens];
    let mut start = 0;
    for &(length, prefix) in documents {
        for q in 0..length {
            for k in 0..length {
                pairs[start + q][start + k] = options.sees(q, k, prefix.min(length));
            }
        }
        start += length;
    }
    pairs
}

/// The number of pairs in each block.
fn counts(pairs: &[Vec<bool>], block: usize) -> Vec<Vec<usize>> {
    let blocks = pairs.len().div_ceil(block);
    let mut counts = vec![vec![0; blocks]; blocks];
    for (q, row) in pairs.iter().enumerate() {
        for (k, _) in row.iter().enumerate().filter(|(_, seen)| **seen) {
            counts[q / block][k / block] += 1;
        }
    }
    counts
}

/// The number of blocks of each row that count, and their numbers before those of the others.
fn ordered(rows: &[Vec<bool>]) -> (Vec<i32>, Vec<i32>) {
    let numbers = rows.iter().map(|row| row.iter().filter(|counts| **counts).count() as i32).collect();
    let of = |row: &Vec<bool>, wanted: bool| {
        let places = (0..).zip(row).filter(|(_, counts)| **counts == wanted).map(|(place, _)| place);
        places.collect::<Vec<i32>>()
    };
    let indices = rows.iter().flat_map(|row| [of(row, true), of(row, false)].concat()).collect();
    (numbers, indices)
}

fn transposed(rows: &[Vec<usize>]) -> Vec<Vec<usize>> {
    (0..rows.len()).map(|column| rows.iter().map(|row| row[column]).collect()).collect()
}

/// Compares the mask of one row of a batch with the pairs that see each other.
fn check(batch: &Batch, row: usize, pairs: &[Vec<bool>], block: usize) -> Result<(), TestCaseError> {
    let part = |name: &str, len: usize| {
        let field = batch.view::<i32>(&format!("block_mask_{name}")).unwrap();
        field[row * len..(row + 1) * len].to_vec()
    };
    let (counts, whole) = (counts(pairs, block), block * block);
    let n = counts.len();
    for (names, counts) in [("kv", counts.clone()), ("q", transposed(&counts))] {
        let some = counts.iter().map(|row| row.iter().map(|&count| count > 0 && count < whole).collect());
        let full = counts.iter().map(|row| row.iter().map(|&count| count == whole).collect());
        for (kind, (numbers, indices)) in
            [("", ordered(&some.collect::<Vec<_>>())), ("full_", ordered(&full.collect::<Vec<_>>()))]
        {
            prop_assert_eq!(part(&format!("{kind}{names}_num_blocks"), n), numbers);
            prop_assert_eq!(part(&format!("{kind}{names}_indices"), n * n), indices);
        }
    }
    let (first, end) = (part("first", pairs.len()), part("end", pairs.len()));
    for (q, row) in pairs.iter().enumerate() {
        let seen: Vec<i32> = (0..).zip(row).filter(|(_, seen)| **seen).map(|(k, _)| k).collect();
        let run: Vec<i32> = (first[q]..end[q]).collect();
        prop_assert_eq!(run, seen, "token {}", q);
    }
    Ok(())
}

proptest! {
    // law: L9
    #[test]
    fn masks_of_packs_are_those_of_all_pairs(
        lengths in prop::collection::vec((0_usize..30, 0_i64..30), 1..12),
        options in options(),
        threads in 1_usize..3,
        block_bytes in prop::sample::select(vec![1_usize, 4096, 1 << 21]),
        seed in any::<u64>(),
    ) {
        let samples: Vec<Vec<i64>> = lengths.iter().map(|&(length, _)| vec![1; length]).collect();
        let prompts = Tensor::from_vec(lengths.iter().map(|&(_, prompt)| prompt).collect(), &[lengths.len()]).unwrap();
        let dataset = SequenceDataset::new().slices("ids", &samples).unwrap().fixed("prompt", prompts).build().unwrap();
        let loader = Loader::builder(dataset).rule(Packing::new(60).unwrap()).shuffle(true).seed(seed);
        let loader = loader.num_threads(threads).block_bytes(block_bytes).block_mask(options.mask()).build().unwrap();
        for batch in loader.iter() {
            let batch = batch.unwrap();
            let ends = batch.view::<i32>("cu_seqlens").unwrap();
            let prompts = batch.view::<i64>("prompt").unwrap();
            let documents: Vec<_> = ends.windows(2).zip(prompts).map(|(ends, &prompt)| {
                ((ends[1] - ends[0]) as usize, if options.has_prefix { prompt as usize } else { 0 })
            }).collect();
            let tokens = *ends.last().unwrap() as usize;
            check(&batch, 0, &pairs(options, &documents, tokens), options.block as usize)?;
        }
    }

    // law: L9
    #[test]
    fn masks_of_rows_of_one_shape_are_those_of_all_pairs(
        lengths in prop::collection::vec((1_usize..30, 0_i64..30), 1..12),
        options in options(),
        rows in 1_u32..5,
        rests in prop::sample::select(vec![Rests::None, Rests::Continue]),
        threads in 1_usize..3,
        seed in any::<u64>(),
    ) {
        let samples: Vec<Vec<i64>> = lengths.iter().map(|&(length, _)| vec![1; length]).collect();
        let prompts = Tensor::from_vec(lengths.iter().map(|&(_, prompt)| prompt).collect(), &[lengths.len()]).unwrap();
        let dataset = SequenceDataset::new().slices("ids", &samples).unwrap().fixed("prompt", prompts).build().unwrap();
        let rule = Packing::new(35).unwrap().rows(rows).unwrap().rests(rests);
        let loader = Loader::builder(dataset).rule(rule).shuffle(true).seed(seed).num_threads(threads);
        let loader = loader.block_mask(options.mask()).build().unwrap();
        let plan = loader.plan(0);
        for (step, batch) in (0..).zip(loader.iter()) {
            let batch = batch.unwrap();
            let parts = plan.parts(step, 0).unwrap();
            let shape = batch.field("index").unwrap().shape().to_vec();
            let (ends, prompts) = (batch.view::<i32>("cu_seqlens").unwrap(), batch.view::<i64>("prompt").unwrap());
            let index = batch.view::<i64>("index").unwrap();
            let mut part = 0;
            for row in 0..shape[0] {
                let mut documents = Vec::new();
                for place in 0..shape[1] {
                    if index[row * shape[1] + place] < 0 {
                        continue;
                    }
                    let ends = &ends[row * (shape[1] + 1) + place..];
                    let prompt = prompts[row * shape[1] + place] - i64::from(parts.starts[part]);
                    let prefix = if options.has_prefix { prompt.max(0) as usize } else { 0 };
                    documents.push(((ends[1] - ends[0]) as usize, prefix));
                    part += 1;
                }
                check(&batch, row, &pairs(options, &documents, 35), options.block as usize)?;
            }
            prop_assert_eq!(part, parts.samples.len());
        }
    }

    // law: L9
    #[test]
    fn masks_of_pieces_are_those_of_all_pairs(
        lengths in prop::collection::vec(0_usize..30, 1..12),
        options in options(),
        seq_len in 1_usize..40,
        batch_size in 1_u64..5,
        separator in any::<bool>(),
        tail in prop::sample::select(vec![Tail::Drop, Tail::Pad, Tail::Short]),
        seed in any::<u64>(),
    ) {
        let options = Options { has_prefix: false, ..options };
        let total: usize = lengths.iter().sum();
        let mut offsets = vec![0_i64];
        offsets.extend(lengths.iter().scan(0_i64, |end, &length| { *end += length as i64; Some(*end) }));
        let len = offsets.len();
        let tokens = Tensor::from_vec(vec![7_i64; total], &[total]).unwrap();
        let offsets = Tensor::from_vec(offsets, &[len]).unwrap();
        let dataset = TokenDataset::new(tokens, seq_len).unwrap().documents(&offsets).unwrap().tail(tail);
        let dataset = if separator { dataset.separator(0) } else { dataset };
        let dataset = dataset.extras(batchloom::dataset::TokenExtras::default().segment_ids(true));
        let loader = Loader::builder(dataset).batch_size(batch_size).shuffle_documents(true).seed(seed);
        let Ok(loader) = loader.block_mask(options.mask()).build() else { return Ok(()) }; // too few tokens
        for batch in loader.iter() {
            let batch = batch.unwrap();
            let (rows, tokens) = (batch.field("segment_ids").unwrap().shape()[0], batch.field("segment_ids").unwrap().shape()[1]);
            for row in 0..rows {
                let segments = &batch.view::<i32>("segment_ids").unwrap()[row * tokens..(row + 1) * tokens];
                let labels = &batch.view::<i64>("labels").unwrap()[row * tokens..(row + 1) * tokens];
                let real = labels.iter().filter(|&&label| label != -100).count();
                let documents: Vec<_> = segments[..real].chunk_by(|a, b| a == b).map(|run| (run.len(), 0)).collect();
                check(&batch, row, &pairs(options, &documents, tokens), options.block as usize)?;
            }
        }
    }
}

fn refusal(loader: batchloom::loader::LoaderBuilder) -> Error {
    loader.build().err().unwrap()
}

#[test]
fn masks_that_make_no_sense_are_refused_before_the_first_batch() {
    let causal = || DocumentMask::new(MaskKind::Causal);
    let dataset = || {
        let halves = Tensor::from_vec(vec![0.5_f32, 0.5], &[2]).unwrap();
        let pairs = Tensor::from_vec(vec![1_i64; 4], &[2, 2]).unwrap();
        let fields = SequenceDataset::new().slices("ids", [vec![1_i64, 2], vec![3]]).unwrap();
        fields.fixed("half", halves).fixed("pair", pairs).build().unwrap()
    };
    let packed = || Loader::builder(dataset()).rule(Packing::new(8).unwrap());
    let rows =
        TensorDataset::new([("x", ChunkedTensor::from(Tensor::from_vec(vec![0_i64; 4], &[4]).unwrap()))])
            .unwrap();
    let stream = TokenDataset::new(Tensor::from_vec(vec![0_i64; 40], &[40]).unwrap(), 8).unwrap();
    let refused = [
        (Loader::builder(rows).block_mask(causal()), "no packs"),
        (Loader::builder(dataset()).rule(TokenBudget::new(8).unwrap()).block_mask(causal()), "no packs"),
        (packed().block_mask(causal().prefix("none".to_owned())), "no such field"),
        (packed().block_mask(causal().prefix("half".to_owned())), "float32"),
        (packed().block_mask(causal().prefix("pair".to_owned())), "more than one number"),
        (packed().block_mask(causal().prefix("ids".to_owned())), "more than one number"),
        (packed().block_mask(DocumentMask::new(MaskKind::Full).prefix("pair".to_owned())), "full"),
        (packed().index_table(true).block_mask(causal()), "index tables"),
        (Loader::builder(stream).block_mask(causal().prefix("prompt".to_owned())), "pieces of a stream"),
    ];
    for (loader, text) in refused {
        let error = refusal(loader);
        assert_eq!((error.kind(), error.option()), (Kind::Argument, Some("block_mask")), "{error}");
        assert!(error.to_string().contains(text), "{error}");
    }
    assert!(causal().block_size(0).is_err());
}

#[test]
fn a_negative_prefix_is_an_error_before_the_first_batch() {
    let make = |prompts: [i32; 2]| {
        let prompts = Tensor::from_vec(prompts.to_vec(), &[2]).unwrap();
        let fields = SequenceDataset::new().slices("ids", [vec![1_i64, 2], vec![3]]).unwrap();
        let dataset = fields.fixed("prompt", prompts).build().unwrap();
        let mask = DocumentMask::new(MaskKind::Causal).prefix("prompt".to_owned());
        Loader::builder(dataset).rule(Packing::new(8).unwrap()).block_mask(mask).build()
    };
    let error = make([1, -4]).expect_err("an error");
    assert_eq!((error.kind(), error.sample()), (Kind::Data, Some(1)), "{error}");
    assert_eq!(make([1, 4]).unwrap().dtypes().last(), Some(&DType::I32));
}
