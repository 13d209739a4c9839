//! Messages: what every protocol's reassembly has in common, and what is sent of one.

pub(crate) mod payload;
pub(crate) mod reassembly;
pub(crate) mod room;
