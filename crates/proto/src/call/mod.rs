//! Call state that all protocols share: counters, numbering, and the search for calls to nobody.

pub(crate) mod counters;
pub(crate) mod numbering;
pub(crate) mod unreachable;
