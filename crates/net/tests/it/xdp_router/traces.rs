//! Long traces: the program decides as the policies of proto do, step by step, for one state and random word.

use std::net::SocketAddr;

use tailcut_net::ebpf::Verdict;
use tailcut_proto::policy::{Draws, Loads, OUT_OF_SERVICE, Placement, PolicySpec, WorkerId};
use tailcut_proto::router::SharedPlaces;
use tailcut_wire::r2p2::Packet;

use super::bench::{Bench, Report, client, listen_v4, listen_v6, request, server};

/// Of each policy.
const STEPS: usize = 20_000;

/// Servers of each part of a trace: few, many, and as many as there can be.
const SERVERS: [u16; 5] = [1, 2, 4, 9, 32];

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
    let (program, model) = ("jbsq:3", "jbsq:4");
    let Some(difference) = first_difference(program, model, 4) else { return };
    assert!(difference.is_some(), "no step of the trace tells a bound of 3 from one of 4");
}

/// No step differs, whatever the number of servers.
fn check(policy: &str) {
    for servers in SERVERS {
        let Some(difference) = first_difference(policy, policy, servers) else { return };
        assert_eq!(difference, None, "{policy} over {servers} servers");
    }
}

/// A server as the trace has it.
#[derive(Clone, Copy)]
struct Server {
    addr: SocketAddr,
    report: Report,
    placed: u32,
    is_in_service: bool,
}

impl Server {
    fn outstanding(&self) -> u32 {
        let Report { seen, received, concluded } = self.report;
        self.placed - seen + received - concluded
    }

    fn load(&self) -> u32 {
        if self.is_in_service { self.outstanding() } else { OUT_OF_SERVICE }
    }
}

/// The first step of a trace in which the program and the policy differ, if there is one; nothing where
/// programs cannot be loaded.
fn first_difference(program: &str, policy: &str, count: u16) -> Option<Option<String>> {
    let spec = |text: &str| text.parse::<PolicySpec>().expect("a policy");
    let listen = if count.is_multiple_of(2) { listen_v4() } else { listen_v6() };
    let bench = Bench::new(listen, spec(program), count)?;
    let mut model = spec(policy).build();
    let addr = |slot| server(listen, slot);
    let report = Report { seen: 100, ..Report::default() };
    let new = |slot| Server { addr: addr(slot), report, placed: 100, is_in_service: true };
    let mut servers: Vec<Server> = (0..count).map(new).collect();
    let mut draws = Draws::new(u64::from(count));
    for step in 0..STEPS / SERVERS.len() {
        let index = draws.below(count.into()) as usize;
        match draws.below(100) {
            0..60 => {
                let word = draws.word();
                let expected = expect(&mut *model, &mut servers, word);
                let found = place(&bench, &servers, word);
                if found != expected {
                    return Some(Some(format!("step {step}: {found:?}, not {expected:?}")));
                }
            }
            60..95 => report_progress(&bench, &mut servers[index], &mut draws),
            _ => {
                servers[index].is_in_service ^= true;
                bench.places.set_in_service(index as u16, servers[index].is_in_service);
            }
        }
    }
    Some(None)
}

/// The server and the placement number that the policy gives the next request.
fn expect(
    model: &mut dyn tailcut_proto::policy::Policy,
    servers: &mut [Server],
    word: u64,
) -> Option<(usize, u32)> {
    let outstanding: Vec<u32> = servers.iter().map(Server::load).collect();
    let zeros = vec![0; servers.len()];
    let loads = Loads { outstanding: &outstanding, reported: &zeros, waiting: &zeros };
    match model.place(loads, word) {
        Placement::Hold => None,
        Placement::One(WorkerId(index)) => {
            let server = &mut servers[index as usize];
            server.placed += 1;
            Some((index as usize, server.placed))
        }
        two => panic!("{two:?}"),
    }
}

/// Those that the program gives it.
fn place(bench: &Bench, servers: &[Server], word: u64) -> Option<(usize, u32)> {
    bench.xdp.set_random(word);
    let tested = bench.send(client(bench.listen), &request(|_, _| {}));
    if tested.verdict == Verdict::Pass {
        return None;
    }
    assert_eq!(tested.verdict, Verdict::Transmit);
    let (payload, to) = if bench.listen.is_ipv4() { (42, 36) } else { (62, 56) };
    let port = u16::from_be_bytes([tested.packet[to], tested.packet[to + 1]]);
    let index =
        servers.iter().position(|server| server.addr.port() == port).expect("a server's port");
    let packet = Packet::parse(&tested.packet[payload..]).expect("a packet");
    Some((index, packet.route().expect("a route").placement.get()))
}

/// The server gets some of what was placed there, loses some, and ends some of what it has.
fn report_progress(bench: &Bench, server: &mut Server, draws: &mut Draws) {
    let report = &mut server.report;
    let came = draws.below(server.placed - report.seen + 1);
    let lost = draws.below(came + 1) / 4;
    report.seen += came;
    report.received += came - lost;
    report.concluded += draws.below(report.received - report.concluded + 1);
    let told = bench.send(server.addr, &report.bytes(|_, _| {}));
    assert_eq!(told.verdict, Verdict::Drop, "the program takes it");
}
