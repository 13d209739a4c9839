//! Cost of one small RPC in the two state machines alone: call, request, reply, event, without
//! sockets.

use std::hint::black_box;
use std::net::SocketAddr;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use tailcut_proto::node::{GSO_BYTES_MAX, Node, Time};
use tailcut_proto::r2p2::{Config, Endpoint};
use tailcut_proto::rpc::{Call, CallOptions, Event, Rpc};

const SECOND: Time = 1_000_000_000;

struct Ends {
    now: Time,
    client: Endpoint,
    server: Endpoint,
    addresses: [SocketAddr; 2],
    buffer: Vec<u8>,
}

impl Ends {
    fn new() -> Self {
        let endpoint = |secret| {
            Endpoint::new(
                0,
                Config { secret: [secret; 16], credit_bytes: 400_000, ..Config::default() },
            )
        };
        let addresses = [([10, 0, 0, 1], 33_000).into(), ([10, 0, 0, 2], 8000).into()];
        Self {
            now: 1,
            client: endpoint(1),
            server: endpoint(2),
            addresses,
            buffer: vec![0; GSO_BYTES_MAX],
        }
    }

    /// `outstanding` calls of `len` bytes, begun together and answered together.
    fn round(&mut self, outstanding: u64, len: usize) {
        self.now += 5000;
        for context in 0..outstanding {
            let mut payload = self.client.buffer();
            payload.resize(len, 7);
            let (target, deadline, options) =
                (self.addresses[1], self.now + SECOND, CallOptions::default());
            self.client
                .call(self.now, Call { target, payload, deadline, context, options })
                .unwrap();
        }
        let mut answered = 0;
        while answered < outstanding {
            carry(
                self.now,
                &mut self.buffer,
                &mut self.client,
                (&mut self.server, self.addresses[0]),
            );
            while let Some(event) = self.server.poll_event() {
                if let Event::Request { id, payload, .. } = event {
                    self.server.reply(self.now, id, payload).unwrap();
                }
            }
            carry(
                self.now,
                &mut self.buffer,
                &mut self.server,
                (&mut self.client, self.addresses[1]),
            );
            while let Some(event) = self.client.poll_event() {
                if let Event::Replied { payload, .. } = event {
                    self.client.recycle(black_box(payload));
                    answered += 1;
                }
            }
        }
        self.client.handle_timeout(self.now);
        self.server.handle_timeout(self.now);
        black_box((self.client.poll_timeout(), self.server.poll_timeout()));
    }
}

fn carry(
    now: Time,
    buffer: &mut [u8],
    from: &mut Endpoint,
    (to, peer): (&mut Endpoint, SocketAddr),
) {
    while let Some(transmit) = from.poll_transmit(now, buffer) {
        for datagram in buffer[..transmit.len].chunks_mut(transmit.segment_len) {
            to.handle_datagram(now, peer.into(), datagram);
        }
    }
}

fn endpoint(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("endpoint");
    for (outstanding, len) in [(1, 32), (64, 32), (64, 1000), (1, 1_000_000)] {
        group.throughput(Throughput::Elements(outstanding));
        group.bench_function(
            BenchmarkId::from_parameter(format!("{outstanding}x{len}B")),
            |bencher| {
                let mut ends = Ends::new();
                bencher.iter(|| ends.round(outstanding, len));
            },
        );
    }
    group.finish();
}

criterion_group!(benches, endpoint);
criterion_main!(benches);
