//! One batch without an iteration: to look at the batch of a loss spike, whenever and wherever the run stands.
//!
//! Promise: the bytes are those that an iteration hands over at that step. The calling thread forms them, and neither the
//! run nor an iteration under way changes by it.

use std::sync::Arc;

use super::{Batch, Loader, Steps};
use crate::plan::error::PlanCause;
use crate::{Plan, Result};

impl Loader {
    /// Makes the batch that `rank` takes at `step` of `plan`, in this thread. The run stays where it is. Samples that are
    /// made on demand are read again.
    ///
    /// The plan is one of this run: [`Loader::plan`] is a whole epoch, [`Plan::resume`] the rest of one, and
    /// [`Plan::by_world`] finds the step of an epoch that several numbers of ranks took in turn.
    ///
    /// ```
    /// use batchloom::{Loader, TensorDataset};
    ///
    /// let dataset = TensorDataset::new([("x", (0..100_i64).collect::<Vec<_>>())])?;
    /// let loader = Loader::builder(dataset).batch_size(8).shuffle(true).build()?;
    /// let spike = loader.iter().nth(5).expect("a batch")?;
    /// let again = loader.form(&loader.plan(0), 0, 5)?;
    /// assert_eq!(again.view::<i64>("x")?, spike.view::<i64>("x")?);
    /// # Ok::<(), batchloom::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) for a plan of other data or other options, or if there is no such
    /// rank; [`Kind::Range`](crate::Kind::Range) if there is no such step; [`Kind::Memory`](crate::Kind::Memory); and
    /// the errors of the batch.
    pub fn form(&self, plan: &Plan, rank: u32, step: u64) -> Result<Batch> {
        let block = self.steps_at(plan, rank, step)?.form()?;
        let missing = || PlanCause::StepRange { found: step, steps: plan.steps_of(rank) };
        Ok(block.batches().next().ok_or_else(missing)?)
    }

    /// The one step `step` of `plan`, for callers that take batches from the data or from blocks themselves. The run stays
    /// where it is.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if the plan is of other data or other options, or if there is no such
    /// rank; [`Kind::Range`](crate::Kind::Range) if there is no such step; [`Kind::Memory`](crate::Kind::Memory).
    #[doc(hidden)]
    pub fn steps_at(&self, plan: &Plan, rank: u32, step: u64) -> Result<Steps> {
        self.0.check_plan(plan)?;
        // Refuses a rank and a step that the plan has not.
        plan.batch_len(step, rank)?;
        let job = self.0.job(plan.clone(), rank, 0)?;
        Ok(Steps::at(Arc::clone(&self.0), job, step))
    }
}
