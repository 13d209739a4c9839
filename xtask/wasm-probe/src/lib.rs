//! Links wire, proto and measure into one WebAssembly module, whose imports `cargo xtask wasm`
//! lists.
//!
//! Only what an exported function reaches is linked, so [`probe`] walks through the entrances of
//! the three crates.

use std::net::SocketAddr;

use tailcut_measure::app::Outcome;
use tailcut_measure::arrivals::{Arrivals, Process};
use tailcut_measure::distribution::Distribution;
use tailcut_measure::generator::generator;
use tailcut_measure::load::{Load, OpenLoop};
use tailcut_measure::quantity::Unit;
use tailcut_measure::queueing::{Jbsq, MG1, Sojourn};
use tailcut_measure::slices::Slices;
use tailcut_proto::node::{GSO_BYTES_MAX, Node, Path};
use tailcut_proto::r2p2::{Config, Endpoint};
use tailcut_proto::router::{Router, RouterConfig};
use tailcut_proto::rpc::{Call, CallOptions, Event, Rpc};
use tailcut_wire::r2p2::Packet;

/// Walks through wire, proto and measure. The result depends on every call, so that none is
/// optimized away.
#[unsafe(no_mangle)]
pub extern "C" fn probe(seed: u64) -> u64 {
    let bytes: Vec<u8> = seed.to_le_bytes().repeat(9);
    let text = match Packet::parse(&bytes) {
        Ok(packet) => packet.to_string(),
        Err(malformed) => format!("{malformed:?}"),
    };
    text.len() as u64 + call(seed) + route(seed) + measure(seed)
}

/// A call from one endpoint to another.
fn call(seed: u64) -> u64 {
    let endpoint = |salt| Endpoint::new(seed, Config { secret: [salt; 16], ..Config::default() });
    let (mut client, mut server) = (endpoint(1), endpoint(2));
    let target = SocketAddr::from(([127, 0, 0, 1], 8000));
    let (payload, deadline, options) =
        (vec![7; seed as usize % 5000], seed + 1_000_000, CallOptions::default());
    let made = client.call(seed, Call { target, payload, deadline, context: seed, options });
    let mut buffer = vec![0; GSO_BYTES_MAX];
    while let Some(transmit) = client.poll_transmit(seed, &mut buffer) {
        for datagram in buffer[..transmit.len].chunks_mut(transmit.segment_len) {
            server.handle_datagram(seed, Path::from(target), datagram);
        }
    }
    while let Some(event) = server.poll_event() {
        if let Event::Request { id, payload, .. } = event {
            return u64::from(server.reply(seed, id, payload).is_ok());
        }
    }
    server.handle_timeout(seed + 1);
    server.poll_timeout().unwrap_or(u64::from(made.is_ok()))
}

/// A router that hears something.
fn route(seed: u64) -> u64 {
    let Ok(mut router) = Router::new(seed, RouterConfig::default()) else { return 0 };
    router.handle_datagram(
        seed,
        Path::from(SocketAddr::from(([127, 0, 0, 1], 1))),
        &mut seed.to_le_bytes(),
    );
    router.handle_timeout(seed + 1);
    router.metrics().received
}

/// A measurement of nothing, and predictions.
fn measure(seed: u64) -> u64 {
    let Ok(distribution) = Distribution::parse("300ns+exp:300ns", Unit::Time) else { return 0 };
    let mut random = generator(seed, 1);
    let sample = distribution.sample(&mut random);
    let Ok(arrivals) = Arrivals::new(Process::Poisson, sample, random) else { return 0 };
    let mut slices = Slices::new(Load::Open(OpenLoop::new(arrivals, seed)), seed, 1000);
    let sent = slices.handle_sent(seed);
    slices.handle_reply(sent, Outcome::Ok, seed + 10);
    let replied = slices.poll_slice(seed + 1_000_000).map_or(0, |slice| slice.counts.replied);
    let predicted = Jbsq::new(4, 2, 0.5).map_or(0.0, |jbsq| jbsq.percentile(0.99));
    let transformed = MG1::new(&distribution, 0.5).map_or(0.0, |queue| queue.percentile(0.99));
    replied + (predicted + transformed) as u64
}
