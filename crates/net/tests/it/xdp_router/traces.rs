//! Long traces: the program decides as the policies of proto do, step by step, for one state and
//! random word.

use tailcut_net::ebpf::Verdict;
use tailcut_net::ebpf::router::COUNT_NAMES;
use tailcut_proto::conformance::{PlacementPart, PlacementStep, PlacementTrace};
use tailcut_proto::policy::PolicySpec;
use tailcut_proto::policy::WorkerId;
use tailcut_proto::router::SharedPlaces;
use tailcut_wire::r2p2::Packet;

use super::bench::{Bench, Frame, Report, client, listen_v4, listen_v6, request, server};
use super::seal::Seal;

#[test]
fn random_decides_as_the_policy() {
    check("random");
}

#[test]
fn rr_decides_as_the_policy() {
    check("rr");
}

#[test]
fn jsq_decides_as_the_policy() {
    check("jsq:2");
}

#[test]
fn jbsq_decides_as_the_policy() {
    check("jbsq:1");
    check("jbsq:3");
}

#[test]
fn a_wrong_bound_is_seen() {
    for is_sealed in [false, true] {
        let Some(difference) = first_difference("jbsq:3", "jbsq:4", is_sealed) else { return };
        assert!(difference.is_some(), "no step of the trace tells a bound of 3 from one of 4");
    }
}

/// No step differs, whatever the number of servers.
fn check(policy: &str) {
    for is_sealed in [false, true] {
        let Some(difference) = first_difference(policy, policy, is_sealed) else { return };
        assert_eq!(difference, None, "{policy}, sealed: {is_sealed}");
    }
}

/// The first step of a policy's trace at which the program with its own policy decides otherwise,
/// if there is one; nothing where programs cannot be loaded.
fn first_difference(program: &str, policy: &str, is_sealed: bool) -> Option<Option<String>> {
    let spec = |text: &str| text.parse::<PolicySpec>().expect("a policy");
    for part in PlacementTrace::new(spec(policy)).parts {
        let listen = if part.servers.is_multiple_of(2) { listen_v4() } else { listen_v6() };
        let seal = is_sealed.then(Seal::new);
        let bench = Bench::with(listen, (spec(program), part.servers), seal)?;
        for (index, step) in part.steps.iter().enumerate() {
            if let Some(found) = other_than(&bench, &part, *step) {
                let servers = part.servers;
                return Some(Some(format!(
                    "{servers} servers, step {index}: {found:?}, not {step}"
                )));
            }
        }
    }
    Some(None)
}

/// Decision of the program at a step, where that is another than the trace's.
fn other_than(
    bench: &Bench,
    part: &PlacementPart,
    step: PlacementStep,
) -> Option<Option<(u16, u32)>> {
    match step {
        PlacementStep::Place { word, chosen } => {
            let found = place(bench, part.servers, word);
            (found != chosen).then_some(found)
        }
        PlacementStep::Report { server: slot, seen, received, concluded } => {
            let report = Report { seen, received, concluded };
            let mut bytes = report.bytes(|_, _| {});
            if let Some(seal) = &bench.seal {
                bytes = seal.report(slot, &bytes);
            }
            let told = bench.send(server(bench.listen, slot), &bytes);
            assert_eq!(told.verdict, Verdict::Drop, "the program takes {step}");
            None
        }
        PlacementStep::Service { server, is_in_service } => {
            bench.places.set_in_service(WorkerId(server.into()), is_in_service);
            None
        }
    }
}

/// The server and the placement that the program gives a request.
fn place(bench: &Bench, servers: u16, word: u64) -> Option<(u16, u32)> {
    bench.xdp.set_random(word);
    let mut payload = request(|_, _| {});
    let frame = |payload: &[u8]| Frame::new(client(bench.listen), bench.listen, payload).bytes();
    let tested = match &bench.seal {
        None => bench.run(&frame(&payload)),
        // An id whose slot another one has changes nothing: the next is decided alike.
        Some(seal) => loop {
            payload = seal.request(&request(|_, _| {}));
            let known = COUNT_NAMES.iter().position(|&name| name == "xdp_up_known");
            let known = known.expect("a counter");
            let before = bench.xdp.count(known);
            let tested = bench.run(&frame(&payload));
            if tested.verdict != Verdict::Pass || bench.xdp.count(known) == before {
                break tested;
            }
        },
    };
    if tested.verdict == Verdict::Pass {
        return None;
    }
    assert_eq!(tested.verdict, Verdict::Transmit);
    let (payload_at, to) = if bench.listen.is_ipv4() { (42, 36) } else { (62, 56) };
    let port = u16::from_be_bytes([tested.packet[to], tested.packet[to + 1]]);
    let mut all = 0..servers;
    let slot = all.find(|&slot| server(bench.listen, slot).port() == port);
    let slot = slot.expect("a server's port");
    let sent = &tested.packet[payload_at..];
    let placement = u32::from_be_bytes(*sent[68..].first_chunk().expect("a route"));
    match &bench.seal {
        None => {
            let packet = Packet::parse(sent).expect("a packet");
            assert_eq!(packet.route().expect("a route").placement.get(), placement);
        }
        Some(seal) => assert_eq!(sent, seal.placed(slot, &payload, placement)),
    }
    Some((slot, placement))
}
