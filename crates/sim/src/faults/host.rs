//! A host of a fault run: a node of `proto` with the watch at its port, and, in tests of the
//! harness, a bug put in between.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::rc::Rc;
use std::sync::atomic::{AtomicU8, Ordering};

use strum::{Display, EnumString, VariantNames};
use tailcut_proto::node::{Node, Path, Time, Transmit};
use tailcut_proto::router::Router;
use tailcut_proto::rpc::{Event, Failure, Rpc};
use tailcut_proto::{homa, r2p2};
use tailcut_wire::homa as homa_wire;
use tailcut_wire::r2p2::{EXTENDED_LEN, MessageType, Packet};

use super::plan::Host;
use super::watch::Watch;

/// A bug that is put into every host it concerns, to show that it is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display, EnumString, VariantNames)]
#[strum(serialize_all = "kebab-case", parse_err_ty = String, parse_err_fn = no_sabotage)]
pub enum Sabotage {
    /// Servers report one request less as concluded than have been, for ever.
    LostFeedbackLeaksSlot,
    /// Servers take a copy of a request for a new one.
    DuplicateRunsTwice,
    /// Servers flip a bit in some replies.
    ReplyIsChanged,
    /// Clients say nothing of calls whose deadline passes.
    CallNeverEnds,
    /// Servers send everything four times.
    AnswersAreMultiplied,
    /// Servers report everything as concluded, so that the router goes past its bound.
    BoundIsPassed,
    /// Servers forget their timers, and with them to release replies.
    RepliesAreKept,
    /// Servers write something into their replies that does not follow from the seed.
    RunsDiffer,
}

fn no_sabotage(text: &str) -> String {
    format!("`{text}` is none of {}", Sabotage::VARIANTS.join(", "))
}

/// A node at its host.
#[derive(Debug)]
pub(super) struct Station {
    host: Host,
    node: Kind,
    watch: Rc<RefCell<Watch>>,
    bug: Option<Bug>,
}

/// What a host runs.
#[derive(Debug)]
pub(super) enum Kind {
    R2p2(Box<r2p2::Endpoint>),
    Homa(Box<homa::Endpoint>),
    Router(Box<Router>),
}

/// A sabotage at work.
#[derive(Debug)]
struct Bug {
    sabotage: Sabotage,
    /// Requests that have been here.
    had: BTreeSet<u64>,
    /// Replies that have left.
    replies: u32,
    /// How often the last transmit is still to be repeated.
    repeats: u32,
    last: Option<(Transmit, Vec<u8>)>,
}

impl Station {
    pub(super) fn new(
        host: Host,
        node: Kind,
        watch: &Rc<RefCell<Watch>>,
        sabotage: Option<Sabotage>,
    ) -> Self {
        let concerns_clients = sabotage == Some(Sabotage::CallNeverEnds);
        let sabotage = sabotage.filter(|_| concerns_clients == matches!(host, Host::Client(_)));
        let bug = sabotage.map(|sabotage| Bug {
            sabotage,
            had: BTreeSet::new(),
            replies: 0,
            repeats: 0,
            last: None,
        });
        Self { host, node, watch: Rc::clone(watch), bug }
    }

    /// What an endpoint still holds, where it holds anything.
    pub(super) fn holds(&self) -> Option<String> {
        fn text<H: Default + PartialEq + Debug>(held: H) -> Option<String> {
            (held != H::default()).then(|| format!("{held:?}"))
        }
        match &self.node {
            Kind::R2p2(node) => text(node.holdings()),
            Kind::Homa(node) => text(node.holdings()),
            Kind::Router(_) => None,
        }
    }

    /// Replies that an endpoint has held back, and what it has sent again: packets of R2P2, bytes
    /// of Homa.
    pub(super) fn efforts(&self) -> (u64, u64) {
        match &self.node {
            Kind::R2p2(node) => (node.metrics().amplification_limited, node.metrics().resent),
            Kind::Homa(node) => (node.metrics().amplification_limited, node.metrics().resent_bytes),
            Kind::Router(_) => (0, 0),
        }
    }

