//! Arrays in and out, by DLPack and without a copy.
//!
//! In: any producer of a CPU tensor, in any layout, becomes shared bytes that keep the producer alive; one whose
//! elements do not begin at multiples of their size, as frameworks want them, is copied. Out: a tensor of the engine is
//! itself a producer, and the consumer keeps its block alive.
//!
//! One of the files that may be unsafe: it trusts a producer's description of its own memory, as the protocol demands,
//! and describes the engine's.
#![expect(unsafe_code, reason = "DLPack describes memory by pointers")]

use std::mem::ManuallyDrop;

use batchloom::DType;
use batchloom::tensor::Element;
use bytes::Bytes;
use dlpark::ffi::{DLDataType, DLDevice, DLDeviceType, DLManagedTensor, DLManagedTensorVersioned};
use dlpark::metadata::Dynamic;
use dlpark::python::{DlpackExporter, ExportRequest, ImportRequest, ImportedDlpack, export_dlpack};
use dlpark::tensor::TensorRef;
use dlpark::{DlpackFlags, Managed, ManagedTensorBase};
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyType};

use crate::error::{DTypeError, DataError, DeviceError, RangeError, raise};
use crate::guard::catch_panic;
use crate::interpreter::{Visit, detach};
use crate::memory::collect;

/// The dtypes of the engine and of DLPack, side by side.
const DTYPES: [(DType, DLDataType); 19] = [
    (DType::Bool, DLDataType::BOOL),
    (DType::U8, DLDataType::U8),
    (DType::U16, DLDataType::U16),
    (DType::U32, DLDataType::U32),
    (DType::U64, DLDataType::U64),
    (DType::I8, DLDataType::I8),
    (DType::I16, DLDataType::I16),
    (DType::I32, DLDataType::I32),
    (DType::I64, DLDataType::I64),
    (DType::F8E4M3FN, DLDataType::F8E4M3FN),
    (DType::F8E4M3FNUZ, DLDataType::F8E4M3FNUZ),
    (DType::F8E5M2, DLDataType::F8E5M2),
    (DType::F8E5M2FNUZ, DLDataType::F8E5M2FNUZ),
    (DType::F16, DLDataType::F16),
    (DType::BF16, DLDataType::BF16),
    (DType::F32, DLDataType::F32),
    (DType::F64, DLDataType::F64),
    (DType::C64, DLDataType::C64),
    (DType::C128, DLDataType::C128),
];

/// An array of the engine, which a dataset borrows; batches are views of it.
#[pyclass(frozen, module = "batchloom._native")]
#[derive(Debug)]
pub(crate) struct Tensor(pub(crate) batchloom::Tensor);

#[pymethods]
impl Tensor {
    /// The lengths of the dimensions.
    #[getter]
    fn shape(&self) -> Vec<usize> {
        self.0.shape().to_vec()
    }

    /// The name of the element's type.
    #[getter]
    fn dtype(&self) -> &'static str {
        self.0.dtype().name()
    }

    /// Returns true if a dimension runs backwards in memory.
    #[getter]
    fn is_backward(&self) -> bool {
        self.0.strides().iter().any(|&stride| stride < 0)
    }

    /// The number of bytes of all elements.
    #[getter]
    fn nbytes(&self) -> usize {
        self.0.layout().elements().saturating_mul(self.0.dtype().size())
    }

    /// The length of the first dimension.
    fn __len__(&self) -> usize {
        self.0.shape().first().copied().unwrap_or(0)
    }

    /// A view of one element along the first dimension.
    fn index(&self, index: usize) -> PyResult<Self> {
        let outside =
            || RangeError::new_err(format!("index {index} is outside a tensor of length {}", self.__len__()));
        self.0.index(index).map(Self).ok_or_else(outside)
    }

    /// The same bytes read as another type of the same size.
    fn reinterpret(&self, dtype: &str) -> PyResult<Self> {
        let other = DType::named(dtype).and_then(|dtype| self.0.reinterpret(dtype));
        other
            .map(Self)
            .ok_or_else(|| DTypeError::new_err(format!("{} cannot be read as {dtype}", self.0.dtype())))
    }

    /// An array of a type and a shape with elements in memory that the engine cannot read.
    #[staticmethod]
    #[expect(clippy::needless_pass_by_value, reason = "what PyO3 makes of a sequence")]
    fn elsewhere(dtype: &str, shape: Vec<usize>) -> PyResult<Self> {
        let known = DType::named(dtype);
        let known = known
            .ok_or_else(|| DTypeError::new_err(format!("{dtype} is not an element type of batchloom")))?;
        batchloom::Tensor::elsewhere(known, &shape).map(Self).map_err(|error| raise(&error))
    }

    /// The device of the memory, for DLPack.
    fn __dlpack_device__(&self) -> (u32, i32) {
        (DLDevice::CPU.device_type.0, DLDevice::CPU.device_id)
    }

    /// A capsule that shares the memory, for DLPack.
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__(
        &self,
        py: Python<'_>,
        stream: Option<&Bound<'_, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(u32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Py<PyAny>> {
        export_dlpack(self, py, ExportRequest::parse(stream, max_version, dl_device, copy)?)
    }
}

