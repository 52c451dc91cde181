//! The options of a loader.

use std::sync::Arc;

use super::Loader;
use super::buffers::{Allocate, BufferOptions, Buffers};
use super::epochs::{Epochs, with_content};
use super::error::LoaderCause;
use super::fields::Fields;
use super::job::Probe;
use super::layout::{BlockLayout, Limits};
use super::queue::PREFETCH;
use super::workers::Workers;
use crate::batching::{LabelCounts, Labels, Loss, Rule};
use crate::collate::{Channels, DocumentMask, FieldConversion, PadSide, Scalar, Slot};
use crate::cores::cores;
use crate::dataset::Dataset;
use crate::dataset::collation::CollateOptions;
use crate::dataset::error::MaskCause;
use crate::plan::options::option_setters;
use crate::plan::{PlanBuilder, PlanOptions};
use crate::run::Run;
use crate::sync::Mutex;
use crate::tensor::buffer::{Buffer, Memory};
use crate::{DType, Plan, Result};

/// The number of bytes of a block: large enough that fixed costs vanish, small enough that blocks in flight stay in
/// what one process has of a shared cache. With the default `prefetch`, four of them take 8 MiB. Against 4 MiB, epochs
/// of 4 KB rows were 5 % faster on an Intel Ice Lake and as fast on an AMD EPYC 9005; of narrower rows, 6 to 8 % faster
/// on the AMD; of tokens, 7 to 9 % faster on the Intel. With 1 MiB both lose.
const BLOCK_BYTES: usize = 2 << 20;

/// The largest default number of threads. More of them only wait for memory.
const MOST_THREADS: usize = 8;

/// The largest default number of threads that fill memory of the caller, which a device copies meanwhile. Eight threads
/// of an Intel Xeon filled 0.7 of the bytes that an H200 copied.
const MOST_THREADS_FOR_CALLER: usize = 16;

/// The options of a [`Loader`], made by [`Loader::builder`].
#[derive(Clone)]
pub struct LoaderBuilder {
    dataset: Dataset,
    plan: PlanBuilder,
    collate: CollateOptions,
    label_counts: Option<LabelCounts>,
    index_table: bool,
    memory: Option<(Allocate, usize)>,
    rank: u32,
    threads: Option<usize>,
    prefetch: Option<usize>,
    block_bytes: usize,
    poison: bool,
    probe: Option<Probe>,
}

impl Loader {
    /// The options of a loader over `dataset`.
    pub fn builder(dataset: impl Into<Dataset>) -> LoaderBuilder {
        LoaderBuilder::new(dataset.into())
    }
}

impl LoaderBuilder {
    fn new(dataset: Dataset) -> Self {
        Self {
            plan: Plan::builder(dataset.len() as u64),
            dataset,
            collate: CollateOptions::default(),
            label_counts: None,
            index_table: false,
            memory: None,
            rank: 0,
            threads: None,
            prefetch: None,
            block_bytes: BLOCK_BYTES,
            poison: false,
            probe: None,
        }
    }

    /// Makes batches of `batch_size` samples, as [`rule`](Self::rule) does with
    /// [`FixedSize`](crate::batching::FixedSize). Default: 64.
    pub fn batch_size(self, batch_size: u64) -> Self {
        self.plan(|plan| plan.batch_size(batch_size))
    }

    /// Sets [`PlanOptions::rule`](crate::plan::PlanOptions::rule).
    pub fn rule(self, rule: impl Into<Rule>) -> Self {
        self.plan(|plan| plan.rule(rule))
    }

    fn options_mut(&mut self) -> &mut PlanOptions {
        self.plan.options_mut()
    }

    /// Sets the type of `field` in batches; elements are converted as the batch is formed. A value that the type cannot
    /// hold is an error of its batch: a number out of its range, or a fraction or NaN as an
    /// integer. Rounding to a floating type is no error. Default: the type of the data.
    pub fn dtype(mut self, field: impl Into<String>, dtype: DType) -> Self {
        self.collate.field(field.into()).dtype = Some(dtype);
        self
    }

