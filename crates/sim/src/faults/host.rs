//! A host of a fault run: a node of `proto` with the watch at its port, and, in tests of the
//! harness, a bug put in between.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Debug;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::{AtomicU8, Ordering};

use strum::{Display, EnumString, VariantNames};
use tailcut_proto::endpoint::{Endpoint, Metrics};
use tailcut_proto::node::{Node, Path, Time, Transmit};
use tailcut_proto::router::{Router, RouterMetrics};
use tailcut_proto::rpc::{Event, Failure, Rpc};
use tailcut_proto::sealed::SealMetrics;
use tailcut_proto::work;
use tailcut_wire::homa as homa_wire;
use tailcut_wire::r2p2::sealed::{COALESCED_VERSION, VERSION_AT};
use tailcut_wire::r2p2::{
    CloneMark, DropReason, EXTENDED_LEN, Flags, Kind, MessageType, Packet, Verdict,
};
use zerocopy::FromBytes;

use super::hosted::Hosted;
use super::plan::Host;
use super::recorder::may_be_answered;
use super::replies::Judged;
use super::sealed_books::SealedBooks;
use super::watch::Watch;
use super::{Cost, Effect, Invariant};

/// A bug that is put into every host it concerns, to show that it is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display, EnumString, VariantNames)]
#[strum(serialize_all = "kebab-case", parse_err_ty = String, parse_err_fn = no_sabotage)]
pub enum Sabotage {
    /// Servers report one request less as concluded than have been, for ever.
    LostFeedbackLeaksSlot,
    /// Servers take a copy of a request for a new one.
    DuplicateRunsTwice,
    /// Servers take what is sent again for new.
    AgeIsIgnored,
    /// Servers say of what may have run that they have no room for it.
    RefusalsPromiseTooMuch,
    /// Servers panic at the fourth request.
    ServerPanics,
    /// Servers flip a bit in some replies.
    ReplyIsChanged,
    /// Clients say nothing of calls whose deadline passes.
    CallNeverEnds,
    /// Servers send everything four times.
    AnswersAreMultiplied,
    /// Servers report everything as concluded, so that the router goes past its bound.
    BoundIsPassed,
    /// Servers drop their timers, and so never release replies.
    RepliesAreKept,
    /// Clients give the application some replies twice.
    SecondReplyIsGiven,
    /// Clients drop some replies as if they had had another.
    FirstReplyIsFiltered,
    /// The router sends what may run once to another server too.
    OnceIsCloned,
    /// Clients send a copy of every call, whatever their budget.
    CopiesAreUnbounded,
    /// Servers count the first packets of long requests for requests that they have, for ever.
    HalfRequestsHoldSlots,
    /// Servers take the client that anybody names for the router's word.
    NamedClientsAreBelieved,
    /// Servers take a CANCEL from anybody.
    CancelsAreBelieved,
    /// Routers hear no report of servers after the first hundred.
    RouterIsDeaf,
    /// Routers give servers 200 ms to answer.
    RouterIsPatient,
    /// Routers drop what clients send on to them.
    MovedIsDropped,
    /// Servers say of claims that they renounce whatever they have.
    ClaimsAreIgnored,
    /// Servers' queues take whatever comes and keep it for as long as it takes.
    QueueIsPatient,
    /// Servers take all clients for one, who may fill their queues.
    ClientsHaveNoShares,
    /// Routers take whoever reports something for their first server.
    ReportsAreBelieved,
    /// Clients flip a bit in some of the packets that they send of long requests.
    RequestIsChanged,
    /// Servers drop what is sent to them again.
    SentAgainIsDropped,
    /// Routers take all replies to a client for those of one call.
    FilterConfusesCalls,
    /// Servers write something into their replies that does not follow from the seed.
    RunsDiffer,
    /// Routers place all requests that they hold and may place within the packet that frees the
    /// slots.
    HeldArePlacedAtOnce,
    /// Servers ask nobody for a cookie.
    CookiesAreNotAsked,
    /// Servers have no seal.
    SealIsLeftOut,
    /// Servers and routers send back what their seal drops.
    DroppedAreAnswered,
    /// Servers bear one name at every start, and believe that they started at the beginning of the
    /// run.
    StartIsLost,
    /// Routers bear one name at every start.
    NameIsKept,
    /// Servers take no newer keys.
    KeysStayOld,
    /// Servers that have lost their keys have them.
    LostKeysAreKept,
    /// Servers wait for whoever is ahead of them.
    ClocksAreTrusted,
    /// Servers have old keys, and say so.
    KeysAreDenied,
    /// Clients take whatever has the form of an answer for one of who has no key.
    AnswersAreBelieved,
    /// Clients take such an answer for one to the request that they have sent last.
    AnswersAreOfAnyCall,
    /// Clients say of what may have run that a key was not there.
    UncertainIsNoKey,
    /// Clients say nothing of calls for which a key was not there.
    NoKeyNeverEnds,
    /// Clients make a call again that may have run.
    UncertainGoAgain,
}