impl DlpackExporter for Tensor {
    fn device(&self) -> DLDevice {
        DLDevice::CPU
    }

    fn flags(&self) -> DlpackFlags {
        DlpackFlags::empty()
    }

    fn prepare_export(&self, _: Python<'_>, _: &ExportRequest<'_>) -> PyResult<()> {
        Ok(())
    }

    fn export_legacy(&self, _: Python<'_>) -> PyResult<Managed<DLManagedTensor>> {
        self.export()
    }

    fn export_versioned(&self, _: Python<'_>) -> PyResult<Managed<DLManagedTensorVersioned>> {
        self.export()
    }
}

impl Tensor {
    /// Sample numbers, which are below 2^62, as int64.
    pub(crate) fn of_indices(indices: &[u64]) -> PyResult<Self> {
        let indices = indices.iter().map(|index| index.cast_signed());
        Self::of_list(collect(indices)?)
    }

    /// A copy of some numbers.
    pub(crate) fn of_numbers<T: Element>(numbers: &[T]) -> PyResult<Self> {
        Self::of_list(collect(numbers.iter().copied())?)
    }

    /// A list of numbers, which is not copied.
    pub(crate) fn of_list<T: Element>(numbers: Vec<T>) -> PyResult<Self> {
        let len = numbers.len();
        batchloom::Tensor::from_vec(numbers, &[len]).map(Self).map_err(|error| raise(&error))
    }

    /// A capsule that shares the memory, in the version that every consumer takes.
    pub(crate) fn capsule(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        export_dlpack(self, py, ExportRequest::parse(None, None, None, None)?)
    }

    /// A managed tensor that shares the memory, in either version of the protocol.
    fn export<M: ManagedTensorBase>(&self) -> PyResult<Managed<M>> {
        let tensor = &self.0;
        if tensor.is_elsewhere() {
            return Err(DeviceError::new_err("the array is in memory that this process cannot read"));
        }
        let size = tensor.dtype().size().cast_signed();
        let shape: Vec<i64> = tensor.shape().iter().map(|len| len.cast_signed() as i64).collect();
        let strides: Vec<i64> = tensor.strides().iter().map(|stride| (stride / size) as i64).collect();
        let known = DTYPES.iter().find(|(dtype, _)| *dtype == tensor.dtype());
        let (_, dtype) =
            known.ok_or_else(|| DTypeError::new_err(format!("DLPack has no type for {}", tensor.dtype())))?;
        let data = tensor.bytes().as_ptr().wrapping_add(tensor.layout().offset());
        let metadata = Dynamic::new(shape, strides);
        let described = metadata.initialize_as::<M>(Box::new(tensor.clone()));
        let mut described = described.map_err(|error| PyBufferError::new_err(error.to_string()))?;
        described.set_data(data.cast_mut().cast()).set_dtype(*dtype).set_device(DLDevice::CPU);
        // SAFETY: the engine checked that every element of this layout lies inside `bytes`, which the boxed tensor keeps
        // alive. The consumer may write through this pointer: only tensors of delivered blocks and of index lists are
        // exported, whose batches do not overlap, and which the engine neither reads nor writes again.
        Ok(unsafe { described.finish() })
    }
}