    /// Scales the values of `field` to `(x * scale - mean) / std`. They are computed in float32, or in
    /// float64 if that is the type of the field in batches; integers become float32 unless [`dtype`](Self::dtype)
    /// is set. Padding is not scaled. Default: 1.
    pub fn scale(mut self, field: impl Into<String>, scale: f64) -> Self {
        self.collate.field(field.into()).scale = Some(scale);
        self
    }

    /// Sets what is taken off the scaled values of `field`: one number, or one for each channel. Channels are the last
    /// dimension of a sample, or the first, whichever has as many elements. Default: 0.
    pub fn mean(mut self, field: impl Into<String>, mean: impl Into<Vec<f64>>) -> Self {
        self.collate.field(field.into()).mean = mean.into();
        self
    }

    /// Sets what the values of `field` are divided by in the end: one number, or one for each channel. Default: 1.
    pub fn std(mut self, field: impl Into<String>, std: impl Into<Vec<f64>>) -> Self {
        self.collate.field(field.into()).std = std.into();
        self
    }

    /// Sets which dimension of a sample of `field` means and deviations are given for, where both the first and the
    /// last have as many elements.
    pub fn channels(mut self, field: impl Into<String>, channels: Channels) -> Self {
        self.collate.field(field.into()).channels = Some(channels);
        self
    }

    /// The conversions of fields to other types than they are stored in, for callers who convert what a loader
    /// of the same options without these leaves as it is.
    ///
    /// ```
    /// use batchloom::{DType, Loader, Tensor, TensorDataset};
    ///
    /// let pixels = Tensor::from_vec(vec![0_u8; 2 * 5 * 3], &[2, 5, 3])?;
    /// let loader = Loader::builder(TensorDataset::new([("image", pixels)])?).scale("image", 1.0 / 255.0);
    /// let conversions = loader.mean("image", [0.5, 0.4, 0.3]).conversions()?;
    /// assert_eq!(conversions[0].to, DType::F32);
    /// assert!(conversions[0].is_total); // no value of a byte is too large
    /// # Ok::<(), batchloom::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) that says which option or rule does not go with the kind of data, or
    /// with a field.
    #[doc(hidden)]
    pub fn conversions(&self) -> Result<Vec<FieldConversion>> {
        let collation = self.dataset.kind().collation(self.plan.chosen_rule()?, &self.collate, (0, 0))?;
        collation.with_slots(&self.collate)?.conversions(&self.collate)
    }

    /// Sets the value that pads `field`: a number or a truth value that the type holds which the field has in batches,
    /// or the bytes of an element of that type. Default: zeros.
    ///
    /// ```
    /// use batchloom::{Loader, SequenceDataset};
    ///
    /// let dataset = SequenceDataset::new().slices("ids", [vec![5_i64], vec![6, 7]])?.build()?;
    /// let loader = Loader::builder(dataset.clone()).batch_size(2).pad_value("ids", -1).build()?;
    /// let batch = loader.iter().next().expect("a batch")?;
    /// assert_eq!(batch.view::<i64>("ids")?, [5, -1, 6, 7]);
    /// assert!(Loader::builder(dataset).pad_value("ids", 0.5).build().is_err());
    /// # Ok::<(), batchloom::Error>(())
    /// ```
    pub fn pad_value(mut self, field: impl Into<String>, value: impl Into<Scalar>) -> Self {
        self.collate.pad_values.push((field.into(), value.into()));
        self
    }

