//! Index tables against blocks of bytes: a device that follows the table finds the bytes that the engine would have
//! collated, for every kind of dataset (L1, L2, L8, L9), though the data is never read. And blocks in memory that a
//! caller allocates (L11).

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use batchloom::batching::{FixedSize, LengthBuckets, PackedOversize, Packing, Rule};
use batchloom::dataset::{
    Dataset, GroupLayout, GroupOversize, Groups, Sequences, Short, TokenExtras, TokenMode, WindowShape,
};
use batchloom::loader::{Block, Blocks, LoaderBuilder, PadSide, Polled};
use batchloom::ranks::Uneven;
use batchloom::{
    DType, Error, GroupDataset, Kind, Loader, SequenceDataset, Tensor, TensorDataset, TokenDataset,
    WindowDataset,
};
use proptest::prelude::*;

use crate::errors::refused;

/// An array whose values are its row numbers, here or elsewhere.
fn rows(count: usize, here: bool) -> Tensor {
    match here {
        true => Tensor::from_vec((0..count as i64).collect(), &[count]).unwrap(),
        false => Tensor::elsewhere(DType::I64, &[count]).unwrap(),
    }
}

fn numbers(tensor: &Tensor) -> Vec<i64> {
    match tensor.dtype() {
        DType::I32 => tensor.as_slice::<i32>().unwrap().iter().map(|&number| number.into()).collect(),
        _ => tensor.as_slice::<i64>().unwrap().to_vec(),
    }
}

/// The table of a block, member by member, and its picks.
fn table(block: &Block) -> (Vec<Vec<i64>>, Vec<i64>) {
    let (table, picks) = block.index_table().unwrap();
    let (lines, members) = (table.shape()[0], table.shape()[1]);
    let all = numbers(table);
    let member = |member: usize| (0..lines).map(|line| all[line * members + member]).collect();
    ((0..members).map(member).collect(), numbers(picks))
}

/// One batch of an index table: its members, the shape of its elements, and the place of its first element among the
/// block's.
struct Addressed {
    members: Vec<Vec<i64>>,
    space: Vec<usize>,
    first: usize,
    picks: Arc<Vec<i64>>,
}

/// The batches of all blocks. `members` gives the number of members of a batch by its number of samples.
fn addressed(blocks: Blocks, members: impl Fn(usize) -> usize) -> Vec<Addressed> {
    let mut batches = Vec::new();
    for block in blocks {
        let block = block.unwrap();
        let (all, picks) = table(&block);
        let (mut all, picks, mut first) = (all.into_iter(), Arc::new(picks), 0);
        for run in block.runs() {
            for _ in 0..run.len() {
                let members = all.by_ref().take(members(run.samples())).collect();
                let (space, picks) = (run.space().to_vec(), Arc::clone(&picks));
                batches.push(Addressed { members, first, picks, space: space.clone() });
                first += space.iter().product::<usize>();
            }
        }
        assert_eq!(all.next(), None);
    }
    batches
}

/// The values of one field of all batches, collated by the engine.
fn formed(loader: &Loader, field: &str) -> Vec<Vec<i64>> {
    let values = |batch: batchloom::Result<batchloom::loader::Batch>| {
        batch.unwrap().field(field).unwrap().as_slice::<i64>().unwrap().to_vec()
    };
    loader.iter().map(values).collect()
}

fn pair(
    dataset: impl Fn(bool) -> Dataset,
    options: impl Fn(LoaderBuilder) -> LoaderBuilder,
) -> (Loader, Loader) {
    let build = |here: bool| options(Loader::builder(dataset(here)).index_table(!here)).build().unwrap();
    (build(true), build(false))
}

