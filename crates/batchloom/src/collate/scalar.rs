//! `Scalar`: one value of any type, which becomes an element of the type of a field.

use super::Conversion;
use super::error::CollateCause;
use crate::{DType, Result};

/// A number, a truth value, or the bytes of an element: the value that pads a field, before its type is known.
///
/// ```
/// use batchloom::loader::Scalar;
///
/// let values = [Scalar::from(-1), Scalar::from(0.5), Scalar::from(true), Scalar::from(&7_u16.to_ne_bytes())];
/// assert_eq!(values[0], Scalar::from(-1_i64));
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Scalar(Value);

#[derive(Debug, Clone, PartialEq)]
enum Value {
    Bool(bool),
    Signed(i64),
    Unsigned(u64),
    Float(f64),
    Bytes(Vec<u8>),
}

impl Scalar {
    /// The bytes of an element of type `dtype`, of the field `field`.
    ///
    /// # Errors
    /// [`Kind::Argument`](crate::Kind::Argument) if the type does not hold the value, or if bytes are more or fewer
    /// than those of an element.
    pub(crate) fn element(&self, field: &str, dtype: DType) -> Result<Vec<u8>> {
        let expected = dtype.size();
        let number = match &self.0 {
            Value::Bytes(bytes) if bytes.len() == expected => return Ok(bytes.clone()),
            Value::Bytes(bytes) => {
                return Err(
                    CollateCause::PadValue { field: field.to_owned(), found: bytes.len(), expected }.into()
                );
            }
            Value::Bool(value) => (dtype == DType::Bool).then(|| vec![u8::from(*value)]),
            Value::Signed(number) => convert_number(DType::I64, &number.to_ne_bytes(), dtype),
            Value::Unsigned(number) => convert_number(DType::U64, &number.to_ne_bytes(), dtype),
            Value::Float(number) => convert_number(DType::F64, &number.to_ne_bytes(), dtype),
        };
        number.ok_or_else(|| {
            CollateCause::PadNumber { field: field.to_owned(), value: self.to_string(), dtype }.into()
        })
    }
}

impl std::fmt::Display for Scalar {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0 {
            Value::Bool(value) => value.fmt(formatter),
            Value::Signed(number) => number.fmt(formatter),
            Value::Unsigned(number) => number.fmt(formatter),
            Value::Float(number) => number.fmt(formatter),
            Value::Bytes(bytes) => write!(formatter, "{bytes:?}"),
        }
    }
}

/// A number as another type, or `None` if that does not hold it. A truth value is no number.
fn convert_number(from: DType, number: &[u8], to: DType) -> Option<Vec<u8>> {
    let mut element = vec![0; to.size()];
    let conversion = Conversion::new(from, to, None).filter(|_| to != DType::Bool)?;
    conversion.convert(number, &mut element, 0, 1).ok()?;
    Some(element)
}

macro_rules! scalar {
    ($($type:ty => $value:ident),*) => {
        $(impl From<$type> for Scalar {
            fn from(value: $type) -> Self {
                Self(Value::$value(value.into()))
            }
        })*
    };
}

scalar!(bool => Bool, i8 => Signed, i16 => Signed, i32 => Signed, i64 => Signed);
scalar!(u8 => Unsigned, u16 => Unsigned, u32 => Unsigned, u64 => Unsigned, f32 => Float, f64 => Float);
scalar!(Vec<u8> => Bytes, &[u8] => Bytes);

impl<const N: usize> From<&[u8; N]> for Scalar {
    /// The bytes of an element.
    fn from(bytes: &[u8; N]) -> Self {
        Self(Value::Bytes(bytes.to_vec()))
    }
}

impl From<&Vec<u8>> for Scalar {
    /// The bytes of an element.
    fn from(bytes: &Vec<u8>) -> Self {
        Self(Value::Bytes(bytes.clone()))
    }
}
