//! Decisions of the program on packets.

use std::net::SocketAddr;

use tailcut_net::ebpf::Verdict;
use tailcut_proto::policy::PolicySpec;
use tailcut_proto::policy::WorkerId;
use tailcut_proto::router::{SharedCounts, SharedPlaces};
use tailcut_wire::r2p2::{
    CloneMark, Flags, MessageType, Policy, ReplyRepr, RequestRepr, RpcId, Segment,
};
use zerocopy::IntoBytes;

use super::bench::{
    Bench, EPOCH, Frame, Report, client, listen_v4, listen_v6, placed_frame, placed_payload,
    request, server, way,
};

fn bench(policy: &str, servers: u16) -> Option<Bench> {
    Bench::new(listen_v4(), policy.parse().expect("a policy"), servers)
}

/// A request comes out at the first server, byte by byte as it should, checksums and all.
fn check_placed(listen: SocketAddr, vlan: Option<u16>) {
    let Some(bench) = Bench::new(listen, "jbsq:2".parse().expect("a policy"), 1) else { return };
    bench.places.set_way(WorkerId(0), way(0, vlan));
    let (from, payload) = (client(listen), request(|_, _| {}));
    let placed = bench.run(&Frame { vlan, ..Frame::new(from, listen, &payload) }.bytes());
    let ends = (from, server(listen, 0));
    let expected = placed_frame(ends, (0, vlan), &placed_payload(&payload, 101));
    assert_eq!((placed.verdict, placed.packet), (Verdict::Transmit, expected));
    assert_eq!(bench.places.counts(WorkerId(0)).placed, 101);
}

#[test]
fn a_request_over_ipv4_is_placed() {
    check_placed(listen_v4(), None);
}

#[test]
fn a_request_over_ipv6_is_placed() {
    check_placed(listen_v6(), None);
}

#[test]
fn a_request_in_a_vlan_is_placed_there() {
    check_placed(listen_v4(), Some(12));
    check_placed(listen_v6(), Some(4_094));
}

#[test]
fn a_datagram_without_a_checksum_stays_so() {
    let Some(bench) = bench("rr", 1) else { return };
    let payload = request(|_, _| {});
    let mut frame = Frame::new(client(bench.listen), bench.listen, &payload).bytes();
    frame[40..42].fill(0);
    assert_eq!(bench.run(&frame).packet[40..42], [0, 0]);
}

#[test]
fn a_wrong_checksum_stays_wrong() {
    let Some(bench) = bench("rr", 1) else { return };
    let payload = request(|_, _| {});
    let right = Frame::new(client(bench.listen), bench.listen, &payload).bytes();
    let mut wrong = right.clone();
    wrong[40] ^= 1;
    // Placement 101, then 102: the sums differ by one, and by what was wrong.
    let sums = [right, wrong].map(|frame| {
        let sum = &bench.run(&frame).packet[40..42];
        u16::from_be_bytes([sum[0], sum[1]])
    });
    assert_ne!(sums[0].wrapping_sub(1), sums[1]);
}

#[test]
fn a_server_at_its_bound_gets_no_more() {
    let Some(bench) = bench("jbsq:2", 2) else { return };
    let payload = request(|_, _| {});
    let frame = Frame::new(client(bench.listen), bench.listen, &payload).bytes();
    for _ in 0..4 {
        assert_eq!(bench.judge(&frame), (Verdict::Transmit, "xdp_placed"));
    }
    assert_eq!(bench.judge(&frame), (Verdict::Pass, "xdp_up_full"));
    // The server has one of its two, and has answered the other.
    let report = Report { seen: 102, received: 2, concluded: 1 };
    let told = Frame::new(server(bench.listen, 1), bench.listen, &report.bytes(|_, _| {})).bytes();
    assert_eq!(bench.judge(&told), (Verdict::Drop, "xdp_feedback_taken"));
    assert_eq!(bench.run(&frame).packet[30..34], [10, 2, 3, 1]);
    assert_eq!(bench.judge(&frame), (Verdict::Pass, "xdp_up_full"));
}

#[test]
fn user_space_takes_places_where_the_program_does() {
    let Some(bench) = bench("jbsq:2", 1) else { return };
    let payload = request(|_, _| {});
    assert_eq!(bench.places.take(WorkerId(0)), 101);
    let from = client(bench.listen);
    assert_eq!(bench.send(from, &payload).packet[42 + 68..42 + 72], 102u32.to_be_bytes());
    assert_eq!(bench.send(from, &payload).verdict, Verdict::Pass);
}

