//! A warm engine allocates nothing for an event, and warm Homa endpoints nothing for a packet.

use std::net::SocketAddr;

use allocation_counter::measure;
use tailcut_proto::homa::{Config, Cutoffs, Endpoint};
use tailcut_proto::netclone::{Switch as NetCloneSwitch, SwitchConfig};
use tailcut_proto::node::{GSO_BYTES_MAX, Node, Time};
use tailcut_proto::policy::{Draws, PolicySpec};
use tailcut_proto::r2p2;
use tailcut_proto::rpc::{Call, CallOptions, Event as RpcEvent, Rpc};
use tailcut_proto::scheduler::{Cloning, Outcome, Scheduler};
use tailcut_sim::agenda::Agenda;
use tailcut_sim::fabric::port::Link;
use tailcut_sim::fabric::topology::{Racks, Spreading, Switch, Topology};
use tailcut_sim::fabric::{Event, Fabric, Happening, Packet};
use tailcut_wire::netclone::Header;
use tailcut_wire::r2p2::{MessageType, RequestRepr, RpcId, Segment, SessionId};
use zerocopy::{FromBytes, IntoBytes};

/// Every host keeps a few packets under way; packets and events go round.
#[test]
fn links_and_switches_allocate_nothing_when_warm() {
    let (link, spreading) = (Link::new(40.0, 200), Spreading::Spray);
    let topology = Topology {
        link: Link::new(10.0, 200),
        switch: Switch { delay_ps: 250_000, ..Switch::default() },
        racks: Some(Racks { hosts: 8, spines: 2, link, spreading, pods: None }),
    };
    let (mut fabric, mut agenda, mut draws) =
        (Fabric::new(&topology, 32, 1), Agenda::<Event>::new(), Draws::new(2));
    let mut send = |fabric: &mut Fabric, agenda: &mut Agenda<Event>, now: u64, from: u32| {
        let to = (from + 1 + draws.below(31)) % 32;
        let packet = Packet { from, to, wire_bytes: 84 + draws.below(1454), ..Packet::default() };
        fabric.send(now, packet, agenda);
    };
    (0..128).for_each(|index| send(&mut fabric, &mut agenda, 0, index % 32));
    let mut run = |events: u64| {
        for _ in 0..events {
            let (now, event) = agenda.pop().expect("packets are always under way");
            if let Some(Happening::Delivered(packet)) = fabric.handle(now, event, &mut agenda) {
                send(&mut fabric, &mut agenda, now, packet.to);
            }
        }
    };
    run(1_000_000);
    let counted = measure(|| run(1_000_000));
    assert_eq!(counted.count_total, 0);
}

/// A bucket of the agenda, and the list that is being emptied, hold what they ever held.
#[test]
fn an_agenda_allocates_nothing_when_warm() {
    let (mut agenda, mut draws) = (Agenda::new(), Draws::new(3));
    (0..1000u64).for_each(|event| agenda.post(event * 1000, event));
    let mut run = |events: u64| {
        for _ in 0..events {
            let (now, event) = agenda.pop().expect("an event is always pending");
            agenda.post(now + draws.word() % 2_000_000, event);
        }
    };
    run(1_000_000);
    assert_eq!(measure(|| run(1_000_000)).count_total, 0);
}

/// Two Homa endpoints and the datagrams between them.
struct Ends {
    now: Time,
    nodes: [Endpoint; 2],
    addresses: [SocketAddr; 2],
    buffer: Vec<u8>,
}

impl Ends {
    fn new(config: &Config) -> Self {
        let nodes = [1, 2]
            .map(|secret| Endpoint::new(0, Config { secret: [secret; 16], ..config.clone() }));
        let addresses = [([10, 0, 0, 1], 33_000).into(), ([10, 0, 0, 2], 8000).into()];
        Self { now: 1, nodes, addresses, buffer: vec![0; GSO_BYTES_MAX] }
    }

    /// Calls of these lengths, echoed.
    fn round(&mut self, lens: &[usize]) {
        for &len in lens {
            let mut payload = self.nodes[0].buffer();
            payload.resize(len, 7);
            let (target, deadline, options) =
                (self.addresses[1], self.now + 1_000_000_000, CallOptions::default());
            self.nodes[0]
                .call(self.now, Call { target, payload, deadline, context: 0, options })
                .unwrap();
        }
        let mut answered = 0;
        while answered < lens.len() {
            self.now += 5000;
            for from in 0..2 {
                self.nodes[from].handle_timeout(self.now);
                while let Some(transmit) =
                    self.nodes[from].poll_transmit(self.now, &mut self.buffer)
                {
                    for datagram in self.buffer[..transmit.len].chunks_mut(transmit.segment_len) {
                        self.nodes[1 - from].handle_datagram(
                            self.now,
                            self.addresses[from].into(),
                            datagram,
                        );
                    }
                }
            }
            while let Some(event) = self.nodes[1].poll_event() {
                if let RpcEvent::Request { id, payload, .. } = event {
                    self.nodes[1].reply(self.now, id, payload).unwrap();
                }
            }
            while let Some(event) = self.nodes[0].poll_event() {
                if let RpcEvent::Replied { payload, .. } = event {
                    self.nodes[0].recycle(payload);
                    answered += 1;
                }
            }
        }
    }
}