proptest! {
    #[test]
    fn rows_are_the_samples(samples in 1_usize..3000, batch_size in 1_u64..70, shuffle in any::<bool>(),
                            rank in 0_u32..3, bytes in 1_usize..40_000, stop in 0_usize..5) {
        let (here, there) = pair(
            |here| TensorDataset::new([("x", rows(samples, here))]).unwrap().into(),
            |builder| builder.batch_size(batch_size).shuffle(shuffle).rank(rank, 3).block_bytes(bytes),
        );
        for round in 0..3 {
            let batches = addressed(there.blocks(), |samples| samples);
            let batches: Vec<Vec<i64>> = batches.into_iter().map(|batch| batch.members.concat()).collect();
            prop_assert_eq!(batches, formed(&here, "x"));
            if round == 1 {
                let mut begun = here.iter();
                begun.by_ref().take(stop).for_each(drop);
                here.load(&here.state()).unwrap();
                there.load(&here.state()).unwrap();
            }
        }
    }

    #[test]
    fn ragged_members_say_where_elements_are(
        lengths in prop::collection::vec(0_usize..12, 1..80), kind in 0..4, multiple_of in 1_u32..5, left in any::<bool>(),
        bytes in 1_usize..3000,
    ) {
        let total = lengths.iter().sum::<usize>();
        let mut offsets = vec![0_i64];
        lengths.iter().for_each(|&length| offsets.push(offsets[offsets.len() - 1] + length as i64));
        let dataset = |here: bool| {
            let sequences = Sequences::new("x", rows(total, here), &offsets).unwrap();
            SequenceDataset::new().variable("x", sequences).build().unwrap().into()
        };
        let rule: Rule = match kind {
            0 => FixedSize::new(3).unwrap().into(),
            1 => LengthBuckets::new(4).unwrap().multiple_of(multiple_of).unwrap().into(),
            2 => Packing::new(20).unwrap().into(),
            _ => Packing::new(7).unwrap().oversize(PackedOversize::Split).into(),
        };
        let packs = kind > 1;
        let side = if left { PadSide::Left } else { PadSide::Right };
        let (here, there) = pair(dataset, |builder| {
            let padding = (-1_i64).to_ne_bytes();
            builder.rule(rule.clone()).shuffle(true).pad_side(side).pad_value("x", &padding).block_bytes(bytes)
        });
        let batches = addressed(there.blocks(), |samples| samples + usize::from(packs));
        let gathered: Vec<Vec<i64>> = batches.iter().map(|batch| follow(batch, packs, left)).collect();
        prop_assert_eq!(gathered, formed(&here, "x"));
    }

    #[test]
    fn windows_begin_with_rows(lengths in prop::collection::vec(1_usize..30, 1..6), input_len in 1_usize..8,
                               horizon in 1_usize..4, stride in 1_usize..3) {
        let mut offsets = vec![0];
        lengths.iter().for_each(|&length| offsets.push(offsets[offsets.len() - 1] + length));
        let total = offsets[offsets.len() - 1];
        let dataset = |here| {
            let shape = WindowShape::new(input_len).horizon(horizon).stride(stride).short(Short::Pad);
            let windows = WindowDataset::new(&offsets, shape).unwrap();
            windows.input("x", rows(total, here)).unwrap().into()
        };
        let (here, there) = pair(dataset, |builder| builder.batch_size(4).shuffle(true));
        let batches = addressed(there.blocks(), |samples| samples);
        let window = |member: &Vec<i64>| {
            let (row, missing) = (member[0], member[1]);
            let step = move |step: i64| if step < missing { 0 } else { row - missing + step };
            (0..input_len as i64).map(step).collect::<Vec<_>>()
        };
        let gathered: Vec<Vec<i64>> = batches.iter().map(|batch| batch.members.iter().flat_map(window).collect()).collect();
        prop_assert_eq!(gathered, formed(&here, "x"));
    }

    #[test]
    fn picks_thin_groups_out(ids in prop::collection::vec(0_i64..9, 1..120), padded in any::<bool>(), most in 1_u32..6,
                             left in any::<bool>()) {
        let groups = Groups::of(&ids).unwrap();
        let order: Option<Vec<u64>> = groups.order().map(<[u64]>::to_vec);
        let dataset = |here| {
            let layout = if padded { GroupLayout::Padded } else { GroupLayout::Concatenated };
            let dataset = GroupDataset::new(groups.clone()).rows("x", rows(ids.len(), here)).unwrap();
            dataset.layout(layout).max_rows(most, GroupOversize::Subsample).build().unwrap().into()
        };
        let side = if left { PadSide::Left } else { PadSide::Right };
        let (here, there) = pair(dataset, |builder| {
            builder.batch_size(2).shuffle(true).pad_side(side).pad_value("x", &(-1_i64).to_ne_bytes())
        });
        let batches = addressed(there.blocks(), |samples| samples + usize::from(!padded));
        let row = |&place: &i64| match (&order, usize::try_from(place)) {
            (Some(order), Ok(place)) => order[place] as i64,
            _ => place,
        };
        let gathered = batches.iter().map(|batch| follow(batch, !padded, left).iter().map(row).collect());
        prop_assert_eq!(gathered.collect::<Vec<Vec<i64>>>(), formed(&here, "x"));
    }

    #[test]
    fn passages_make_up_pieces(lengths in prop::collection::vec(0_usize..9, 3..40), seq_len in 1_usize..7,
                               separated in any::<bool>(), extras in any::<bool>(), shuffle in any::<bool>(),
                               continuous in any::<bool>()) {
        let mut offsets = vec![0_i64];
        lengths.iter().for_each(|&length| offsets.push(offsets[offsets.len() - 1] + length as i64));
        let total = offsets[offsets.len() - 1] as usize;
        prop_assume!(total > 4 * seq_len);
        let offsets = Tensor::from_vec(offsets.clone(), &[offsets.len()]).unwrap();
        let dataset = |here| {
            let dataset = TokenDataset::new(rows(total, here), seq_len).unwrap().documents(&offsets).unwrap();
            let dataset = if separated { dataset.separator(-1) } else { dataset };
            let mode = if continuous { TokenMode::Continuous } else { TokenMode::Chunk };
            let every = TokenExtras::default().position_ids(extras).segment_ids(extras).resets(extras);
            dataset.mode(mode).extras(every).into()
        };
        let (here, there) = pair(dataset, |builder| {
            builder.batch_size(2).shuffle(shuffle && !continuous).shuffle_documents(shuffle)
        });
        let blocks: Vec<Block> = there.blocks().map(Result::unwrap).collect();
        let (inputs, positions) = passages(&blocks, seq_len);
        prop_assert_eq!(inputs, formed(&here, "input_ids").concat());
        if extras {
            here.set_epoch(0);
            prop_assert_eq!(positions, formed(&here, "position_ids").concat());
        }
    }
}

