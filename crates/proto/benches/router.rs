//! Cost of one routed request in the router's state machine alone: request in, placed and out,
//! feedback in, without sockets.

use std::net::SocketAddr;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use tailcut_proto::node::{GSO_BYTES_MAX, Node, Time};
use tailcut_proto::router::{Router, RouterConfig, ServerConfig, Speaks};
use tailcut_wire::r2p2::{
    FeedbackBody, MessageType, ROUTED_LEN, ReplyRepr, RequestRepr, Route, RpcId, Segment,
};
use zerocopy::{FromBytes, IntoBytes};

struct Bench {
    now: Time,
    router: Router,
    request: Vec<u8>,
    requests: u64,
    counts: Vec<u32>,
    buffer: Vec<u8>,
}

impl Bench {
    /// A router before `servers` servers, whose calls last for `deadline_us`, which is how long
    /// their ids are remembered.
    fn new(policy: &str, servers: usize, deadline_us: u32) -> Self {
        let addresses = (0..servers)
            .map(|index| ServerConfig { addr: server(index), speaks: Speaks::Extension });
        let policy = policy.parse().unwrap();
        let router = Router::new(
            0,
            RouterConfig { policy, servers: addresses.collect(), ..RouterConfig::default() },
        )
        .unwrap();
        let repr = RequestRepr {
            segment: Segment { message_len: 32, segment_len: 1380, ..Segment::CONTROL },
            deadline_us,
            ..RequestRepr::control(MessageType::Request, 1, RpcId(0))
        };
        let mut request = vec![7; ROUTED_LEN + 32];
        repr.emit(&mut request);
        Self {
            now: 1,
            router,
            request,
            requests: 0,
            counts: vec![0; servers],
            buffer: vec![0; GSO_BYTES_MAX],
        }
    }

    fn round(&mut self) {
        self.now += 1000;
        self.requests += 1;
        self.request[8..16].copy_from_slice(&self.requests.to_be_bytes());
        self.router.handle_datagram(
            self.now,
            SocketAddr::from(([10, 0, 2, 1], 33_000)).into(),
            &mut self.request,
        );
        if self.router.poll_timeout().is_some_and(|at| at <= self.now) {
            self.router.handle_timeout(self.now);
        }
        while let Some(transmit) = self.router.poll_transmit(self.now, &mut self.buffer) {
            let SocketAddr::V4(to) = transmit.to else { continue };
            let index = usize::from(to.port() - 8000);
            let is_probe = transmit.len < ROUTED_LEN;
            let placement = if is_probe {
                u32::from_be_bytes(self.buffer[48..52].try_into().unwrap())
            } else {
                self.counts[index] = self.counts[index].wrapping_add(1);
                Route::read_from_bytes(&self.buffer[48..72]).unwrap().placement.get()
            };
            let counted = self.counts[index].into();
            let body = FeedbackBody {
                epoch: 1.into(),
                placement_seen: placement.into(),
                received: counted,
                concluded: counted,
            };
            let mut report = [
                ReplyRepr::control(MessageType::Feedback, 0, RpcId(0)).header().as_bytes(),
                body.as_bytes(),
            ]
            .concat();
            self.router.handle_datagram(self.now, transmit.to.into(), &mut report);
        }
    }
}

fn server(index: usize) -> SocketAddr {
    ([10, 0, 1, 1], 8000 + index as u16).into()
}

fn router(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("router");
    group.throughput(Throughput::Elements(1));
    for (policy, servers, deadline_us) in
        [("jbsq:4", 16, 100), ("random", 16, 100), ("jbsq:4", 128, 100), ("jbsq:4", 16, 100_000)]
    {
        group.bench_function(
            BenchmarkId::from_parameter(format!("{policy} {servers} servers {deadline_us}us")),
            |bencher| {
                let mut bench = Bench::new(policy, servers, deadline_us);
                bencher.iter(|| bench.round());
            },
        );
    }
    group.finish();
}

criterion_group!(benches, router);
criterion_main!(benches);
