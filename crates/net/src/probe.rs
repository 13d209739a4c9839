//! Probes for the timestamps that really arrive: the only way to know is to send.
//!
//! A socket takes every kind of stamp on every interface. Whether one arrives depends on the
//! driver, on the interface's configuration and on the way that the packet takes. So a probe sends
//! the very request that will be measured, to the very target, again and again until every kind has
//! come or the time is up. Receive stamps begin only some milliseconds after the first socket of
//! the machine asked for them; a run should begin while the probe's figures are fresh, with a
//! socket open.
//!
//! Invariant: a kind is said to arrive when a stamp of it has been seen, and not otherwise.

use std::io;
use std::net::SocketAddr;

use tailcut_proto::node::Time;

use crate::clock::Clock;
use crate::datagram::{DatagramConfig, DatagramEvent, Datagrams};
use crate::driver::Wait;
use crate::stamps::{StampConfig, StampSource, Stamping, Stamps};
use crate::stream::{Connection, Event, Reason, StreamConfig, Streams, TlsClient};

/// A probe: the request to send, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct Probe<'a> {
    /// Target of the request.
    pub target: SocketAddr,
    /// A request that the target answers. Without an answer nothing is known of receive stamps.
    pub request: &'a [u8],
    /// For how long at most; some 200 ms, since receive stamps begin late.
    pub wait_ns: u64,
    /// Time to wait for an answer before the request is sent again; some 10 ms.
    pub interval_ns: u64,
    /// Source of stamps.
    pub source: StampSource,
}

/// Protocol on the connection of a probe.
pub trait Speaker {
    /// Appends what the connection begins with.
    fn handle_connected(&mut self, _out: &mut Vec<u8>) {}

    /// Bytes have come; appends what the target is owed for them.
    fn handle_bytes(&mut self, _bytes: &[u8], _out: &mut Vec<u8>) {}

    /// Appends a request, where one may be sent.
    fn ask(&mut self, out: &mut Vec<u8>);
}

/// Always the same request.
impl Speaker for &[u8] {
    fn ask(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }
}

/// The stamps that have been seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrived {
    /// True if a send was stamped by the kernel.
    pub sent_kernel: bool,
    /// True if a send was stamped by the interface.
    pub sent_hardware: bool,
    /// True if a receive was stamped by the kernel.
    pub received_kernel: bool,
    /// True if a receive was stamped by the interface.
    pub received_hardware: bool,
    /// The target has answered.
    pub is_answered: bool,
}

impl Arrived {
    /// The best kind of which both ends of a latency can be had; [`Stamping::Off`] leaves the
    /// user's own clock.
    pub fn best(&self) -> Stamping {
        if self.sent_hardware && self.received_hardware {
            Stamping::Hardware
        } else if self.sent_kernel && self.received_kernel {
            Stamping::Kernel
        } else {
            Stamping::Off
        }
    }

    fn is_complete(&self) -> bool {
        self.sent_kernel && self.sent_hardware && self.received_kernel && self.received_hardware
    }

    fn handle_sent(&mut self, stamps: Stamps) {
        self.sent_kernel |= stamps.kernel_ns.is_some();
        self.sent_hardware |= stamps.hardware_ns.is_some();
    }

    fn handle_received(&mut self, stamps: Stamps) {
        self.is_answered = true;
        self.received_kernel |= stamps.kernel_ns.is_some();
        self.received_hardware |= stamps.hardware_ns.is_some();
    }
}

impl Probe<'_> {
    /// Probes with datagrams, as UDP and R2P2 send them. Takes all of [`Probe::wait_ns`] unless
    /// every kind arrives.
    ///
    /// # Errors
    ///
    /// What this host says: no descriptors, no route.
    pub fn datagrams(&self) -> io::Result<Arrived> {
        let config = DatagramConfig { stamps: self.stamps(), ..DatagramConfig::default() };
        let mut datagrams = Datagrams::new(WAIT, config)?;
        let flow = datagrams.open(self.target)?;
        let mut arrived = Arrived::default();
        let mut tag = 0;
        self.repeat(|again| {
            datagrams.queue_stamped(flow, tag, self.request);
            datagrams.flush();
            tag += 1;
            while Clock.now() < again {
                datagrams.poll(Some(again), |_, event| match event {
                    DatagramEvent::Bytes(_, stamps) => arrived.handle_received(stamps),
                    DatagramEvent::Sent(sent) => arrived.handle_sent(sent.stamps),
                    DatagramEvent::Refused | DatagramEvent::Unreachable => {}
                })?;
            }
            Ok(!arrived.is_complete())
        })?;
        Ok(arrived)
    }

    /// Probes with a connection, with TLS where it is given; [`Probe::request`] is not looked at,
    /// for `speaker` says what is sent. Takes all of [`Probe::wait_ns`] unless every kind arrives.
    ///
    /// # Errors
    ///
    /// What this host says, and that the connection could not be opened or has ended.
    pub fn connection(
        &self,
        tls: Option<&TlsClient>,
        speaker: &mut dyn Speaker,
    ) -> io::Result<Arrived> {
        let config = StreamConfig { stamps: self.stamps(), ..StreamConfig::default() };
        let mut streams = Streams::new(WAIT, config)?;
        let id = streams.connect(self.target, tls)?;
        let (mut arrived, mut end) = (Arrived::default(), None);
        self.repeat(|again| {
            if let Some(output) = streams.output(id) {
                speaker.ask(output);
                streams.stamp(id);
                streams.flush(id);
            }
            while Clock.now() < again && end.is_none() {
                let note = |connection: &mut Connection<'_>, event: Event<'_>| match event {
                    Event::Connected => speaker.handle_connected(connection.output()),
                    Event::Bytes(bytes) => {
                        arrived.handle_received(connection.received());
                        speaker.handle_bytes(bytes, connection.output());
                    }
                    Event::Sent(sent) => arrived.handle_sent(sent.stamps),
                    Event::Closed(reason) => end = Some(reason),
                    Event::Finished => end = Some(Reason::Ended),
                    Event::Accepted(_) => {}
                };
                streams.poll(Some(again), note)?;
            }
            match &end {
                Some(reason) => Err(io::Error::new(
                    io::ErrorKind::ConnectionAborted,
                    format!("the target: {reason:?}"),
                )),
                None => Ok(!arrived.is_complete()),
            }
        })?;
        Ok(arrived)
    }

    fn stamps(&self) -> StampConfig {
        StampConfig { stamping: Stamping::Hardware, source: self.source }
    }

    /// Calls `attempt` with when it should end, until the time is up or it wants no more.
    fn repeat(&self, mut attempt: impl FnMut(Time) -> io::Result<bool>) -> io::Result<()> {
        let end = Clock.now().saturating_add(self.wait_ns);
        loop {
            let now = Clock.now();
            if now >= end || !attempt(now.saturating_add(self.interval_ns.max(1)).min(end))? {
                return Ok(());
            }
        }
    }
}

/// Stamps do not need the thread awake.
const WAIT: Wait = Wait::Block { spin_ns: 0 };
