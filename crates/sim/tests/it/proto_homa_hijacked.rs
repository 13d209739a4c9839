//! Two Homa endpoints that send their packets as segments of TCP, or one of which does: behind
//! interfaces that look at every frame.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use crate::pair::{EndpointPair, Transport};
use tailcut_proto::homa::{Carrier, Config, Endpoint, Metrics};
use tailcut_proto::node::{Node, Path, Time, Transmit};
use tailcut_proto::rpc::{
    AnswerError, Call, CallError, CallId, CallOptions, Event, RequestId, Rpc,
};
use tailcut_sim::impair::Impairment;
use tailcut_wire::homa::{Body, OFFSET_IN_SEQUENCE, Packet, is_hijacked, tcp_checksum};
use tailcut_wire::r2p2::DropReason;

const SECOND: Time = 1_000_000_000;

/// An endpoint behind an interface that lets in what has the form expected of its peer.
struct Guarded {
    endpoint: Endpoint,
    setup: Setup,
    /// The types of the frames that have come.
    types: BTreeSet<u8>,
}

struct Setup {
    config: Config,
    own: IpAddr,
    expected: Form,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Own,
    Hijacked,
}

impl Guarded {
    fn inspect(&mut self, source: IpAddr, frame: &[u8]) {
        let packet = Packet::parse(frame).expect("a packet");
        self.types.insert(packet.common.packet_type);
        assert!(is_hijacked(frame), "flags and urgent pointer are the same in either form");
        match self.setup.expected {
            Form::Hijacked => {
                assert_eq!(tcp_checksum(frame, source, self.setup.own), 0, "it is right")
            }
            Form::Own => assert_eq!(packet.common.checksum.get(), 0, "there is none"),
        }
        if let Body::Data { header, .. } = packet.body {
            assert_eq!(packet.common.doff, 14 << 4);
            assert_eq!(
                header.seg_offset.get() == OFFSET_IN_SEQUENCE,
                self.setup.expected == Form::Hijacked
            );
        } else {
            assert_eq!(packet.common.doff, 5 << 4);
        }
    }
}

impl Node for Guarded {
    fn handle_datagram(&mut self, now: Time, path: Path, bytes: &mut [u8]) {
        self.inspect(path.peer.ip(), bytes);
        self.endpoint.handle_datagram(now, path, bytes);
    }

    fn handle_timeout(&mut self, now: Time) {
        self.endpoint.handle_timeout(now);
    }

    fn poll_transmit(&mut self, now: Time, buffer: &mut [u8]) -> Option<Transmit> {
        self.endpoint.poll_transmit(now, buffer)
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.endpoint.poll_timeout()
    }
}

impl Rpc for Guarded {
    fn call(&mut self, now: Time, call: Call) -> Result<CallId, CallError> {
        self.endpoint.call(now, call)
    }

    fn cancel(&mut self, now: Time, id: CallId) {
        self.endpoint.cancel(now, id);
    }

    fn reply(&mut self, now: Time, id: RequestId, payload: Vec<u8>) -> Result<(), AnswerError> {
        self.endpoint.reply(now, id, payload)
    }

    fn refuse(&mut self, now: Time, id: RequestId, reason: DropReason) -> Result<(), AnswerError> {
        self.endpoint.refuse(now, id, reason)
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.endpoint.poll_event()
    }

    fn buffer(&mut self) -> Vec<u8> {
        self.endpoint.buffer()
    }

    fn recycle(&mut self, buffer: Vec<u8>) {
        self.endpoint.recycle(buffer);
    }
}

impl Transport for Guarded {
    type Config = Setup;
    type Metrics = Metrics;

    fn config(secret: [u8; 16]) -> Setup {
        let config = Config { secret, ..Config::default() };
        Setup { config, own: IpAddr::from([0, 0, 0, 0]), expected: Form::Own }
    }

    fn start(setup: Setup) -> Self {
        Self { endpoint: Endpoint::new(0, setup.config.clone()), setup, types: BTreeSet::new() }
    }

    fn counters(&self) -> Metrics {
        *self.endpoint.metrics()
    }

    fn end(&mut self, now: Time) -> usize {
        self.endpoint.end(now)
    }
}

fn place(setup: &mut Setup, address: &str, form: Form) {
    setup.own = address.parse::<SocketAddr>().expect("an address").ip();
    if form == Form::Hijacked {
        setup.config.carrier = Carrier::HijackedTcp { source: setup.own };
    }
}

/// Calls of all lengths over a path that loses some; tells the types of the frames that have come
/// to either.
fn drive(client: Form, server: Form, loss: f64) -> BTreeSet<u8> {
    let impairment = Impairment { loss, delay_ns: 5000, jitter_ns: 5000, ..Impairment::NONE };
    let mut pair: EndpointPair<Guarded> =
        EndpointPair::with_config(impairment, 5, |at_client, at_server| {
            place(at_client, EndpointPair::<Guarded>::CLIENT, client);
            place(at_server, EndpointPair::<Guarded>::SERVER, server);
            (at_client.expected, at_server.expected) = (server, client);
        });
    let lens = [8, 100, 1396, 1397, 40_001, 100_000, 1_000_000, 1_000_001];
    for (context, &len) in lens.iter().cycle().take(80).enumerate() {
        pair.call(context as u64, len, 10 * SECOND, CallOptions::default());
        pair.run_for(SECOND / 100);
    }
    pair.run_to_end(80);
    for outcome in &pair.outcomes {
        let len = lens[outcome.context as usize % lens.len()];
        assert!(
            outcome.result == Ok(pair.expected_reply(outcome.context, len)),
            "call {} of {len} B",
            outcome.context
        );
    }
    assert_eq!((pair.outcomes.len(), pair.runs.iter().all(|&runs| runs == 1)), (80, true));
    pair.run_for(SECOND);
    (0..2).flat_map(|place| pair.network().node(place).types.clone()).collect()
}

#[test]
fn calls_of_all_lengths_go_over_hijacked_frames() {
    let types = drive(Form::Hijacked, Form::Hijacked, 0.0);
    assert!([0x10, 0x11, 0x15, 0x18].iter().all(|kind| types.contains(kind)), "{types:x?}");
}

#[test]
fn what_is_lost_of_hijacked_frames_is_sent_again() {
    let types = drive(Form::Hijacked, Form::Hijacked, 0.05);
    assert!(
        [0x10, 0x11, 0x12, 0x14, 0x15, 0x17, 0x18].iter().all(|kind| types.contains(kind)),
        "{types:x?}"
    );
}

#[test]
fn one_end_may_hijack_and_the_other_not() {
    drive(Form::Hijacked, Form::Own, 0.02);
    drive(Form::Own, Form::Hijacked, 0.02);
}