/// The default policy, whose bound begins at four, and is what the router says.
#[test]
fn the_bound_of_the_default_policy_is_told() {
    let Some(bench) = bench("jbsq:auto", 1) else { return };
    let payload = request(|_, _| {});
    let frame = Frame::new(client(bench.listen), bench.listen, &payload).bytes();
    let placed = || (0..20).take_while(|_| bench.judge(&frame).1 == "xdp_placed").count();
    assert_eq!(placed(), 4);
    bench.places.set_bound(7);
    assert_eq!(placed(), 3);
}

#[test]
fn nothing_overtakes_what_is_held() {
    let Some(bench) = bench("jbsq:2", 1) else { return };
    let payload = request(|_, _| {});
    let frame = Frame::new(client(bench.listen), bench.listen, &payload).bytes();
    let report = Report { seen: 100, received: 1, concluded: 1 };
    let told = Frame::new(server(bench.listen, 0), bench.listen, &report.bytes(|_, _| {})).bytes();
    let now = tailcut_net::clock::Clock.now();
    bench.places.set_held(Some(now + 3_600_000_000_000));
    assert_eq!(bench.judge(&frame), (Verdict::Pass, "xdp_up_held"));
    // It is taken all the same.
    assert_eq!(bench.judge(&told), (Verdict::Pass, "xdp_up_feedback"));
    assert_eq!(bench.places.counts(WorkerId(0)).concluded, 1);
    // Of a user space that has died since.
    bench.places.set_held(Some(now.saturating_sub(1_000_000_000)));
    assert_eq!(bench.judge(&frame), (Verdict::Transmit, "xdp_placed"));
    bench.places.set_held(None);
    assert_eq!(bench.judge(&told), (Verdict::Drop, "xdp_feedback_taken"));
}

#[test]
fn a_feedback_that_is_wanted_goes_up_once() {
    let Some(bench) = bench("jbsq:2", 1) else { return };
    let report = Report { seen: 100, received: 0, concluded: 0 };
    let told = Frame::new(server(bench.listen, 0), bench.listen, &report.bytes(|_, _| {})).bytes();
    bench.places.want_feedback(WorkerId(0));
    assert_eq!(bench.judge(&told), (Verdict::Pass, "xdp_up_feedback"));
    assert_eq!(bench.judge(&told), (Verdict::Drop, "xdp_feedback_taken"));
    assert_eq!(bench.places.counts(WorkerId(0)).reports, 2);
}

/// The headers of the request are in its first buffer.
#[test]
fn a_request_of_several_buffers_is_placed() {
    for listen in [listen_v4(), listen_v6()] {
        let policy: PolicySpec = "rr".parse().expect("a policy");
        let Some(bench) = Bench::new(listen, policy, 1) else { return };
        bench.take_long(policy);
        let segment = Segment { message_len: 8_000, segment_len: 8_001, ..Segment::CONTROL };
        let mut payload = request(|repr, _| repr.segment = segment);
        payload.resize(72 + 8_000, 0x5a);
        let ends = (client(listen), server(listen, 0));
        let frame = Frame::new(ends.0, listen, &payload).bytes();
        let placed = bench.run(&frame);
        let expected = placed_frame(ends, (0, None), &placed_payload(&payload, 101));
        assert!((placed.verdict, placed.packet) == (Verdict::Transmit, expected), "{listen}");
        let short = &frame[..frame.len() - 1];
        assert_eq!(bench.judge(short), (Verdict::Drop, "xdp_dropped_truncated"));
    }
}

/// A request that the program does not place.
fn check_up(payload: &[u8], counter: &str) {
    let Some(bench) = bench("rr", 1) else { return };
    let frame = Frame::new(client(bench.listen), bench.listen, payload).bytes();
    assert_eq!(bench.judge(&frame), (Verdict::Pass, counter));
    assert_eq!(bench.run(&frame).packet, frame, "it goes on as it was");
}