proptest! {
    /// No block goes from one shard to another, and each tells its own shard and the next one.
    #[test]
    fn blocks_keep_to_their_shard(samples in 20_usize..600, batch_size in 1_u64..6, batches in 1_u64..9,
                                  shuffle in any::<bool>(), world_size in 1_u32..4, bytes in 64_usize..4000) {
        let dataset = TensorDataset::new([("x", rows(samples, false))]).unwrap();
        let loader = Loader::builder(dataset)
            .index_table(true)
            .batch_size(batch_size)
            .shard_size(batch_size * batches)
            .shuffle(shuffle)
            .rank(0, world_size)
            .block_bytes(bytes)
            .build()
            .unwrap();
        let (plan, mut step) = (loader.plan(0), 0);
        for block in loader.blocks() {
            let block = block.unwrap();
            let (shard, next) = block.shards().unwrap();
            for member in table(&block).0 {
                prop_assert!(shard.contains(&(member[0] as u64)));
            }
            let first = step;
            step += block.runs().iter().map(|run| run.len() as u64).sum::<u64>();
            prop_assert_eq!(plan.shard(first, 0).unwrap(), Some(shard.clone()));
            let mut others = (step..plan.steps_of(0)).map(|step| plan.shard(step, 0).unwrap().unwrap());
            // Batches that are repeated at the end are of shards that came before.
            let later = others.clone().find(|other| other != shard);
            prop_assert!(next == later.as_ref() || others.next_back() == Some(shard.clone()), "{next:?} {later:?}");
        }
        prop_assert_eq!(step, plan.steps_of(0));
    }
}

/// Follows the index table of a batch to the row of each element, -1 for padding.
fn follow(batch: &Addressed, packs: bool, left: bool) -> Vec<i64> {
    let mut rows = vec![-1; batch.space.iter().product()];
    let members = if packs { &batch.members[1..] } else { &batch.members };
    let mut end = 0;
    for (number, member) in members.iter().enumerate() {
        let (element, count, taken, most, start) = (member[1], member[2], member[5], member[6], member[7]);
        assert_eq!(member[4], number as i64);
        assert_eq!(count, if packs { taken } else { most });
        end += taken;
        assert!(!packs || member[3] == end, "where it ends in its batch");
        let slot = element as usize - batch.first;
        let before = if left && !packs { most - taken } else { 0 } as usize;
        for step in 0..taken as usize {
            let picked =
                if batch.picks.is_empty() { step as i64 } else { batch.picks[element as usize + step] };
            rows[slot + before + step] = start + picked;
        }
    }
    rows
}

