//! Cost of a seal and of cookies, over loopback sockets: sealed calls against open ones, against
//! TLS over TCP, and the cost of refusing what strangers send.
//!
//! `cargo bench -p tailcut-cli --bench sealed -- [ROW]`. Each row alternates slices of the baseline
//! and of tailcut on the same two cores and prints the median of the ratios with its quartiles.
//! `TAILCUT_BENCH_QUICK=1` runs every row briefly.
//!
//! | baseline | is |
//! |---|---|
//! | open | the same calls without keys |
//! | TLS | a message of 1 MB by TLS 1.3 (rustls, AES-128-GCM) over TCP, answered by 8 bytes |
//! | a TLS echo | a connection over TCP, a TLS 1.3 handshake in which both show certificates, and 32 bytes there and back: less than any
//!   RPC over TLS does for its first call. The sealed one asks a key agent for its keys in such a
//!   handshake, and then calls |
//! | a valid packet | a request of 32 B that its server opens and gives to its application |

#[path = "../../../net/benches/support/mod.rs"]
mod support;

#[path = "../../../tailcut/benches/calls/mod.rs"]
mod calls;

mod forged;
mod tls;

use std::net::SocketAddr;
use std::sync::{Barrier, LazyLock};

use calls::StopOnDrop;
use support::*;
use tailcut::sealed::{Cipher, EpochKey, HopKey, Keys, Role, Secret};
use tailcut::{AskCookies, Client, ClientBuilder, Config, ServerBuilder, Wait};
use tailcut_net::affinity;
use tailcut_net::clock::Clock;

fn main() {
    let plan = Plan { pairs: 15, slice_ns: 100_000_000 }.or_brief(3);
    let only = std::env::args().skip(1).find(|argument| !argument.starts_with("--"));
    print_head("baseline", "tailcut");
    affinity::pin_to(CLIENT_CORE).expect("two cores");
    for (name, unit, baseline, ours) in rows() {
        if only.as_ref().is_none_or(|only| name.contains(only.as_str())) {
            compare(name, unit, &plan, (baseline, ours));
        }
    }
    tls::remove_files();
}

fn rows() -> [(&'static str, &'static str, Side, Side); 15] {
    [
        (
            "sealed 32 B, polling: p50 over open",
            "us",
            |ns| ping(ns, Mode::Open),
            |ns| ping(ns, Mode::Sealed),
        ),
        (
            "sealed 64 outstanding, coalesced, over open",
            "M/s",
            |ns| exchange(ns, Mode::Open),
            |ns| exchange(ns, Mode::Sealed),
        ),
        (
            "sealed 1 MB: goodput over open",
            "GB/s",
            |ns| goodput(ns, Mode::Open),
            |ns| goodput(ns, Mode::Sealed),
        ),
        ("sealed 1 MB: goodput over TLS", "GB/s", tls::goodput, |ns| goodput(ns, Mode::Sealed)),
        ("sealed first call over a TLS echo", "us", tls::first_echo, tls::first_call),
        ("a stranger's packet over a valid one", "ns", forged::valid, forged::of_a_stranger),
        ("one of a client that is not known", "ns", forged::valid, forged::of_strangers),
        (
            "Homa: a stranger's over a valid one",
            "ns",
            forged::valid_homa,
            forged::of_a_stranger_homa,
        ),
        (
            "Homa: of clients that are not known",
            "ns",
            forged::valid_homa,
            forged::of_strangers_homa,
        ),
        ("a changed payload over a valid packet", "ns", forged::valid, forged::changed),
        (
            "a changed one of a session not known",
            "ns",
            forged::valid,
            forged::of_a_recorded_session,
        ),
        (
            "Homa: a changed one of such a session",
            "ns",
            forged::valid_homa,
            forged::of_a_recorded_session_homa,
        ),
        ("a replayed packet over a valid one", "ns", forged::valid, forged::replayed),
        (
            "cookies, 32 B, polling: p50 over open",
            "us",
            |ns| ping(ns, Mode::Open),
            |ns| ping(ns, Mode::Cookies),
        ),
        (
            "cookies, 64 outstanding, over open",
            "M/s",
            |ns| exchange(ns, Mode::Open),
            |ns| exchange(ns, Mode::Cookies),
        ),
    ]
}

