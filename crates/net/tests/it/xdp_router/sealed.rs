//! Decisions of the program on sealed packets.

use std::net::SocketAddr;

use tailcut_net::clock::Clock;
use tailcut_net::ebpf::Verdict;
use tailcut_proto::policy::WorkerId;
use tailcut_proto::router::SharedPlaces;
use tailcut_wire::r2p2::{MessageType, ReplyRepr, RequestRepr, RpcId, Segment};
use zerocopy::IntoBytes;

use super::bench::{
    Bench, Frame, Report, client, listen_v4, listen_v6, placed_frame, request, server, way,
};
use super::seal::{CLIENT, NAME, SESSION, Said, Seal, hop_sealed, names, plane, sealed};

fn bench(policy: &str, servers: u16) -> Option<Bench> {
    let spec = (policy.parse().expect("a policy"), servers);
    Bench::with(listen_v4(), spec, Some(Seal::new()))
}

fn seal(bench: &Bench) -> &Seal {
    bench.seal.as_ref().expect("it is sealed")
}

/// Verdict on a payload from the client, and the counter that it raises.
fn judge(bench: &Bench, payload: &[u8]) -> (Verdict, &'static str) {
    bench.judge(&Frame::new(client(bench.listen), bench.listen, payload).bytes())
}

/// Verdict on a request that says something else, and the counter that it raises.
fn judge_said(bench: &Bench, change: impl FnOnce(&mut Said)) -> (Verdict, &'static str) {
    let mut said = seal(bench).said();
    change(&mut said);
    judge(bench, &sealed(&request(|_, _| {}), said))
}

/// As [`request`], with a payload of so many bytes.
fn request_of(len: u32) -> Vec<u8> {
    let segment = Segment { message_len: len, segment_len: 1_300, ..Segment::CONTROL };
    let mut bytes = request(|repr, _| repr.segment = segment);
    bytes.resize(72 + len as usize, 0x5a);
    bytes
}

/// The trailer is at even and at odd places, which counts for the checksum.
#[test]
fn a_request_leaves_sealed_for_its_server() {
    for (listen, vlan) in [(listen_v4(), None), (listen_v6(), None), (listen_v4(), Some(12))] {
        let spec = ("jbsq:8".parse().expect("a policy"), 1);
        let Some(bench) = Bench::with(listen, spec, Some(Seal::new())) else { return };
        bench.places.set_way(WorkerId(0), way(0, vlan));
        for (index, len) in [0, 1, 4, 5, 33, 1_201, 1_300].into_iter().enumerate() {
            let (from, payload) = (client(listen), seal(&bench).request(&request_of(len)));
            let frame = Frame { vlan, ..Frame::new(from, listen, &payload) }.bytes();
            let placed = bench.run(&frame);
            let expected = seal(&bench).placed(0, &payload, 101 + index as u32);
            let expected = placed_frame((from, server(listen, 0)), (0, vlan), &expected);
            assert_eq!((placed.verdict, placed.packet), (Verdict::Transmit, expected), "{len} B");
        }
    }
}

/// The program cannot see the tag.
#[test]
fn a_sealed_request_of_several_buffers_goes_up() {
    let Some(bench) = bench("rr", 1) else { return };
    let payload = seal(&bench).request(&request_of(6_000));
    assert_eq!(judge(&bench, &payload), (Verdict::Pass, "xdp_up_several"));
}

/// Every bit that a tag covers, and every bit of the tag.
#[test]
fn a_request_of_which_any_bit_is_changed_is_placed_nowhere() {
    let Some(bench) = bench("rr", 1) else { return };
    let payload = seal(&bench).request(&request(|_, _| {}));
    let covered = (0..72).chain(payload.len() - 32..payload.len());
    let mut forged = 0;
    for at in covered {
        for bit in 0..8 {
            let mut other = payload.clone();
            other[at] ^= 1 << bit;
            let (verdict, counter) = judge(&bench, &other);
            assert!(matches!(verdict, Verdict::Pass | Verdict::Drop), "{at}, {bit}: {counter}");
            forged += u32::from(counter == "xdp_dropped_forged");
        }
    }
    assert_eq!(bench.places.counts(WorkerId(0)).placed, 100);
    // The others are no requests of one packet, or of a session that is not known.
    assert!(forged > 400, "{forged}");
    assert_eq!(judge_said(&bench, |_| ()), (Verdict::Transmit, "xdp_placed"));
}

#[test]
fn a_request_is_placed_once() {
    let Some(bench) = bench("rr", 2) else { return };
    let payload = seal(&bench).request(&request(|_, _| {}));
    assert_eq!(judge(&bench, &payload), (Verdict::Transmit, "xdp_placed"));
    for _ in 0..3 {
        assert_eq!(judge(&bench, &payload), (Verdict::Pass, "xdp_up_known"));
    }
    // From elsewhere, it is of no session that is known.
    let other = SocketAddr::new(client(bench.listen).ip(), 7);
    let frame = Frame::new(other, bench.listen, &payload).bytes();
    assert_eq!(bench.judge(&frame), (Verdict::Pass, "xdp_up_session"));
    let other = SocketAddr::from(([10, 9, 8, 6], client(bench.listen).port()));
    let frame = Frame::new(other, bench.listen, &payload).bytes();
    assert_eq!(bench.judge(&frame), (Verdict::Pass, "xdp_up_session"));
    assert_eq!(
        bench.places.counts(WorkerId(0)).placed + bench.places.counts(WorkerId(1)).placed,
        201
    );
}

