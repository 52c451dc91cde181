//! `Transformer`: the shape of a transformer, and the cost model that counts its operations.
//!
//! A multiplication and an addition are two operations. Matrices of weights cost a token two operations for each weight.
//! Attention costs a pair of tokens two for each element of a query (the score) and two for each element of a value.

use super::error::BatchingCause;
use super::{CostModel, positive};
use crate::Result;

/// The shape of a transformer, for [`CostModel::of`].
///
/// ```
/// use batchloom::batching::{CostModel, Transformer};
///
/// // Of width 4096, attention costs as much as all else at 24 576 tokens.
/// let cost = CostModel::of(&Transformer::new(4096, 32)?);
/// assert_eq!(cost.per_token() / cost.per_pair(), 24_576.0);
///
/// // Eight billion parameters, with queries that share keys.
/// let shape = Transformer::new(4096, 32)?.intermediate_size(14_336)?.gated(true).heads(32, 8)?.vocab_size(128_256);
/// let cost = CostModel::of(&shape);
/// assert!(cost.per_token() / cost.per_pair() > 24_576.0);
/// # Ok::<(), batchloom::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transformer {
    hidden_size: u64,
    layers: u64,
    intermediate_size: u64,
    gated: bool,
    heads: u64,
    kv_heads: u64,
    head_dim: Option<u64>,
    experts_per_token: u64,
    vocab_size: u64,
    causal: bool,
}

impl Transformer {
    /// Layers of this width. By default, the hidden layer of a feed-forward block is four times as wide, every query has
    /// its own key, the vocabulary does not count, and attention counts all pairs of tokens.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if a number is 0.
    pub fn new(hidden_size: u64, layers: u64) -> Result<Self> {
        let (hidden_size, layers) = (positive("hidden_size", hidden_size)?, positive("layers", layers)?);
        Ok(Self {
            hidden_size,
            layers,
            intermediate_size: hidden_size.saturating_mul(4),
            gated: false,
            heads: 1,
            kv_heads: 1,
            head_dim: None,
            experts_per_token: 1,
            vocab_size: 0,
            causal: false,
        })
    }

    /// Sets the width of the hidden layer of a feed-forward block, of one expert if there are several.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if it is 0.
    pub fn intermediate_size(self, intermediate_size: u64) -> Result<Self> {
        Ok(Self { intermediate_size: positive("intermediate_size", intermediate_size)?, ..self })
    }

    /// Counts three matrices in a feed-forward block, the third of a gate, and not two.
    #[must_use]
    pub fn gated(self, gated: bool) -> Self {
        Self { gated, ..self }
    }

    /// Sets the numbers of heads of queries, and of keys and values.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if one is 0, or if the first is no multiple of the second.
    pub fn heads(self, heads: u64, kv_heads: u64) -> Result<Self> {
        let (heads, kv_heads) = (positive("heads", heads)?, positive("kv_heads", kv_heads)?);
        match heads.is_multiple_of(kv_heads) {
            true => Ok(Self { heads, kv_heads, ..self }),
            false => Err(BatchingCause::Heads { heads, kv_heads }.into()),
        }
    }

    /// Sets the width of a head. Default: all heads of queries together are as wide as the layer.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if it is 0.
    pub fn head_dim(self, head_dim: u64) -> Result<Self> {
        Ok(Self { head_dim: Some(positive("head_dim", head_dim)?), ..self })
    }

    /// Sets the number of feed-forward blocks that a token passes in a layer, shared ones included. Default: 1.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if it is 0.
    pub fn experts_per_token(self, experts: u64) -> Result<Self> {
        Ok(Self { experts_per_token: positive("experts_per_token", experts)?, ..self })
    }

    /// Counts the matrix that scores a vocabulary of this size. Default: 0.
    #[must_use]
    pub fn vocab_size(self, vocab_size: u64) -> Self {
        Self { vocab_size, ..self }
    }

    /// Counts the pairs of a token and one before it alone, for kernels that skip the other half. Default: all pairs.
    #[must_use]
    pub fn causal(self, causal: bool) -> Self {
        Self { causal, ..self }
    }

    /// The width of all heads of queries together, as a number of elements.
    fn query_width(&self) -> f64 {
        self.head_dim.map_or(self.hidden_size as f64, |head_dim| self.heads as f64 * head_dim as f64)
    }

    /// The operations of the matrices of weights on a token.
    fn operations_per_token(&self) -> f64 {
        let (hidden, queries) = (self.hidden_size as f64, self.query_width());
        let keys = queries * self.kv_heads as f64 / self.heads as f64;
        // Queries and what attention returns are as wide; so are keys and values.
        let attention = 2.0 * hidden * queries + 2.0 * hidden * keys;
        let matrices = if self.gated { 3.0 } else { 2.0 };
        let forward = matrices * hidden * self.intermediate_size as f64 * self.experts_per_token as f64;
        2.0 * (self.layers as f64 * (attention + forward) + hidden * self.vocab_size as f64)
    }

    /// The operations of attention on a pair of tokens.
    fn operations_per_pair(&self) -> f64 {
        let share = if self.causal { 0.5 } else { 1.0 };
        share * 4.0 * self.layers as f64 * self.query_width()
    }
}

impl CostModel {
    /// The floating-point operations of a transformer, forward. Backward, each kind costs about twice as much again, so
    /// the model is as good for a step of training.
    ///
    /// Operations are no times: attention may run at another speed than matrices of weights.
    /// [`calibrate`](Self::calibrate) measures both.
    pub fn of(shape: &Transformer) -> Self {
        Self::from_operations(shape.operations_per_token(), shape.operations_per_pair())
    }
}
