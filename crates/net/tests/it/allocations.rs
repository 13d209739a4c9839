//! A warm driver allocates nothing.

use allocation_counter::measure;
use tailcut_net::datapath::Datapath;
use tailcut_net::driver::Wait;
use tailcut_net::udp::Coalescing;

use crate::toy::{self, Echo, Pinger, V4};

#[test]
fn a_warm_turn_allocates_nothing() {
    for (outstanding, coalescing) in
        [(1, Coalescing::On), (64, Coalescing::On), (64, Coalescing::Off)]
    {
        let mut server = toy::driver(V4, Echo::new(coalescing), Wait::BusyPoll);
        let pinger = Pinger::new(server.port(0).local_address(), 64, outstanding, coalescing);
        let mut client = toy::driver(V4, pinger, Wait::BusyPoll);
        toy::turn_until(&mut server, &mut client, |_, client| client.completed >= 1_000);
        let counted = measure(|| {
            toy::turn_until(&mut server, &mut client, |_, client| client.completed >= 20_000);
        });
        assert_eq!(counted.count_total, 0, "{outstanding} outstanding, coalescing {coalescing:?}");
    }
}

#[test]
fn a_warm_sleep_allocates_nothing() {
    let mut server = toy::driver(V4, Echo::new(Coalescing::On), Wait::Block { spin_ns: 0 });
    let pinger = Pinger::new(server.port(0).local_address(), 64, 1, Coalescing::On);
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
