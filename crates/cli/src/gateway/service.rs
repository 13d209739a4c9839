//! The loop of a gateway: connections in front, calls behind.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use tailcut_net::driver::{Driver, Wait, Waker, Woken};
use tailcut_net::log::{self, DriverLog};
use tailcut_net::stream::{ListenerId, StreamConfig, Streams};
use tailcut_proto::endpoint::Endpoint;

use super::desk::Desk;
use crate::counters::{self, PortSnapshot};
use crate::sidecar::{Sidecar, Snapshot};

/// A gateway.
pub(super) struct Service {
    driver: Driver<Endpoint>,
    streams: Streams,
    listener: ListenerId,
    desk: Desk,
    /// It takes no new clients.
    is_draining: bool,
}

impl Service {
    /// A gateway that listens.
    pub(super) fn open(
        driver: Driver<Endpoint>,
        listen: SocketAddr,
        connections_max: usize,
        desk: Desk,
    ) -> Result<Self> {
        let config = StreamConfig { connections_max, ..StreamConfig::default() };
        let mut streams = Streams::new(Wait::Block { spin_ns: 0 }, config)
            .context("cannot set up connections")?;
        let listener =
            streams.listen(listen, None).with_context(|| format!("cannot listen at {listen}"))?;
        Ok(Self { driver, streams, listener, desk, is_draining: false })
    }

    /// Address that it listens at.
    pub(super) fn address(&self) -> Result<SocketAddr> {
        self.streams.listen_address(self.listener).context("it listens at no address")
    }

    /// Wakes the loop.
    pub(super) fn waker(&self) -> Waker {
        self.driver.waker()
    }

    /// Serves until it has drained.
    pub(super) fn run(&mut self, sidecar: &mut Sidecar) -> Result<()> {
        let (mut log, mut log_at, mut woken) = (DriverLog::default(), None, Woken::ALL);
        loop {
            if sidecar.life.is_draining() && !self.is_draining {
                self.is_draining = true;
                self.streams.close_listeners();
                self.desk.drain();
            }
            let Self { driver, streams, desk, .. } = self;
            let mut now = driver.clock().now();
            if woken.own {
                let turn = driver.turn_with(|_, endpoint, now| {
                    desk.take_events(endpoint, now);
                    desk.work(endpoint, now, streams);
                })?;
                now = turn.now;
                log_at = log.look(driver, turn, |_, node| log::of_endpoint(&node.metrics()));
            }
            if woken.extra || streams.next_deadline().is_some_and(|deadline| deadline <= now) {
                streams.look(|connection, event| desk.handle(now, connection, &event))?;
            }
            desk.work(driver.node_mut(0), now, streams);
            driver.flush(now);
            sidecar.follow(now, || self.snapshot());
            if sidecar.life.is_over(now, || self.desk.len() > 0) {
                return Ok(());
            }
            let look_at = log_at.into_iter().chain(sidecar.life.look_at());
            let look_at = look_at.chain(self.desk.next_deadline()).min();
            woken = self.streams.wait_with(&mut self.driver, look_at)?;
        }
    }

    /// Snapshot for others that ask.
    pub(super) fn snapshot(&self) -> Snapshot {
        let Self { driver, streams, desk, .. } = self;
        let mut counters = desk.counters();
        counters.extend(counters::of_endpoint(&driver.node(0).metrics()));
        counters.extend(PortSnapshot::of(driver.port(0)).counters());
        counters.extend(counters::of_streams(&streams.metrics()));
        Snapshot {
            gauges: vec![
                ("client_connections", "Connections of clients.", desk.len() as u64),
                ("outstanding_calls", "Calls under way.", desk.calls() as u64),
                ("window_calls", "Calls that may be under way.", desk.window()),
                ("held_bytes", "Bytes held for clients.", desk.held() as u64),
            ],
            groups: desk.groups(),
            counters,
            ..Snapshot::default()
        }
    }
}