    pub(super) fn as_endpoint_mut(&mut self) -> Option<&mut dyn Rpc> {
        match &mut self.node {
            Kind::R2p2(endpoint) => Some(endpoint.as_mut()),
            Kind::Homa(endpoint) => Some(endpoint.as_mut()),
            Kind::Router(_) => None,
        }
    }

    pub(super) fn as_router(&self) -> Option<&Router> {
        match &self.node {
            Kind::Router(router) => Some(router),
            Kind::R2p2(_) | Kind::Homa(_) => None,
        }
    }

    pub(super) fn as_router_mut(&mut self) -> Option<&mut Router> {
        match &mut self.node {
            Kind::Router(router) => Some(router),
            Kind::R2p2(_) | Kind::Homa(_) => None,
        }
    }

    pub(super) fn poll_event(&mut self) -> Option<Event> {
        let is_deaf = self.has(Sabotage::CallNeverEnds);
        let endpoint = self.as_endpoint_mut()?;
        let mut event = endpoint.poll_event();
        while is_deaf && matches!(event, Some(Event::Failed { failure: Failure::Deadline, .. })) {
            event = endpoint.poll_event();
        }
        event
    }

    fn has(&self, sabotage: Sabotage) -> bool {
        self.bug.as_ref().is_some_and(|bug| bug.sabotage == sabotage)
    }

    fn node(&self) -> &dyn Node {
        match &self.node {
            Kind::R2p2(node) => node.as_ref(),
            Kind::Homa(node) => node.as_ref(),
            Kind::Router(node) => node.as_ref(),
        }
    }

    fn node_mut(&mut self) -> &mut dyn Node {
        match &mut self.node {
            Kind::R2p2(node) => node.as_mut(),
            Kind::Homa(node) => node.as_mut(),
            Kind::Router(node) => node.as_mut(),
        }
    }
}

impl Node for Station {
    fn handle_datagram(&mut self, now: Time, path: Path, bytes: &mut [u8]) {
        if !self.watch.borrow_mut().arrives(self.host, path.peer, bytes) {
            return;
        }
        let is_homa = matches!(self.node, Kind::Homa(_));
        let rename = if is_homa { Bug::renamed_homa } else { Bug::renamed };
        match self.bug.as_mut().and_then(|bug| rename(bug, bytes)) {
            Some(mut renamed) => self.node_mut().handle_datagram(now, path, &mut renamed),
            None => self.node_mut().handle_datagram(now, path, bytes),
        }
        if let Some(router) = self.as_router() {
            let bound = router.bound();
            self.watch.borrow_mut().note_bound(bound);
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        self.node_mut().handle_timeout(now);
    }

    fn poll_transmit(&mut self, now: Time, buffer: &mut [u8]) -> Option<Transmit> {
        let repeated = self.bug.as_mut().and_then(|bug| bug.repeat(buffer));
        let transmit = match repeated {
            Some(transmit) => transmit,
            None => {
                let transmit = self.node_mut().poll_transmit(now, buffer)?;
                let is_homa = matches!(self.node, Kind::Homa(_));
                if let Some(bug) = &mut self.bug {
                    let change = if is_homa { Bug::change_homa } else { Bug::change };
                    buffer[..transmit.len]
                        .chunks_mut(transmit.segment_len.max(1))
                        .for_each(|bytes| change(bug, bytes));
                    bug.keep(transmit, &buffer[..transmit.len]);
                }
                transmit
            }
        };
        let mut watch = self.watch.borrow_mut();
        for bytes in buffer[..transmit.len].chunks(transmit.segment_len.max(1)) {
            watch.leaves(self.host, transmit.to, bytes);
        }
        Some(transmit)
    }

    fn poll_timeout(&self) -> Option<Time> {
        if self.has(Sabotage::RepliesAreKept) { None } else { self.node().poll_timeout() }
    }
}

impl Bug {
    /// A copy of a request under another id.
    fn renamed(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        if self.sabotage != Sabotage::DuplicateRunsTwice {
            return None;
        }
        let packet = Packet::parse(bytes).ok()?;
        let id = packet
            .rpc_id()
            .filter(|_| packet.message_type == MessageType::Request && packet.count == 1)?;
        if self.had.insert(id.0) {
            return None;
        }
        let mut renamed = bytes.to_vec();
        renamed[RPC_ID_AT] ^= 0x80;
        Some(renamed)
    }

