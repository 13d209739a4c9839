//! A server that has many clients against one that has a hundred: calls a second, and what it
//! remembers of each.
//!
//! `cargo bench -p tailcut --bench many`. Clients are loopback addresses, 64 of which have a call
//! outstanding at a time, each in its turn; they share a socket, and what they send is written by
//! hand, so that memory is the server's. Slices of a hundred clients and of many alternate.
//! `TAILCUT_BENCH_QUICK=1` takes a hundredth of the clients.

#[path = "../../net/benches/support/mod.rs"]
mod support;

mod calls;

use std::net::{IpAddr, SocketAddr};

use calls::StopOnDrop;
use support::*;
use tailcut::{ServerBuilder, Wait};
use tailcut_net::affinity;
use tailcut_net::clock::Clock;
use tailcut_net::datapath::Datapath;
use tailcut_net::udp::{UdpConfig, UdpPort};
use tailcut_proto::node::{Path, Transmit};

fn main() {
    let (pairs, slice_ns) = if is_quick() { (3, 20_000_000) } else { (9, 500_000_000) };
    affinity::pin_to(CLIENT_CORE).expect("two cores");
    println!(
        "{:>9} {:>13} {:>13} {:>7} {:>15}",
        "clients", "of 100, k/s", "k/s", "ratio", "B a client"
    );
    for count in [10_000, 100_000].map(|count| if is_quick() { count / 100 } else { count }) {
        let mut ratios = Vec::new();
        let (mut few_rates, mut many_rates) = (Vec::new(), Vec::new());
        let mut bytes = 0.0;
        with_server(|target| {
            let mut few = Clients::new(target, 100, 10);
            few.call(100);
            let before = resident_bytes();
            let mut many = Clients::new(target, count, 20);
            many.call(count);
            bytes = resident_bytes().saturating_sub(before) as f64 / count as f64;
            for _ in 0..pairs {
                let (one, other) = (few.rate(slice_ns), many.rate(slice_ns));
                ratios.push(other / one);
                few_rates.push(one);
                many_rates.push(other);
            }
        });
        let [few, many, ratio] = [few_rates, many_rates, ratios].map(|of| median(of.into_iter()));
        println!("{count:>9} {few:>13.1} {many:>13.1} {ratio:>7.2} {bytes:>15.0}");
    }
}

/// Clients, each at an address of its own.
struct Clients {
    port: UdpPort,
    target: SocketAddr,
    /// The second byte of their addresses.
    network: u8,
    /// State of each.
    clients: Vec<OneClient>,
    /// Index of the client whose turn it is.
    turn: usize,
}

/// One of them.
#[derive(Clone, Default)]
struct OneClient {
    /// Calls that it has made.
    made: u32,
    /// The address token that it was told.
    token: [u8; 8],
}

impl Clients {
    fn new(target: SocketAddr, count: usize, network: u8) -> Self {
        let config = UdpConfig { tells_local: true, ..UdpConfig::default() };
        let any = SocketAddr::from(([0, 0, 0, 0], 0));
        let port = UdpPort::bind(any, config).expect("a port");
        Self { port, target, network, clients: vec![OneClient::default(); count], turn: 0 }
    }

    /// Thousands of calls a second.
    fn rate(&mut self, slice_ns: u64) -> f64 {
        let (began, mut calls) = (Clock.now(), 0);
        while Clock.now() - began < slice_ns {
            self.call(OUTSTANDING);
            calls += OUTSTANDING;
        }
        calls as f64 * 1e6 / (Clock.now() - began) as f64
    }

    /// Makes a call of each of the next `count` clients, so many at a time.
    fn call(&mut self, count: usize) {
        let mut left = count;
        while left > 0 {
            let (first, burst) = (self.turn, left.min(OUTSTANDING));
            for place in 0..burst {
                self.send((first + place) % self.clients.len());
            }
            self.port.flush();
            let (mut replied, began) = (0, Clock.now());
            while replied < burst {
                replied += self.receive();
                assert!(Clock.now() - began < 5_000_000_000, "{replied} of {burst} are answered");
            }
            self.turn = (first + burst) % self.clients.len();
            left -= burst;
        }
    }

    /// A request of one packet of 4 bytes, which says that all before it have ended.
    fn send(&mut self, index: usize) {
        let OneClient { made, token } = self.clients[index];
        let session = u64::from(self.network) << 32 | index as u64;
        let mut bytes = [0; REQUEST_LEN];
        bytes[..8].copy_from_slice(&[0xcc, 72, 0, 0xc0, 0, 1, 0, 1]);
        bytes[8..16].copy_from_slice(&(session << 24 | u64::from(made)).to_be_bytes());
        bytes[19] = 4;
        bytes[21] = 1;
        bytes[28..32].copy_from_slice(&DEADLINE_US.to_be_bytes());
        bytes[32..40].copy_from_slice(&token);
        bytes[40..44].copy_from_slice(&made.to_be_bytes());
        bytes[44..46].copy_from_slice(&1380_u16.to_be_bytes());
        self.port.frame(0, 0).payload()[..REQUEST_LEN].copy_from_slice(&bytes);
        let [_, high, middle, low] = (index as u32).to_be_bytes();
        let local = [127, self.network + high, middle, low].into();
        let path = Path { local: Some(local), peer: self.target };
        self.port.queue(&Transmit::single(path, REQUEST_LEN));
    }

    /// Takes the replies that have come; how many.
    fn receive(&mut self) -> usize {
        let (mut replied, clients, network) = (0, &mut self.clients, self.network);
        let took = self.port.recv_burst(|path, bytes| {
            let Some(IpAddr::V4(local)) = path.local else { panic!("the port tells them") };
            let [_, high, middle, low] = local.octets();
            let index = u32::from_be_bytes([0, high - network, middle, low]);
            assert_eq!(bytes[2] >> 4, 1, "a reply, and not {:?}", &bytes[48..]);
            let client = &mut clients[index as usize];
            client.token.copy_from_slice(&bytes[32..40]);
            client.made += 1;
            replied += 1;
        });
        took.expect("the socket holds");
        replied
    }
}

/// An echo server on the server's core while `run` calls it from here.
fn with_server(run: impl FnOnce(SocketAddr)) {
    let mut server =
        ServerBuilder::new().wait(Wait::BusyPoll).bind("127.0.0.1:0").expect("a server");
    let (target, stop) = (server.local_address(), server.stop_handle());
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || {
            affinity::pin_to(SERVER_CORE).expect("two cores");
            server.run(|request| {
                // A client that has gone needs no answer.
                let _ = request.reply_in_place(|_| ());
            })
        });
        let stop = StopOnDrop(stop);
        run(target);
        drop(stop);
        thread.join().expect("the server").expect("the server's calls");
    });
}

/// Bytes of this process in memory.
fn resident_bytes() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").expect("the kernel's account");
    let pages = text.split_whitespace().nth(1).and_then(|text| text.parse::<usize>().ok());
    pages.expect("a number of pages") * rustix::param::page_size()
}

/// Calls outstanding at a time.
const OUTSTANDING: usize = 64;

/// Time that a client waits, for which its last reply is kept.
const DEADLINE_US: u32 = 100_000;

/// Bytes of a request.
const REQUEST_LEN: usize = 76;
