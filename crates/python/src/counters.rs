//! A client's counters by their names.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use tailcut::Metrics;
use tailcut::sealed::SealMetrics;

/// Puts counters into a dictionary under the names that they have.
macro_rules! put {
    ($dictionary:expr, $counters:expr, $($name:ident),* $(,)?) => {
        $($dictionary.set_item(stringify!($name), $counters.$name)?;)*
    };
}

/// What a client has counted: what both transports have, what R2P2 has besides, and what a client's
/// seal drops.
pub(crate) fn of_client<'py>(py: Python<'py>, metrics: &Metrics) -> PyResult<Bound<'py, PyDict>> {
    let counters = PyDict::new(py);
    let (common, seal) = match metrics {
        Metrics::R2p2(own) => {
            put!(counters, own, resent, timeouts, moved, paced, withheld, retried, told_held);
            put!(counters, own, clones_sent, clones_won, clones_filtered);
            (own.common, own.seal)
        }
        Metrics::Homa(own) => (own.common, own.seal),
    };
    let SealMetrics { unsealed, unknown_keys, forged, unsealable, .. } = seal;
    counters.set_item("seal_unsealed", unsealed)?;
    counters.set_item("seal_unknown_keys", unknown_keys)?;
    counters.set_item("seal_forged", forged)?;
    counters.set_item("seal_unsealable", unsealable)?;
    put!(counters, common, datagrams_in, datagrams_out, unexpected, unknown, protocol_violation);
    put!(counters, common, duplicates, calls, replied, refused, deadlines, failed, cancelled);
    Ok(counters)
}
