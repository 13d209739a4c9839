//! A warm driver allocates nothing.

use allocation_counter::measure;
use tailcut_net::datapath::Datapath;
use tailcut_net::driver::Wait;
use tailcut_net::udp::SegmentedSend;

use crate::toy::{self, Echo, Pinger, V4};

#[test]
fn a_warm_turn_allocates_nothing() {
    for (outstanding, segmented_send) in
        [(1, SegmentedSend::On), (64, SegmentedSend::On), (64, SegmentedSend::Off)]
    {
        let mut server = toy::driver(V4, Echo::new(segmented_send), Wait::BusyPoll);
        let pinger = Pinger::new(server.port(0).local_address(), 64, outstanding, segmented_send);
        let mut client = toy::driver(V4, pinger, Wait::BusyPoll);
        toy::turn_until(&mut server, &mut client, |_, client| client.completed >= 1_000);
        let counted = measure(|| {
            toy::turn_until(&mut server, &mut client, |_, client| client.completed >= 20_000);
        });
        assert_eq!(
            counted.count_total, 0,
            "{outstanding} outstanding, segmented sends {segmented_send:?}"
        );
    }
}

#[test]
fn a_warm_sleep_allocates_nothing() {
    let mut server = toy::driver(V4, Echo::new(SegmentedSend::On), Wait::Block { spin_ns: 0 });
    let pinger = Pinger::new(server.port(0).local_address(), 64, 1, SegmentedSend::On);
    let mut client = toy::driver(V4, pinger, Wait::Block { spin_ns: 0 });
    let mut run = |answers: u64| {
        while client.node(0).completed < answers {
            client.turn().expect("a turn");
            server.wait(None, None).expect("a sleep");
            server.turn().expect("a turn");
            client.wait(None, None).expect("a sleep");
        }
    };
    run(100);
    assert_eq!(measure(|| run(1_000)).count_total, 0);
}
