//! Effect of priorities: short messages through the port of a switch that long ones keep full.
//!
//! Two hosts are two network namespaces with a veth pair between. What leaves the one goes through
//! an HTB of 300 Mbit/s, which stands for a switch's port towards the other: strict priorities
//! inside its rate, by the DSCP bits, or one queue for all. Three senders share it: two keep long
//! requests outstanding, the third makes a short call every millisecond.
//!
//! The senders are told of no link of their own, as theirs are faster than the port: what the
//! receiver lets them send waits there, 200 kB from each of its two best senders, which are 10 ms.
//! Were there one sender with a link as slow as the port, its own order (SRPT) would do, and the
//! port's would not matter. Packets are jumbo frames, of which few fill the link: this is about
//! queues, not about how many packets two cores can move.

// A binary of its own: it measures latencies on two cores, and tests run beside it would make them.
#[path = "it/toy/mod.rs"]
mod toy;
#[path = "it/veth/mod.rs"]
mod veth;

use std::fmt;
use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;

use tailcut_net::clock::Clock;
use tailcut_net::datapath::{AnyDatapath, Datapath};
use tailcut_net::driver::{Driver, Wait};
use tailcut_net::udp::SegmentedSend;
use tailcut_proto::homa::{Config, Endpoint, Framing, GrantPolicy, Grants, Pull, Recovery};
use tailcut_proto::rpc::{Call, CallOptions, Event, Rpc};
use veth::{VethPair, enter, run};

#[test]
fn short_messages_overtake_long_ones_by_the_priorities_of_the_network() {
    let Some(hosts) = Hosts::create() else { return };
    for carrier in [Carrier::Udp, Carrier::Ip] {
        for ip in [NEAR_V4, NEAR_V6] {
            let measured = || {
                [Queues::ByPriority, Queues::One].map(|queues| {
                    hosts.set_queues(queues);
                    let seen = measure(&hosts, carrier, ip);
                    println!("{carrier:?} from {ip}, {queues:?}: {seen}");
                    seen
                })
            };
            let is_shown = (0..ATTEMPTS).any(|_| shows_the_difference(&measured()));
            assert!(
                is_shown,
                "{carrier:?} from {ip}: short messages are not faster by priority, or long ones do not fill the link"
            );
        }
    }
}

/// Whoever takes a core from this test for some milliseconds makes a tail of his own.
const ATTEMPTS: usize = 4;

/// The margins are wide: runs on two cores have shown in one queue a p50 of 43 times that by
/// priority, a p99 of 27 times, of 3 times while others used the machine, and 0.97 of the link.
fn shows_the_difference([by_priority, one]: &[Seen; 2]) -> bool {
    let fills = by_priority.goodput >= 0.8 && one.goodput >= 0.8;
    fills && 4 * by_priority.p50_ns < one.p50_ns && 2 * by_priority.p99_ns < one.p99_ns
}

/// Carrier of Homa's packets.
#[derive(Clone, Copy, Debug)]
enum Carrier {
    Udp,
    Ip,
}

/// Queues of the switch's port.
#[derive(Clone, Copy, Debug)]
enum Queues {
    ByPriority,
    One,
}

/// Results of a run.
struct Seen {
    /// Latency of the short calls, from when they were due.
    p50_ns: u64,
    p99_ns: u64,
    count: usize,
    /// Bytes of long requests that were answered, of those that the link's rate could carry.
    goodput: f64,
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [p50_us, p99_us] = [self.p50_ns, self.p99_ns].map(|ns| ns as f64 / 1e3);
        write!(
            f,
            "{} short calls: p50 {p50_us:.0} us, p99 {p99_us:.0} us; long: {:.3} of the link",
            self.count, self.goodput
        )
    }
}

/// Three clients on the near host, on one thread, and a server on the far one, on another.
fn measure(hosts: &Hosts, carrier: Carrier, ip: &str) -> Seen {
    let stop = AtomicBool::new(false);
    let (sender, receiver) = mpsc::channel();
    std::thread::scope(|scope| {
        let _guard = Stop(&stop);
        scope.spawn(|| {
            enter(&hosts.0.far);
            serve(
                &mut open(carrier, if ip == NEAR_V4 { FAR_V4 } else { FAR_V6 }, 1),
                &sender,
                &stop,
            );
        });
        let target = receiver.recv().expect("a server");
        let clients = scope.spawn(move || {
            enter(&hosts.0.near);
            call(open(carrier, ip, CLIENTS), target)
        });
        clients.join().expect("the clients")
    })
}

