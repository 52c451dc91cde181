//! The placement of data: kept on a device, streamed to it block by block, or moved there shard by shard.
//!
//! Promise: the free memory of a device never changes the order of samples. A shard size that is chosen here depends on
//! the bytes that `resident` allows, which are part of the program, and not on free memory.

use std::fmt;

use super::error::LoaderCause;
use crate::{Error, Result};

/// The rule for keeping data on a device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Residency {
    /// Data is kept there if it fits.
    #[default]
    Auto,
    /// Keeps the data there if it takes at most this number of bytes; larger data moves in shards within it.
    Within(u64),
    /// Data is kept there, and it is an error if it does not fit.
    Always,
    /// Blocks are copied there as they are needed.
    Never,
}

/// The way of data to a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PlacementMode {
    /// The engine's threads make batches in memory.
    Host,
    /// All data is on the device, and batches are gathered there.
    Resident,
    /// Blocks that are made in memory are copied to the device.
    Streamed,
    /// One shard of the data is on the device while the next one moves.
    Sharded,
}

impl PlacementMode {
    /// The name of the mode: "host", "resident", "streamed" or "sharded".
    pub fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Resident => "resident",
            Self::Streamed => "streamed",
            Self::Sharded => "sharded",
        }
    }
}

/// The reason for a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LimitSource {
    /// The bytes that the user gives.
    Given,
    /// The free memory of the device.
    Free,
    /// Half of the free memory of the device, if the user asked for nothing.
    HalfOfFree,
}

impl fmt::Display for LimitSource {
    fn fmt(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        text.write_str(match self {
            Self::Given => "the bytes that resident allows",
            Self::Free => "what is free there",
            Self::HalfOfFree => "half of what is free there",
        })
    }
}

/// The largest number of bytes that data may take on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Limit {
    /// The number of bytes, those that are there already included.
    pub bytes: u64,
    /// The number of free bytes, if they are the reason.
    pub free: Option<u64>,
    /// The reason.
    pub source: LimitSource,
}

/// The facts that decide about placement.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct PlacementRequest {
    /// The name of the device, or `None` if batches are made in memory.
    pub device: Option<String>,
    /// True if all data is on the device already.
    pub is_there: bool,
    /// The number of bytes of the data.
    pub needed: u64,
    /// The number of bytes of the data that other loaders already brought to the device.
    pub present: u64,
    /// The number of free bytes on the device, if it reports them.
    pub free: Option<u64>,
    /// The rule for keeping data there.
    pub resident: Residency,
    /// The number of samples.
    pub samples: u64,
    /// The number of samples in a shard, if the user set it.
    pub shard_size: Option<u64>,
    /// The number that shard sizes are multiples of, or `None` if the samples of a shard do not lie together.
    pub unit: Option<u64>,
}

/// A decision about placement.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Placement {
    /// The way of the data.
    pub mode: PlacementMode,
    /// The number of bytes that data may take on the device, if there is a limit.
    pub limit: Option<u64>,
    /// The reason for the decision, in words.
    pub reason: String,
    /// The number of samples in a shard of the order, if there are shards.
    pub shard_size: Option<u64>,
}

impl PlacementRequest {
    /// The number of bytes that data may take on the device, or `None` if there is no limit.
    pub fn limit(&self) -> Option<Limit> {
        if self.is_there {
            return None;
        }
        let given = self.allowed_bytes().map(|bytes| Limit { bytes, free: None, source: LimitSource::Given });
        let Some(free) = self.free else { return given };
        let limit = |bytes: u64, source| Limit {
            bytes: bytes.saturating_add(self.present),
            free: Some(free),
            source,
        };
        match given {
            None if self.resident == Residency::Auto => Some(limit(free / 2, LimitSource::HalfOfFree)),
            None => Some(limit(free, LimitSource::Free)),
            Some(given) => {
                let free = limit(free, LimitSource::Free);
                Some(if free.bytes < given.bytes { free } else { given })
            }
        }
    }

    /// The bytes that the user allows data on the device, or `None` without a number.
    fn allowed_bytes(&self) -> Option<u64> {
        match self.resident {
            Residency::Within(bytes) => Some(bytes),
            Residency::Auto | Residency::Always | Residency::Never => None,
        }
    }