/// A producer's hold on its memory. Letting go may enter Python, so the end of the interpreter waits for it; afterwards
/// the memory is left to the end of the process.
struct Producer(Option<ImportedDlpack>);

impl Producer {
    fn new(imported: ImportedDlpack) -> Self {
        Self(Some(imported))
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        match Visit::begin() {
            Some(_visit) => self.0 = None,
            None => {
                let _left = ManuallyDrop::new(self.0.take());
            }
        }
    }
}

/// The memory of a DLPack producer, which this keeps alive.
struct Borrowed {
    start: *const u8,
    len: usize,
    _producer: Producer,
}

// SAFETY: the bytes are only read, and the protocol lets a consumer call the deleter from any thread.
unsafe impl Send for Borrowed {}

impl AsRef<[u8]> for Borrowed {
    fn as_ref(&self) -> &[u8] {
        match self.len {
            0 => &[],
            // SAFETY: `extent` bounds the memory that the producer described, and `_producer` keeps it. The
            // documentation of datasets asks users not to write to it meanwhile.
            len => unsafe { std::slice::from_raw_parts(self.start, len) },
        }
    }
}

/// Memory that a DLPack producer gave up, for blocks.
pub(crate) struct Lent {
    start: *mut u8,
    len: usize,
    _producer: Producer,
}

// SAFETY: the bytes belong to the lent memory alone, and the protocol lets a consumer call the deleter from any thread.
unsafe impl Send for Lent {}
// SAFETY: a shared reference to it offers no operation.
unsafe impl Sync for Lent {}

impl AsMut<[u8]> for Lent {
    fn as_mut(&mut self) -> &mut [u8] {
        match self.len {
            0 => &mut [],
            // SAFETY: `take_over` checked that this is the extent of the memory that the producer described, and
            // `_producer` keeps it. `take_over` asks its caller that nothing else reads or writes it; fresh memory of
            // a framework is initialised as far as the kernel is concerned, and bytes of any value are bytes.
            len => unsafe { std::slice::from_raw_parts_mut(self.start, len) },
        }
    }
}

/// Takes over memory that a caller allocated: one dimension of bytes, which nothing else may use from now on.
pub(crate) fn take_over(object: &Bound<'_, PyAny>) -> PyResult<Lent> {
    catch_panic("memory", || {
        let (imported, Description { dtype, shape, strides, len, .. }, start) =
            import_described(object, "memory")?;
        match (dtype, strides.as_slice()) {
            (DType::U8, [stride]) if len == 0 || *stride == 1 => {
                Ok(Lent { start: start.cast_mut(), len, _producer: Producer::new(imported) })
            }
            _ => Err(DataError::new_err(format!(
                "memory is {dtype} {shape:?}; expected one dimension of bytes"
            ))),
        }
    })
}

/// Asks a producer on the CPU for its memory, with its description and the address of the lowest byte.
fn import_described(
    object: &Bound<'_, PyAny>,
    field: &str,
) -> PyResult<(ImportedDlpack, Description, *const u8)> {
    let request = ImportRequest::new(object.as_borrowed())?;
    require_cpu(&request, field)?;
    let imported = request.import(None, None).or_else(|error| import_older(object, error))?;
    let (description, start) = {
        let tensor =
            imported.validate().map_err(|error| DataError::new_err(format!("field {field}: {error}")))?;
        describe(&tensor, field)?
    };
    Ok((imported, description, start))
}

