//! Flags that `serve` and `route` have in common.

use anyhow::{Result, bail};
use tailcut_net::xdp::XdpConfig;

use crate::admin::AdminFlags;
use crate::life::LifeFlags;
use crate::network::Polling;
use crate::trace::TraceFlags;

/// The flags of a command that serves with loops.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ServingFlags {
    /// Threads that serve, each with a core to itself at best. They share the address: the kernel
    /// gives each client's session to one of them
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=THREADS_MAX))]
    pub(crate) threads: u16,
    /// xdp:IF takes packets past the kernel's stack at an interface (AF_XDP), for R2P2 and Homa. IF
    /// may be followed by ,native or ,generic (where the program runs), ,copy and ,busy-poll
    /// [default: sockets]
    #[arg(long, value_name = "DATAPATH", value_parser = XdpConfig::from_datapath)]
    pub(crate) datapath: Option<XdpConfig>,
    #[command(flatten)]
    pub(crate) life: LifeFlags,
    #[command(flatten)]
    pub(crate) admin: AdminFlags,
    #[command(flatten)]
    pub(crate) polling: Polling,
    #[command(flatten)]
    pub(crate) trace: TraceFlags,
}

impl ServingFlags {
    /// # Errors
    ///
    /// That what is asked for does not go together.
    pub(crate) fn check(&self) -> Result<()> {
        if self.threads > 1 && self.datapath.is_some() {
            bail!("over AF_XDP a port is one thread's; leave --threads out, or take --workers");
        }
        if self.threads > 1 && self.trace.trace.is_some() {
            bail!("--trace follows one thread; leave --threads out");
        }
        Ok(())
    }
}

/// Two incarnations of a router with so many threads are what a server keeps counts for.
const THREADS_MAX: i64 = 8;