#[test]
fn what_needs_more_than_one_look_goes_up() {
    let flagged = |flags| request(|repr, _| repr.flags = flags);
    check_up(&flagged(Flags::RETRANSMIT), "xdp_up_retransmit");
    check_up(&flagged(Flags::MOVED), "xdp_up_options");
    check_up(&flagged(CloneMark::Copy.bits()), "xdp_up_options");
    check_up(&request(|repr, _| repr.policy = Policy::Fixed), "xdp_up_options");
    check_up(&request(|_, route| route.routed = 1), "xdp_up_options");
    check_up(&request(|_, route| route.returns = 1), "xdp_up_options");
    check_up(&request(|_, route| route.client_port = 1.into()), "xdp_up_options");
    check_up(&request(|_, route| route.client_ip[15] = 1), "xdp_up_options");
    // Version 1.
    check_up(b"\xcc\x08\x00\xc0\x00\x01\x00\x011234", "xdp_up_options");
    let long = Segment { message_len: 2_000, segment_len: 1_400, count: 2, ..Segment::CONTROL };
    let mut first = request(|repr, _| repr.segment = long);
    first.resize(72 + 1_400, 0);
    check_up(&first, "xdp_up_several");
    let mut large = request(|repr, _| {
        repr.segment = Segment { message_len: 1_429, segment_len: 1_429, ..Segment::CONTROL };
    });
    large.resize(1_501, 0);
    check_up(&large, "xdp_up_several");
    let cancel = RequestRepr::control(MessageType::Cancel, 1, RpcId(1));
    check_up(cancel.header().as_bytes(), "xdp_up_control");
}

/// The kernel and the user-space router refuse the same.
#[test]
fn what_routers_and_servers_say_is_heard_of_those_that_are_known() {
    let Some(mut bench) = bench("rr", 1) else { return };
    let other = SocketAddr::from(([10, 2, 3, 77], 9_000));
    bench.places.add_other(other);
    for kind in [MessageType::Probe, MessageType::Claim, MessageType::Ack, MessageType::Claimed] {
        let bytes = match kind {
            MessageType::Ack | MessageType::Claimed => {
                ReplyRepr::control(kind, 1, RpcId(1)).header().as_bytes().to_vec()
            }
            _ => RequestRepr::control(kind, 1, RpcId(1)).header().as_bytes().to_vec(),
        };
        let judge = |from| bench.judge(&Frame::new(from, bench.listen, &bytes).bytes());
        for known in [server(bench.listen, 0), other] {
            assert_eq!(judge(known), (Verdict::Pass, "xdp_up_control"), "{kind:?} of {known}");
        }
        for stranger in [client(bench.listen), server(bench.listen, 1)] {
            let expected = (Verdict::Drop, "xdp_dropped_stranger");
            assert_eq!(judge(stranger), expected, "{kind:?} of {stranger}");
        }
    }
}

#[test]
fn a_request_of_whom_no_answer_can_reach_is_placed_nowhere() {
    let v4 = |ip: [u8; 4], port| (listen_v4(), SocketAddr::from((ip, port)));
    let v6 = |ip: [u16; 8], port| (listen_v6(), SocketAddr::from((ip, port)));
    for (listen, from) in [
        v4([0, 0, 0, 0], 7),
        v4([0, 1, 2, 3], 7),
        v4([127, 0, 0, 1], 7),
        v4([224, 0, 0, 1], 7),
        v4([255, 255, 255, 255], 7),
        v4([10, 9, 8, 7], 0),
        (listen_v4(), listen_v4()),
        v6([0, 0, 0, 0, 0, 0, 0, 0], 7),
        v6([0, 0, 0, 0, 0, 0, 0, 1], 7),
        v6([0, 0, 0, 0, 0, 0xffff, 0x0a09, 0x0807], 7),
        v6([0xff02, 0, 0, 0, 0, 0, 0, 1], 7),
        v6([0x2001, 0xdb8, 0, 0, 0, 0, 0, 9], 0),
        (listen_v6(), listen_v6()),
    ] {
        let Some(bench) = Bench::new(listen, "rr".parse().expect("a policy"), 1) else { return };
        let payload = request(|_, _| {});
        let frame = Frame::new(from, listen, &payload).bytes();
        assert_eq!(bench.judge(&frame), (Verdict::Drop, "xdp_dropped_stranger"), "{from}");
        assert_eq!(bench.places.counts(WorkerId(0)).placed, 100);
    }
}

