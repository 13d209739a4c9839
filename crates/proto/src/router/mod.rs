//! The R2P2 router: takes the first packet of each request, picks a server, and gets out of the
//! way.
//!
//! | a request is | event | then |
//! |---|---|---|
//! | new | a server has room | placed: forwarded with the placement written into its route |
//! | new | every server is at the bound | held |
//! | new | no server in service, queue or table full, uncertain | refused by a DROP |
//! | held | a server has room and it is the first in the queue | placed |
//! | held | its deadline or `hold_ns_max` passes | refused: expired |
//! | held | it has waited for as long as the overload rule lets it | refused: overload |
//! | held | cancelled | released |
//! | new | the router is closed | refused: stopping |
//! | held | its id arrives again | held, the newcomer is dropped |
//! | refused, not idempotent | its id arrives again, within twice `transit_ns_max` | refused again |
//! | placed | its id arrives again | forwarded to the same server again, in service or not |
//! | placed | its id arrives again, it is idempotent, and the server is silent or removed | placed anew |
//! | placed | its id arrives again, it may run once, and the server is removed | refused: uncertain |
//! | placed | cancelled | the cancel is forwarded to the server |
//! | placed | its deadline passes | released |
//!
//! What the server answers goes to the client directly, unless the router filters replies
//! (`replies`); the router sees only feedback, from which
//! it knows what each server has: absolutely from tailcut servers, by leases from those of
//! version 1. A router speaks both generations. Each has its own scheduler, because a server of the
//! reference would take the extension for payload: tailcut requests go to tailcut servers only,
//! version 1 requests to version 1 servers, or to tailcut servers where no version 1 server is in
//! service. Both schedulers number the servers alike.
//!
//! Where the policy clones, a request that is idempotent goes to two servers, as `cloning` says;
//! both answer the client, which takes the first reply. Any other goes to the first of them alone.
//!
//! Invariant: as long as the id is remembered (to the deadline, at most `lifetime_ns_max`), a
//! request that is not idempotent reaches one server only. A server's worker in a scheduler has the
//! server's outstanding count whenever the router decides. No datagram is answered with more than
//! three times its length.

mod arrival;
mod busy;
mod census;
mod claims;
mod cloning;
mod config;
mod counts;
mod crew;
mod fleet;
mod held;
mod history;
mod ids;
mod lane;
mod leases;
mod metrics;
pub(crate) mod outbox;
mod outliers;
mod pace;
mod probes;
mod queues;
mod replies;
mod requests;
mod server;
mod servers;
mod shared;
mod timings;
mod tuning;
mod upstream;
mod workers;

pub use config::{
    CookieConfig, FilterAt, Forward, RouterConfig, RouterError, ServerConfig, Speaks,
};
pub use counts::{AT_SERVER_MAX, IN_FLIGHT_MAX};
pub use metrics::{
    MalformedCounts, Refused, RouterMetrics, RouterStatus, ServerState, ServerStatus,
};
pub use pace::OutlierConfig;
pub use shared::{SharedCounts, SharedPlaces};

use tailcut_wire::r2p2::{MessageType, Packet};

use self::claims::Claims;
use self::fleet::Fleet;
use self::history::History;
use self::ids::Table;
use self::lane::Lane;
use self::outbox::{Datagram, Outbox};
use self::outliers::Outliers;
use self::queues::Queues;
use self::replies::FilterId;
use self::server::Server;
use self::shared::Shared;
use self::upstream::Upstreams;
use self::workers::AutoBound;
use crate::histogram::Histogram;
use crate::node::{Node, Path, Time, Transmit, is_unanswerable};
use crate::peer::cookies::Cookies;
use crate::policy::{Draws, QueueModel};
use crate::reply_filter::ReplyFilter;
use crate::sealed::{ChangedKeys, ClientEpoch, Keys, LostKeys, RouterLimits, RouterSeal};