/// Protection of a service.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Open,
    Cookies,
    Sealed,
}

/// A group whose first key is used since a minute.
static GROUP: LazyLock<Keys> = LazyLock::new(|| {
    let (secret, from_ms) = (Secret::new([7; 32]), Clock.unix_ns() / 1_000_000 - 60_000);
    let epochs = vec![EpochKey { epoch: 1, from_ms, secret, hop: HopKey::default() }];
    Keys {
        role: Role::Server,
        group: "bench".into(),
        cipher: Cipher::Aes128Gcm,
        reset: None,
        epochs,
    }
});

/// The keys of client 17.
fn of_client() -> Keys {
    GROUP.for_role(Role::Client(17)).expect("a server's keys")
}

fn ping(slice_ns: u64, mode: Mode) -> f64 {
    with_server(mode, usize::MAX, |client| calls::ping(client, &[1; 32], slice_ns))
}

/// Millions of calls of 32 B a second with 64 outstanding.
fn exchange(slice_ns: u64, mode: Mode) -> f64 {
    with_server(mode, usize::MAX, |client| {
        calls::keep_outstanding(client, (64, &[1; 32]), slice_ns)
    })
}

fn goodput(slice_ns: u64, mode: Mode) -> f64 {
    with_server(mode, 8, |client| calls::goodput(client, MESSAGE_LEN, slice_ns))
}

/// An echo server on the server's core, which cuts replies to so many bytes, while `run` calls it
/// from here.
fn with_server(mode: Mode, reply_len_max: usize, run: impl FnOnce(&Client) -> f64) -> f64 {
    let mut client = ClientBuilder::new().wait(Wait::BusyPoll);
    if mode == Mode::Sealed {
        client = client.seal(of_client());
    }
    let run = |target| run(&client.connect(target).expect("a client"));
    serving(mode, (Wait::BusyPoll, reply_len_max), run)
}

/// An echo server as of [`with_server`], while `run` does what it likes with its address. Who polls
/// keeps the rest of the machine away.
fn serving(
    mode: Mode,
    (wait, reply_len_max): (Wait, usize),
    run: impl FnOnce(SocketAddr) -> f64,
) -> f64 {
    let mut config = Config::default();
    // Loopback would be trusted.
    config.serving.trusted.clear();
    // A server that has just begun cannot tell whether what is sent again ran before it did, and
    // refuses it. Here nothing did.
    config.serving.transit_ns_max = 0;
    let mut builder = ServerBuilder::new().wait(wait).config(config);
    builder = match mode {
        Mode::Open => builder,
        Mode::Cookies => builder.cookies(AskCookies::Always),
        Mode::Sealed => builder.seal(GROUP.clone()),
    };
    let mut server = builder.bind("127.0.0.1:0").expect("a server");
    let (target, stop, start) = (server.local_address(), server.stop_handle(), Barrier::new(2));
    std::thread::scope(|scope| {
        let stop = StopOnDrop(stop);
        let thread = scope.spawn(|| {
            affinity::pin_to(SERVER_CORE).expect("two cores");
            start.wait();
            let mut serve = || {
                server.run(|request| {
                    // A client that has gone needs no answer.
                    let _ = request.reply_in_place(|bytes| bytes.truncate(reply_len_max));
                })
            };
            if wait == Wait::BusyPoll { shielded(serve) } else { serve() }
        });
        start.wait();
        let run = || run(target);
        let result = if wait == Wait::BusyPoll { shielded(run) } else { run() };
        drop(stop);
        thread.join().expect("the server").expect("the server's calls");
        result
    })
}

const MESSAGE_LEN: usize = 1_000_000;