/// Inputs and positions of all pieces, from passages.
fn passages(blocks: &[Block], seq_len: usize) -> (Vec<i64>, Vec<i64>) {
    let (mut inputs, mut positions) = (Vec::new(), Vec::new());
    for block in blocks {
        let (mut tokens, mut places) = (Vec::new(), Vec::new());
        for passage in table(block).0 {
            assert_eq!(passage[1], tokens.len() as i64);
            let row = |step| if passage[0] < 0 { -1 } else { passage[0] + step };
            tokens.extend((0..passage[2]).map(row));
            places.extend((0..passage[2]).map(|step| passage[3] + step));
        }
        tokens.chunks(seq_len + 1).for_each(|piece| inputs.extend(&piece[..seq_len]));
        places.chunks(seq_len + 1).for_each(|piece| positions.extend(&piece[..seq_len]));
    }
    (inputs, positions)
}

#[test]
fn numbers_that_need_64_bits_have_them() {
    for (samples, dtype) in [(1_usize << 31, DType::I64), (1 << 20, DType::I32)] {
        let dataset = TensorDataset::new([("x", rows(samples, false))]).unwrap();
        let loader = Loader::builder(dataset).index_table(true).shuffle(true).build().unwrap();
        let block = loader.blocks().next().unwrap().unwrap();
        assert_eq!(block.index_table().unwrap().0.dtype(), dtype);
        let expected = loader.plan(0).indices(0, 0).unwrap();
        let samples: Vec<u64> =
            numbers(block.index_table().unwrap().0).iter().map(|&row| row as u64).collect();
        assert_eq!(samples[..64], expected);
    }
}

#[test]
fn what_is_elsewhere_is_not_read() {
    let dataset = TensorDataset::new([("x", rows(10, false))]).unwrap();
    refused(
        Loader::builder(dataset).build(),
        Kind::Data,
        &["field x is in memory that this process cannot read"],
    );
}

#[test]
fn memory_that_others_allocate_is_used_again() {
    let (allocated, sizes) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(Vec::new())));
    let (count, seen) = (Arc::clone(&allocated), Arc::clone(&sizes));
    let lengths: Vec<usize> = (0..500).map(|sample| sample * 7 % 60).collect();
    let total = lengths.iter().sum();
    let mut offsets = vec![0_i64];
    lengths.iter().for_each(|&length| offsets.push(offsets[offsets.len() - 1] + length as i64));
    let sequences = Sequences::new("x", rows(total, true), &offsets).unwrap();
    let dataset = SequenceDataset::new().variable("x", sequences).build().unwrap();
    let loader = Loader::builder(dataset)
        .batch_size(8)
        .shuffle(true)
        .block_bytes(5000)
        .poison(true)
        .memory(6000, move |bytes| {
            count.fetch_add(1, Ordering::SeqCst);
            seen.lock().unwrap().push(bytes);
            Ok(vec![0_u8; bytes])
        })
        .build()
        .unwrap();
    for _ in 0..50 {
        for batch in &loader {
            let batch = batch.unwrap();
            let x = batch.field("x").unwrap().as_slice::<i64>().unwrap();
            let lengths = batch.field("lengths").unwrap().as_slice::<i64>().unwrap();
            let index = batch.field("index").unwrap().as_slice::<i64>().unwrap();
            for ((slot, &length), &sample) in x.chunks(x.len() / index.len()).zip(lengths).zip(index) {
                let first = offsets[sample as usize];
                assert!(slot.iter().take(length as usize).copied().eq(first..first + length));
            }
        }
    }
    let sizes = sizes.lock().unwrap();
    assert!(sizes.iter().all(|size| size.is_power_of_two() && *size >= 6000), "{sizes:?}");
    assert!(sizes.len() < 20, "{sizes:?}");
}

#[test]
fn memory_that_is_not_there_is_an_error() {
    let loader = |allocate: fn(usize) -> batchloom::Result<Vec<u8>>| {
        let dataset = TensorDataset::new([("x", rows(100, true))]).unwrap();
        Loader::builder(dataset).memory(64, allocate).build().unwrap()
    };
    let failed = loader(|bytes| Err(Error::out_of_memory(bytes, "none is left".to_owned())));
    let error = failed.iter().next().unwrap().unwrap_err();
    assert!(error.to_string().contains("none is left"), "{error}");
    let short = loader(|bytes| Ok(vec![0; bytes - 1]));
    refused(short.iter().next().unwrap(), Kind::Memory, &["1024 bytes", "1023 were allocated"]);
}