/// A router between clients and servers. See the module for what it does and [`RouterConfig`] for
/// its limits.
#[derive(Debug)]
pub struct Router {
    /// The configuration; its servers are in `servers`.
    config: RouterConfig,
    /// Times before which it knows nothing.
    history: History,
    /// The servers.
    fleet: Fleet,
    /// The schedulers, in which requests are held.
    queues: Queues,
    /// Requests placed or held that have an RPC id.
    table: Table,
    /// Requests that another router may have placed, while the servers are asked.
    claims: Claims,
    /// The filter of replies, where they come back through the router.
    filter: Option<ReplyFilter<FilterId>>,
    /// Routers before this one.
    upstreams: Upstreams,
    /// The data plane before it, where there is one.
    shared: Shared,
    /// Datagrams to send.
    outbox: Outbox,
    /// The cookies that clients show, where they must.
    cookies: Cookies,
    /// The seal, where packets are sealed.
    seal: Option<Box<RouterSeal>>,
    /// Every random choice.
    draws: Draws,
    /// The bound that is derived, where the policy asks for it.
    auto: Option<AutoBound>,
    /// Servers that are slower than the others.
    outliers: Outliers,
    /// New requests are refused: it is to end.
    is_closed: bool,
    /// Counters since the start.
    metrics: RouterMetrics,
}

impl Router {
    /// A router that starts at `now` with the servers of the configuration.
    ///
    /// # Errors
    /// When a field is out of its range, or the servers are too many or two share an address.
    pub fn new(now: Time, mut config: RouterConfig) -> Result<Self, RouterError> {
        config.check()?;
        let servers = std::mem::take(&mut config.servers);
        let mut draws = Draws::new(config.seed);
        let cookies = config.cookies.make(&mut draws);
        let mut router = Self {
            history: History::new(now, config.transit_ns_max),
            fleet: Fleet::new(draws.word()),
            queues: Queues::new(&config),
            table: Table::new(config.table_len_max, config.remembered_ns_max(), draws.word()),
            claims: Claims::default(),
            filter: replies::filter_of(&config),
            // Another run of the counts, unless the seed is the same.
            upstreams: Upstreams::new((config.seed >> 32) as u32),
            shared: Shared::default(),
            outbox: Outbox::new(config.outbox_len_max, config.queue_len_max),
            seal: config.seal.as_ref().map(|sealing| {
                let limits = RouterLimits {
                    clients_max: config.table_len_max,
                    lifetime_ns_max: config.lifetime_ns_max,
                };
                Box::new(RouterSeal::new(sealing, draws.word(), limits))
            }),
            cookies,
            draws,
            auto: (config.policy.model() == QueueModel::Bounded(None)).then(AutoBound::new),
            outliers: Outliers::default(),
            is_closed: false,
            metrics: RouterMetrics::default(),
            config,
        };
        for server in servers {
            router.add_server(now, server)?;
        }
        Ok(router)
    }

    /// The router as it is now. Allocates; not for the data path.
    pub fn status(&self) -> RouterStatus {
        RouterStatus {
            servers: self.servers().collect(),
            queue_len: self.queue_len(),
            table_len: self.table_len(),
            bound: self.bound(),
            metrics: self.metrics(),
        }
    }

    /// The servers as they are now, the first of them first.
    pub fn servers(&self) -> impl Iterator<Item = ServerStatus> + '_ {
        self.fleet.in_order().map(Server::status)
    }

    /// Requests held.
    pub fn queue_len(&self) -> usize {
        self.queues.len()
    }

    /// RPC ids remembered.
    pub fn table_len(&self) -> usize {
        self.table.len()
    }

    /// The policy's bound, where it has one; of `jbsq:auto` the one that there would be if the
    /// queue were full.
    pub fn bound(&self) -> Option<u32> {
        self.queues[Lane::Extension].bound_at(self.config.queue_len_max)
    }

    /// The counters.
    pub fn metrics(&self) -> RouterMetrics {
        let filter_evicted = self.filter.as_ref().map_or(0, ReplyFilter::evicted);
        RouterMetrics { oversize: self.outbox.oversize_count, filter_evicted, ..self.metrics }
    }

    /// Times that placed requests were held; 0 for those that were not.
    pub fn hold_times(&self) -> &Histogram {
        &self.queues.hold_times
    }

    /// Refuses new requests from now on. What is held or placed is
    /// still accounted for, and its copies and cancels still find their way.
    pub fn close(&mut self) {
        self.is_closed = true;
        self.close_shared();
    }

    /// Queues a datagram for a server or router, sealed where packets are. The caller has checked
    /// that there is room.
    fn send(&mut self, datagram: Datagram) {
        self.send_to(datagram, None);
    }

    /// As [`Router::send`], for the client that the seal has told where there is one.
    fn send_to(&mut self, mut datagram: Datagram, client: Option<ClientEpoch>) {
        if let Some(seal) = &mut self.seal {
            let to = (datagram.to, client);
            let is_sealed = seal.seal(self.history.turned_at(), to, &mut datagram.bytes);
            self.metrics.seal = seal.metrics();
            // What cannot be sealed for whom it is for does not go in the clear.
            if !is_sealed {
                self.outbox.recycle(datagram.bytes);
                return;
            }
        }
        self.outbox.push(datagram);
    }

    /// Answers a packet that the seal could not open, if it is a request of whose epoch there is no
    /// key.
    #[cold]
    fn answer_no_key(&mut self, path: Path, bytes: &[u8]) {
        let answer = self.seal.as_mut().and_then(|seal| seal.answer(path.peer, bytes));
        let Some((to, answer)) = answer else { return };
        if !is_unanswerable(to.ip()) && self.outbox.room() > 0 {
            let bytes = self.outbox.buffer(&answer);
            self.outbox.push(Datagram { to, from: path.local.into(), bytes });
        }
    }

    /// Nothing is held, placed and not known to be concluded, or to be sent: a closed router can
    /// end. What a silent server has is not waited for.
    pub fn is_idle(&self) -> bool {
        self.queue_len() == 0
            && self.fleet.iter().all(|server| server.is_silent || server.outstanding() == 0)
            && self.outbox.is_empty()
    }
}