fn no_sabotage(text: &str) -> String {
    format!("`{text}` is none of {}", Sabotage::VARIANTS.join(", "))
}

/// A node at its host.
#[derive(Debug)]
pub(super) struct Station {
    host: Host,
    pub(super) node: Hosted,
    watch: Rc<RefCell<Watch>>,
    /// The machine's clock, where costs are asked for.
    clock: Option<fn() -> u64>,
    bug: Option<Bug>,
    /// One of so many sends fails; 0 for none.
    pub(super) fails_one_of: u32,
    /// Sends so far.
    sends: u32,
    /// It is of a version that knows no claims.
    pub(super) is_former: bool,
    /// Bytes of the longest datagram that it was handed: a later one may have it stored.
    longest: usize,
}

/// A sabotage at work.
#[derive(Debug)]
struct Bug {
    sabotage: Sabotage,
    /// Requests that have been here.
    had: BTreeSet<u64>,
    /// Replies that have left.
    replies: u32,
    /// First packets of requests of several that have been here.
    halves: u32,
    /// Senders of the first packets of requests, by id.
    senders: BTreeMap<u64, SocketAddr>,
    /// Number of times that the last transmit is still to be repeated.
    repeats: u32,
    last: Option<(Transmit, Vec<u8>)>,
    /// A reply that is to be given again.
    given: Option<Event>,
    /// Ids of the replies that the router has forwarded and not sent.
    hidden: VecDeque<u64>,
}

impl Station {
    pub(super) fn new(
        host: Host,
        node: Hosted,
        watch: &Rc<RefCell<Watch>>,
        sabotage: Option<Sabotage>,
    ) -> Self {
        let sabotage = sabotage.filter(|sabotage| sabotage.concerns(host));
        let bug = sabotage.map(|sabotage| Bug {
            sabotage,
            had: BTreeSet::new(),
            replies: 0,
            halves: 0,
            senders: BTreeMap::new(),
            repeats: 0,
            last: None,
            given: None,
            hidden: VecDeque::new(),
        });
        let (fails_one_of, sends, is_former, longest) = (0, 0, false, 0);
        let (watch, clock) = (Rc::clone(watch), watch.borrow().clock);
        Self { host, node, watch, clock, bug, fails_one_of, sends, is_former, longest }
    }

    /// The holdings of an endpoint, where it holds anything.
    pub(super) fn holds(&self) -> Option<String> {
        fn text<H: Default + PartialEq + Debug>(held: H) -> Option<String> {
            (held != H::default()).then(|| format!("{held:?}"))
        }
        match self.node.endpoint()? {
            Endpoint::R2p2(node) => text(node.holdings()),
            Endpoint::Homa(node) => text(node.holdings()),
        }
    }

