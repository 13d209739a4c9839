//! A warm engine allocates nothing for an event.

use allocation_counter::measure;
use tailcut_proto::policy::Draws;
use tailcut_sim::agenda::Agenda;
use tailcut_sim::fabric::topology::{Link, Spreading, Switch, Topology};
use tailcut_sim::fabric::{Event, Fabric, Happening, Packet};

/// Every host keeps a few packets under way; packets and events go round.
#[test]
fn links_and_switches_allocate_nothing_when_warm() {
    let topology = Topology::LeafSpine {
        racks: 4,
        hosts_per_rack: 8,
        spines: 2,
        host_link: Link::new(10.0, 200),
        spine_link: Link::new(40.0, 200),
        switch: Switch { delay_ps: 250_000, ..Switch::default() },
        spreading: Spreading::Spray,
    };
    let (mut fabric, mut agenda, mut draws) = (Fabric::new(&topology, 1), Agenda::<Event>::new(), Draws::new(2));
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