    /// Repeats the nearest step of a series where a window leaves it, in `field`, which is cut from series; the step is
    /// converted and scaled as all steps are. A part of a split is a series of its own. Default: zeros.
    ///
    /// ```
    /// use batchloom::dataset::WindowShape;
    /// use batchloom::{Loader, Tensor, WindowDataset};
    ///
    /// let series = Tensor::from_vec(vec![5_i64, 6], &[2])?;
    /// let shape = WindowShape::new(3).lead(2);
    /// let dataset = WindowDataset::new(&[0, 2], shape)?.input("x", series)?;
    /// let loader = Loader::builder(dataset).batch_size(2).pad_edge("x").build()?;
    /// let batch = loader.iter().next().expect("a batch")?;
    /// assert_eq!(batch.view::<i64>("x")?, [5, 5, 5, 5, 5, 6]);
    /// # Ok::<(), batchloom::Error>(())
    /// ```
    pub fn pad_edge(mut self, field: impl Into<String>) -> Self {
        self.collate.pad_edges.push(field.into());
        self
    }

    /// Adds to each index in `field` the number of elements that the samples before its sample have in the batch: of `by`, a
    /// field of samples that differ in length, or lengths that several fields share. So the ends of edges, which count the
    /// nodes of their graph, count those of the batch. Batches also hold `batch`, the number of each element's sample, and
    /// `ptr`, the place where each sample begins and the number of elements, both int64. It is for batches that concatenate
    /// samples: see [`SequenceDatasetBuilder::shared_lengths`](crate::dataset::SequenceDatasetBuilder::shared_lengths).
    pub fn offset_by(mut self, field: impl Into<String>, by: impl Into<String>) -> Self {
        let field = field.into();
        self.collate.offset_by.retain(|(other, _)| *other != field);
        self.collate.offset_by.push((field, by.into()));
        self
    }

    /// Sets the number that pads `field`, or all fields, of samples that are made on demand, whose types are not known
    /// yet. Default: zero.
    #[doc(hidden)]
    pub fn pad_number(mut self, field: Option<String>, number: f64) -> Self {
        self.collate.pad_numbers.push((field, number));
        self
    }

    /// Sets the side on which padding goes. Default: after the data.
    pub fn pad_side(mut self, side: PadSide) -> Self {
        self.collate.pad_side = side;
        self
    }

    /// Sets the way of samples to their slots in `field`: see [`Slot`]. Default: samples have one shape.
    pub fn collate(mut self, field: impl Into<String>, slot: impl Into<Slot>) -> Self {
        self.collate.slots.push((field.into(), slot.into()));
        self
    }

    /// Adds `labels` to each batch: the next token of each token of `field`, and -100 after the last one.
    pub fn labels(mut self, field: impl Into<String>) -> Self {
        self.collate.labels = Some(field.into());
        self
    }

    /// Leaves `field` out of batches, so that nothing is computed for it: one that describes a batch, where samples are
    /// made on demand. A name that no field has is ignored.
    #[doc(hidden)]
    pub fn leave_out(mut self, field: impl Into<String>) -> Self {
        self.collate.left_out.push(field.into());
        self
    }

    /// Sets the number of labels of each sample that losses do not ignore, for
    /// [`Step::labels`](crate::plan::Step::labels). Default: the labels that the loader makes, if it makes any.
    pub fn label_counts(mut self, counts: LabelCounts) -> Self {
        self.label_counts = Some(counts);
        self
    }

    /// Adds to each batch the weight of each label in a loss (`loss_weight`, float32 in the layout of `labels`), and the
    /// number that the loss is divided by (`loss_denominator`, int64 `[1]`). The sum over all batches of an update of weight
    /// times term is the loss of one large batch, whichever rank takes which sample at which step. Labels are `labels`,
    /// made by the loader or a field of the data; the latter needs [`label_counts`](Self::label_counts). Default: none.
    ///
    /// ```
    /// use batchloom::batching::Loss;
    /// use batchloom::{Loader, SequenceDataset};
    ///
    /// let dataset = SequenceDataset::new().slices("ids", [vec![5_i64, 6, 7], vec![8, 9], vec![4]])?.build()?;
    /// let loader = Loader::builder(dataset).batch_size(2).labels("ids").accumulate(2).loss(Loss::TokenMean);
    /// let batch = loader.build()?.iter().next().expect("a batch")?;
    /// assert_eq!(batch.view::<i64>("loss_denominator")?, [3]); // of both steps of the update
    /// let third = 1.0 / 3.0;
    /// assert_eq!(batch.view::<f32>("loss_weight")?, [third, third, 0.0, third, 0.0, 0.0]);
    /// # Ok::<(), batchloom::Error>(())
    /// ```
    pub fn loss(mut self, loss: impl Into<Option<Loss>>) -> Self {
        self.collate.loss = loss.into();
        self
    }

