//! Two routers before the same servers, over real sockets: one dies under load, and every call is
//! answered, and none runs twice.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use tailcut::{Client, ClientBuilder};
use tailcut_net::clock::Clock;
use tailcut_net::datapath::Datapath;
use tailcut_net::driver::{Driver, Wait};
use tailcut_net::udp::{UdpConfig, UdpPort};
use tailcut_proto::node::Time;
use tailcut_proto::router::{Router, RouterConfig, ServerConfig, ServerState, Speaks};

use crate::library::{OnDrop, R2P2, server};

/// A process that ends: its port tells who sends that nobody listens.
#[test]
fn calls_move_on_from_a_router_whose_process_dies() {
    check(CLOSED);
}

/// A machine that dies says nothing: what is sent there is lost.
#[test]
fn calls_move_on_from_a_router_whose_machine_dies() {
    check(MUTE);
}

/// Makes calls through two routers, of which the first meets this fate in their midst.
fn check(fate: u8) {
    let runs: Vec<AtomicU64> = (0..CALLS).map(|_| AtomicU64::new(0)).collect();
    let mut servers = [server(R2P2), server(R2P2)];
    let addresses = [servers[0].local_address(), servers[1].local_address()];
    let stops = [servers[0].stop_handle(), servers[1].stop_handle()];
    let fates = [AtomicU8::new(ALIVE), AtomicU8::new(ALIVE)];
    let ready = AtomicU64::new(0);
    let answered = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let guard = OnDrop(Some(|| {
            stops.iter().for_each(|stop| stop.stop());
            fates.iter().for_each(|fate| fate.store(CLOSED, Ordering::SeqCst));
        }));
        for server in &mut servers {
            let runs = &runs;
            scope.spawn(move || {
                let count = |bytes: &[u8]| {
                    let number = u64::from_le_bytes(bytes.try_into().expect("a number"));
                    runs[number as usize].fetch_add(1, Ordering::SeqCst);
                };
                server.run(|request| {
                    count(request.bytes());
                    let _ = request.reply_in_place(|_| ());
                })
            });
        }
        let routers = [(); 2].map(|()| router(addresses));
        let targets = [routers[0].port(0).local_address(), routers[1].port(0).local_address()];
        for (driver, fate) in routers.into_iter().zip(&fates) {
            let ready = &ready;
            scope.spawn(move || route(driver, fate, ready));
        }
        while ready.load(Ordering::SeqCst) < 2 {
            std::thread::park_timeout(Duration::from_millis(1));
        }
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let progress = (&answered, &fates[0]);
                scope.spawn(move || call_all(client, targets, progress))
            })
            .collect();
        while answered.load(Ordering::SeqCst) < CALLS / 4 {
            std::thread::park_timeout(Duration::from_micros(100));
        }
        fates[0].store(fate, Ordering::SeqCst);
        let longest = clients.into_iter().map(|client| client.join().expect("all are answered"));
        println!("the longest call: {:?} ns", longest.max());
        drop(guard);
    });
    let runs: Vec<u64> = runs.iter().map(|runs| runs.load(Ordering::SeqCst)).collect();
    assert!(runs.iter().all(|&runs| runs == 1), "{runs:?}");
}

/// Each call of a client is answered with what it sent; the longest time that one took. The last
/// quarter of them waits until the first router has died.
fn call_all(
    client: u64,
    [first, second]: [SocketAddr; 2],
    (answered, fate): (&AtomicU64, &AtomicU8),
) -> Time {
    let builder = ClientBuilder::new().timeout(PATIENCE).fallback(second).expect("an address");
    let caller: Client = builder.connect(first).expect("a socket");
    let mut longest = 0;
    let numbers: Vec<u64> = (client..CALLS).step_by(CLIENTS as usize).collect();
    for batch in numbers.chunks(OUTSTANDING) {
        while answered.load(Ordering::SeqCst) > CALLS * 3 / 4
            && fate.load(Ordering::SeqCst) == ALIVE
        {
            std::thread::park_timeout(Duration::from_micros(100));
        }
        let begin = Clock.now();
        let start = |number: &u64| caller.start(&number.to_le_bytes()).expect("it is made");
        let calls: Vec<_> = batch.iter().map(start).collect();
        for (number, call) in batch.iter().zip(calls) {
            let reply = call.wait().unwrap_or_else(|error| panic!("call {number}: {error}"));
            assert_eq!(reply[..], number.to_le_bytes());
            answered.fetch_add(1, Ordering::SeqCst);
        }
        longest = longest.max(Clock.now() - begin);
    }
    longest
}

/// A router before two servers, on a port of its own.
fn router(servers: [SocketAddr; 2]) -> Driver<Router> {
    let speaks = Speaks::Extension;
    let servers = servers.map(|addr| ServerConfig { addr, speaks }).into();
    let port = UdpPort::bind(([127, 0, 0, 1], 0).into(), UdpConfig::default()).expect("a port");
    let mut driver = Driver::new(Wait::Block { spin_ns: 0 }).expect("a driver");
    let config = RouterConfig { servers, ..RouterConfig::default() };
    let router = Router::new(driver.clock().now(), config).expect("a router");
    driver.add(router, port, None);
    driver
}

/// Drives a router until it dies. It is ready when its servers have answered, and it is older than
/// what the network may still carry.
fn route(mut driver: Driver<Router>, fate: &AtomicU8, ready: &AtomicU64) {
    let ready_at = driver.clock().now() + RouterConfig::default().transit_ns_max;
    let mut is_ready = false;
    while fate.load(Ordering::SeqCst) == ALIVE {
        let now = driver.turn().expect("a turn").now;
        let answers = |driver: &Driver<Router>| {
            driver.node(0).servers().all(|server| server.state == ServerState::InService)
        };
        if !is_ready && now > ready_at && answers(&driver) {
            is_ready = true;
            ready.fetch_add(1, Ordering::SeqCst);
        }
        driver.wait(None, Some(now + LOOK_NS)).expect("it sleeps");
    }
    while fate.load(Ordering::SeqCst) == MUTE {
        std::thread::park_timeout(Duration::from_millis(1));
    }
}

/// States of a router's thread: it serves; its port is open and nobody reads; it has ended.
const ALIVE: u8 = 0;
const MUTE: u8 = 1;
const CLOSED: u8 = 2;

const CALLS: u64 = 8_000;
const CLIENTS: u64 = 4;
/// Calls outstanding of one client.
const OUTSTANDING: usize = 8;

/// Five times what the promise needs: tests share their machine.
const PATIENCE: Duration = Duration::from_secs(1);

/// Between two looks whether it shall die.
const LOOK_NS: Time = 1_000_000;