    /// Decides about placement. `shard_bytes` gives the largest number of bytes that a shard of a given number of
    /// samples takes.
    ///
    /// ```
    /// use batchloom::loader::{PlacementMode, PlacementRequest, Residency};
    ///
    /// // A million samples of 1 KB; 100 MB of them may be on the device at a time.
    /// let request = PlacementRequest {
    ///     device: Some("cuda:0".to_owned()),
    ///     needed: 1_000_000_000,
    ///     resident: Residency::Within(100_000_000),
    ///     samples: 1_000_000,
    ///     unit: Some(64),
    ///     ..PlacementRequest::default()
    /// };
    /// let placement = request.decide(|samples| samples * 1000)?;
    /// assert_eq!(placement.mode, PlacementMode::Sharded);
    /// assert_eq!(placement.shard_size, Some(50_000 / 64 * 64)); // two shards fit: one in use, one on its way
    /// # Ok::<(), batchloom::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if shards do not fit into the bytes that `resident` allows;
    /// [`Kind::Device`](crate::Kind::Device) if the device lacks the memory, or if these bytes exceed what is free and
    /// would set the size of shards.
    pub fn decide(&self, shard_bytes: impl FnMut(u64) -> u64) -> Result<Placement> {
        let limit = self.limit();
        let decided = |mode, reason: String, shard_size| {
            Ok(Placement { mode, limit: limit.map(|limit| limit.bytes), reason, shard_size })
        };
        if self.device.is_none() {
            let reason = "no device is given".to_owned();
            return Ok(Placement {
                mode: PlacementMode::Host,
                limit: None,
                reason,
                shard_size: self.shard_size,
            });
        }
        if self.is_there {
            return decided(
                PlacementMode::Resident,
                "the data is on the device already".to_owned(),
                self.shard_size,
            );
        }
        if self.resident == Residency::Never {
            return decided(PlacementMode::Streamed, "resident is False".to_owned(), self.shard_size);
        }
        let Some(limit) = limit else {
            let reason = "the device does not say how much memory is free, and resident sets no limit";
            return decided(PlacementMode::Resident, reason.to_owned(), self.shard_size);
        };
        if self.needed <= limit.bytes {
            let reason = format!("its {} bytes fit into {}, {}", self.needed, limit.bytes, limit.source);
            return decided(PlacementMode::Resident, reason, self.shard_size);
        }
        if self.resident == Residency::Always {
            return Err(self.too_large(self.needed, limit));
        }
        let (mode, reason, shard_size) = self.in_shards(limit, shard_bytes)?;
        decided(mode, reason, shard_size)
    }

    /// Decides about data that does not fit as a whole.
    fn in_shards(
        &self,
        limit: Limit,
        mut shard_bytes: impl FnMut(u64) -> u64,
    ) -> Result<(PlacementMode, String, Option<u64>)> {
        let mut takes = |samples: u64| shard_bytes(samples.min(self.samples));
        let reason = format!("its {} bytes do not fit into {}, {}", self.needed, limit.bytes, limit.source);
        let streamed =
            |because: String| Ok((PlacementMode::Streamed, format!("{reason}, {because}"), self.shard_size));
        let Some(unit) = self.unit else {
            return streamed("and what a shard would need does not lie together".to_owned());
        };
        match (self.shard_size, limit.free) {
            (None, _) if self.allowed_bytes().is_none() => {
                streamed("and neither resident nor shard_size limits the size of shards".to_owned())
            }
            (Some(given), Some(_)) if takes(given).saturating_mul(2) > limit.bytes => {
                streamed(format!("nor do two shards of {given} samples"))
            }
            (None, Some(free)) => Err(LoaderCause::ResidentBytes {
                bytes: self.allowed_bytes().unwrap_or(u64::MAX),
                free,
                device: self.device_name(),
            }
            .into()),
            (given, _) => {
                let shard_size = self.find_fitting(
                    given.map_or((unit, self.samples / unit), |given| (given, 1)),
                    limit,
                    takes,
                )?;
                Ok((PlacementMode::Sharded, reason, Some(shard_size)))
            }
        }
    }

    /// The number of samples of a shard that fits twice: the largest multiple of `size`, at most `most` times as large.
    fn find_fitting(
        &self,
        (size, most): (u64, u64),
        limit: Limit,
        mut takes: impl FnMut(u64) -> u64,
    ) -> Result<u64> {
        let room = limit.bytes / 2;
        let bytes = takes(size);
        if bytes > room {
            return Err(LoaderCause::ShardTooLarge {
                samples: size.min(self.samples),
                bytes,
                limit: limit.bytes,
            }
            .into());
        }
        let (mut fits, mut beyond) = (1, most.max(1) + 1);
        while beyond - fits > 1 {
            let middle = fits + (beyond - fits) / 2;
            match takes(middle.saturating_mul(size)) <= room {
                true => fits = middle,
                false => beyond = middle,
            }
        }
        Ok(fits * size)
    }

    /// The number of rows of views that move to the device at a time: `None` for all of them, which stay there; 0 for
    /// the rows of one batch. All rows take `needed` bytes, one takes `row_bytes`, and a batch of `batch_size`
    /// windows takes `batch_bytes`.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if two batches exceed the bytes that `resident` allows;
    /// [`Kind::Device`](crate::Kind::Device) if the device lacks the memory.
    pub fn rows_at_once(&self, batch_size: u64, batch_bytes: u64, row_bytes: u64) -> Result<Option<u64>> {
        let never = self.resident == Residency::Never;
        let Some(limit) = self.limit().filter(|limit| self.needed > limit.bytes) else {
            return Ok(never.then_some(0));
        };
        if self.resident == Residency::Always {
            return Err(self.too_large(self.needed, limit));
        }
        // Views of the rows before are still held while the next ones come.
        let two = batch_bytes.saturating_mul(2);
        if two <= limit.bytes {
            return Ok(Some(if never { 0 } else { limit.bytes / 2 / row_bytes.max(1) }));
        }
        match limit.free {
            Some(free) if two <= free => Ok(Some(0)),
            free => Err(match free {
                None => LoaderCause::RowsBeyondLimit { batch_size, batch_bytes, limit: limit.bytes },
                Some(free) => {
                    let device = self.device_name();
                    LoaderCause::RowsBeyondDevice { batch_size, batch_bytes, free, device }
                }
            }
            .into()),
        }
    }

    fn too_large(&self, needed: u64, limit: Limit) -> Error {
        let free = limit.free.unwrap_or(limit.bytes);
        let shared = limit.bytes.saturating_sub(free);
        LoaderCause::DeviceMemory { needed, free, shared, device: self.device_name() }.into()
    }

    fn device_name(&self) -> String {
        self.device.clone().unwrap_or_else(|| "the device".to_owned())
    }
}