/// Nothing of a message of several packets is kept: its first goes up, the others are for the
/// server.
#[test]
fn parts_of_messages_are_not_kept() {
    let Some(bench) = bench("rr", 1) else { return };
    for index in 0..2_000u16 {
        let mut part = request(|repr, _| {
            let several = Segment {
                message_len: 2_000_000,
                segment_len: 1_400,
                count: 2,
                ..Segment::CONTROL
            };
            repr.segment = several;
            repr.rpc_id = RpcId(u64::from(index));
        });
        part.resize(72 + 1_400, 0);
        let from = SocketAddr::from(([10, 9, (index >> 8) as u8, index as u8], 40_000));
        let frame = |part: &[u8]| Frame::new(from, bench.listen, part).bytes();
        assert_eq!(bench.judge(&frame(&part)), (Verdict::Pass, "xdp_up_several"));
        part[3] &= !0x80;
        part[6..8].copy_from_slice(&1u16.to_be_bytes());
        assert_eq!(bench.judge(&frame(&part)).0, Verdict::Drop);
    }
    assert_eq!(bench.places.counts(WorkerId(0)).placed, 100);
}

/// A change to a request's bytes that makes it no packet.
fn check_dropped(counter: &str, change: impl FnOnce(&mut Vec<u8>)) {
    let Some(bench) = bench("rr", 1) else { return };
    let mut payload = request(|_, _| {});
    change(&mut payload);
    let frame = Frame::new(client(bench.listen), bench.listen, &payload).bytes();
    assert_eq!(bench.judge(&frame), (Verdict::Drop, counter));
}

#[test]
fn what_is_no_packet_is_dropped_by_reason() {
    check_dropped("xdp_dropped_truncated", |bytes| bytes.truncate(7));
    check_dropped("xdp_dropped_truncated", |bytes| bytes.truncate(47));
    check_dropped("xdp_dropped_truncated", |bytes| bytes.truncate(71));
    check_dropped("xdp_dropped_magic", |bytes| bytes[0] = 0xcd);
    check_dropped("xdp_dropped_type", |bytes| bytes[2] = 0x50);
    check_dropped("xdp_dropped_policy", |bytes| bytes[2] = 0x02);
    check_dropped("xdp_dropped_flags", |bytes| bytes[3] |= 0x01);
    check_dropped("xdp_dropped_header_size", |bytes| bytes[1] = 49);
    check_dropped("xdp_dropped_version", |bytes| bytes[21] = 2);
    check_dropped("xdp_dropped_order", |bytes| bytes[7] = 0);
    check_dropped("xdp_dropped_order", |bytes| bytes[7] = 2);
    check_dropped("xdp_dropped_length", |bytes| bytes.push(0));
    check_dropped("xdp_dropped_length", |bytes| bytes[19] = 5);
    check_dropped("xdp_dropped_not_first", |bytes| bytes[3] = 0x40);
    check_dropped("xdp_dropped_unexpected", |bytes| bytes[2] = 0x10);
    check_dropped("xdp_dropped_stranger", |bytes| bytes[2] = 0x30);
    check_dropped("xdp_dropped_length", |bytes| {
        bytes[1] = 48;
        bytes[2] = 0x21;
    });
}

#[test]
fn feedback_counts_from_servers_alone() {
    let Some(bench) = bench("jbsq:2", 1) else { return };
    let report = Report { seen: 100, received: 5, concluded: 5 }.bytes(|_, _| {});
    for stranger in [client(bench.listen), server(bench.listen, 1)] {
        let frame = Frame::new(stranger, bench.listen, &report).bytes();
        assert_eq!(bench.judge(&frame), (Verdict::Drop, "xdp_dropped_stranger"));
    }
    assert_eq!(bench.places.counts(WorkerId(0)).received, 0);
}

#[test]
fn feedback_that_does_not_go_on_is_user_spaces() {
    let Some(bench) = bench("jbsq:2", 1) else { return };
    let from = server(bench.listen, 0);
    let known = Report { seen: 100, received: 5, concluded: 4 };
    assert_eq!(bench.send(from, &known.bytes(|_, _| {})).verdict, Verdict::Drop);
    let before = bench.places.counts(WorkerId(0));
    for odd in [
        known.bytes(|_, body| body.epoch = (EPOCH + 1).into()),
        known.bytes(|repr, _| repr.flags = Flags::STOPPING),
        known.bytes(|repr, _| repr.detail = 2),
        Report { received: 4, ..known }.bytes(|_, _| {}),
        Report { concluded: 3, ..known }.bytes(|_, _| {}),
        Report { seen: 99, ..known }.bytes(|_, _| {}),
        Report { seen: 101, ..known }.bytes(|_, _| {}),
        Report { received: 1 << 26, ..known }.bytes(|_, _| {}),
    ] {
        let frame = Frame::new(from, bench.listen, &odd).bytes();
        assert_eq!(bench.judge(&frame), (Verdict::Pass, "xdp_up_feedback"));
        assert_eq!(bench.places.counts(WorkerId(0)), before);
    }
}

