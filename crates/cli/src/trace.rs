//! The flags of a trace: `--trace`, for commands that drive endpoints or a router.

use std::path::PathBuf;

use anyhow::{Context, Result};
use tailcut_measure::quantity::parse_count;
use tailcut_net::trace::{Trace, TraceConfig};

use crate::network;

/// What of a command's packets is traced.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct TraceFlags {
    /// Write packets and decisions of one connection to FILE, for `tailcut dissect` and Wireshark
    /// (R2P2 and Homa)
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    /// The peer of that connection instead of the first one seen; with a router, the client
    #[arg(long, value_name = "ADDR", requires = "trace")]
    trace_peer: Option<String>,
    /// Bytes of the file at most; the trace ends there
    #[arg(long, value_name = "BYTES", default_value = "16M", value_parser = parse_count, requires = "trace")]
    trace_max: u64,
}

impl TraceFlags {
    /// Configuration of the trace, if one is asked for.
    pub(crate) fn config(&self) -> Result<Option<TraceConfig>> {
        let Some(path) = self.trace.clone() else { return Ok(None) };
        let peer = self.trace_peer.as_deref().map(network::resolve).transpose()?;
        Ok(Some(TraceConfig { path, peer, bytes_max: self.trace_max }))
    }

    /// The trace that is asked for, if any, begun.
    pub(crate) fn create(&self) -> Result<Option<Trace>> {
        let create = |config: TraceConfig| {
            Trace::create(&config)
                .with_context(|| format!("cannot write the trace {}", config.path.display()))
        };
        self.config()?.map(create).transpose()
    }
}