/// A loader of 200 batches in many blocks, filled by two workers and the consumer, that does something as it allocates.
fn in_memory_of_others(doing: impl Fn() + Send + Sync + 'static) -> Loader {
    let dataset = TensorDataset::new([("x", rows(2000, true))]).unwrap();
    let allocate = move |bytes| {
        doing();
        Ok(vec![0_u8; bytes])
    };
    let builder = Loader::builder(dataset).batch_size(10).block_bytes(640).num_threads(3);
    builder.memory(64, allocate).build().unwrap()
}

/// Only workers ask a caller for memory: in the thread of the consumer, Python handles signals, whose errors are not
/// ours.
#[test]
fn memory_of_others_is_asked_for_by_workers_alone() {
    let threads = Arc::new(Mutex::new(HashSet::new()));
    let seen = Arc::clone(&threads);
    let loader = in_memory_of_others(move || {
        seen.lock().unwrap().insert(thread::current().id());
    });
    let held: Vec<_> = loader.iter().map(Result::unwrap).collect();
    assert_eq!(held.len(), 200);
    let threads = threads.lock().unwrap();
    assert!(!threads.is_empty() && !threads.contains(&thread::current().id()), "{threads:?}");
}

/// An allocator may run anything, as Python collects garbage, and so drop the blocks that the memory is for.
#[test]
fn memory_may_be_allocated_by_who_drops_its_blocks() {
    let (blocks, calls) = (Arc::new(Mutex::new(None::<Blocks>)), Arc::new(AtomicUsize::new(0)));
    let (dropped, count) = (Arc::clone(&blocks), Arc::clone(&calls));
    let (done, is_done) = mpsc::channel();
    let loader = in_memory_of_others(move || {
        if count.fetch_add(1, Ordering::SeqCst) == 0 {
            // Wait until the blocks are there.
            while dropped.lock().unwrap().is_none() {
                thread::yield_now();
            }
            drop(dropped.lock().unwrap().take());
            done.send(()).unwrap();
        }
    });
    let mut begun = loader.blocks();
    assert!(matches!(begun.poll(Duration::ZERO).unwrap(), Polled::Pending));
    *blocks.lock().unwrap() = Some(begun);
    is_done.recv_timeout(Duration::from_secs(60)).expect("the worker waits for itself");
    assert_eq!(calls.load(Ordering::SeqCst), 1);
}

/// A look at the next block takes it if it is ready, and never ends the epoch.
#[test]
fn looking_ahead_ends_nothing() {
    let dataset = TensorDataset::new([("x", rows(100, true))]).unwrap();
    let loader = Loader::builder(dataset).batch_size(10).block_bytes(640).num_threads(2).build().unwrap();
    let mut blocks = loader.blocks();
    let mut batches = 0;
    while batches < 10 {
        let block = match blocks.ahead() {
            Some(block) => block,
            None => match blocks.poll(Duration::from_secs(10)).unwrap() {
                Polled::Block(block) => block,
                other => panic!("{other:?} after {batches} batches"),
            },
        };
        batches += block.batches().inspect(|_| blocks.advance()).count();
    }
    assert!(blocks.ahead().is_none());
    // All batches are handed over and the end has not been seen: an iteration that has nothing left.
    assert_eq!((loader.epoch(), loader.remaining()), (0, 0));
    assert!(matches!(blocks.poll(Duration::from_secs(10)).unwrap(), Polled::End));
    assert_eq!((loader.epoch(), loader.remaining()), (1, 10));
}

/// The rest of an epoch may hold no step for one of the ranks. Then no worker is called, and the consumer has to see the
/// end by itself.
#[test]
fn an_epoch_without_a_step_ends_in_memory_of_others() {
    let loader = |rank| {
        let dataset = TensorDataset::new([("x", rows(90, true))]).unwrap();
        let allocate = |bytes| Ok(vec![0_u8; bytes]);
        let builder = Loader::builder(dataset).batch_size(10).num_threads(2).uneven(Uneven::Short);
        builder.rank(rank, 2).memory(64, allocate).build().unwrap()
    };
    let whole = loader(0);
    let mut batches = whole.iter();
    assert_eq!(batches.by_ref().take(4).count(), 4);
    for (rank, left) in [(0, 1), (1, 0)] {
        let rest = loader(rank);
        rest.load(&whole.state()).unwrap();
        assert_eq!((rest.epoch(), rest.remaining()), (0, left));
        assert_eq!(rest.iter().count() as u64, left);
        assert_eq!((rest.epoch(), rest.remaining()), (1, 5 - u64::from(rank)));
    }
}
