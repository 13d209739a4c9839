//! What every protocol keeps of a call: counters, and when to look for calls to nobody.

pub(crate) mod counters;
pub(crate) mod numbering;
pub(crate) mod unreachable;
