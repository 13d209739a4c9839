//! Long messages whose payload a node leaves where it is: the datagrams are the ones that it would
//! have written.

use std::fmt::Debug;
use std::net::SocketAddr;
use std::sync::Arc;

use tailcut_proto::endpoint::Endpoint;
use tailcut_proto::node::{GSO_BYTES_MAX, Node, Path, Time};
use tailcut_proto::rpc::{Call, CallOptions, Event, Lent, Rpc};
use tailcut_proto::{homa, r2p2};

/// Way in which a node is asked for what it sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asking {
    Whole,
    Attached,
}

/// Result of a call.
#[derive(Debug, PartialEq, Eq)]
struct Ended {
    /// All datagrams, in the order in which they were sent.
    datagrams: Vec<Vec<u8>>,
    reply: Vec<u8>,
    /// GSO batches of which the node left the payload, by the client and by the server.
    attached: [usize; 2],
}

const MS: Time = 1_000_000;

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|place| (place / 7) as u8).collect()
}

/// Datagrams that a node sends now, and the number of batches of which it left the payload.
fn sent_by(node: &mut impl Node, now: Time, asking: Asking) -> (Vec<Vec<u8>>, usize) {
    let mut buffer = vec![0; GSO_BYTES_MAX];
    let (mut datagrams, mut batches) = (Vec::new(), 0);
    loop {
        let polled = match asking {
            Asking::Attached => node.poll_attached(now, &mut buffer),
            Asking::Whole => None,
        };
        if let Some((transmit, attached)) = polled {
            let headers = buffer.chunks(attached.header_len);
            let pieces =
                node.attached(&attached).chunks(transmit.segment_len - attached.header_len);
            let before = datagrams.len();
            datagrams.extend(headers.zip(pieces).map(|(header, piece)| [header, piece].concat()));
            let len: usize = datagrams[before..].iter().map(Vec::len).sum();
            assert_eq!((len, datagrams.len() - before), (transmit.len, transmit.datagram_count()));
            batches += 1;
        } else if let Some(transmit) = node.poll_transmit(now, &mut buffer) {
            let written = buffer[..transmit.len].chunks(transmit.segment_len);
            datagrams.extend(written.map(<[u8]>::to_vec));
        } else {
            return (datagrams, batches);
        }
    }
}

/// A call whose reply is its request backwards, by ends that are asked so.
fn run<E: Rpc>(mut ends: [E; 2], asking: Asking, len: usize, is_lent: bool) -> Ended {
    let addresses = ["10.0.0.1:1000", "10.0.0.2:2000"].map(|text| text.parse::<SocketAddr>());
    let [from, target] = addresses.map(|address| address.expect("an address"));
    let mut now = 100 * MS;
    let (deadline, options) = (now + 1000 * MS, CallOptions::default());
    let call = Call { target, payload: Vec::new(), deadline, context: 0, options };
    let begun = match is_lent {
        true => ends[0].call_lent(now, call, Lent::new(Arc::new(pattern(len)))),
        false => ends[0].call(now, Call { payload: pattern(len), ..call }),
    };
    begun.expect("a call");
    let mut ended = Ended { datagrams: Vec::new(), reply: Vec::new(), attached: [0; 2] };
    for _ in 0..1000 {
        for place in 0..2 {
            let (datagrams, batches) = sent_by(&mut ends[place], now, asking);
            ended.attached[place] += batches;
            let peer = Path::from([from, target][place]);
            for datagram in &datagrams {
                ends[1 - place].handle_datagram(now, peer, &mut datagram.clone());
            }
            ended.datagrams.extend(datagrams);
            while let Some(event) = ends[1 - place].poll_event() {
                match event {
                    Event::Request { id, mut payload, .. } => {
                        payload.reverse();
                        ends[1 - place].reply(now, id, payload).expect("it waits");
                    }
                    Event::Replied { payload, .. } => {
                        ended.reply = payload;
                        return ended;
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
        now += 10_000;
    }
    panic!("no reply to {len} bytes");
}

fn check<E: Rpc + Debug>(lens: &[usize], ends: impl Fn() -> [E; 2]) {
    for &len in lens {
        let whole = run(ends(), Asking::Whole, len, false);
        let expected: Vec<u8> = pattern(len).into_iter().rev().collect();
        assert!(whole.reply == expected, "{len} bytes");
        for is_lent in [false, true] {
            let attached = run(ends(), Asking::Attached, len, is_lent);
            let is_long = attached.attached.iter().all(|&batches| batches > 0);
            assert_eq!(is_long, len > 60_000, "{len} bytes: {:?}", attached.attached);
            assert!(attached.reply == expected, "{len} bytes");
            assert!(attached.datagrams == whole.datagrams, "{len} bytes, lent: {is_lent}");
        }
    }
}

const SHORT: [usize; 3] = [1, 10_000, 70_000];
const LONG: [usize; 2] = [1_000_000, 3_000_001];

fn r2p2_ends() -> [r2p2::Endpoint; 2] {
    [1, 2].map(|secret| {
        let mut config = r2p2::Config { secret: [secret; 16], ..r2p2::Config::default() };
        config.serving.trusted.push("10.0.0.0/8".parse().expect("a network"));
        r2p2::Endpoint::new(0, config)
    })
}

fn homa_ends() -> [homa::Endpoint; 2] {
    [1, 2].map(|secret| {
        let mut config = homa::Config { secret: [secret; 16], ..homa::Config::default() };
        config.serving.trusted.push("10.0.0.0/8".parse().expect("a network"));
        homa::Endpoint::new(0, config)
    })
}

#[test]
fn r2p2_attaches_what_it_would_write() {
    check(&LONG, r2p2_ends);
}

#[test]
fn r2p2_attaches_from_so_many_packets_on() {
    check(&SHORT, r2p2_ends);
}

#[test]
fn homa_attaches_what_it_would_write() {
    check(&LONG, homa_ends);
}

#[test]
fn homa_attaches_from_so_many_packets_on() {
    check(&SHORT, homa_ends);
}

#[test]
fn an_endpoint_of_either_transport_attaches_as_the_transport_does() {
    let either: [fn() -> [Endpoint; 2]; 2] =
        [|| r2p2_ends().map(Endpoint::from), || homa_ends().map(Endpoint::from)];
    for ends in either {
        let whole = run(ends(), Asking::Whole, 70_000, false);
        let attached = run(ends(), Asking::Attached, 70_000, true);
        assert!(attached.attached.iter().all(|&batches| batches > 0), "{:?}", attached.attached);
        assert!(attached.datagrams == whole.datagrams && attached.reply == whole.reply);
    }
}
