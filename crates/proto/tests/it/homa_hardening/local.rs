//! Long packets between two endpoints of one host, and who sends none.

use super::*;

/// A client and a server, and where each sees the other.
struct Pair {
    client: Lone,
    server: Lone,
    client_at: &'static str,
    server_at: &'static str,
}

impl Pair {
    fn new(client_at: &'static str, server_at: &'static str) -> Self {
        let server = Lone::with(|config| config.secret = [8; 16]);
        Self { client: Lone::new(), server, client_at, server_at }
    }

    fn on_one_host() -> Self {
        Self::new("127.0.0.1:32769", "[::ffff:127.0.0.1]:99")
    }

    /// A call of so many bytes there and back, of which the packets in `lost` are lost; the lengths
    /// of the others' data each way.
    fn call(&mut self, len: usize, lost: &[usize]) -> (Vec<usize>, Vec<usize>) {
        let (target, deadline) = (self.server_at.parse().unwrap(), self.client.now + SECOND);
        let payload = pattern(len);
        let call = Call { target, payload, deadline, context: 7, options: CallOptions::default() };
        self.client.node.call(self.client.now, call).unwrap();
        self.client.settle();
        let (mut there, mut back) = (Vec::new(), Vec::new());
        let replies = self.client.replies.len();
        let mut count = 0;
        for _ in 0..2_000 {
            for sent in self.client.take() {
                count += 1;
                if !lost.contains(&(count - 1)) {
                    there.extend(data_len(&sent));
                    self.server.give(self.client_at, &sent.bytes);
                }
            }
            if !self.server.requests.is_empty() {
                self.server.reply(len).unwrap();
                assert!(self.server.requests.pop().unwrap().1 == pattern(len));
            }
            for sent in self.server.take() {
                back.extend(data_len(&sent));
                self.client.give(self.server_at, &sent.bytes);
            }
            if self.client.replies.len() > replies && self.client.sent.is_empty() {
                assert!(self.client.replies.pop().unwrap() == pattern(len));
                return (there, back);
            }
            self.client.pass(100_000);
            self.server.pass(100_000);
        }
        panic!("{:?}", self.client.failures);
    }

    /// True if all packets of a call are those of a network.
    fn is_short(&mut self) -> bool {
        let (there, back) = self.call(40_000, &[]);
        there.iter().chain(&back).all(|&len| len <= 1396)
    }
}

/// Bytes of a DATA packet; `None` of others.
fn data_len(sent: &Sent) -> Option<usize> {
    let packet = Packet::parse(&sent.bytes).unwrap();
    (packet.packet_type() == PacketType::Data).then(|| sent.data().1.len())
}

/// The first request cannot know whom it reaches; its reply, and all that follows, is long.
#[test]
fn packets_within_a_host_are_long() {
    let mut pair = Pair::on_one_host();
    let (there, back) = pair.call(40_000, &[]);
    let long = vec![13_334, 13_334, 13_332];
    assert_eq!((there.len(), &back), (29, &long));
    assert_eq!(pair.call(40_000, &[]), (long.clone(), long));
    assert_eq!(pair.call(10_000, &[]), (vec![10_000], vec![10_000]));
    let (there, back) = pair.call(1 << 20, &[]);
    for lens in [there, back] {
        assert!(lens.len() <= 72, "{} packets", lens.len());
        assert_eq!((lens.iter().sum::<usize>(), lens.iter().max()), (1 << 20, Some(&16_000)));
    }
    for lone in [&pair.client, &pair.server] {
        let metrics = lone.node.metrics();
        assert_eq!((metrics.resent_bytes, metrics.common.protocol_violation), (0, 0));
    }
}

/// Packets are a network's where either sees the other elsewhere, or takes none; what has been long
/// is so no longer when the server has come up with another configuration.
#[test]
fn packets_between_hosts_are_a_networks() {
    for (client_at, server_at) in [
        ("10.0.0.1:32769", "127.0.0.1:99"),
        ("127.0.0.1:32769", "10.0.0.2:99"),
        ("10.0.0.1:32769", "10.0.0.2:99"),
    ] {
        let mut pair = Pair::new(client_at, server_at);
        assert!(pair.is_short() && pair.is_short(), "{client_at} and {server_at}");
    }
    let none = || Lone::with(|config| config.framing.local_len = 0);
    let mut pair = Pair::on_one_host();
    pair.client = none();
    assert!(pair.is_short() && pair.is_short(), "the client takes none");
    let mut pair = Pair::on_one_host();
    let source = "127.0.0.1".parse().unwrap();
    pair.server = Lone::with(|config| config.carrier = Carrier::HijackedTcp { source });
    assert!(pair.is_short() && pair.is_short(), "the server sends segments of TCP");
    let mut pair = Pair::on_one_host();
    pair.call(10, &[]);
    pair.server = none();
    pair.call(10, &[]);
    assert!(pair.is_short(), "the server takes none any more");
}

/// A peer without flags means nothing by that byte.
#[test]
fn the_module_gets_packets_of_a_network() {
    let mut server = Lone::new();
    let mut request = request(2, 4, 0, b"ping");
    request[49] = DataFlags::LONG;
    server.give("127.0.0.1:32769", &request);
    server.reply(10_000).unwrap();
    assert!(server.take().iter().filter_map(data_len).all(|len| len <= 1396));
}

/// Any one of them, and the first two.
#[test]
fn long_packets_that_are_lost_go_again() {
    for lost in [&[0][..], &[1], &[2], &[0, 1]] {
        let mut pair = Pair::on_one_host();
        pair.call(10, &[]);
        let (there, _) = pair.call(40_000, lost);
        assert!(there.iter().sum::<usize>() >= 40_000 && there.contains(&13_334), "{lost:?}");
    }
}