#[test]
fn what_user_space_corrects_holds_and_what_was_placed_meanwhile_too() {
    let Some(bench) = bench("jbsq:8", 1) else { return };
    let before = bench.places.counts(WorkerId(0));
    bench.send(client(bench.listen), &request(|_, _| {}));
    let corrected = SharedCounts { epoch: Some(9), received: 3, concluded: 1, ..before };
    bench.places.correct(WorkerId(0), &before, &corrected);
    assert_eq!(bench.places.counts(WorkerId(0)), SharedCounts { placed: 101, ..corrected });
}

#[test]
fn what_is_for_others_goes_on_untouched() {
    let Some(bench) = bench("rr", 1) else { return };
    let (from, payload) = (client(bench.listen), request(|_, _| {}));
    let other_port = SocketAddr::new(bench.listen.ip(), 8_001);
    for to in [server(bench.listen, 5), other_port] {
        let frame = Frame::new(from, to, &payload).bytes();
        assert_eq!(bench.judge(&frame), (Verdict::Pass, "xdp_others"));
        assert_eq!(bench.run(&frame).packet, frame);
    }
    let frame = Frame::new(client(listen_v6()), listen_v6(), &payload).bytes();
    assert_eq!(bench.judge(&frame), (Verdict::Pass, "xdp_others"));
}

#[test]
fn fragments_and_ip_options_go_up() {
    let Some(bench) = bench("rr", 1) else { return };
    let payload = request(|_, _| {});
    let frame = Frame::new(client(bench.listen), bench.listen, &payload).bytes();
    for (at, bits) in [(20, 0x20), (21, 0x01), (14, 0x03)] {
        let mut other = frame.clone();
        other[at] ^= bits;
        assert_eq!(bench.judge(&other), (Verdict::Pass, "xdp_up_ip"), "byte {at}");
    }
    let Some(bench) = Bench::new(listen_v6(), "rr".parse().expect("a policy"), 1) else { return };
    let mut extended = Frame::new(client(bench.listen), bench.listen, &payload).bytes();
    extended[20] = 44;
    assert_eq!(bench.judge(&extended), (Verdict::Pass, "xdp_up_ip"));
}

#[test]
fn a_server_whose_way_is_not_known_gets_nothing() {
    let Some(bench) = bench("rr", 1) else { return };
    bench.places.set_way(WorkerId(0), way(0, Some(3)));
    let payload = request(|_, _| {});
    let frame = Frame::new(client(bench.listen), bench.listen, &payload).bytes();
    assert_eq!(bench.judge(&frame), (Verdict::Pass, "xdp_up_unresolved"));
    assert_eq!(bench.places.counts(WorkerId(0)).placed, 100, "no place is taken");
}

#[test]
fn without_a_server_everything_goes_up() {
    let Some(mut bench) = bench("jsq:2", 1) else { return };
    let payload = request(|_, _| {});
    let frame = Frame::new(client(bench.listen), bench.listen, &payload).bytes();
    bench.places.set_in_service(WorkerId(0), false);
    assert_eq!(bench.judge(&frame), (Verdict::Pass, "xdp_up_off"));
    bench.places.remove(WorkerId(0), server(bench.listen, 0));
    assert_eq!(bench.judge(&frame), (Verdict::Pass, "xdp_up_off"));
    bench.places.close();
    assert_eq!(bench.judge(&frame), (Verdict::Pass, "xdp_up_off"));
}

#[test]
fn a_frame_that_is_cut_off_anywhere_is_never_placed() {
    let Some(bench) = bench("rr", 1) else { return };
    let payload = request(|_, _| {});
    let frame = Frame::new(client(bench.listen), bench.listen, &payload).bytes();
    // The kernel tests with a whole Ethernet header at least.
    for len in 14..frame.len() {
        let tested = bench.run(&frame[..len]);
        assert!(matches!(tested.verdict, Verdict::Pass | Verdict::Drop), "{len}: {tested:?}");
    }
    assert_eq!(bench.places.counts(WorkerId(0)).placed, 100);
}