/// Borrows the memory of a DLPack producer on the CPU. `field` names it in errors.
#[pyfunction]
pub(crate) fn borrow(object: &Bound<'_, PyAny>, field: &str) -> PyResult<Tensor> {
    catch_panic(field, || {
        let (imported, tensor, start) = import_described(object, field)?;
        let Description { dtype, shape, strides, offset, len } = tensor;
        let bytes = Bytes::from_owner(Borrowed { start, len, _producer: Producer::new(imported) });
        let tensor = batchloom::Tensor::new(bytes, dtype, &shape, &strides, offset);
        tensor.and_then(batchloom::Tensor::aligned).map(Tensor).map_err(|error| raise(&error))
    })
}

/// Copies an array with the buffer protocol, if it has this type and shape and lies in row-major order without gaps.
/// Returns false if not.
pub(crate) fn copy_array(
    py: Python<'_>,
    array: &Bound<'_, PyAny>,
    dtype: DType,
    shape: &[usize],
    target: &mut [u8],
) -> bool {
    let Ok(buffer) = PyUntypedBuffer::get(array) else { return false };
    let fits = buffer.shape() == shape
        && buffer.is_c_contiguous()
        && format_of(dtype).contains(&buffer.format().to_bytes())
        && buffer.item_size() == dtype.size()
        && buffer.len_bytes() == target.len();
    if !fits {
        return false;
    }
    if target.is_empty() {
        return true;
    }
    // SAFETY: the exporter describes `len_bytes` readable bytes in one piece, as it is contiguous, and keeps them as long
    // as `buffer` lives. The target is the caller's alone. A thread that writes to the array meanwhile breaks the promise
    // that samples have memory of their own, as with borrowed arrays.
    let source = unsafe { std::slice::from_raw_parts(buffer.buf_ptr().cast::<u8>(), target.len()) };
    match target.len() {
        0..DETACHED => target.copy_from_slice(source),
        _ => detach(py, || target.copy_from_slice(source)),
    }
    true
}

/// Copies a scalar of NumPy of this type. Returns false for anything else: the buffer protocol shows scalars without a
/// shape, so that [`copy_array`] does not take them.
pub(crate) fn copy_scalar(value: &Bound<'_, PyAny>, dtype: DType, target: &mut [u8]) -> PyResult<bool> {
    static SCALAR: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let py = value.py();
    if !value.is_instance(SCALAR.import(py, "numpy", "generic")?)? {
        return Ok(false);
    }
    let format = value.getattr(intern!(py, "dtype"))?.getattr(intern!(py, "char"))?;
    if !format_of(dtype).contains(&format.extract::<&str>()?.as_bytes()) {
        return Ok(false);
    }
    let bytes = value.call_method0(intern!(py, "tobytes"))?;
    let bytes = bytes.cast::<PyBytes>()?.as_bytes();
    let fits = bytes.len() == target.len();
    if fits {
        target.copy_from_slice(bytes);
    }
    Ok(fits)
}

/// The number of bytes from which on a copy lets other threads into the interpreter.
const DETACHED: usize = 1 << 16;

/// The formats of the buffer protocol that stand for a type.
fn format_of(dtype: DType) -> &'static [&'static [u8]] {
    match dtype {
        DType::Bool => &[b"?"],
        DType::U8 => &[b"B"],
        DType::U16 => &[b"H"],
        DType::U32 => &[b"I", b"L"],
        DType::U64 => &[b"Q", b"L"],
        DType::I8 => &[b"b"],
        DType::I16 => &[b"h"],
        DType::I32 => &[b"i", b"l"],
        DType::I64 => &[b"q", b"l"],
        DType::F16 => &[b"e"],
        DType::F32 => &[b"f"],
        DType::F64 => &[b"d"],
        DType::C64 => &[b"Zf"],
        DType::C128 => &[b"Zd"],
        _ => &[],
    }
}

/// Imports from a producer that is older than version negotiation and refused its arguments.
fn import_older(object: &Bound<'_, PyAny>, error: PyErr) -> PyResult<ImportedDlpack> {
    match error.is_instance_of::<PyTypeError>(object.py()) {
        true => ImportRequest::new(object.call_method0("__dlpack__")?.as_borrowed())?.import(None, None),
        false => Err(error),
    }
}

