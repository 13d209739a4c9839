//! Messages on their way in: what every protocol's reassembly has in common.

pub(crate) mod reassembly;
