//! An array: shared bytes with a dtype and a layout.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;

use super::error::TensorCause;
use super::{DType, Element, Layout, MappedFile};
use crate::{Error, Result, memory};

/// An array of any type and rank over shared memory. Cloning shares the memory, and no method copies elements.
///
/// ```
/// use batchloom::Tensor;
///
/// let x = Tensor::from_vec(vec![1.0_f32, 2.0, 3.0, 4.0], &[2, 2])?;
/// assert_eq!(x.shape(), [2, 2]);
/// assert_eq!(x.as_slice::<f32>(), Some(&[1.0, 2.0, 3.0, 4.0][..]));
/// # Ok::<(), batchloom::Error>(())
/// ```
#[derive(Clone)]
pub struct Tensor {
    bytes: Bytes,
    dtype: DType,
    layout: Layout,
    /// The file that `bytes` are a map of, if rows are read from there.
    file: Option<MappedFile>,
}

impl std::fmt::Debug for Tensor {
    /// Writes the type and the shape, not the elements.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Tensor({}, {:?})", self.dtype, self.shape())
    }
}

impl Tensor {
    /// An array over `bytes`, with byte strides and the byte offset of its first element.
    ///
    /// # Errors
    /// [`Kind::Data`](crate::Kind::Data) if an element would lie outside `bytes`.
    pub fn new(
        bytes: Bytes,
        dtype: DType,
        shape: &[usize],
        strides: &[isize],
        offset: usize,
    ) -> Result<Self> {
        let layout = Layout::new(shape, strides, offset, dtype.size(), bytes.len())?;
        Ok(Self { bytes, dtype, layout, file: None })
    }

    /// The values of a vector as an array, without a copy.
    ///
    /// # Errors
    /// [`Kind::Data`](crate::Kind::Data) if the shape holds another number of values.
    pub fn from_vec<T: Element>(values: Vec<T>, shape: &[usize]) -> Result<Self> {
        let expected =
            shape.iter().try_fold(1, |product: usize, &len| product.checked_mul(len)).unwrap_or(usize::MAX);
        let layout = Layout::compact(shape, size_of::<T>()).filter(|_| expected == values.len());
        let layout = layout.ok_or_else(|| TensorCause::Shape {
            values: values.len(),
            shape: shape.to_vec(),
            expected,
        })?;
        Ok(Self { bytes: Bytes::from_owner(Values(values)), dtype: T::DTYPE, layout, file: None })
    }

    /// The elements of `bytes`, in row-major order without gaps, as an array. The memory is shared, not copied: the
    /// memory of a map of a file, for example, which `Bytes::from_owner` holds.
    ///
    /// ```
    /// use batchloom::{DType, Tensor};
    /// use bytes::Bytes;
    ///
    /// let x = Tensor::from_bytes(Bytes::from_static(&[1, 2, 3, 4, 5, 6]), DType::U8, &[2, 3])?;
    /// assert_eq!(x.index(1).and_then(|row| row.as_slice::<u8>().map(<[u8]>::to_vec)), Some(vec![4, 5, 6]));
    /// # Ok::<(), batchloom::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Kind::Data`](crate::Kind::Data) if the shape takes another number of bytes.
    pub fn from_bytes(bytes: Bytes, dtype: DType, shape: &[usize]) -> Result<Self> {
        let expected = shape.iter().try_fold(dtype.size(), |bytes, &len| bytes.checked_mul(len));
        let layout = Layout::compact(shape, dtype.size()).filter(|_| expected == Some(bytes.len()));
        let wrong = || TensorCause::ByteCount {
            found: bytes.len(),
            dtype,
            shape: shape.to_vec(),
            expected: expected.unwrap_or(usize::MAX),
        };
        let layout = layout.ok_or_else(wrong)?;
        Ok(Self { bytes, dtype, layout, file: None })
    }

    /// An array with elements in memory that this process cannot read, such as an accelerator's. It has a
    /// type and a shape, but no bytes. Plans need no more; its blocks are [index
    /// tables](crate::loader::Block::index_table).
    ///
    /// # Errors
    /// [`Kind::Data`](crate::Kind::Data) if it is larger than memory can be.
    pub fn elsewhere(dtype: DType, shape: &[usize]) -> Result<Self> {
        let large =
            || TensorCause::Layout { shape: shape.to_vec(), strides: Vec::new(), offset: 0, bytes: 0 };
        let layout = Layout::compact(shape, dtype.size()).ok_or_else(large)?;
        Ok(Self { bytes: Bytes::new(), dtype, layout, file: None })
    }