    /// The same of Homa.
    fn renamed_homa(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        let packet =
            homa_wire::Packet::parse(bytes).ok().filter(|packet| packet.is_from_client())?;
        let homa_wire::Body::Data { header, payload } = packet.body else {
            return None;
        };
        let is_whole = self.sabotage == Sabotage::DuplicateRunsTwice
            && payload.len() == header.message_length.get() as usize;
        if !is_whole || self.had.insert(header.common.sender_id.get()) {
            return None;
        }
        let mut renamed = bytes.to_vec();
        renamed[HOMA_ID_END - 1] ^= 0x80;
        Some(renamed)
    }

    /// Changes a datagram of Homa that leaves.
    fn change_homa(&mut self, bytes: &mut [u8]) {
        let Ok(packet) = homa_wire::Packet::parse(bytes) else { return };
        let is_reply =
            matches!(packet.body, homa_wire::Body::Data { .. }) && !packet.is_from_client();
        match self.sabotage {
            Sabotage::ReplyIsChanged if is_reply => {
                self.change_reply(bytes.get_mut(homa_wire::DATA_LEN));
            }
            // The window means nothing to anybody.
            Sabotage::RunsDiffer if is_reply => {
                bytes[HOMA_WINDOW_AT] = RUNS.fetch_add(1, Ordering::Relaxed)
            }
            _ => {}
        }
    }

    /// Changes a datagram that leaves.
    fn change(&mut self, bytes: &mut [u8]) {
        let Ok(packet) = Packet::parse(bytes) else { return };
        match (self.sabotage, packet.message_type) {
            (Sabotage::LostFeedbackLeaksSlot, MessageType::Feedback) => {
                let concluded = u32::from_be_bytes(word(bytes, CONCLUDED_AT));
                bytes[CONCLUDED_AT..][..4]
                    .copy_from_slice(&concluded.saturating_sub(1).to_be_bytes());
            }
            (Sabotage::BoundIsPassed, MessageType::Feedback) => {
                let received = word(bytes, RECEIVED_AT);
                bytes[CONCLUDED_AT..][..4].copy_from_slice(&received);
            }
            (Sabotage::ReplyIsChanged, MessageType::Response) => {
                self.change_reply(bytes.get_mut(EXTENDED_LEN));
            }
            (Sabotage::RunsDiffer, MessageType::Response) => {
                bytes[SERVER_LOAD_AT] = RUNS.fetch_add(1, Ordering::Relaxed)
            }
            _ => {}
        }
    }

    /// Flips a bit in the first byte of every sixteenth reply that has one.
    fn change_reply(&mut self, first: Option<&mut u8>) {
        self.replies += 1;
        if let Some(byte) = first.filter(|_| self.replies.is_multiple_of(16)) {
            *byte ^= 1;
        }
    }

    fn keep(&mut self, transmit: Transmit, bytes: &[u8]) {
        if self.sabotage == Sabotage::AnswersAreMultiplied
            && matches!(Host::at(transmit.to), Some(Host::Client(_)))
        {
            self.repeats = 3;
            self.last = Some((transmit, bytes.to_vec()));
        }
    }

    fn repeat(&mut self, buffer: &mut [u8]) -> Option<Transmit> {
        self.repeats = self.repeats.checked_sub(1)?;
        let (transmit, bytes) = self.last.as_ref()?;
        buffer[..bytes.len()].copy_from_slice(bytes);
        Some(*transmit)
    }
}

fn word(bytes: &[u8], at: usize) -> [u8; 4] {
    [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]
}

/// What [`Sabotage::RunsDiffer`] takes instead of the seed.
static RUNS: AtomicU8 = AtomicU8::new(0);

const HOMA_WINDOW_AT: usize = 14;
const HOMA_ID_END: usize = 28;
const RPC_ID_AT: usize = 8;
const SERVER_LOAD_AT: usize = 23;
const RECEIVED_AT: usize = EXTENDED_LEN + 8;
const CONCLUDED_AT: usize = EXTENDED_LEN + 12;
