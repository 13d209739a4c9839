//! Cache lines that are not shared.

/// A value that shares its cache lines with nothing, two of them because they are fetched in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Line<T>(pub(crate) T);
