//! What every protocol keeps of a call: typed slots and counters.

pub(crate) mod counters;
pub(crate) mod numbering;
pub(crate) mod slab;