fn serve(driver: &mut Driver<Endpoint>, sender: &mpsc::Sender<SocketAddr>, stop: &AtomicBool) {
    sender.send(driver.port(0).local_address()).expect("the test");
    while !stop.load(Ordering::Relaxed) {
        let turn = driver.turn_with(|_, node, now| {
            while let Some(event) = node.poll_event() {
                if let Event::Request { id, mut payload, .. } = event {
                    payload.truncate(SHORT_LEN);
                    // A request that is gone by now needs no answer.
                    let _ = node.reply(now, id, payload);
                }
            }
        });
        let until = turn.expect("a turn").now + 10_000_000;
        driver.wait(None, Some(until)).expect("a sleep");
    }
}

/// State of the clients of a run.
struct Clients {
    target: SocketAddr,
    /// Times at which the first call was due, at which counting begins, and at which it ends.
    started: u64,
    counts_from: u64,
    ends: u64,
    /// Short calls made so far.
    made: u64,
    outstanding: [usize; CLIENTS],
    /// Latencies of short calls that were due while it counts.
    latencies_ns: Vec<u64>,
    long_bytes: usize,
}

fn call(mut driver: Driver<Endpoint>, target: SocketAddr) -> Seen {
    let started = Clock.now();
    let counts_from = started + WARM_UP_NS;
    let ends = counts_from + SPAN_NS;
    let (made, outstanding, latencies_ns, long_bytes) = (0, [0; CLIENTS], Vec::new(), 0);
    let mut clients =
        Clients { target, started, counts_from, ends, made, outstanding, latencies_ns, long_bytes };
    // Calls that were due in time are waited for, so that the slow ones are not left out.
    while Clock.now() < ends || clients.outstanding[SHORT] > 0 {
        driver.turn_with(|index, node, now| clients.work(index, node, now)).expect("a turn");
        driver.wait(None, Some(clients.due())).expect("a sleep");
        assert!(Clock.now() < ends + toy::PATIENCE_NS, "short calls are not answered");
    }
    clients.latencies_ns.sort_unstable();
    let count = clients.latencies_ns.len();
    let quantile = |percent: usize| clients.latencies_ns[(count - 1) * percent / 100];
    let goodput = clients.long_bytes as f64 * 8e9 / (RATE_BITS as f64 * SPAN_NS as f64);
    Seen { p50_ns: quantile(50), p99_ns: quantile(99), count, goodput }
}

impl Clients {
    fn work(&mut self, index: usize, node: &mut Endpoint, now: u64) {
        while let Some(event) = node.poll_event() {
            let Event::Replied { context, .. } = event else { panic!("{event:?}") };
            self.outstanding[index] -= 1;
            if index != SHORT {
                self.long_bytes +=
                    if (self.counts_from..self.ends).contains(&now) { LONG_LEN } else { 0 };
            } else if context >= self.counts_from {
                self.latencies_ns.push(now - context);
            }
        }
        if index == SHORT {
            while self.due() <= now && now < self.ends {
                self.begin(index, node, now, vec![1; SHORT_LEN]);
            }
        } else {
            while self.outstanding[index] < LONG_OUTSTANDING && now < self.ends {
                self.begin(index, node, now, vec![2; LONG_LEN]);
            }
        }
    }

    /// Time at which the next short call is due.
    fn due(&self) -> u64 {
        self.started + self.made * INTERVAL_NS
    }

    fn begin(&mut self, index: usize, node: &mut Endpoint, now: u64, payload: Vec<u8>) {
        let context = self.due();
        self.made += u64::from(index == SHORT);
        let call = Call {
            target: self.target,
            payload,
            deadline: now + toy::PATIENCE_NS,
            context,
            options: CallOptions::default(),
        };
        node.call(now, call).expect("a call");
        self.outstanding[index] += 1;
    }
}

/// Endpoints on ports of their own at an address. No GSO batches: to a switch every packet is one.
fn open(carrier: Carrier, ip: &str, count: usize) -> Driver<Endpoint> {
    let ip: IpAddr = ip.parse().expect("an address");
    let address = SocketAddr::new(ip, 0).to_string();
    let mut driver = Driver::new(Wait::Block { spin_ns: 0 }).expect("a driver");
    for _ in 0..count {
        let port: AnyDatapath = match carrier {
            Carrier::Udp => toy::port(&address, SegmentedSend::Off).into(),
            Carrier::Ip => {
                toy::ip_port(&address).expect("who makes namespaces may open raw sockets").into()
            }
        };
        // As if it had run for a second: what is sent again to a server that has just started may
        // have run before.
        let started = driver.clock().now().saturating_sub(1_000_000_000);
        driver.add(Endpoint::new(started, config(port.local_address().port())), port, None);
    }
    driver
}

