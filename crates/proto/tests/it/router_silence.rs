//! Detection of servers that are gone, by a router: under load, with pauses, and when everybody is
//! silent.

use tailcut_proto::node::Time;
use tailcut_proto::router::{RouterConfig, ServerConfig, ServerState, Speaks};

use super::router_bench::{Ask, Bench, FakeServer, MS, Sent, client, server};

/// Fate of a server for some time.
#[derive(Clone, Copy, PartialEq)]
enum Fate {
    /// It answers probes at once and requests after [`SERVICE`].
    Well,
    /// It does nothing, and then all that came meanwhile.
    Paused,
    /// Everything that comes to it is lost.
    Gone,
}

/// Servers behind a router with a load, each with what it has not done yet.
struct Pool {
    bench: Bench,
    servers: Vec<FakeServer>,
    waiting: Vec<Vec<Vec<u8>>>,
    /// Ends of the services that run.
    running: Vec<Vec<Time>>,
    next_id: u64,
}

impl Pool {
    fn new(count: u16) -> Self {
        let bench = Bench::new(Speaks::Extension, 0, |config| {
            let RouterConfig { silent_ns, silent_ns_max, .. } = RouterConfig::default();
            (config.silent_ns, config.silent_ns_max) = (silent_ns, silent_ns_max);
            config.servers = (0..count)
                .map(|index| ServerConfig { addr: server(index), speaks: Speaks::Extension })
                .collect();
        });
        let mut pool = Self {
            bench,
            servers: (0..count).map(FakeServer::new).collect(),
            waiting: vec![Vec::new(); count.into()],
            running: vec![Vec::new(); count.into()],
            next_id: 1,
        };
        pool.run(20 * MS, 0, |_| Fate::Well);
        pool
    }

    /// Lets time pass with so many requests in every step of [`STEP`]; the time after which the
    /// first server was silent, if one was.
    fn run(&mut self, time: Time, load: usize, fate: impl Fn(usize) -> Fate) -> Option<Time> {
        let started_at = self.bench.now;
        let mut silent_after = None;
        while self.bench.now < started_at + time {
            let mut sent = self.bench.advance(STEP);
            for _ in 0..load {
                let request = self.request();
                sent.extend(self.bench.send(client(), &request));
            }
            self.deliver(sent);
            for index in 0..self.servers.len() {
                self.serve(index, fate(index));
            }
            let is_silent = self.bench.states().contains(&ServerState::Silent);
            silent_after = silent_after.or(is_silent.then(|| self.bench.now - started_at));
        }
        silent_after
    }

    fn request(&mut self) -> Vec<u8> {
        self.next_id += 1;
        Ask { deadline_us: 1_000_000, ..Ask::id(self.next_id) }.bytes()
    }

    fn deliver(&mut self, sent: Vec<Sent>) {
        for Sent { to, bytes, .. } in sent {
            if let Some(index) = self.servers.iter().position(|server| server.addr == to) {
                self.waiting[index].push(bytes);
            }
        }
    }

    fn serve(&mut self, index: usize, fate: Fate) {
        if fate != Fate::Well {
            if fate == Fate::Gone {
                self.waiting[index].clear();
            }
            return;
        }
        let now = self.bench.now;
        let mut answers = Vec::new();
        for bytes in std::mem::take(&mut self.waiting[index]) {
            match self.servers[index].take(&bytes) {
                Some(feedback) => answers.push(feedback),
                None => self.running[index].push(now + SERVICE),
            }
        }
        let done = self.running[index].extract_if(.., |end| *end <= now).count();
        if done > 0 {
            answers.push(self.servers[index].conclude(done as u32));
        }
        for feedback in answers {
            let addr = self.servers[index].addr;
            let sent = self.bench.send(addr, &feedback);
            self.deliver(sent);
        }
    }
}

