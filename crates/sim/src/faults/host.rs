//! A host of a fault run: a node of `proto` with the watch at its port, and, in tests of the harness, a bug put in between.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::str::FromStr;
use std::sync::atomic::{AtomicU8, Ordering};

use tailcut_proto::node::{Node, Path, Time, Transmit};
use tailcut_proto::r2p2::Endpoint;
use tailcut_proto::router::Router;
use tailcut_proto::rpc::{Event, Failure, Rpc};
use tailcut_wire::r2p2::{EXTENDED_LEN, MessageType, Packet};

use super::plan::Host;
use super::watch::Watch;

/// A bug that is put into every host it concerns, to show that it is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    /// Servers forget their timers, and with them to let go of replies.
    RepliesAreKept,
    /// Servers write something into their replies that does not follow from the seed.
    RunsDiffer,
}

impl Sabotage {
    /// All, with the names that the command line knows them by.
    pub const ALL: [(&'static str, Self); 8] = [
        ("lost-feedback-leaks-slot", Self::LostFeedbackLeaksSlot),
        ("duplicate-runs-twice", Self::DuplicateRunsTwice),
        ("reply-is-changed", Self::ReplyIsChanged),
        ("call-never-ends", Self::CallNeverEnds),
        ("answers-are-multiplied", Self::AnswersAreMultiplied),
        ("bound-is-passed", Self::BoundIsPassed),
        ("replies-are-kept", Self::RepliesAreKept),
        ("runs-differ", Self::RunsDiffer),
    ];
}

impl FromStr for Sabotage {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.iter().find(|(name, _)| *name == text);
        let names = Self::ALL.map(|(name, _)| name).join(", ");
        found.map(|(_, sabotage)| *sabotage).ok_or_else(|| format!("`{text}` is none of {names}"))
    }
}

/// A node at its host.
#[derive(Debug)]
pub(super) struct Station {
    host: Host,
    node: Kind,
    watch: Rc<RefCell<Watch>>,
    bug: Option<Bug>,
}

#[derive(Debug)]
enum Kind {
    Endpoint(Box<Endpoint>),
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
    pub(super) fn endpoint(host: Host, node: Endpoint, watch: &Rc<RefCell<Watch>>, sabotage: Option<Sabotage>) -> Self {
        let concerns_clients = sabotage == Some(Sabotage::CallNeverEnds);
        let sabotage = sabotage.filter(|_| concerns_clients == matches!(host, Host::Client(_)));
        let bug = sabotage.map(|sabotage| Bug { sabotage, had: BTreeSet::new(), replies: 0, repeats: 0, last: None });
        Self { host, node: Kind::Endpoint(Box::new(node)), watch: Rc::clone(watch), bug }
    }

    pub(super) fn router(node: Router, watch: &Rc<RefCell<Watch>>) -> Self {
        Self { host: Host::Router, node: Kind::Router(Box::new(node)), watch: Rc::clone(watch), bug: None }
    }

    pub(super) fn as_endpoint(&self) -> Option<&Endpoint> {
        match &self.node {
            Kind::Endpoint(endpoint) => Some(endpoint),
            Kind::Router(_) => None,
        }
    }

    pub(super) fn as_endpoint_mut(&mut self) -> Option<&mut Endpoint> {
        match &mut self.node {
            Kind::Endpoint(endpoint) => Some(endpoint),
            Kind::Router(_) => None,
        }
    }

    pub(super) fn as_router(&self) -> Option<&Router> {
        match &self.node {
            Kind::Router(router) => Some(router),
            Kind::Endpoint(_) => None,
        }
    }

    pub(super) fn as_router_mut(&mut self) -> Option<&mut Router> {
        match &mut self.node {
            Kind::Router(router) => Some(router),
            Kind::Endpoint(_) => None,
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
            Kind::Endpoint(node) => node.as_ref(),
            Kind::Router(node) => node.as_ref(),
        }
    }

    fn node_mut(&mut self) -> &mut dyn Node {
        match &mut self.node {
            Kind::Endpoint(node) => node.as_mut(),
            Kind::Router(node) => node.as_mut(),
        }
    }
}

impl Node for Station {
    fn handle_datagram(&mut self, now: Time, path: Path, bytes: &[u8]) {
        if !self.watch.borrow_mut().arrives(self.host, path.peer, bytes) {
            return;
        }
        match self.bug.as_mut().and_then(|bug| bug.renamed(bytes)) {
            Some(renamed) => self.node_mut().handle_datagram(now, path, &renamed),
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
                if let Some(bug) = &mut self.bug {
                    buffer[..transmit.len].chunks_mut(transmit.segment_len.max(1)).for_each(|bytes| bug.change(bytes));
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
        let id = packet.rpc_id().filter(|_| packet.message_type == MessageType::Request && packet.count == 1)?;
        if self.had.insert(id.0) {
            return None;
        }
        let mut renamed = bytes.to_vec();
        renamed[RPC_ID_AT] ^= 0x80;
        Some(renamed)
    }

    /// Changes a datagram that leaves.
    fn change(&mut self, bytes: &mut [u8]) {
        let Ok(packet) = Packet::parse(bytes) else { return };
        match (self.sabotage, packet.message_type) {
            (Sabotage::LostFeedbackLeaksSlot, MessageType::Feedback) => {
                let concluded = u32::from_be_bytes(word(bytes, CONCLUDED_AT));
                bytes[CONCLUDED_AT..][..4].copy_from_slice(&concluded.saturating_sub(1).to_be_bytes());
            }
            (Sabotage::BoundIsPassed, MessageType::Feedback) => {
                let received = word(bytes, RECEIVED_AT);
                bytes[CONCLUDED_AT..][..4].copy_from_slice(&received);
            }
            (Sabotage::ReplyIsChanged, MessageType::Response) => {
                self.replies += 1;
                if self.replies.is_multiple_of(16)
                    && let Some(byte) = bytes.get_mut(EXTENDED_LEN)
                {
                    *byte ^= 1;
                }
            }
            (Sabotage::RunsDiffer, MessageType::Response) => bytes[SERVER_LOAD_AT] = RUNS.fetch_add(1, Ordering::Relaxed),
            _ => {}
        }
    }

    fn keep(&mut self, transmit: Transmit, bytes: &[u8]) {
        if self.sabotage == Sabotage::AnswersAreMultiplied && matches!(Host::at(transmit.to), Some(Host::Client(_))) {
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

const RPC_ID_AT: usize = 8;
const SERVER_LOAD_AT: usize = 23;
const RECEIVED_AT: usize = EXTENDED_LEN + 8;
const CONCLUDED_AT: usize = EXTENDED_LEN + 12;