    /// The same array, whose rows batches read from the file at `path` instead of its map: the memory of the array is a
    /// map of that file, and begins with the byte `start` of the file.
    ///
    /// A copy from a map brings its pages into memory: 4 KB around a row, and up to 2 MB on Linux. A read does not, and
    /// takes about 0.4 us longer for a row of 1 KB. Rows of less than 256 bytes, rows with gaps between them, rows of
    /// sparse arrays and windows of series are copied from the map. On systems other than Unix, all rows are.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use batchloom::{DType, Loader, Tensor, TensorDataset};
    ///
    /// # let path = std::env::temp_dir().join(format!("batchloom-with-file-{}", std::process::id()));
    /// std::fs::write(&path, [7_u8; 2048])?;
    /// let file = Arc::new(std::fs::File::open(&path)?);
    /// # let map = vec![7_u8; 2048];
    /// let x = Tensor::from_bytes(map.into(), DType::U8, &[8, 256])?; // `map` is a map of the file
    /// let dataset = TensorDataset::new([("x", x.with_file(file, path.clone(), 0))])?;
    /// let loader = Loader::builder(dataset).batch_size(4).shuffle(true).build()?;
    /// assert_eq!(loader.iter().count(), 2);
    /// # std::fs::remove_file(path)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// The bytes are not compared with the file: another file gives other values. A file that became shorter, or cannot be
    /// read, is an error of the batch.
    #[must_use]
    pub fn with_file(self, file: Arc<File>, path: PathBuf, start: u64) -> Self {
        Self { file: cfg!(unix).then(|| MappedFile::new(file, path, start)), ..self }
    }

    /// The file that rows are read from.
    pub(super) fn file(&self) -> Option<&MappedFile> {
        self.file.as_ref()
    }

    /// Returns true if it has elements, and these are in memory that this process cannot read.
    pub fn is_elsewhere(&self) -> bool {
        self.bytes.is_empty() && self.layout.elements() > 0
    }

    /// The type of an element.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The lengths of the dimensions.
    pub fn shape(&self) -> &[usize] {
        self.layout.shape()
    }

    /// The byte strides of the dimensions.
    pub fn strides(&self) -> &[isize] {
        self.layout.strides()
    }

    /// The shape, byte strides and offset.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The memory that the elements lie in, shared.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The bytes of the elements alone, in row-major order, shared: for arrays of other crates, which have no offset.
    ///
    /// ```
    /// use batchloom::Tensor;
    ///
    /// let x = Tensor::from_vec(vec![1_u8, 2, 3, 4, 5, 6], &[3, 2])?;
    /// assert_eq!(&x.slice(1..3).expect("two rows").to_bytes()?[..], [3, 4, 5, 6]);
    /// assert!(x.narrow(1, 0..1).expect("a column").to_bytes().is_err());
    /// # Ok::<(), batchloom::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Kind::Data`](crate::Kind::Data) if they are in memory that this process cannot read, or if they do not lie in
    /// order, or not together.
    pub fn to_bytes(&self) -> Result<Bytes> {
        self.require_type(self.dtype)?;
        let (size, start) = (self.dtype.size(), self.layout.offset());
        match self.layout.is_compact(size) {
            true if self.layout.elements() == 0 => Ok(Bytes::new()),
            true => Ok(self.bytes.slice(start..start + self.layout.elements() * size)),
            false => Err(self.gaps()),
        }
    }

    /// The same elements at multiples of their size, as frameworks want them: this array if its first one lies so, and
    /// a copy of the memory that it spans otherwise. Strides are kept.
    ///
    /// # Errors
    /// [`Kind::Memory`](crate::Kind::Memory).
    #[doc(hidden)]
    pub fn aligned(self) -> Result<Self> {
        let (size, offset) = (self.dtype.size(), self.layout.offset());
        let past = self.bytes.as_ptr().addr().wrapping_add(offset) % size;
        if self.bytes.is_empty() || past == 0 {
            return Ok(self);
        }
        let shift = (size - offset % size) % size;
        let words = (self.bytes.len() + shift).div_ceil(size_of::<u128>());
        let mut copy: Vec<u128> = memory::reserve(words)?;
        copy.resize(words, 0);
        bytemuck::cast_slice_mut::<_, u8>(&mut copy)[shift..shift + self.bytes.len()]
            .copy_from_slice(&self.bytes);
        let bytes = Bytes::from_owner(Words(copy));
        Self::new(bytes, self.dtype, self.shape(), self.strides(), offset + shift)
    }