#[test]
fn a_server_that_is_gone_under_load_is_out_within_30_ms() {
    let mut pool = Pool::new(4);
    assert_eq!(pool.run(100 * MS, 3, |_| Fate::Well), None);
    let seen = pool.run(100 * MS, 3, |index| if index == 1 { Fate::Gone } else { Fate::Well });
    assert!((20 * MS..30 * MS).contains(&seen.expect("it is seen")), "{seen:?}");
    assert_eq!(
        pool.bench.states().iter().filter(|state| **state == ServerState::Silent).count(),
        1
    );
    // It is back with the first probe that it answers.
    pool.run(15 * MS, 3, |_| Fate::Well);
    assert_eq!(pool.bench.states(), [ServerState::InService; 4]);
}

#[test]
fn a_server_that_is_gone_without_load_is_out_after_its_probes() {
    let mut pool = Pool::new(4);
    let seen = pool.run(100 * MS, 0, |index| if index == 1 { Fate::Gone } else { Fate::Well });
    assert!((20 * MS..45 * MS).contains(&seen.expect("it is seen")), "{seen:?}");
}

#[test]
fn pauses_of_20_ms_are_no_silence_at_any_load() {
    for load in [0, 1, 3, 6] {
        let mut pool = Pool::new(4);
        for round in 0..40 {
            let paused = |index| if index == round % 4 { Fate::Paused } else { Fate::Well };
            assert_eq!(pool.run(20 * MS, load, paused), None, "round {round} at {load}");
            assert_eq!(pool.run(13 * MS, load, |_| Fate::Well), None, "after {round} at {load}");
        }
    }
}

#[test]
fn a_server_that_pauses_for_long_is_given_longer_after_the_first_time() {
    let mut pool = Pool::new(4);
    let paused = |index| if index == 2 { Fate::Paused } else { Fate::Well };
    assert!(pool.run(60 * MS, 3, paused).is_some(), "the first pause is a surprise");
    pool.run(100 * MS, 3, |_| Fate::Well);
    assert_eq!(pool.run(60 * MS, 3, paused), None, "the second is not");
}

/// Silence of all is rather that of the router's own network: then it gives them time.
#[test]
fn half_of_the_servers_are_kept_until_the_longest_silence() {
    let mut pool = Pool::new(4);
    pool.run(150 * MS, 3, |_| Fate::Gone);
    let silent = |pool: &Pool| {
        pool.bench.states().iter().filter(|state| **state == ServerState::Silent).count()
    };
    assert_eq!(silent(&pool), 2);
    pool.run(100 * MS, 3, |_| Fate::Gone);
    assert_eq!(silent(&pool), 4);
}

#[test]
fn a_server_gets_requests_with_its_first_answer() {
    let mut pool = Pool::new(2);
    let late = ServerConfig { addr: server(2), speaks: Speaks::Extension };
    pool.servers.push(FakeServer::new(2));
    pool.waiting.push(Vec::new());
    pool.running.push(Vec::new());
    pool.bench.router.add_server(pool.bench.now, late).unwrap();
    let away = |index| if index == 2 { Fate::Gone } else { Fate::Well };
    pool.run(10 * MS, 1, away);
    assert_eq!(pool.bench.states()[2], ServerState::Starting);
    assert_eq!(pool.bench.router.status().servers[2].placed, 0);
    pool.run(10 * MS, 1, |_| Fate::Well);
    assert!(pool.bench.router.status().servers[2].placed > 0);
}

/// A router that starts knows nobody: what comes then waits for the first answer, and is refused
/// where none comes.
#[test]
fn the_first_requests_wait_for_the_first_answer() {
    for (fate, placed) in [(Fate::Well, 1), (Fate::Gone, 0)] {
        let mut pool = Pool::new(0);
        let config = ServerConfig { addr: server(0), speaks: Speaks::Extension };
        pool.servers.push(FakeServer::new(0));
        pool.waiting.push(Vec::new());
        pool.running.push(Vec::new());
        pool.bench.router.add_server(pool.bench.now, config).unwrap();
        let request = pool.request();
        assert_eq!(pool.bench.send(client(), &request), []);
        pool.run(1100 * MS, 0, |_| fate);
        assert_eq!(pool.bench.router.status().servers[0].placed, placed);
        assert_eq!(pool.bench.metrics().refused.total(), 1 - placed);
    }
}

const STEP: Time = MS / 4;
const SERVICE: Time = MS;