/// An id that either has taken is not placed again by the other.
#[test]
fn user_space_takes_ids_where_the_program_does() {
    let Some(bench) = bench("jbsq:1", 2) else { return };
    let until = Clock.now() + 2_000_000_000;
    let take = |said: Said| {
        let rpc_id = said.session << 24 | u64::from(said.sequence);
        bench.places.take_id(Clock.now(), (CLIENT, rpc_id), until)
    };
    let said = seal(&bench).said();
    assert_eq!(take(said), None);
    let of_user_space = sealed(&request(|_, _| {}), said);
    assert_eq!(judge(&bench, &of_user_space), (Verdict::Pass, "xdp_up_known"));
    for slot in 0..2 {
        let said = seal(&bench).said();
        let payload = sealed(&request(|_, _| {}), said);
        assert_eq!(judge(&bench, &payload), (Verdict::Transmit, "xdp_placed"));
        assert_eq!(
            take(said),
            Some(WorkerId(slot)),
            "the server on which the program has placed it"
        );
        assert_eq!(take(said), Some(WorkerId(slot)));
    }
    // One that finds no place is not taken.
    let said = seal(&bench).said();
    let payload = sealed(&request(|_, _| {}), said);
    assert_eq!(judge(&bench, &payload), (Verdict::Pass, "xdp_up_full"));
    assert_eq!(take(said), None);
}

#[test]
fn what_is_late_early_ended_or_of_nobody_is_not_placed() {
    let Some(bench) = bench("rr", 1) else { return };
    let placed = (Verdict::Transmit, "xdp_placed");
    let up = (Verdict::Pass, "xdp_up_session");
    assert_eq!(judge_said(&bench, |said| said.ago_ms = 50), placed);
    assert_eq!(judge_said(&bench, |said| said.ago_ms = 200), up);
    assert_eq!(judge_said(&bench, |said| said.ago_ms = -50), placed);
    assert_eq!(judge_said(&bench, |said| said.ago_ms = -300), up);
    let outdated = (Verdict::Drop, "xdp_dropped_outdated");
    assert_eq!(judge_said(&bench, |said| said.ago_ms = 1_300), outdated);
    let long = |said: &mut Said| (said.deadline_ms, said.ago_ms) = (60_000, 1_300);
    assert_eq!(judge_said(&bench, long), up);
    assert_eq!(judge_said(&bench, |said| said.receiver = 0), up);
    assert_eq!(judge_said(&bench, |said| said.session = SESSION + 1), up);
    assert_eq!(judge_said(&bench, |said| said.epoch = 8), up);
    assert_eq!(judge_said(&bench, |said| said.epoch = 3), up);
    let forged = (Verdict::Drop, "xdp_dropped_forged");
    assert_eq!(judge_said(&bench, |said| said.receiver = NAME + 0x100), forged);
    assert_eq!(judge_said(&bench, |said| said.floor = said.sequence), placed);
    let before = |said: &mut Said| said.sequence = 50;
    assert_eq!(judge_said(&bench, before), (Verdict::Drop, "xdp_dropped_replayed"));
}

/// Nothing is placed of an epoch that goes, nor under another name what named the one before.
#[test]
fn keys_and_names_change_while_it_runs() {
    let Some(bench) = bench("rr", 1) else { return };
    let placed = (Verdict::Transmit, "xdp_placed");
    assert_eq!(judge_said(&bench, |_| ()), placed);
    let mut other = plane();
    other.name += 0x100;
    bench.places.set_seal(&other, 10_000_000);
    assert_eq!(judge_said(&bench, |_| ()), (Verdict::Drop, "xdp_dropped_forged"));
    assert_eq!(judge_said(&bench, |said| said.receiver += 0x100), placed);
    let mut epochs = plane();
    for number in [8, 9] {
        epochs
            .epochs
            .push(tailcut_proto::sealed::PlaneEpoch { number, ..epochs.epochs[0].clone() });
    }
    bench.places.set_seal(&epochs, 10_000_000);
    assert_eq!(judge_said(&bench, |_| ()), placed, "it is still accepted");
    epochs.epochs.remove(0);
    bench.places.set_seal(&epochs, 10_000_000);
    assert_eq!(judge_said(&bench, |_| ()), (Verdict::Pass, "xdp_up_session"));
    // Its number comes again, for an epoch that begins later.
    let mut again = plane();
    again.epochs[0].from_ms += 1;
    bench.places.set_seal(&again, 10_000_000);
    assert_eq!(judge_said(&bench, |_| ()), (Verdict::Pass, "xdp_up_session"));
}