    /// The values, if they lie in row-major order without gaps and `T` is their type.
    /// [`try_as_slice`](Self::try_as_slice) says why not.
    pub fn as_slice<T: Element>(&self) -> Option<&[T]> {
        self.try_as_slice().ok()
    }

    /// The values, which lie in row-major order without gaps, and are of the type `T`.
    ///
    /// The bytes of a `bool` are looked at, one by one: each must be 0 or 1.
    ///
    /// ```
    /// use batchloom::{Kind, Tensor};
    ///
    /// let mask = Tensor::from_vec(vec![true, false], &[2])?;
    /// assert_eq!(mask.try_as_slice::<bool>()?, [true, false]);
    /// let wrong = mask.try_as_slice::<u8>().unwrap_err();
    /// assert_eq!(wrong.kind(), Kind::Type);
    /// assert_eq!(wrong.to_string(), "the elements are bool, and uint8 were asked for; expected to read them as bool");
    /// # Ok::<(), batchloom::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Kind::Type`](crate::Kind::Type) if the values are of another type; [`Kind::Data`](crate::Kind::Data) if they
    /// are in memory that this process cannot read, if they do not lie in order or not together, if they begin where no
    /// `T` may, or if a byte is no truth value.
    pub fn try_as_slice<T: Element>(&self) -> Result<&[T]> {
        self.require_type(T::DTYPE)?;
        let size = self.dtype.size();
        if !self.layout.is_compact(size) {
            return Err(self.gaps());
        }
        if self.layout.elements() == 0 {
            return Ok(&[]);
        }
        let start = self.layout.offset();
        self.values_of(start..start.saturating_add(self.layout.elements() * size))
    }

    /// Refuses to read values as another type, or where this process has no values.
    ///
    /// # Errors
    /// [`Kind::Type`](crate::Kind::Type) if the values are of another type; [`Kind::Data`](crate::Kind::Data) if this
    /// process cannot read the values.
    pub(super) fn require_type(&self, asked: DType) -> Result<()> {
        let dtype = self.dtype;
        match dtype == asked {
            false => Err(TensorCause::ElementType { found: dtype, asked }.into()),
            true if self.is_elsewhere() => {
                Err(TensorCause::Unreadable { dtype, shape: self.shape().to_vec() }.into())
            }
            true => Ok(()),
        }
    }

    /// The error of values that do not lie as asked for.
    pub(super) fn gaps(&self) -> Error {
        TensorCause::Gaps {
            dtype: self.dtype,
            shape: self.shape().to_vec(),
            strides: self.strides().to_vec(),
        }
        .into()
    }

    /// The values that some bytes hold, which are a multiple of their size.
    ///
    /// # Errors
    /// [`Kind::Data`](crate::Kind::Data) if the values begin where none of their type may, or if a byte is no truth
    /// value.
    pub(super) fn values_of<T: Element>(&self, bytes: std::ops::Range<usize>) -> Result<&[T]> {
        let bytes = self.bytes.get(bytes).unwrap_or(&[]);
        let past = bytes.as_ptr().addr() % align_of::<T>();
        if past > 0 {
            return Err(TensorCause::Alignment { dtype: self.dtype, past, expected: align_of::<T>() }.into());
        }
        bytemuck::checked::try_cast_slice(bytes).map_err(|_| {
            let place = bytes.iter().position(|&byte| byte > 1).unwrap_or(0);
            TensorCause::NotBool { place, found: bytes.get(place).copied().unwrap_or(0) }.into()
        })
    }

    /// `self[index]` along the first dimension, sharing the memory. `None` past the end or for a scalar.
    pub fn index(&self, index: usize) -> Option<Self> {
        self.with_layout(self.layout.index(index)?)
    }

    /// `self[range]` along the first dimension, sharing the memory. `None` if it leaves the dimension.
    pub fn slice(&self, range: std::ops::Range<usize>) -> Option<Self> {
        self.with_layout(self.layout.slice(range)?)
    }

