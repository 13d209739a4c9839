//! A fixed number of calls through the state machines alone, for instruction counts: `instructions
//! ROW CALLS`. `cargo xtask instructions` runs it with two numbers of calls; the difference is what
//! the calls cost without the start.
//!
//! | row | what a call is |
//! |---|---|
//! | `direct` | R2P2, 32 B each way, 16 outstanding |
//! | `routed` | the same through a router with `jbsq:16` |
//! | `homa` | Homa, 100 B each way, 16 outstanding |
//! | `direct-single`, `homa-single` | as these two, one outstanding |
//! | `direct-sealed`, `homa-sealed` | the same, sealed |
//! | `direct-large`, `homa-large` | 100 kB each way, one outstanding |
//! | `place-POLICY` | a placement over 16 workers by a scheduler, whose workers conclude what they get after 8 more; a clone is two |
//!
//! What a placement takes by itself, without its conclusions and reports, is what callgrind
//! collects with `--toggle-collect='*instructions::offer*'`.

use std::hint::black_box;
use std::net::SocketAddr;
use std::sync::Arc;

use tailcut_proto::node::{GSO_BYTES_MAX, Node, Path, Time};
use tailcut_proto::policy::{Draws, PolicySpec, WorkerId};
use tailcut_proto::router::{Router, RouterConfig, ServerConfig, Speaks};
use tailcut_proto::rpc::{Call, CallOptions, Event, Rpc};
use tailcut_proto::scheduler::{Cloning, Outcome, Scheduler, Workers};
use tailcut_proto::sealed::{Cipher, EpochKey, HopKey, Keys, Role, Sealing, Secret};
use tailcut_proto::{homa, r2p2};

const SECOND: Time = 1_000_000_000;

/// The policies whose placements are compared.
const PLACED: [&str; 7] = [
    "jbsq:2",
    "racksched",
    "netclone",
    "netclone+racksched",
    "laedge:2",
    "jbsq:2+clone",
    "auto-clone",
];

/// Rows of calls.
const CALLED: [&str; 9] = [
    "direct",
    "routed",
    "homa",
    "direct-single",
    "homa-single",
    "direct-sealed",
    "homa-sealed",
    "direct-large",
    "homa-large",
];

/// A client and a server, and a router before the server where there is one.
struct Network<E> {
    now: Time,
    client: E,
    server: E,
    router: Option<Router>,
    buffer: Vec<u8>,
}

/// Node with an address in the benchmark.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Client,
    Router,
    Server,
}

fn main() {
    let mut arguments = std::env::args().skip(1).filter(|argument| !argument.starts_with("--"));
    // `cargo test` and `cargo bench` run it without arguments: briefly.
    let row = arguments.next();
    let calls: u64 = arguments.next().map_or(64, |text| text.parse().expect("a number of calls"));
    for name in CALLED {
        if row.as_ref().is_none_or(|row| row == name) {
            run(name, calls);
            println!("{name}: {calls} calls");
        }
    }
    for policy in PLACED {
        let name = format!("place-{policy}");
        if row.as_ref().is_none_or(|row| *row == name) {
            let clones = place(policy, calls);
            println!("{name}: {calls} placements, {clones} of them clones");
        }
    }
}

fn run(row: &str, calls: u64) {
    let r2p2 = |secret, seal| {
        let (secret, credit_bytes) = ([secret; 16], 400_000);
        r2p2::Endpoint::new(
            0,
            r2p2::Config { secret, credit_bytes, seal, ..r2p2::Config::default() },
        )
    };
    let homa = |secret, seal| {
        let secret = [secret; 16];
        homa::Endpoint::new(0, homa::Config { secret, seal, ..homa::Config::default() })
    };
    let [client, server] = match row.ends_with("sealed") {
        true => [Role::Client(1), Role::Server].map(|role| Some(sealing(role))),
        false => [None, None],
    };
    let is_homa = row.starts_with("homa");
    let (outstanding, len) = match (row.ends_with("large"), is_homa) {
        (true, _) => (1, 100_000),
        (false, true) => (16, 100),
        (false, false) => (16, 32),
    };
    let outstanding = if row.ends_with("single") { 1 } else { outstanding };
    let router = (row == "routed").then(router);
    if is_homa {
        Network::new(homa(1, client), homa(2, server), router).calls(calls, outstanding, len)
    } else {
        Network::new(r2p2(1, client), r2p2(2, server), router).calls(calls, outstanding, len)
    }
}

fn sealing(role: Role) -> Sealing {
    let (secret, hop) = (Secret::new([1; 32]), HopKey::default());
    let epochs = vec![EpochKey { epoch: 1, from_ms: 1, secret, hop }];
    let (group, cipher) = ("bench".to_owned(), Cipher::Aes128Gcm);
    let group = Keys { role: Role::Server, group, cipher, reset: None, epochs };
    let keys = match role {
        Role::Server => group,
        role => group.for_role(role).expect("a server's keys are all others'"),
    };
    Sealing::new(Arc::new(keys), SECOND)
}

