//! What every protocol keeps of a call: typed slots.

pub(crate) mod slab;