    /// Effects of the run that the node has counted.
    pub(super) fn efforts(&self) -> Vec<(Effect, u64)> {
        if let Some(metrics) = self.node.router().map(Router::metrics) {
            let RouterMetrics { held, servers_silenced, claims_placed, cloned, .. } = metrics;
            return vec![
                (Effect::HeldByRouter, held),
                (Effect::Silenced, servers_silenced),
                (Effect::Claimed, claims_placed),
                (Effect::Cloned, cloned),
                (Effect::FilteredByRouter, metrics.replies_filtered),
            ];
        }
        match self.node.endpoint().map(Endpoint::metrics) {
            Some(Metrics::R2p2(metrics)) => vec![
                (Effect::AmplificationLimited, metrics.amplification_limited),
                (Effect::Resent, metrics.resent),
                (Effect::Hedged, metrics.clones_sent),
                (Effect::CloneWon, metrics.clones_won),
                (Effect::CloneFiltered, metrics.clones_filtered),
                (Effect::CloneDiscarded, metrics.clones_discarded),
                (Effect::CloneCancelled, metrics.clones_cancelled),
                (Effect::Moved, metrics.moved),
            ],
            Some(Metrics::Homa(metrics)) => vec![
                (Effect::AmplificationLimited, metrics.amplification_limited),
                (Effect::Resent, metrics.resent_bytes),
            ],
            None => Vec::new(),
        }
    }

    pub(super) fn poll_event(&mut self) -> Option<Event> {
        if let Some(again) = self.bug.as_mut().and_then(|bug| bug.given.take()) {
            return Some(again);
        }
        let is_deaf = self.has(Sabotage::CallNeverEnds);
        let never_ends = self.has(Sabotage::NoKeyNeverEnds);
        let is_mistold = self.has(Sabotage::UncertainIsNoKey);
        let endpoint = self.node.endpoint_mut()?;
        let mut event = endpoint.poll_event();
        let swallows = |failure: &Failure| match failure {
            Failure::Deadline => is_deaf,
            Failure::Refused(DropReason::NoKey) => never_ends,
            _ => false,
        };
        while matches!(&event, Some(Event::Failed { failure, .. }) if swallows(failure)) {
            event = endpoint.poll_event();
        }
        if let (true, Some(Event::Failed { failure, .. })) = (is_mistold, &mut event)
            && *failure == Failure::Refused(DropReason::Uncertain)
        {
            *failure = Failure::Refused(DropReason::NoKey);
        }
        if let (Some(bug), Some(event)) = (&mut self.bug, &event) {
            bug.give_again(event);
        }
        event
    }

    /// The part of a message in a datagram, where there is a bug to look at it.
    fn part(&self, bytes: &[u8]) -> Option<Part> {
        self.bug.as_ref()?;
        let Some(endpoint) = self.node.endpoint() else { return Part::of_r2p2(bytes) };
        match endpoint {
            Endpoint::R2p2(_) => Part::of_r2p2(bytes),
            Endpoint::Homa(_) => Part::of_homa(bytes),
        }
    }

    /// True if a bug keeps a datagram from the node.
    fn is_deaf_to(&mut self, bytes: &[u8]) -> bool {
        let Some(bug) = &mut self.bug else { return false };
        let Ok(packet) = Packet::parse(bytes) else { return false };
        match bug.sabotage {
            Sabotage::RouterIsDeaf => {
                let is_report = packet.message_type == MessageType::Feedback;
                bug.replies += u32::from(is_report);
                is_report && bug.replies > 100
            }
            Sabotage::MovedIsDropped => {
                packet.message_type == MessageType::Request && packet.flags().has(Flags::MOVED)
            }
            Sabotage::SentAgainIsDropped => packet.flags().has(Flags::RETRANSMIT),
            _ => false,
        }
    }

    /// Hands a datagram to the node, and looks at the work that it makes.
    fn hand_over(&mut self, now: Time, path: Path, bytes: &mut [u8]) {
        // Of several in a datagram each is one.
        let is_coalesced =
            bytes.get(VERSION_AT) == Some(&COALESCED_VERSION) && !self.node.is_homa();
        let packets = if is_coalesced { (bytes.len() / EXTENDED_LEN).max(1) } else { 1 };
        work::take();
        self.hand_over_timed(now, path, bytes);
        if self.has(Sabotage::HeldArePlacedAtOnce) {
            self.node.handle_timeout(now);
        }
        let steps = work::take();
        self.longest = self.longest.max(bytes.len());
        if steps > packets as u64 * work::steps_max(self.longest) {
            let (host, from, len) = (self.host, path.peer, bytes.len());
            self.watch.borrow_mut().violate(Invariant::Work, || {
                format!("a packet of {len} bytes from {from} costs {host} {steps} steps")
            });
        }
    }

