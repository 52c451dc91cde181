//! `SizeOf`: what of a sample is its size, where fields have separate lengths.

/// The size of a sample if fields have separate lengths: what rules sort, count and budget by.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum SizeOf {
    /// The largest of its fields: no field of a batch exceeds a budget, padding included.
    #[default]
    Max,
    /// All of its fields together: a budget bounds the longest such sum, times the number of samples.
    Sum,
    /// One field, by its name.
    Field(String),
}

impl From<&str> for SizeOf {
    /// The size that `"max"`, `"sum"` or the name of a field stands for.
    fn from(name: &str) -> Self {
        match name {
            "max" => Self::Max,
            "sum" => Self::Sum,
            field => Self::Field(field.to_owned()),
        }
    }
}