    /// Adds to each batch the blocks of attention in which tokens of a document see each other, as arrays that
    /// `BlockMask.from_kv_blocks` of torch takes, for packs and for pieces of streams. Their names begin with
    /// `block_mask_`: `kv_num_blocks` and `full_kv_num_blocks` (`[rows, 1, blocks]`) have the number of blocks of keys to
    /// look at pair by pair and of those that are seen whole, `kv_indices` and `full_kv_indices` (`[rows, 1, blocks,
    /// blocks]`) which ones they are; `q_num_blocks`, `q_indices`, `full_q_num_blocks` and `full_q_indices` are the same
    /// by blocks of keys, for the way back; and a token sees the places from `first` to `end` (`[rows, tokens]`). All
    /// are int32. Default: none.
    ///
    /// ```
    /// use batchloom::batching::Packing;
    /// use batchloom::loader::{DocumentMask, MaskKind};
    /// use batchloom::{Loader, SequenceDataset};
    ///
    /// let dataset = SequenceDataset::new().slices("ids", [vec![1_i64; 3], vec![2; 2]])?.build()?;
    /// let mask = DocumentMask::new(MaskKind::Causal).block_size(2)?;
    /// let loader = Loader::builder(dataset).rule(Packing::new(5)?).block_mask(mask).build()?;
    /// let batch = loader.iter().next().expect("a batch")?;
    /// assert_eq!(batch.view::<i32>("block_mask_kv_num_blocks")?, [1, 2, 2]);
    /// assert_eq!(batch.view::<i32>("block_mask_first")?, [0, 0, 0, 3, 3]);
    /// # Ok::<(), batchloom::Error>(())
    /// ```
    pub fn block_mask(mut self, mask: impl Into<Option<DocumentMask>>) -> Self {
        self.collate.block_mask = mask.into();
        self
    }

    /// Shuffles the documents of a stream of tokens anew for each epoch. Default: off.
    pub fn shuffle_documents(mut self, shuffle_documents: bool) -> Self {
        self.collate.shuffles_documents = shuffle_documents;
        self
    }

    /// Makes blocks of [index tables](super::Block::index_table) instead of samples, for data in memory that this
    /// process does not read. Batches are then made of the tables elsewhere; batches of [`Loader::iter`] have no
    /// fields. Default: off.
    #[doc(hidden)]
    pub fn index_table(mut self, index_table: bool) -> Self {
        self.index_table = index_table;
        self
    }

    /// Sets the function that allocates memory for blocks: at least `least` bytes at once, aligned to 64, from any
    /// thread. It is asked for powers of two, and its memory is used again. Default: the system's pages.
    pub fn memory<M: Memory>(
        mut self,
        least: usize,
        allocate: impl Fn(usize) -> Result<M> + Send + Sync + 'static,
    ) -> Self {
        self.memory = Some((Arc::new(move |bytes| allocate(bytes).map(Buffer::take_over)), least));
        self
    }

    /// Sets the rank of this process among `world_size` processes. Default: 0 of 1. [`Loader::set_rank`] changes it.
    pub fn rank(mut self, rank: u32, world_size: u32) -> Self {
        self.rank = rank;
        self.plan(|plan| plan.world_size(world_size))
    }

