//! Long messages against datagrams in bare GSO batches: goodput of 1 MB and 8 MB, one after the
//! other and many at once, over each transport.
//!
//! Slices of the baseline and of tailcut alternate on the same two pinned cores. Each row prints
//! the median of the ratios with its quartiles, the median and the p99 of what a call took over all
//! slices, and how much of what the client sent it had sent before, in percent: on an idle host
//! nothing is lost. A slice begins with a new client and a new server, whose first rounds of calls,
//! each of as many as are outstanding, touch fresh memory: two are not counted, and the longest
//! call of the first is the column "cold". `TAILCUT_BENCH_QUICK=1` runs every row briefly, a name
//! as argument those that contain it. `--alone` leaves the baseline out, for a profile.

#[path = "../../net/benches/support/mod.rs"]
mod support;

use std::collections::VecDeque;
use std::sync::{Arc, Barrier};

use support::*;
use tailcut::{Client, ClientBuilder, Config, DatapathKind, Pending, Protocol, ServerBuilder};
use tailcut_net::affinity;
use tailcut_net::clock::Clock;

fn main() {
    let is_quick = std::env::var_os("TAILCUT_BENCH_QUICK").is_some()
        || !std::env::args().any(|argument| argument == "--bench");
    let plan = if is_quick {
        Plan { pairs: 3, slice_ns: 40_000_000 }
    } else {
        Plan { pairs: 11, slice_ns: 200_000_000 }
    };
    let only = std::env::args().skip(1).find(|argument| !argument.starts_with("--"));
    let is_alone = std::env::args().any(|argument| argument == "--alone");
    let wanted = |name: &str| only.as_ref().is_none_or(|only| name.contains(only.as_str()));
    println!(
        "{:<26} {:>9} {:>9} {:>6} {:>11} {:>9} {:>9} {:>9} {:>9}",
        "GB/s",
        "baseline",
        "tailcut",
        "ratio",
        "quartiles",
        "p50 us",
        "p99 us",
        "cold us",
        "again %"
    );
    affinity::pin_to(CLIENT_CORE).expect("two cores");
    for carrier in CARRIERS {
        for &(load, outstanding, len, is_copied) in &LOADS {
            let row = Row { carrier, outstanding, len, is_copied };
            let name = format!("{} {load}", carrier.name);
            if wanted(&name) {
                run(&name, (&plan, is_alone), row);
            }
        }
    }
}

/// Protocol and datapath that carry messages.
#[derive(Clone, Copy)]
struct Carrier {
    name: &'static str,
    protocol: Protocol,
    datapath: DatapathKind,
}

/// A row of the table.
#[derive(Clone, Copy)]
struct Row {
    carrier: Carrier,
    outstanding: usize,
    len: usize,
    is_copied: bool,
}

/// Results of a slice.
#[derive(Default)]
struct Shown {
    goodput: f64,
    took_ns: Vec<u64>,
    /// The longest call of the first round.
    cold_ns: u64,
    again: Again,
}

/// Bytes of payload that the client sent: all of them, and those that it had sent before.
#[derive(Clone, Copy, Default)]
struct Again {
    sent: f64,
    resent: f64,
}

fn run(name: &str, (plan, is_alone): (&Plan, bool), row: Row) {
    let (mut ratios, mut took_ns, mut again) = (Vec::new(), Vec::new(), Again::default());
    let mut cold_ns = Vec::new();
    for _ in 0..plan.pairs {
        let bare = if is_alone { 1.0 } else { bare_stream(plan.slice_ns) * 1024.0 / 1e3 };
        let shown = slice(plan.slice_ns, row);
        ratios.push((shown.goodput / bare, bare, shown.goodput));
        took_ns.extend(shown.took_ns);
        cold_ns.push(shown.cold_ns as f64);
        again.sent += shown.again.sent;
        again.resent += shown.again.resent;
    }
    let (bare, ours) = (median(ratios.iter().map(|r| r.1)), median(ratios.iter().map(|r| r.2)));
    ratios.sort_by(|a, b| a.0.total_cmp(&b.0));
    took_ns.sort_unstable();
    let ratio = |quarter: usize| ratios[(ratios.len() - 1) * quarter / 4].0;
    let took_us = |percent: usize| took_ns[(took_ns.len() - 1) * percent / 100] as f64 / 1e3;
    println!(
        "{name:<26} {bare:>9.2} {ours:>9.2} {:>6.2} {:>11} {:>9.0} {:>9.0} {:>9.0} {:>9.2}",
        ratio(2),
        format!("{:.2}-{:.2}", ratio(1), ratio(3)),
        took_us(50),
        took_us(99),
        median(cold_ns.into_iter()) / 1e3,
        100.0 * again.resent / again.sent.max(1.0)
    );
}