    /// `range` of dimension `dim`, and all of the others, sharing the memory. `None` without such a dimension, or if
    /// the range leaves it.
    ///
    /// ```
    /// use batchloom::Tensor;
    ///
    /// let x = Tensor::from_vec((0..6_i64).collect(), &[2, 3])?;
    /// let last = x.narrow(1, 2..3).expect("a column"); // of rows that are 24 bytes apart
    /// assert_eq!((last.shape(), last.strides()), (&[2, 1][..], &[24, 8][..]));
    /// assert_eq!(last.index(1).and_then(|row| row.as_slice::<i64>().map(<[i64]>::to_vec)), Some(vec![5]));
    /// # Ok::<(), batchloom::Error>(())
    /// ```
    pub fn narrow(&self, dim: usize, range: std::ops::Range<usize>) -> Option<Self> {
        self.with_layout(self.layout.narrow(dim, range)?)
    }

    /// The same elements with the dimensions in another order, sharing the memory: dimension `k` is `order[k]` of this
    /// one. `None` unless `order` lists each dimension once.
    ///
    /// ```
    /// use batchloom::Tensor;
    ///
    /// let x = Tensor::from_vec((0..6_i64).collect(), &[2, 3])?;
    /// let columns = x.permute(&[1, 0]).expect("two dimensions");
    /// assert_eq!((columns.shape(), columns.strides()), (&[3, 2][..], &[8, 24][..]));
    /// # Ok::<(), batchloom::Error>(())
    /// ```
    pub fn permute(&self, order: &[usize]) -> Option<Self> {
        self.with_layout(self.layout.permute(order)?)
    }

    /// The pieces of `len` elements that begin at every `step`-th element of dimension `dim`, sharing the memory: their
    /// number takes the place of that dimension, and their elements are a new last one. Elements at the end that fill
    /// no piece are left out. `None` without such a dimension, if it is shorter than `len`, or if `step` is 0.
    ///
    /// ```
    /// use batchloom::Tensor;
    ///
    /// // Patches of 16 steps, one every 8, of 32 windows of 96 steps and 7 features.
    /// let x = Tensor::from_vec(vec![0.5_f32; 32 * 96 * 7], &[32, 96, 7])?;
    /// let patches = x.unfold(1, 16, 8).and_then(|pieces| pieces.permute(&[0, 2, 1, 3])).expect("pieces");
    /// assert_eq!(patches.shape(), [32, 7, 11, 16]);
    /// # Ok::<(), batchloom::Error>(())
    /// ```
    pub fn unfold(&self, dim: usize, len: usize, step: usize) -> Option<Self> {
        self.with_layout(self.layout.unfold(dim, len, step)?)
    }

    /// The same bytes read as another type, or `None` if the types differ in size.
    pub fn reinterpret(&self, dtype: DType) -> Option<Self> {
        (dtype.size() == self.dtype.size()).then(|| Self { dtype, ..self.clone() })
    }

    /// The same elements in another shape. `None` if they do not lie in row-major order without gaps, or the shape
    /// holds another number of elements.
    pub fn reshape(&self, shape: &[usize]) -> Option<Self> {
        let size = self.dtype.size();
        let layout = Layout::compact(shape, size)?.starting_at(self.layout.offset());
        (self.layout.is_compact(size) && layout.elements() == self.layout.elements())
            .then(|| Self { layout, ..self.clone() })
    }

    fn with_layout(&self, layout: Layout) -> Option<Self> {
        Some(Self { layout, ..self.clone() })
    }
}

impl<T: Element> From<Vec<T>> for Tensor {
    /// An array of one dimension, without a copy.
    fn from(values: Vec<T>) -> Self {
        let layout = Layout::line(values.len(), size_of::<T>());
        Self { bytes: Bytes::from_owner(Values(values)), dtype: T::DTYPE, layout, file: None }
    }
}

impl<T: Element> From<&[T]> for Tensor {
    /// An array of one dimension, with a copy of the values.
    fn from(values: &[T]) -> Self {
        Self::from(values.to_vec())
    }
}

/// Memory that begins at a multiple of 16.
struct Words(Vec<u128>);

impl AsRef<[u8]> for Words {
    fn as_ref(&self) -> &[u8] {
        bytemuck::cast_slice(&self.0)
    }
}

/// A vector of elements as an owner of bytes.
pub(super) struct Values<T>(pub(super) Vec<T>);

impl<T: Element> AsRef<[u8]> for Values<T> {
    fn as_ref(&self) -> &[u8] {
        bytemuck::cast_slice(&self.0)
    }
}
