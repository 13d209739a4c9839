//! Cost of one call in two Homa endpoints alone: call, request, reply, event, without sockets; and
//! of one packet of long ones.

use std::hint::black_box;
use std::net::SocketAddr;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use tailcut_proto::homa::{Config, Cutoffs, Endpoint};
use tailcut_proto::node::{GSO_BYTES_MAX, Node, Time};
use tailcut_proto::rpc::{Call, CallOptions, Event, Rpc};

const SECOND: Time = 1_000_000_000;

struct Ends {
    now: Time,
    nodes: [Endpoint; 2],
    addresses: [SocketAddr; 2],
    buffer: Vec<u8>,
    packets: u64,
}

impl Ends {
    fn new(config: &Config) -> Self {
        let nodes = [1, 2]
            .map(|secret| Endpoint::new(0, Config { secret: [secret; 16], ..config.clone() }));
        let addresses = [([10, 0, 0, 1], 33_000).into(), ([10, 0, 0, 2], 8000).into()];
        Self { now: 1, nodes, addresses, buffer: vec![0; GSO_BYTES_MAX], packets: 0 }
    }

    /// `outstanding` calls of `len` bytes, begun together and answered as they come.
    fn round(&mut self, outstanding: u64, len: usize) {
        for context in 0..outstanding {
            let mut payload = self.nodes[0].buffer();
            payload.resize(len, 7);
            let (target, deadline, options) =
                (self.addresses[1], self.now + SECOND, CallOptions::default());
            self.nodes[0]
                .call(self.now, Call { target, payload, deadline, context, options })
                .unwrap();
        }
        let mut answered = 0;
        while answered < outstanding {
            self.now += 1300;
            self.carry(0);
            while let Some(event) = self.nodes[1].poll_event() {
                if let Event::Request { id, payload, .. } = event {
                    self.nodes[1].reply(self.now, id, payload).unwrap();
                }
            }
            self.carry(1);
            while let Some(event) = self.nodes[0].poll_event() {
                if let Event::Replied { payload, .. } = event {
                    self.nodes[0].recycle(black_box(payload));
                    answered += 1;
                }
            }
        }
    }

    fn carry(&mut self, from: usize) {
        self.nodes[from].handle_timeout(self.now);
        while let Some(transmit) = self.nodes[from].poll_transmit(self.now, &mut self.buffer) {
            for datagram in self.buffer[..transmit.len].chunks_mut(transmit.segment_len) {
                self.packets += 1;
                self.nodes[1 - from].handle_datagram(
                    self.now,
                    self.addresses[from].into(),
                    datagram,
                );
            }
        }
        black_box(self.nodes[from].poll_timeout());
    }
}

fn homa(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("homa");
    let sigcomm = Config::sigcomm(4, Cutoffs::descending(&[469, 5521, 15_267], 1));
    for (name, config) in [("module", &Config::default()), ("sigcomm", &sigcomm)] {
        for (outstanding, len) in [(1, 32), (64, 32), (8, 100_000)] {
            let mut ends = Ends::new(config);
            ends.round(outstanding, len);
            let packets = ends.packets;
            // Long calls are told by their packets, control packets included.
            group.throughput(Throughput::Elements(if len > 1000 { packets } else { outstanding }));
            group.bench_function(
                BenchmarkId::from_parameter(format!("{name}/{outstanding}x{len}B")),
                |bencher| {
                    bencher.iter(|| ends.round(outstanding, len));
                },
            );
        }
    }
    group.finish();
}

criterion_group!(benches, homa);
criterion_main!(benches);