impl Node for Router {
    fn handle_datagram(&mut self, now: Time, path: Path, bytes: &mut [u8]) {
        self.history.note_turn(now);
        self.metrics.received += 1;
        // Before it is opened: what the data plane has taken of that server must not be taken
        // again.
        if self.seal.is_some() {
            self.learn_heard(path.peer, bytes);
        }
        let open_len = match &mut self.seal {
            None => bytes.len(),
            Some(seal) => {
                let opened = seal.open(now, path.peer, bytes);
                self.metrics.seal = seal.metrics();
                let Some(len) = opened else { return self.answer_no_key(path, bytes) };
                len
            }
        };
        let packet = match Packet::parse(&bytes[..open_len]) {
            Ok(packet) => packet,
            Err(malformed) => return self.metrics.malformed.count(malformed),
        };
        // By the counts of before, a request would be placed where the data plane has filled a
        // server.
        self.take_over(now);
        match packet.message_type {
            MessageType::Request => self.handle_request(now, path, &packet, bytes),
            MessageType::Response => self.handle_reply(now, path, &packet, bytes),
            MessageType::Feedback => self.handle_feedback(now, path, &packet),
            MessageType::Claimed => self.handle_claimed(now, path, &packet),
            MessageType::Cancel => self.handle_cancel(now, path.peer, &packet, bytes),
            MessageType::Probe => self.handle_probe(now, path, &packet),
            MessageType::Claim => self.handle_claim(now, path, &packet),
            MessageType::Ack if packet.is_extended() => self.handle_ack(now, path, &packet),
            _ => self.metrics.unexpected += 1,
        }
        if self.seal.is_some() {
            self.share_names(path.peer);
        }
        self.share_held(now);
    }

    fn handle_wall_clock(&mut self, now: Time, unix_ns: u64) {
        if let Some(seal) = &mut self.seal {
            seal.set_clock(now, unix_ns);
            self.share_seal(now);
        }
    }

    fn update_keys(&mut self, now: Time, keys: &Keys) -> Result<(), ChangedKeys> {
        self.seal.as_mut().map_or(Ok(()), |seal| seal.update_keys(now, keys))?;
        self.share_seal(now);
        Ok(())
    }

    fn lost_keys(&self) -> LostKeys {
        self.seal.as_ref().map_or_else(LostKeys::default, |seal| seal.lost_keys())
    }

    fn handle_timeout(&mut self, now: Time) {
        self.history.note_turn(now);
        self.take_over(now);
        self.serve_servers(now);
        self.expire_claims(now);
        self.check_outliers(now);
        self.pump(now);
        self.share_held(now);
    }

    fn poll_transmit(&mut self, now: Time, buffer: &mut [u8]) -> Option<Transmit> {
        // Reports free slots for many held requests at once: they are placed here, so that no
        // packet costs as much as all of them.
        if self.queues.pump_at.is_some_and(|at| at <= now) && self.outbox.is_empty() {
            self.pump(now);
            self.share_held(now);
        }
        self.outbox.poll(buffer).or_else(|| self.write_report(buffer))
    }

    fn poll_timeout(&self) -> Option<Time> {
        // What may be placed is placed as packets are polled.
        let timers = [
            self.fleet.next_due(),
            self.queues.next_expiry(),
            self.claims.next_expiry(),
            self.held_again_at(),
        ];
        timers.into_iter().flatten().min()
    }
}