/// Calls with long requests and short replies, for a slice.
fn slice(slice_ns: u64, row: Row) -> Shown {
    let Carrier { protocol, datapath, .. } = row.carrier;
    let builder = ServerBuilder::new().busy_poll().protocol(protocol).datapath(datapath);
    let mut server = builder.bind("127.0.0.1:0").expect("a server");
    let (target, stop, start) = (server.local_address(), server.stop_handle(), Barrier::new(2));
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            affinity::pin_to(SERVER_CORE).expect("two cores");
            start.wait();
            shielded(|| {
                server.run(|request| {
                    // A client that has gone needs no answer.
                    let _ = request.reply_in_place(|bytes| bytes.truncate(8));
                })
            })
            .expect("the server's calls");
        });
        start.wait();
        // A server that has just started refuses what may have run before it.
        rest(SETTLING_NS);
        let builder = ClientBuilder::new().busy_poll().protocol(protocol).datapath(datapath);
        let client = builder.connect(target).expect("a client");
        let shown = shielded(|| calls(&client, slice_ns, row));
        stop.stop();
        thread.join().expect("the server");
        shown
    })
}

/// Keeps calls outstanding.
fn calls(client: &Client, slice_ns: u64, row: Row) -> Shown {
    let message = Arc::new(vec![7; row.len]);
    let mut shown = Shown::default();
    if row.outstanding == 1 {
        return calls_in_turn(client, slice_ns, &message);
    }
    let mut pending: VecDeque<(u64, Pending<'_>)> = VecDeque::with_capacity(row.outstanding);
    let (mut started, mut now) = (Clock.now(), Clock.now());
    let (mut cold, mut resent) = (UNCOUNTED_ROUNDS * row.outstanding, 0.0);
    loop {
        while pending.len() < row.outstanding && (cold > 0 || now - started < slice_ns) {
            let call = match row.is_copied {
                true => client.start(&message),
                false => client.start_shared(message.clone()),
            };
            pending.push_back((Clock.now(), call.expect("a call")));
        }
        let Some((began, oldest)) = pending.pop_front() else { break };
        drop(oldest.wait().expect("a reply"));
        now = Clock.now();
        if cold == 0 {
            shown.took_ns.push(now - began);
            continue;
        }
        if cold > row.outstanding {
            shown.cold_ns = shown.cold_ns.max(now - began);
        }
        cold -= 1;
        (started, resent) = (now, resent_bytes(client));
    }
    shown.again = Again {
        sent: (shown.took_ns.len() * row.len) as f64,
        resent: resent_bytes(client) - resent,
    };
    shown.goodput = (shown.took_ns.len() * row.len) as f64 / (now - started) as f64;
    shown
}

/// Calls that wait, which copy no long request.
fn calls_in_turn(client: &Client, slice_ns: u64, message: &[u8]) -> Shown {
    let mut shown = Shown::default();
    let began = Clock.now();
    drop(client.call(message).expect("a reply"));
    shown.cold_ns = Clock.now() - began;
    drop(client.call(message).expect("a reply"));
    let resent = resent_bytes(client);
    let (started, mut now) = (Clock.now(), Clock.now());
    while now - started < slice_ns {
        let began = now;
        drop(client.call(message).expect("a reply"));
        now = Clock.now();
        shown.took_ns.push(now - began);
    }
    shown.again = Again {
        sent: (shown.took_ns.len() * message.len()) as f64,
        resent: resent_bytes(client) - resent,
    };
    shown.goodput = (shown.took_ns.len() * message.len()) as f64 / (now - started) as f64;
    shown
}

/// Bytes that a client has sent again; R2P2 counts packets, which are long here.
fn resent_bytes(client: &Client) -> f64 {
    let segment_len = u64::from(Config::default().local_segment_len);
    let metrics = client.metrics();
    let homa = metrics.homa().map_or(0, |homa| homa.resent_bytes);
    (homa + metrics.r2p2().map_or(0, |r2p2| r2p2.resent * segment_len)) as f64
}

/// Rounds of calls, each of as many as are outstanding, before those that count.
const UNCOUNTED_ROUNDS: usize = 2;

const CARRIERS: [Carrier; 3] = [
    Carrier { name: "R2P2 UDP", protocol: Protocol::R2p2, datapath: DatapathKind::Udp },
    Carrier { name: "Homa UDP", protocol: Protocol::Homa, datapath: DatapathKind::Udp },
    Carrier { name: "Homa IP", protocol: Protocol::Homa, datapath: DatapathKind::Ip },
];

/// Name, calls outstanding, bytes of each, and whether each is copied when it starts.
const LOADS: [(&str, usize, usize, bool); 5] = [
    ("1 MB", 1, 1_000_000, false),
    ("8 MB", 1, 8_000_000, false),
    ("16 x 1 MB", 16, 1_000_000, false),
    ("16 x 1 MB, copied", 16, 1_000_000, true),
    ("16 x 256 kB", 16, 256_000, false),
];

/// More than a datagram may be under way, by default.
const SETTLING_NS: u64 = 30_000_000;