/// Places so many items, and tells how many of them on two workers.
fn place(policy: &str, count: u64) -> u64 {
    let policy: PolicySpec = policy.parse().expect("a policy");
    let mut scheduler = Scheduler::new(policy.build(), 16);
    let workers: Vec<WorkerId> = (0..16).map(|_| scheduler.add_worker()).collect();
    let (mut draws, mut concluded) = (Draws::new(1), 0);
    let mut placed: [Option<Workers>; 8] = [None; 8];
    for item in 0..count {
        let place = (item % placed.len() as u64) as usize;
        if let Some(workers) = placed[place] {
            for worker in workers {
                scheduler.conclude(worker);
                scheduler.set_reported(worker, 1, 0);
                concluded += 1;
            }
        }
        // One in 16 reports that somebody waits, so that policies that go by that take both ways.
        scheduler.set_reported(workers[place], 1, u32::from(item % 16 == 0));
        placed[place] = Some(offer(&mut scheduler, item, draws.word()));
    }
    let outstanding = placed.into_iter().flatten().flatten().count() as u64;
    concluded + outstanding - count
}

/// A placement alone, kept apart so that its instructions can be counted by themselves.
#[inline(never)]
fn offer(scheduler: &mut Scheduler<u64>, item: u64, random: u64) -> Workers {
    match scheduler.offer(item, Cloning::Allowed, Time::MAX, random) {
        Outcome::Placed(workers, _) => workers,
        other => panic!("{other:?}"),
    }
}

fn router() -> Router {
    let servers = vec![ServerConfig { addr: Place::Server.address(), speaks: Speaks::Extension }];
    let policy = "jbsq:16".parse().expect("a policy");
    Router::new(0, RouterConfig { policy, servers, ..RouterConfig::default() }).expect("a router")
}

impl Place {
    fn address(self) -> SocketAddr {
        ([10, 0, 0, 1 + self as u8], 8000).into()
    }
}

impl<E: Rpc> Network<E> {
    fn new(client: E, server: E, router: Option<Router>) -> Self {
        Self { now: SECOND, client, server, router, buffer: vec![0; GSO_BYTES_MAX] }
    }

    fn calls(&mut self, count: u64, outstanding: u64, len: usize) {
        let target = if self.router.is_some() { Place::Router } else { Place::Server }.address();
        let (mut begun, mut ended) = (0, 0);
        while ended < count {
            while begun < count.min(ended + outstanding) {
                let mut payload = self.client.buffer();
                payload.resize(len, 7);
                let (deadline, options) = (self.now + SECOND, CallOptions::default());
                let call = Call { target, payload, deadline, context: begun, options };
                self.client.call(self.now, call).expect("room for a call");
                begun += 1;
            }
            self.now += 5000;
            ended += self.turn();
        }
    }

    /// Everybody's turn once; how many calls have ended.
    fn turn(&mut self) -> u64 {
        self.carry(Place::Client);
        self.carry(Place::Router);
        while let Some(event) = self.server.poll_event() {
            if let Event::Request { id, payload, .. } = event {
                self.server.reply(self.now, id, payload).expect("a live request");
            }
        }
        self.carry(Place::Server);
        self.carry(Place::Router);
        let mut ended = 0;
        while let Some(event) = self.client.poll_event() {
            match event {
                Event::Replied { payload, .. } => self.client.recycle(black_box(payload)),
                other => panic!("{other:?}"),
            }
            ended += 1;
        }
        ended
    }

    fn carry(&mut self, from: Place) {
        let (now, mut buffer) = (self.now, std::mem::take(&mut self.buffer));
        let Some(node) = self.node(from) else {
            self.buffer = buffer;
            return;
        };
        if node.poll_timeout().is_some_and(|due| due <= now) {
            node.handle_timeout(now);
        }
        while let Some(transmit) =
            self.node(from).and_then(|node| node.poll_transmit(now, &mut buffer))
        {
            let places = [Place::Client, Place::Router, Place::Server];
            let to = places.into_iter().find(|place| place.address() == transmit.to);
            let to = self.node(to.expect("an address")).expect("a node");
            let path = Path::from(from.address());
            for datagram in buffer[..transmit.len].chunks_mut(transmit.segment_len) {
                to.handle_datagram(now, path, datagram);
            }
        }
        self.buffer = buffer;
    }

    fn node(&mut self, place: Place) -> Option<&mut dyn Node> {
        match place {
            Place::Client => Some(&mut self.client),
            Place::Router => self.router.as_mut().map(|router| router as &mut dyn Node),
            Place::Server => Some(&mut self.server),
        }
    }
}