#[test]
fn homa_endpoints_allocate_nothing_when_warm() {
    let module = Config::default();
    let sigcomm = Config::sigcomm(4, Cutoffs::descending(&[469, 5521, 15_267], 1));
    for config in [module, sigcomm] {
        let mut ends = Ends::new(&config);
        let mut run = |rounds: usize| {
            (0..rounds).for_each(|_| ends.round(&[100_000, 100, 5000, 20_000, 100, 100]))
        };
        run(2000);
        assert_eq!(measure(|| run(2000)).count_total, 0);
    }
}

/// 76 bytes from each of 100 000 sessions of 2000 clients on this host, each answered at once: 7.6
/// MB in all. The memory of sessions is bounded apart from the bytes held, which are few here.
#[test]
fn a_hundred_thousand_sessions_cost_a_server_little_memory() {
    let mut buffer = vec![0; GSO_BYTES_MAX];
    let counted = measure(|| {
        let config = r2p2::Config { secret: [9; 16], ..r2p2::Config::default() };
        let mut server = r2p2::Endpoint::new(0, config);
        for session in 0..100_000u32 {
            let from = SocketAddr::from(([127, 0, 0, 1], 10_000 + (session % 2000) as u16));
            let segment = Segment { message_len: 4, segment_len: 1380, index: 0, count: 1 };
            let id = RpcId::new(SessionId(u64::from(session) + 1), 60_000);
            let repr = RequestRepr { segment, ..RequestRepr::control(MessageType::Request, 1, id) };
            let mut datagram = [0; 76];
            repr.emit(&mut datagram).copy_from_slice(b"ping");
            server.handle_datagram(1, from.into(), &mut datagram);
            while let Some(event) = server.poll_event() {
                if let RpcEvent::Request { id, payload, .. } = event {
                    server.reply(1, id, payload).unwrap();
                }
            }
            while server.poll_transmit(1, &mut buffer).is_some() {}
        }
        assert!(server.metrics().requests > 50_000);
    });
    assert!(counted.bytes_max < 96 << 20, "{} bytes", counted.bytes_max);
}

/// Every policy, those that clone among them, over servers that report.
#[test]
fn a_placement_allocates_nothing_whatever_the_policy() {
    let placing = ["rr", "jbsq:2", "racksched"];
    let cloning = ["netclone", "netclone+racksched", "laedge:2", "jbsq:2+clone", "auto-clone"];
    for policy in placing.into_iter().chain(cloning) {
        let spec: PolicySpec = policy.parse().unwrap();
        let mut scheduler = Scheduler::new(spec.build(), 64);
        let workers: Vec<_> = (0..8).map(|_| scheduler.add_worker()).collect();
        let mut draws = Draws::new(4);
        let (mut clones, mut placed) = (0, [None; 4]);
        let mut run = |items: u64| {
            for item in 0..items {
                for worker in placed[item as usize % 4].take().into_iter().flatten() {
                    scheduler.set_reported(worker, 1, draws.below(4) / 3);
                    scheduler.conclude(worker);
                }
                // Who is passed over because somebody waited there is heard again too.
                scheduler.set_reported(workers[item as usize % 8], 1, draws.below(4) / 3);
                let random = draws.word();
                match scheduler.offer(item, Cloning::Allowed, Time::MAX, random) {
                    Outcome::Placed(workers, _) => {
                        clones += usize::from(workers.into_iter().count() == 2);
                        placed[item as usize % 4] = Some(workers);
                    }
                    other => panic!("{policy}: {other:?}"),
                }
            }
        };
        run(1_000);
        assert_eq!(measure(|| run(10_000)).count_total, 0, "{policy}");
        assert_eq!(clones > 100, cloning.contains(&policy), "{policy}");
    }
}

#[test]
fn a_switch_allocates_nothing_when_warm() {
    let server = |index: u16| SocketAddr::from(([10, 0, 0, 1], 1_000 + index));
    let client = SocketAddr::from(([10, 0, 0, 2], 40_000));
    let servers = vec![server(0), server(1)];
    let mut switch =
        NetCloneSwitch::new(0, SwitchConfig { servers, ..SwitchConfig::default() }).unwrap();
    let mut buffer = [0; 2_000];
    let mut forwarded = 0;
    let mut run = |requests: u64| {
        for now in 0..requests {
            let mut request = Header { grp: 1.into(), ..Header::default() };
            switch.handle_datagram(now, client.into(), request.as_mut_bytes());
            while let Some(transmit) = switch.poll_transmit(now, &mut buffer) {
                if transmit.to == client {
                    forwarded += 1;
                    continue;
                }
                let (header, _) = Header::mut_from_prefix(&mut buffer).unwrap();
                let sid = u32::from(transmit.to.port()) - 1_000;
                (header.op, header.sid) = (1.into(), sid.into());
                switch.handle_datagram(now, transmit.to.into(), header.as_mut_bytes());
            }
        }
    };
    run(1_000);
    assert_eq!(measure(|| run(10_000)).count_total, 0);
    assert_eq!(forwarded, 11_000);
}
