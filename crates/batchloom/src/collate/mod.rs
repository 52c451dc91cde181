//! Collation: turns the bytes of samples into the bytes of batches.
//!
//! A [`Form`] makes one field of a batch. It knows arrays and slots, neither datasets nor plans nor threads. One form a
//! file; a dataset lists the forms that make its batches.

mod block_mask;
mod by_source;
mod cast;
mod convert;
mod copy;
mod document_mask;
pub(crate) mod error;
mod field_options;
mod form;
mod found;
mod function_slot;
mod held;
mod held_forms;
#[cfg(feature = "image")]
mod image;
mod in_rows;
mod index;
mod index_offset;
mod labels;
mod loss;
mod members;
mod own_lengths;
mod owners;
mod pack;
mod pad;
mod prefetch;
mod read;
mod read_rows;
mod resize;
mod scalar;
mod slot;
mod slot_place;
mod slotted;
mod sources;
mod sparse;
mod stack;
mod taken;
mod tokens;
mod whole;
mod window;

pub(crate) use block_mask::{MaskPart, PackMask, Prefix, StreamMask};
pub(crate) use by_source::BySource;
pub use convert::Channels;
pub(crate) use convert::Conversion;
pub use document_mask::{DocumentMask, MaskKind};
pub use field_options::FieldConversion;
pub(crate) use field_options::FieldOptions;
pub(crate) use form::{Form, Padding, RowSlots, RowUnit};
pub(crate) use found::{FindRows, Found, FoundMask, FoundRows};
pub use function_slot::{FillSlot, FunctionSlot, SlotError, SlotMut};
pub use held::{ChunkField, HeldRows};
pub(crate) use held::{HeldChunk, HeldMembers};
pub(crate) use held_forms::{HeldLists, HeldStack};
pub(crate) use in_rows::InRows;
pub(crate) use index::{FILLER, Lengths, SampleIndex, SourceNumber, SourceOfSample, Weight};
pub(crate) use index_offset::IndexOffset;
pub(crate) use labels::{IGNORED, Labels, SampleTokens, is_integer};
pub(crate) use loss::{LossDenominator, LossWeight};
pub(crate) use members::{Members, RowFrame};
pub(crate) use own_lengths::OwnLengths;
pub(crate) use owners::Owners;
pub(crate) use pack::{Boundaries, Offsets, Pack, Positions, Segments};
pub use pad::PadSide;
pub(crate) use pad::{Mask, Pad};
pub(crate) use read::{DirectSlots, ReadField, ReadParts};
pub use read::{ReadSamples, SlotTarget};
pub use resize::{Filter, Resize};
pub use scalar::Scalar;
pub use slot::{Crop, Keep, Pad as PadSlot, Slot, SlotWriter};
pub use slot_place::SlotPlace;
pub(crate) use slotted::{Described, Slotted, SlottedLengths, SlottedMask};
pub(crate) use sources::FieldOfSources;
pub(crate) use sparse::{CrowIndices, Densify, EntryField, EntryPart};
pub(crate) use stack::Stack;
pub(crate) use taken::Taken;
pub(crate) use tokens::{Passage, PassageOf, Passages, Pieces, TokenField, Tokens};
pub(crate) use whole::WholeField;
pub use window::WindowSteps;
pub(crate) use window::{
    Fill, Lookup, Places, Span, Window, WindowMask, WindowNumber, WindowPlace, WindowRow,
};