    /// Hands a datagram to the node, by the clock where there is one.
    fn hand_over_timed(&mut self, now: Time, path: Path, bytes: &mut [u8]) {
        let Some(clock) = self.clock else { return self.node.handle_datagram(now, path, bytes) };
        let type_at = if self.node.is_homa() { HOMA_TYPE_AT } else { TYPE_AT };
        let kind = bytes.get(type_at).copied().unwrap_or(0);
        let begun = clock();
        self.node.handle_datagram(now, path, bytes);
        let ns = clock() - begun;
        let cost = Cost { host: self.host, from: path.peer, kind, len: bytes.len(), ns };
        self.watch.borrow_mut().costs.push(cost);
    }

    /// Tells the watch a router's bound after whatever may have changed it, and before what is
    /// placed by it has left.
    pub(super) fn note_bound(&self) {
        if let Some(router) = self.node.router() {
            self.watch.borrow_mut().note_bound(router.bound());
        }
    }

    /// The node's counters of replies, where it is a router.
    fn judged(&self) -> Option<Judged> {
        self.node.router().map(|router| Judged::of(&router.metrics()))
    }

    /// Datagrams that its seal has dropped.
    fn dropped(&self) -> u64 {
        let seal = self.seal();
        seal.unsealed + seal.forged + seal.unknown_keys + seal.replayed + seal.misdirected
    }

    /// Datagrams that may be news when they come again: it had not the keys, or, over Homa, where
    /// each is read once, it does not know their sessions, or they name another server, whose
    /// answer a stranger has passed on as if it were this one's.
    fn unread(&self) -> u64 {
        let seal = self.seal();
        match self.node.endpoint() {
            Some(Endpoint::Homa(_)) => seal.unknown_keys + seal.stale_sessions + seal.forged,
            _ => seal.unknown_keys,
        }
    }

    fn seal(&self) -> SealMetrics {
        match (self.node.router(), self.node.endpoint().map(Endpoint::metrics)) {
            (Some(router), _) => router.metrics().seal,
            (None, Some(Metrics::R2p2(metrics))) => metrics.seal,
            (None, Some(Metrics::Homa(metrics))) => metrics.seal,
            (None, None) => SealMetrics::default(),
        }
    }

    /// Tells the watch what has become of a datagram by keys that are not there, since the seal
    /// counted so.
    fn note_answers(&self, before: SealMetrics, bytes: &[u8]) {
        let (seal, mut watch) = (self.seal(), self.watch.borrow_mut());
        let Some(sealed) = &mut watch.sealed else { return };
        if sealed.is_answer(bytes) && seal.no_key_received == before.no_key_received {
            sealed.note_unread();
        }
        if seal.no_key_sent > before.no_key_sent
            && let Some(broken) = sealed.note_answer(self.host, bytes)
        {
            watch.violate(Invariant::Amplification, || broken);
        }
    }

    /// Alters an answer of a peer that has no key, as a bug at a client does.
    fn mend_answer(&mut self, bytes: &mut [u8]) {
        let Some(bug) = &self.bug else { return };
        let watch = self.watch.borrow();
        let Some(sealed) = watch.sealed.as_ref().filter(|sealed| sealed.is_answer(bytes)) else {
            return;
        };
        match (bug.sabotage, &bug.last) {
            (Sabotage::AnswersAreBelieved, _) => sealed.tag_answer(self.host, bytes),
            (Sabotage::AnswersAreOfAnyCall, Some((_, request))) => {
                sealed.turn_answer(request, bytes);
                sealed.tag_answer(self.host, bytes);
            }
            _ => {}
        }
    }