#[test]
fn a_server_whose_name_is_not_known_gets_nothing() {
    let Some(bench) = bench("rr", 1) else { return };
    bench.places.set_names(WorkerId(0), (0, 0));
    assert_eq!(judge_said(&bench, |_| ()), (Verdict::Pass, "xdp_up_unresolved"));
    bench.places.set_names(WorkerId(0), names(0));
    assert_eq!(judge_said(&bench, |_| ()), (Verdict::Transmit, "xdp_placed"));
}

#[test]
fn open_packets_are_dropped() {
    let Some(bench) = bench("rr", 1) else { return };
    let unsealed = (Verdict::Drop, "xdp_dropped_unsealed");
    assert_eq!(judge(&bench, &request(|_, _| {})), unsealed);
    assert_eq!(judge(&bench, b"\xcc\x08\x00\xc0\x00\x01\x00\x011234"), unsealed);
    let report = Report { seen: 100, received: 1, concluded: 1 }.bytes(|_, _| {});
    let frame = Frame::new(server(bench.listen, 0), bench.listen, &report).bytes();
    assert_eq!(bench.judge(&frame), unsealed);
    assert_eq!(bench.places.counts(WorkerId(0)).received, 0);
    let mut request = seal(&bench).request(&request(|_, _| {}));
    request[21] = 3;
    assert_eq!(judge(&bench, &request), (Verdict::Drop, "xdp_dropped_version"));
    request.truncate(100);
    request[21] = 2;
    assert_eq!(judge(&bench, &request), (Verdict::Drop, "xdp_dropped_truncated"));
}

#[test]
fn a_report_counts_once_and_only_if_it_is_genuine() {
    let Some(bench) = bench("jbsq:2", 1) else { return };
    let from = server(bench.listen, 0);
    let hear = |bytes: &[u8]| bench.judge(&Frame::new(from, bench.listen, bytes).bytes());
    let report = |received| Report { seen: 100, received, concluded: received }.bytes(|_, _| {});
    let (name, alias) = names(0);
    let first = hop_sealed(&report(1), (name | 5, alias), 1_000);
    for at in 0..first.len() {
        for bit in 0..8 {
            let mut other = first.clone();
            other[at] ^= 1 << bit;
            assert_ne!(hear(&other).1, "xdp_feedback_taken", "{at}, {bit}");
        }
    }
    assert_eq!(bench.places.counts(WorkerId(0)).received, 0);
    let taken = (Verdict::Drop, "xdp_feedback_taken");
    assert_eq!(hear(&first), taken);
    assert_eq!(bench.places.heard(WorkerId(0)), (1_000, 0));
    let replayed = (Verdict::Drop, "xdp_dropped_replayed");
    assert_eq!(hear(&first), replayed);
    assert_eq!(hear(&hop_sealed(&report(2), (name, alias), 1_000)), replayed);
    assert_eq!(hear(&hop_sealed(&report(2), (name, alias), 1_001)), taken);
    let up = (Verdict::Pass, "xdp_up_feedback");
    assert_eq!(hear(&hop_sealed(&report(3), (name + 0x100, alias), 2_000)), up);
    assert_eq!(hear(&hop_sealed(&report(3), (name, alias + 1), 2_000)), up);
    assert_eq!(bench.places.counts(WorkerId(0)).received, 2);
    bench.places.want_feedback(WorkerId(0));
    assert_eq!(hear(&hop_sealed(&report(3), (name, alias), 1 << 50)), up);
    assert_eq!(bench.places.heard(WorkerId(0)), (1_001, 1 << 50), "user space takes that one");
    let frame = Frame::new(client(bench.listen), bench.listen, &first).bytes();
    assert_eq!(bench.judge(&frame), (Verdict::Drop, "xdp_dropped_stranger"));
}

#[test]
fn what_else_comes_goes_up_as_at_an_open_router() {
    let Some(bench) = bench("rr", 1) else { return };
    let probe = RequestRepr::control(MessageType::Probe, 1, RpcId(1)).header().as_bytes().to_vec();
    let ack = ReplyRepr::control(MessageType::Ack, 1, RpcId(1)).header().as_bytes().to_vec();
    for bytes in [probe, ack] {
        let bytes = hop_sealed(&bytes, names(0), 5);
        let frame = |from| Frame::new(from, bench.listen, &bytes).bytes();
        let known = bench.judge(&frame(server(bench.listen, 0)));
        assert_eq!(known, (Verdict::Pass, "xdp_up_control"));
        let stranger = bench.judge(&frame(client(bench.listen)));
        assert_eq!(stranger, (Verdict::Drop, "xdp_dropped_stranger"));
    }
    let again = request(|repr, _| repr.flags = tailcut_wire::r2p2::Flags::RETRANSMIT);
    let again = seal(&bench).request(&again);
    assert_eq!(judge(&bench, &again), (Verdict::Pass, "xdp_up_retransmit"));
}