/// A producer's description of its memory, in bytes.
struct Description {
    dtype: DType,
    shape: Vec<usize>,
    strides: Vec<isize>,
    /// The distance from the lowest byte to the first element.
    offset: usize,
    /// The distance from the lowest byte to past the highest.
    len: usize,
}

/// Reads a producer's description, and returns it with the address of its lowest byte.
fn describe(tensor: &TensorRef<'_>, field: &str) -> PyResult<(Description, *const u8)> {
    let element_type = tensor.dtype();
    let known = DTYPES.iter().find(|(_, dtype)| dtype.matches(element_type));
    let &(dtype, _) = known.ok_or_else(|| {
        let (code, bits, lanes) = (element_type.code.0, element_type.bits, element_type.lanes);
        DTypeError::new_err(format!(
            "field {field} has an element type that batchloom does not know (DLPack code {code}, {bits} bits, {lanes} \
             lanes); expected one of bool, int8 to int64, uint8 to uint64, float8 to float64, bfloat16, complex64, \
             complex128"
        ))
    })?;
    let invalid = |reason: &str| DataError::new_err(format!("field {field}: {reason}"));
    let shape = tensor.shape().iter().map(|&len| usize::try_from(len)).collect::<Result<Vec<_>, _>>();
    let shape = shape.map_err(|_| invalid("one of its dimensions is negative"))?;
    let size = dtype.size().cast_signed();
    let strides = tensor.strides_or_compact().map_err(|error| invalid(&error.to_string()))?;
    let strides = strides.iter().map(|&stride| isize::try_from(stride).ok()?.checked_mul(size)).collect();
    let strides: Vec<isize> =
        Option::ok_or(strides, invalid("one of its strides is larger than memory can be"))?;
    let (below, above) =
        reach(&shape, &strides, size).ok_or_else(|| invalid("it is larger than memory can be"))?;
    let len = if shape.contains(&0) { 0 } else { below + above };
    if len == 0 {
        return Ok((Description { dtype, shape, strides, offset: 0, len }, std::ptr::null()));
    }
    let base = tensor.data_ptr().cast::<u8>();
    if base.is_null() {
        return Err(invalid("it has elements, and its address is 0"));
    }
    let moved = usize::try_from(tensor.byte_offset()).unwrap_or(usize::MAX);
    let first = base.addr().checked_add(moved).filter(|&first| first > below);
    match first.and_then(|first| isize::try_from(first.checked_add(above)?).ok()) {
        Some(_) => {
            let start = base.wrapping_add(moved).wrapping_sub(below);
            Ok((Description { dtype, shape, strides, offset: below, len }, start))
        }
        None => Err(invalid(&format!("its offset of {moved} bytes leads outside of memory"))),
    }
}

/// The bytes of an array before its first element and from there on, or `None` if they overflow.
fn reach(shape: &[usize], strides: &[isize], size: isize) -> Option<(usize, usize)> {
    let (mut below, mut above) = (0_usize, size.unsigned_abs());
    for (&len, &stride) in shape.iter().zip(strides) {
        let steps = len.saturating_sub(1);
        let bytes = stride.unsigned_abs().checked_mul(steps)?;
        let side = if stride < 0 { &mut below } else { &mut above };
        *side = side.checked_add(bytes)?;
    }
    isize::try_from(below.checked_add(above)?).ok()?;
    Some((below, above))
}

/// Refuses memory that the processor cannot read. Pinned host memory is fine.
fn require_cpu(request: &ImportRequest<'_>, field: &str) -> PyResult<()> {
    let device = request.device().unwrap_or(DLDevice::CPU);
    match device.device_type {
        DLDeviceType::CPU | DLDeviceType::CUDAHOST | DLDeviceType::ROCMHOST => Ok(()),
        DLDeviceType(kind) => Err(DeviceError::new_err(format!(
            "field {field} is on a device (DLPack device type {kind}, number {}); expected memory of the CPU: move it \
             with .cpu() or .to(\"cpu\")",
            device.device_id
        ))),
    }
}