    /// A datagram goes back to where it came from.
    fn send_back(&mut self, path: Path, bytes: &[u8]) {
        let Some(bug) = &mut self.bug else { return };
        let transmit = Transmit::single(path.peer, bytes.len());
        (bug.repeats, bug.last) = (1, Some((transmit, bytes.to_vec())));
    }

    /// True if the bug has hidden the id of a reply.
    fn has_hidden(&self, part: Option<Part>) -> bool {
        self.has(Sabotage::FilterConfusesCalls) && matches!(part, Some(Part::Returned { .. }))
    }

    fn has(&self, sabotage: Sabotage) -> bool {
        self.bug.as_ref().is_some_and(|bug| bug.sabotage == sabotage)
    }
}

impl Node for Station {
    fn handle_datagram(&mut self, now: Time, path: Path, bytes: &mut [u8]) {
        if !self.watch.borrow_mut().arrives(self.host, path.peer, bytes) {
            return;
        }
        if self.is_former && is_claim(bytes) || self.is_deaf_to(bytes) {
            return;
        }
        let part = self.part(bytes);
        if self.bug.as_mut().is_some_and(|bug| bug.filters(part)) {
            return;
        }
        let path = match (&mut self.bug, part) {
            (Some(bug), Some(part)) => bug.sent_from(path, part),
            _ => path,
        };
        if self.has(Sabotage::AgeIsIgnored) {
            hide_age(part, bytes);
        }
        self.mend_answer(bytes);
        let (before, dropped, unread) = (self.judged(), self.dropped(), self.unread());
        let told = self.seal();
        match self.bug.as_mut().and_then(|bug| bug.renamed(part?, bytes)) {
            Some(mut renamed) => self.hand_over(now, path, &mut renamed),
            None => self.hand_over(now, path, bytes),
        }
        if self.unread() > unread {
            self.watch.borrow_mut().sealed.iter_mut().for_each(SealedBooks::note_unread);
        }
        self.note_answers(told, bytes);
        if self.has(Sabotage::DroppedAreAnswered) && self.dropped() > dropped {
            self.send_back(path, bytes);
        }
        if let (Some(before), Some(after)) = (before, self.judged()) {
            self.watch.borrow_mut().note_judged(bytes, before, after);
            let has_left = !after.has_forwarded_since(before) && self.has_hidden(part);
            if let Some(bug) = self.bug.as_mut().filter(|_| has_left) {
                bug.hidden.pop_back();
            }
        }
        self.note_bound();
    }

    fn handle_timeout(&mut self, now: Time) {
        self.node.handle_timeout(now);
        self.note_bound();
    }