    /// Sets the number of threads that make blocks, the consumer among them while it waits; with one, there is still a
    /// worker. Default: one for each core, at most 8; at most 16 if blocks of samples are formed in memory of the
    /// caller.
    pub fn num_threads(mut self, num_threads: usize) -> Self {
        self.threads = Some(num_threads);
        self
    }

    /// Sets the number of blocks that may be made ahead of the one in use; of samples on demand, that of batches. With
    /// 0, a block is made when it is needed, by all threads, in the memory of the last one if that is free.
    /// Default: 2, or 1 where a batch is larger than a block (on demand: than 32 MiB).
    pub fn prefetch(mut self, prefetch: usize) -> Self {
        self.prefetch = Some(prefetch);
        self
    }

    /// Sets about how many bytes a block holds; it holds at least one batch. Default: 2 MiB.
    pub fn block_bytes(mut self, block_bytes: usize) -> Self {
        self.block_bytes = block_bytes;
        self
    }

    /// Overwrites blocks as soon as their last view is gone, so that a view that outlived its block would show.
    #[doc(hidden)]
    pub fn poison(mut self, poison: bool) -> Self {
        self.poison = poison;
        self
    }

    /// Calls `probe` before each piece of work, with the number of its block: delays and failures for tests.
    #[doc(hidden)]
    pub fn probe(mut self, probe: impl Fn(u64) + Send + Sync + 'static) -> Self {
        self.probe = Some(Arc::new(probe));
        self
    }

    /// Builds the loader. The first iteration starts threads and allocates memory.
    ///
    /// # Errors
    /// The errors of [`PlanBuilder::build`]; [`Kind::Argument`](crate::Kind::Argument) if there is no such rank, if
    /// there are no threads, if a batch is larger than this machine can address, if an option or the rule does not go
    /// with the kind of data or with its fields, or if a field has the name of a mark of
    /// [`Uneven::Mask`](crate::ranks::Uneven::Mask); [`Kind::Data`](crate::Kind::Data) if a field has the name of a
    /// field that describes batches.
    pub fn build(mut self) -> Result<Loader> {
        self.check_applicable()?;
        self.check_slots()?;
        self.check_mask()?;
        self.plan = self.plan.sizes(self.dataset.sizes()).concatenated(self.dataset.kind().is_concatenated());
        if let Some(in_chunks) = self.dataset.kind().in_chunks() {
            self.plan = self.plan.read_in_chunks(
                |passes_meet| in_chunks.parts(passes_meet),
                || (in_chunks.chunks.clone(), in_chunks.open),
            )?;
        }
        let options = self.plan.clone();
        (self.plan, self.collate.rows) =
            with_content(self.plan, &self.dataset, self.collate.shuffles_documents)?;
        let counted = self.label_counts.map(Labels::from);
        let labels = counted.or_else(|| self.dataset.kind().labels(&self.collate));
        let options = options.labels(labels.clone());
        let plan = self.plan.labels(labels).build()?;
        let run = Run::new(plan.clone(), self.rank)?;
        let fills_for_caller = self.memory.is_some() && !self.index_table;
        let most = if fills_for_caller { MOST_THREADS_FOR_CALLER } else { MOST_THREADS };
        let threads = self.threads.unwrap_or_else(|| cores().min(most));
        if threads == 0 {
            return Err(LoaderCause::Threads.into());
        }
        if !self.index_table {
            self.dataset.require_readable()?;
        }
        // The fields of an epoch in stored order: shuffling does not change whether they can be made.
        let collate = CollateOptions { shuffles_documents: false, ..self.collate.clone() };
        let fields = Fields::new(&self.dataset, &plan, &collate)?;
        fields.check_prefixes(plan.samples())?;
        check_loss(self.collate.loss, &plan, self.index_table)?;
        if self.index_table {
            fields.require_indexed(plan.rule())?;
        }
        let reads = self.dataset.kind().reader().is_some();
        if !reads {
            // A block that cannot be laid out is an error now, not in the first iteration.
            BlockLayout::new(&fields, &plan, self.rank, 0, self.block_bytes, Limits::FORMED, None)?;
        }
        Ok(Loader(Arc::new(Epochs {
            plan: options,
            fields: Arc::new(fields),
            index_table: self.index_table,
            collate: self.collate,
            buffers: Mutex::new(Buffers::new(BufferOptions {
                // A caller that allocates memory also keeps blocks for a while, as they are copied.
                keep: self.prefetch.unwrap_or(PREFETCH).saturating_add(if self.memory.is_some() {
                    3
                } else {
                    1
                }),
                poison: self.poison,
                memory: self.memory,
            })),
            // A consumer that waits is one of the threads, unless samples are read.
            workers: Mutex::new(Workers::new(threads.saturating_sub(usize::from(!reads)).max(1))),
            run: Mutex::new(run),
            dataset: self.dataset,
            threads,
            prefetch: self.prefetch,
            block_bytes: self.block_bytes,
            probe: self.probe,
        })))
    }

