//! A sealed router whose requests a program in the kernel places.

use std::net::{SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tailcut_net::clock::Clock;
use tailcut_proto::node::{Node, Path};
use tailcut_proto::r2p2::{Config, Endpoint};
use tailcut_proto::rpc::{Call, CallOptions, Event, Rpc};
use tailcut_proto::sealed::{Keys, Sealing};

use crate::harness::{Files, Service, assert_all_replied, counts, finish, succeed};
use crate::route_xdp::{HOSTS, Network, ROUTER, counter, settle, status, wait_for, within};
use crate::sealed::{RENEWED, publish};

/// A network with files of keys, and where its router is controlled.
struct Bed {
    /// A client, a router and four servers.
    network: Network,
    /// The keys.
    files: Files,
    /// The router's control socket.
    control: PathBuf,
}

impl Bed {
    fn create(name: &str) -> Option<Self> {
        let network = Network::create()?;
        let control = std::env::temp_dir().join(format!("{}.sock", network.id));
        Some(Self { network, files: Files::new(name), control })
    }

    fn servers(&self, keys: &str) -> Vec<Service> {
        let serve = |index: usize| {
            let mut command = self.network.tailcut(HOSTS[index]);
            let listen = format!("10.88.0.{}:8000", index + 1);
            command.args(["serve", "--app", "synthetic", "--router", ROUTER, "--listen", &listen]);
            command.args(["--seal", keys]).env("TAILCUT_LOG", "info");
            Service::start_command(&mut command, 1)
        };
        (2..HOSTS.len()).map(serve).collect()
    }

    /// A router that knows its servers.
    fn router(&self, policy: &str, keys: &str) -> Service {
        let mut command = self.network.tailcut("r");
        command.args(["route", "--listen", ROUTER, "--policy", policy, "--dataplane", "xdp"]);
        command.args(["--interface", &self.network.interface("r"), "--silent-after", "30s"]);
        let named = |at| ["--server".to_owned(), format!("10.88.0.{}:8000", at + 1)];
        command.args((2..HOSTS.len()).flat_map(named)).args(["--seal", keys]);
        command.arg("--control").arg(&self.control).env("TAILCUT_LOG", "info");
        let router = Service::start_command(&mut command, 1);
        settle(&self.control);
        router
    }

    fn measure(&self, duration: &str, keys: &str) -> Child {
        let mut measure = self.network.tailcut("c");
        let load = ["measure", "--target", ROUTER, "--app", "synthetic:exp:100us", "--rate", "500"];
        measure.args(load).args(["--duration", duration, "--warmup", "0s", "--json", "-"]);
        measure.args(["--timeout", "30s", "--seal", keys]);
        measure.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary starts")
    }

    /// Calls that are answered, and of which XDP places the most.
    fn check_calls(&self, duration: &str, keys: &str) {
        let before = counter(&self.control, "xdp_placed");
        let result = finish(self.measure(duration, keys));
        assert_all_replied(&result);
        let placed = counter(&self.control, "xdp_placed") - before;
        let sent = count(&result, "sent");
        assert!(placed * 2 > sent, "{placed} of {sent}: {}", status(&self.control));
    }
}

/// XDP places, also through the router's restart; no call is lost, and none runs twice.
#[test]
fn sealed_requests_are_placed_by_xdp_and_the_next_router_goes_on() {
    let Some(bed) = Bed::create("xdp-restart") else { return };
    let [servers, router_keys, client] = bed.files.keys();
    let servers = bed.servers(&servers);
    let router = bed.router("jbsq:8", &router_keys);
    let child = bed.measure("3s", &client);
    wait_for(&bed.control, "xdp_placed", 500);
    router.signal("KILL");
    drop(router);
    let router = bed.router("jbsq:8", &router_keys);
    let result = finish(child);
    let count = |name| count(&result, name);
    assert_eq!(count("replied") + count("refused"), count("sent"), "{}", result["counts"]);
    assert!(count("refused") * 5 <= count("sent"), "{}", result["counts"]);
    let placed = counter(&bed.control, "xdp_placed");
    assert!(placed >= 800, "XDP has placed {placed} of some 1,600: {}", status(&bed.control));
    settle(&bed.control);
    let served: u64 = servers.into_iter().map(|server| counts(server, ["requests"])[0]).sum();
    // The load begins before what is counted and ends after it: some 150 calls more, as of a server
    // without a router.
    let most = count("sent") + 250;
    assert!(served >= count("replied") && served <= most, "{served}: {}", result["counts"]);
    router.signal("TERM");
    let (code, _, errors) = router.wait();
    assert_eq!(code, Some(0), "{errors}");
}

/// A file of one epoch, then one of more in its place: calls before, meanwhile and after are
/// answered, and XDP places them, the last by epochs that the program was not told at first.
#[test]
fn keys_rotate_and_xdp_goes_on_placing() {
    // Longer than a busy machine takes to start all and make the first calls, which are of the
    // first epoch.
    const EVERY_S: u64 = 6;
    let Some(bed) = Bed::create("xdp-rotation") else { return };
    let all = ["all.servers", "all.router", "all.client"].map(|name| bed.files.path(name));
    let live = ["servers", "router", "client"].map(|name| bed.files.path(name));
    succeed(&["keys", "new", &all[0], "--epochs", "8", "--every", &format!("{EVERY_S}s")]);
    let began = Clock.now();
    succeed(&["keys", "derive", &all[0], &all[1], "--router"]);
    succeed(&["keys", "derive", &all[0], &all[2], "--client", "17"]);
    let publish_all = |span: std::ops::Range<usize>| {
        all.iter().zip(&live).for_each(|(all, live)| publish(all, live, span.clone()));
    };
    publish_all(0..1);
    let mut servers = bed.servers(&live[0]);
    let mut router = bed.router("rr", &live[1]);
    bed.check_calls("1s", &live[2]);
    publish_all(0..8);
    router.wait_for_line(RENEWED);
    for server in &mut servers {
        server.wait_for_line(RENEWED);
    }
    bed.check_calls("8s", &live[2]);
    let epoch = ((Clock.now() - began) / (EVERY_S * 1_000_000_000)) as usize;
    assert!(epoch >= 1, "the first has ended");
    // Who knows nothing of the first is placed too.
    publish(&all[2], &live[2], epoch.min(7)..8);
    bed.check_calls("2s", &live[2]);
    settle(&bed.control);
    for service in servers.into_iter().chain([router]) {
        let counted = ["seal_unknown_keys", "seal_forged", "seal_outdated"];
        assert_eq!(counts(service, counted), [0; 3]);
    }
}

/// All that a client has sent, once more from its address, from another of its ports and from
/// another host, at once and later: XDP places nothing, and no request runs again.
#[test]
fn what_was_recorded_is_not_placed_by_xdp() {
    const CALLS: u64 = 300;
    let Some(bed) = Bed::create("xdp-replay") else { return };
    let [servers, router_keys, client] = bed.files.keys();
    let servers = bed.servers(&servers);
    let router = bed.router("jbsq:8", &router_keys);
    let (host, other) = ["c", "e"].map(|host| bed.network.name(host)).into();
    let keys = std::fs::read_to_string(&client).expect("the file").parse().expect("keys");
    let mut recorder = within(&host, || Recorder::new(keys));
    for call in 0..CALLS {
        recorder.call(call);
    }
    let placed = counter(&bed.control, "xdp_placed");
    assert!(placed * 2 > CALLS, "XDP has placed {placed} of {CALLS}: {}", status(&bed.control));
    let elsewhere = within(&host, || UdpSocket::bind("10.88.0.1:0").expect("a port"));
    let stranger = within(&other, || UdpSocket::bind("10.88.0.6:0").expect("a port"));
    for pause_ms in [0, 300] {
        std::thread::park_timeout(Duration::from_millis(pause_ms));
        for socket in [&recorder.socket, &elsewhere, &stranger] {
            for bytes in &recorder.sent {
                socket.send_to(bytes, ROUTER).expect("it is sent");
            }
        }
    }
    // What came before it has been seen.
    recorder.call(CALLS);
    settle(&bed.control);
    let after = counter(&bed.control, "xdp_placed");
    assert!(after <= placed + 1, "{placed} to {after}: {}", status(&bed.control));
    let served: u64 = servers.into_iter().map(|server| counts(server, ["requests"])[0]).sum();
    assert_eq!(served, CALLS + 1);
    router.signal("TERM");
    let (code, _, errors) = router.wait();
    assert_eq!(code, Some(0), "{errors}");
}

/// A client that keeps what it sends.
struct Recorder {
    /// In the client's namespace.
    socket: UdpSocket,
    /// The client.
    endpoint: Endpoint,
    /// All datagrams to the router.
    sent: Vec<Vec<u8>>,
}

impl Recorder {
    fn new(keys: Keys) -> Self {
        let (now, unix_ns) = Clock.both();
        let seal = Some(Sealing::new(Arc::new(keys), unix_ns - now));
        let socket = UdpSocket::bind("10.88.0.1:0").expect("a port");
        socket.set_read_timeout(Some(Duration::from_millis(1))).expect("it is not zero");
        let config = Config {
            secret: now.to_be_bytes().repeat(2).try_into().expect("16"),
            seal,
            ..Config::default()
        };
        Self { socket, endpoint: Endpoint::new(now, config), sent: Vec::new() }
    }

    /// A call that is answered.
    fn call(&mut self, context: u64) {
        let now = Clock.now();
        let call = Call {
            target: ROUTER.parse().expect("an address"),
            // The time at the server, in ns.
            payload: 100_000_u64.to_be_bytes().to_vec(),
            deadline: now + 30_000_000_000,
            context,
            options: CallOptions::default(),
        };
        self.endpoint.call(now, call).expect("there is room");
        while !self.turn() {}
    }

    /// Sends, receives and waits for a moment; true once the call is answered.
    fn turn(&mut self) -> bool {
        let mut buffer = vec![0; 1 << 16];
        while let Some(transmit) = self.endpoint.poll_transmit(Clock.now(), &mut buffer) {
            for bytes in buffer[..transmit.len].chunks(transmit.segment_len) {
                self.socket.send_to(bytes, transmit.to).expect("it is sent");
                if transmit.to == ROUTER.parse::<SocketAddr>().expect("an address") {
                    self.sent.push(bytes.to_vec());
                }
            }
        }
        if let Ok((len, peer)) = self.socket.recv_from(&mut buffer) {
            let path = Path { local: None, peer };
            self.endpoint.handle_datagram(Clock.now(), path, &mut buffer[..len]);
        }
        self.endpoint.handle_timeout(Clock.now());
        let mut is_answered = false;
        while let Some(event) = self.endpoint.poll_event() {
            match event {
                Event::Replied { .. } => is_answered = true,
                Event::Failed { failure, .. } => panic!("{failure}"),
                _ => {}
            }
        }
        is_answered
    }
}

fn count(result: &Value, name: &str) -> u64 {
    result["counts"][name].as_u64().expect("a count")
}