    fn poll_transmit(&mut self, now: Time, buffer: &mut [u8]) -> Option<Transmit> {
        while self.fails_one_of > 0 {
            self.sends += 1;
            if !self.sends.is_multiple_of(self.fails_one_of) {
                break;
            }
            let failed = self.node.poll_transmit(now, buffer)?;
            if matches!(self.host, Host::Router | Host::Standby) {
                // It has placed what it could not send.
                let mut watch = self.watch.borrow_mut();
                for bytes in buffer[..failed.len].chunks(failed.segment_len.max(1)) {
                    watch.leaves(self.host, failed.to, bytes);
                }
            }
        }
        let repeated = self.bug.as_mut().and_then(|bug| bug.repeat(buffer));
        let transmit = match repeated {
            Some(transmit) => transmit,
            None => {
                let transmit = self.node.poll_transmit(now, buffer)?;
                let is_homa = self.node.is_homa();
                for bytes in buffer[..transmit.len].chunks_mut(transmit.segment_len.max(1)) {
                    let part = self.part(bytes);
                    if let (Some(bug), Some(part)) = (&mut self.bug, part) {
                        bug.change(part, bytes);
                    }
                }
                if let Some(bug) = &mut self.bug {
                    bug.keep(is_homa, (transmit, &buffer[..transmit.len]));
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
        if self.has(Sabotage::RepliesAreKept) { None } else { self.node.poll_timeout() }
    }
}

/// The part of a message in a datagram, as bugs see it.
#[derive(Clone, Copy)]
enum Part {
    /// A whole request: its id, and a byte of that.
    Request { id: u64, id_at: usize },
    /// The first packet of a request of several: its id, and whether it names its client.
    Half { id: u64, is_named: bool },
    /// A CANCEL: the id of its request.
    Cancel { id: u64 },
    /// A packet of a reply: where its payload is, and a byte that means nothing to anybody.
    Reply { payload_at: usize, idle_at: usize },
    /// A refusal: where its reason is.
    Refusal { reason_at: usize },
    /// A reply on its way through the router: its call's id.
    Returned { id: u64 },
    /// A server's report to a router.
    Feedback,
    /// A server's answer to a claim.
    Claimed,
}

impl Sabotage {
    /// True if the bug is one of such hosts.
    fn concerns(self, host: Host) -> bool {
        let is_clients = matches!(
            self,
            Self::CallNeverEnds
                | Self::SecondReplyIsGiven
                | Self::FirstReplyIsFiltered
                | Self::CopiesAreUnbounded
                | Self::RequestIsChanged
                | Self::AnswersAreBelieved
                | Self::AnswersAreOfAnyCall
                | Self::UncertainIsNoKey
                | Self::NoKeyNeverEnds
                | Self::UncertainGoAgain
        );
        let is_routers = matches!(
            self,
            Self::OnceIsCloned
                | Self::RouterIsDeaf
                | Self::RouterIsPatient
                | Self::MovedIsDropped
                | Self::ReportsAreBelieved
                | Self::FilterConfusesCalls
                | Self::HeldArePlacedAtOnce
                | Self::NameIsKept
        );
        match host {
            Host::Client(_) => is_clients,
            Host::Router | Host::Standby => is_routers || self == Self::DroppedAreAnswered,
            Host::Server(_) => !is_clients && !is_routers,
        }
    }
}

impl Part {
    fn of_r2p2(bytes: &[u8]) -> Option<Self> {
        let packet = Packet::parse(bytes).ok()?;
        match packet.message_type {
            MessageType::Request if packet.count == 1 => {
                Some(Self::Request { id: packet.rpc_id()?.0, id_at: RPC_ID_AT })
            }
            MessageType::Request if packet.index == 0 => {
                let Kind::Request { route, .. } = packet.kind else { return None };
                let is_named = route.is_some_and(|route| route.client_port.get() != 0);
                Some(Self::Half { id: packet.rpc_id()?.0, is_named })
            }
            MessageType::Cancel => Some(Self::Cancel { id: packet.rpc_id()?.0 }),
            MessageType::Response if packet.route().is_some() => {
                Some(Self::Returned { id: packet.rpc_id()?.0 })
            }
            MessageType::Response => {
                Some(Self::Reply { payload_at: EXTENDED_LEN, idle_at: SERVER_LOAD_AT })
            }
            MessageType::Drop => Some(Self::Refusal { reason_at: EXTENDED_LEN }),
            MessageType::Feedback => Some(Self::Feedback),
            MessageType::Claimed => Some(Self::Claimed),
            _ => None,
        }
    }

    fn of_homa(bytes: &[u8]) -> Option<Self> {
        let packet = homa_wire::Packet::parse(bytes).ok()?;
        let homa_wire::Body::Data { header, payload } = packet.body else { return None };
        if !packet.is_from_client() {
            let payload_at = homa_wire::DATA_LEN;
            if header.flags().has(homa_wire::DataFlags::REFUSED) {
                return Some(Self::Refusal { reason_at: payload_at });
            }
            return Some(Self::Reply { payload_at, idle_at: HOMA_WINDOW_AT });
        }
        let id = header.common.sender_id.get();
        let is_whole = payload.len() == header.message_length.get() as usize;
        is_whole.then_some(Self::Request { id, id_at: HOMA_ID_END - 1 })
    }
}

impl Bug {
    /// The way that a datagram seems to have come.
    fn sent_from(&mut self, path: Path, part: Part) -> Path {
        match part {
            Part::Request { id, .. } => {
                self.senders.insert(id, path.peer);
                let is_last = self.senders.len() == 4;
                assert!(!is_last || self.sabotage != Sabotage::ServerPanics, "a server panics");
            }
            Part::Half { id, is_named } => {
                self.halves += 1;
                self.senders.insert(id, path.peer);
                if is_named && self.sabotage == Sabotage::NamedClientsAreBelieved {
                    return Path { peer: Host::Router.address(), ..path };
                }
            }
            Part::Feedback
                if self.sabotage == Sabotage::ReportsAreBelieved
                    && !matches!(Host::at(path.peer), Some(Host::Server(_))) =>
            {
                return Path { peer: Host::Server(0).address(), ..path };
            }
            Part::Cancel { id } if self.sabotage == Sabotage::CancelsAreBelieved => {
                let peer = self.senders.get(&id).copied().unwrap_or(path.peer);
                return Path { peer, ..path };
            }
            _ => {}
        }
        path
    }

    /// A copy of a request under another id.
    fn renamed(&mut self, part: Part, bytes: &[u8]) -> Option<Vec<u8>> {
        if let (Part::Returned { id }, Sabotage::FilterConfusesCalls) = (part, self.sabotage) {
            self.hidden.push_back(id);
            let mut renamed = bytes.to_vec();
            renamed[RPC_ID_AT..][..8].fill(0);
            return Some(renamed);
        }
        let Part::Request { id, id_at } = part else { return None };
        if self.sabotage != Sabotage::DuplicateRunsTwice || self.had.insert(id) {
            return None;
        }
        let mut renamed = bytes.to_vec();
        renamed[id_at] ^= 0x80;
        Some(renamed)
    }

    /// Changes a datagram that leaves.
    fn change(&mut self, part: Part, bytes: &mut [u8]) {
        match (self.sabotage, part) {
            (Sabotage::LostFeedbackLeaksSlot, Part::Feedback) => {
                let concluded = u32::from_be_bytes(word(bytes, CONCLUDED_AT));
                bytes[CONCLUDED_AT..][..4]
                    .copy_from_slice(&concluded.saturating_sub(1).to_be_bytes());
            }
            (Sabotage::HalfRequestsHoldSlots, Part::Feedback) => {
                let received = u32::from_be_bytes(word(bytes, RECEIVED_AT));
                bytes[RECEIVED_AT..][..4]
                    .copy_from_slice(&received.wrapping_add(self.halves).to_be_bytes());
            }
            (Sabotage::BoundIsPassed, Part::Feedback) => {
                let received = word(bytes, RECEIVED_AT);
                bytes[CONCLUDED_AT..][..4].copy_from_slice(&received);
            }
            (Sabotage::CopiesAreUnbounded, Part::Request { .. }) => {
                bytes[FLAGS_AT] = Flags(bytes[FLAGS_AT]).with_clone_mark(CloneMark::Copy).0;
            }
            (Sabotage::ClaimsAreIgnored, Part::Claimed) => {
                bytes[EXTENDED_LEN] = Verdict::Renounced as u8
            }
            (Sabotage::FilterConfusesCalls, Part::Reply { .. }) => {
                let id = self.hidden.pop_front().unwrap_or_default();
                bytes[RPC_ID_AT..][..8].copy_from_slice(&id.to_be_bytes());
            }
            (Sabotage::RefusalsPromiseTooMuch, Part::Refusal { reason_at })
                if bytes.get(reason_at) == Some(&(DropReason::Uncertain as u8)) =>
            {
                bytes[reason_at] = DropReason::Overload as u8;
            }
            (Sabotage::ReplyIsChanged, Part::Reply { payload_at, .. }) => {
                self.change_reply(bytes.get_mut(payload_at));
            }
            (Sabotage::RequestIsChanged, Part::Half { .. }) => self.change_reply(bytes.last_mut()),
            (Sabotage::RunsDiffer, Part::Reply { idle_at, .. }) => {
                bytes[idle_at] = RUNS.fetch_add(1, Ordering::Relaxed)
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

    /// Keeps every eighth reply to be given again.
    fn give_again(&mut self, event: &Event) {
        let Event::Replied { id, context, server, payload } = event else { return };
        self.replies += 1;
        if self.sabotage == Sabotage::SecondReplyIsGiven && self.replies.is_multiple_of(8) {
            let (id, context, server, payload) = (*id, *context, *server, payload.clone());
            self.given = Some(Event::Replied { id, context, server, payload });
        }
    }

    /// True for every eighth reply, which shall be lost behind the watch.
    fn filters(&mut self, part: Option<Part>) -> bool {
        let is_reply = matches!(part, Some(Part::Reply { .. }));
        if self.sabotage != Sabotage::FirstReplyIsFiltered || !is_reply {
            return false;
        }
        self.replies += 1;
        self.replies.is_multiple_of(8)
    }

    fn keep(&mut self, is_homa: bool, (transmit, bytes): (Transmit, &[u8])) {
        if self.sabotage == Sabotage::OnceIsCloned {
            return self.keep_for_another(transmit, bytes);
        }
        let is_any = self.sabotage == Sabotage::AnswersAreOfAnyCall;
        if is_any && may_be_answered(is_homa, bytes) {
            self.last = Some((transmit, bytes.to_vec()));
        }
        if self.sabotage == Sabotage::AnswersAreMultiplied
            && matches!(Host::at(transmit.to), Some(Host::Client(_)))
        {
            self.repeats = 3;
            self.last = Some((transmit, bytes.to_vec()));
        }
    }

    /// Keeps a request that may run once for the server beside its own.
    fn keep_for_another(&mut self, transmit: Transmit, bytes: &[u8]) {
        let Some(Host::Server(server)) = Host::at(transmit.to) else { return };
        let is_once = Packet::parse(bytes).is_ok_and(|packet| {
            packet.message_type == MessageType::Request && !packet.flags().has(Flags::IDEMPOTENT)
        });
        if is_once {
            self.repeats = 1;
            let to = Host::Server(server ^ 1).address();
            self.last = Some((Transmit { to, ..transmit }, bytes.to_vec()));
        }
    }

    fn repeat(&mut self, buffer: &mut [u8]) -> Option<Transmit> {
        self.repeats = self.repeats.checked_sub(1)?;
        let (transmit, bytes) = self.last.as_ref()?;
        buffer[..bytes.len()].copy_from_slice(bytes);
        Some(*transmit)
    }
}

/// Makes a packet of a request one that is sent for the first time.
fn hide_age(part: Option<Part>, bytes: &mut [u8]) {
    match part {
        Some(Part::Request { id_at: RPC_ID_AT, .. } | Part::Half { .. }) => {
            bytes[FLAGS_AT] &= !Flags::RETRANSMIT;
        }
        Some(Part::Request { .. }) => {
            let header = homa_wire::DataHeader::mut_from_prefix(bytes);
            header.into_iter().for_each(|(header, _)| header.retransmit = 0);
        }
        _ => {}
    }
}

fn is_claim(bytes: &[u8]) -> bool {
    Packet::parse(bytes).is_ok_and(|packet| packet.message_type == MessageType::Claim)
}

fn word(bytes: &[u8], at: usize) -> [u8; 4] {
    [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]
}

/// The source of [`Sabotage::RunsDiffer`], in place of the seed.
static RUNS: AtomicU8 = AtomicU8::new(0);

const TYPE_AT: usize = 2;
const HOMA_TYPE_AT: usize = 11;
const HOMA_WINDOW_AT: usize = 14;
const HOMA_ID_END: usize = 28;
const RPC_ID_AT: usize = 8;
const SERVER_LOAD_AT: usize = 23;
const FLAGS_AT: usize = 20;
const RECEIVED_AT: usize = EXTENDED_LEN + 8;
const CONCLUDED_AT: usize = EXTENDED_LEN + 12;
