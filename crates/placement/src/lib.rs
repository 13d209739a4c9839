//! Placement of requests: where each goes, and who waits.
//!
//! The router places requests at its servers by it, the host at its cores, and the simulator does
//! both. So it knows no packet, no address, and nothing of what it places.
//!
//! | module | what it decides |
//! |---|---|
//! | [`policy`] | where a request goes |
//! | [`scheduler`] | the central queue, and who has what outstanding |
//! | [`slab`], [`order`] | nothing: slots behind typed ids, and orders of them by key, by time, by arrival |
//! | [`keyed`] | nothing: the hash of tables whose keys strangers choose |
//!
//! Time and randomness are arguments.

pub mod keyed;
pub mod order;
pub mod policy;
pub mod scheduler;
pub mod slab;

/// Nanoseconds since an epoch of the driver's choice: the monotonic clock's in `net`, 0 in the
/// simulator. Never decreases.
pub type Time = u64;