    /// Refuses slots with invalid options, and slots and offsets in index tables.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if the option makes no sense for the field.
    fn check_slots(&self) -> Result<()> {
        for (field, slot) in &self.collate.slots {
            slot.check(field)?;
        }
        if !self.index_table {
            return Ok(());
        }
        match (self.collate.slots.first(), self.collate.offset_by.first()) {
            (Some((field, _)), _) => Err(LoaderCause::SlotInTable { field: field.clone() }.into()),
            (_, Some((field, _))) => Err(LoaderCause::OffsetInTable { field: field.clone() }.into()),
            (None, None) => Ok(()),
        }
    }

    /// Refuses masks of padded batches, and masks in index tables.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if options of the mask exclude each other or do not go with the data.
    fn check_mask(&self) -> Result<()> {
        let Some(mask) = &self.collate.block_mask else { return Ok(()) };
        mask.check()?;
        let (kind, rule) = (self.dataset.kind(), self.plan.chosen_rule()?);
        if !rule.packs() && !kind.has_documents() {
            return Err(MaskCause::NotPacked { rule: rule.name() }.into());
        }
        if self.index_table { Err(MaskCause::InTable.into()) } else { Ok(()) }
    }

    /// Refuses options that this kind of data does not have.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if the kind of data does not have an option.
    fn check_applicable(&self) -> Result<()> {
        let kind = self.dataset.kind();
        if self.collate.labels.is_some() && !kind.makes_labels() {
            let expected =
                "sequences, whose next tokens are labels (streams of tokens have labels without it)";
            return Err(LoaderCause::Inapplicable { option: "labels", expected }.into());
        }
        if self.collate.shuffles_documents && !kind.has_documents() {
            return Err(LoaderCause::Inapplicable {
                option: "shuffle_documents",
                expected: "streams of tokens",
            }
            .into());
        }
        Ok(())
    }

    fn plan(mut self, change: impl FnOnce(PlanBuilder) -> PlanBuilder) -> Self {
        self.plan = change(self.plan);
        self
    }
}

option_setters!(LoaderBuilder);

impl std::fmt::Debug for LoaderBuilder {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("LoaderBuilder").field("plan", &self.plan).finish_non_exhaustive()
    }
}

/// Refuses weights of labels where the number of labels is not known, or where batches are made elsewhere.
///
/// # Errors
/// [`Kind::Argument`](crate::Kind::Argument), which says what is missing.
fn check_loss(loss: Option<Loss>, plan: &Plan, index_table: bool) -> Result<()> {
    let Some(loss) = loss else { return Ok(()) };
    if index_table {
        return Err(LoaderCause::LossInTable.into());
    }
    match plan.knows_labels() {
        true => Ok(()),
        false => Err(LoaderCause::LossWithoutCounts { loss: loss.name() }.into()),
    }
}
