//! `--transport netclone --dataplane xdp`: NetClone's switch in the kernel, before that of this
//! process.
//!
//! | | |
//! |---|---|
//! | a pair whose servers answer | the program places, clones and filters |
//! | a pair with a server that is silent, drained or new | goes up to the switch of this process, which knows who stands in, and tries who is silent |
//! | a server answers what it was tried with | the program sees the way to it, and places there again |
//!
//! Who is silent the switch decides, from what both have placed and heard. Nothing is pinned: the
//! program goes with the process, however that ends, and clients' requests go to the next one's
//! socket.

use std::net::SocketAddr;
use std::os::unix::net::UnixListener;

use anyhow::{Context, Result};
use tailcut_net::ebpf::Mode;
use tailcut_net::ebpf::cloner::{COUNT_NAMES, ClonerConfig, ClonerServer, XdpCloner};
use tailcut_net::entropy;
use tailcut_proto::netclone::{Elsewhere, Switch, SwitchConfig};
use tailcut_proto::node::Time;
use tailcut_proto::policy::Draws;
use tailcut_wire::netclone::SEQ_MAX;

use super::servers::check_family;
use crate::counters::Counters;

/// An attached program; detached when it is dropped.
pub(super) struct ClonerPlane {
    xdp: XdpCloner,
    /// Counters and state of each server in the program at the last look.
    seen: Vec<ClonerServer>,
    /// Time of the next look at it.
    look_at: Time,
    /// Between two looks.
    interval_ns: u64,
    /// The switch's address.
    listen: SocketAddr,
    /// Nobody else has the interface while this is bound.
    _lock: UnixListener,
}

impl ClonerPlane {
    pub(super) fn attach(
        config: &SwitchConfig,
        listen: SocketAddr,
        (interface, mode): (u32, Mode),
        lock: UnixListener,
    ) -> Result<Self> {
        let mut draws = Draws::new(entropy::seed().context("cannot draw a seed")?);
        let servers = config.servers.clone();
        let count = servers.len();
        servers.iter().try_for_each(|server| check_family(listen, *server))?;
        let mut xdp = XdpCloner::load()?;
        xdp.configure(&ClonerConfig {
            listen,
            servers,
            fallback: config.fallback,
            filter_len: config.filter_len as u32,
            first: (draws.below(SEQ_MAX) + 1, draws.word() as u32),
        })?;
        xdp.attach(interface, mode)?;
        Ok(Self {
            xdp,
            seen: vec![ClonerServer::default(); count],
            look_at: 0,
            interval_ns: (config.silent_ns / 4).clamp(LOOK_NS_MIN, LOOK_NS_MAX),
            listen,
            _lock: lock,
        })
    }

    /// Time at which it wants to be looked at again.
    pub(super) fn look_at(&self) -> Time {
        self.look_at
    }

    /// Tells the switch what the program has placed and heard, once it is time, and the program who
    /// is out.
    pub(super) fn look(&mut self, now: Time, switch: &mut Switch) {
        if now < self.look_at {
            return;
        }
        self.look_at = now.saturating_add(self.interval_ns);
        for (id, seen) in self.seen.iter_mut().enumerate() {
            let found = self.xdp.server(id);
            let heard = Elsewhere {
                asked: found.asked.wrapping_sub(seen.asked),
                answered: found.answered.wrapping_sub(seen.answered),
                load: found.load,
            };
            *seen = found;
            switch.note_elsewhere(now, id, heard);
        }
        for (id, (server, seen)) in switch.servers().zip(&self.seen).enumerate() {
            if server.is_silent && seen.has_way {
                self.xdp.release_way(id);
            }
            self.xdp.set_out(id, server.is_drained);
        }
    }

    /// Puts a server in the place of the one of this id.
    pub(super) fn replace(&mut self, id: usize, addr: SocketAddr) -> Result<()> {
        check_family(self.listen, addr)?;
        self.xdp.replace(id, addr);
        self.seen[id] = ClonerServer::default();
        Ok(())
    }

    /// The servers have changed: it is to be looked at now.
    pub(super) fn look_soon(&mut self) {
        self.look_at = 0;
    }

    /// The program's counters by name.
    pub(super) fn counters(&self) -> Counters {
        let counts = self.xdp.counts();
        COUNT_NAMES.iter().zip(counts).map(|(name, count)| ((*name).to_owned(), count)).collect()
    }
}

/// Bounds of the time between two looks: several in the time that a server may be silent, and few
/// enough to cost nothing.
const LOOK_NS_MIN: u64 = 100_000;
const LOOK_NS_MAX: u64 = 10_000_000;