/// For this link. Nothing is lost on it, and what has a low priority waits for long.
fn config(client_port: u16) -> Config {
    let framing =
        Framing { unscheduled_len: PACKET_LEN, scheduled_len: PACKET_LEN, ..Framing::default() };
    let grant_ns = u64::from(PACKET_LEN) * 8_000_000_000 / RATE_BITS;
    let policy = GrantPolicy::Sigcomm(Pull { rtt_bytes: 200_000, grant_len: PACKET_LEN, grant_ns });
    let grants = Grants { policy, overcommit: 4 };
    let silence_ns = 50_000_000;
    let recovery = Recovery {
        silence_initial_ns: silence_ns,
        silence_min_ns: silence_ns,
        silence_max_ns: silence_ns,
        gap_ns_min: silence_ns,
        ..Recovery::default()
    };
    let secret = [client_port as u8; 16];
    Config {
        framing,
        unscheduled_len: 20_000,
        grants,
        recovery,
        client_port,
        secret,
        ..Config::default()
    }
}

/// Ends the server, also when the test fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Two hosts, and the port of the switch between them.
struct Hosts(VethPair);

impl Hosts {
    /// `None` where they cannot be made or the kernel has no HTB, which is said past the test
    /// harness's capture.
    fn create() -> Option<Self> {
        let hosts = Self(VethPair::create()?);
        for (host, ip) in [(&hosts.0.near, NEAR_V6), (&hosts.0.far, FAR_V6)] {
            run("ip", &format!("-n {host} link set v{host} mtu {MTU}")).expect("jumbo frames");
            run("ip", &format!("-n {host} addr add {ip}/64 dev v{host} nodad"))
                .expect("an address");
        }
        if let Err(error) = hosts.tc("qdisc replace", "root handle 1: htb default 17") {
            let reason = "no HTB to stand for a switch (the kernel's sch_htb, iproute2's tc)";
            writeln!(std::io::stderr(), "SKIPPED: {reason}: {}", error.trim())
                .expect("standard error");
            return None;
        }
        Some(hosts)
    }

    /// Result of an operation of `tc` on the near host's interface.
    fn tc(&self, operation: &str, arguments: &str) -> Result<(), String> {
        let near = &self.0.near;
        run("tc", &format!("-n {near} {operation} dev v{near} {arguments}"))
    }

    /// Builds the port of the switch anew.
    fn set_queues(&self, queues: Queues) {
        let tc =
            |operation: &str, arguments: String| self.tc(operation, &arguments).expect("an HTB");
        let rates = format!("ceil {RATE_BITS}bit burst 20k cburst 20k quantum {MTU}");
        tc("qdisc del", "root".to_owned());
        tc("qdisc add", "root handle 1: htb default 17".to_owned());
        tc("class add", format!("parent 1: classid 1:1 htb rate {RATE_BITS}bit {rates}"));
        for level in 0..8 {
            // The rate of its own is next to nothing: what it sends it borrows, and HTB lends by
            // priority, 0 first.
            tc(
                "class add",
                format!("parent 1:1 classid 1:1{level} htb rate 8kbit prio {} {rates}", 7 - level),
            );
            tc("qdisc add", format!("parent 1:1{level} pfifo limit 10000"));
            if matches!(queues, Queues::ByPriority) {
                let (v4, v6) = (level << 5, level << 9);
                tc(
                    "filter add",
                    format!(
                        "parent 1: protocol ip pref 1 u32 match u8 {v4:#x} 0xe0 at 1 flowid 1:1{level}"
                    ),
                );
                tc(
                    "filter add",
                    format!(
                        "parent 1: protocol ipv6 pref 2 u32 match u16 {v6:#x} 0x0e00 at 0 flowid 1:1{level}"
                    ),
                );
            }
        }
    }
}

const NEAR_V4: &str = "10.77.0.1";
const FAR_V4: &str = "10.77.0.2";
const NEAR_V6: &str = "fd77::1";
const FAR_V6: &str = "fd77::2";

/// Rate of the port of the switch.
const RATE_BITS: u64 = 300_000_000;

/// MTU of the veth pair, and the bytes of data that fit with the headers of IPv6 and Homa.
const MTU: u32 = 9000;
const PACKET_LEN: u32 = 8800;

/// The first makes short calls, the others long ones.
const CLIENTS: usize = 3;
const SHORT: usize = 0;
const SHORT_LEN: usize = 100;
const INTERVAL_NS: u64 = 1_000_000;
const LONG_LEN: usize = 500_000;
/// Requests outstanding of each of the senders of long ones.
const LONG_OUTSTANDING: usize = 4;

const WARM_UP_NS: u64 = 300_000_000;
/// So long that the machine's own stalls, of some milliseconds, are less than a hundredth of it.
const SPAN_NS: u64 = 2_000_000_000;
