//! A router whose requests a program in the kernel places: a client, a switch, a router and four
//! servers, each in a network namespace of its own.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::Value;
use tailcut::ClientBuilder;
use tailcut_net::clock::Clock;
use tailcut_net::ebpf::{Attached, Mode, Object, PASS, interface_index};

use crate::harness::{Service, counts, finish, succeed};

/// Namespaces at one switch; gone with this.
pub(crate) struct Network {
    pub(crate) id: String,
    /// A veth is woken for what XDP sends back only where a program waits at its far end. Without
    /// one, requests lie there until something else goes that way.
    passing: Option<Attached>,
}

impl Network {
    /// `None`, said aloud, where this process may not, or something is missing.
    pub(crate) fn create() -> Option<Self> {
        Self::with_queues(1)
    }

    /// A network where the router's interface has so many queues.
    fn with_queues(queues: u32) -> Option<Self> {
        let skip = |reason: &str| {
            writeln!(std::io::stderr(), "SKIPPED: {reason}").expect("standard error");
            None
        };
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let mut network = Self { id: format!("tx{}x{count}", std::process::id()), passing: None };
        if Command::new("ethtool").arg("--version").output().is_err() {
            return skip("ethtool is missing (Debian: ethtool)");
        }
        if std::fs::create_dir_all("/sys/fs/bpf/tailcut").is_err() {
            return skip("no file system of type bpf at /sys/fs/bpf");
        }
        let switch = network.name("sw");
        if let Err(error) = ip(&format!("netns add {switch}")) {
            return skip(&format!("no network namespace: {}", error.trim()));
        }
        must(&format!("-n {switch} link add br0 type bridge"));
        must(&format!("-n {switch} link set br0 up"));
        for (index, host) in HOSTS.iter().enumerate() {
            let (name, far) = (network.name(host), network.interface(host));
            must(&format!("netns add {name}"));
            let lanes = if *host == "r" { queues } else { 1 };
            let lanes = format!("numrxqueues {lanes} numtxqueues {lanes}");
            must(&format!(
                "link add {far} netns {name} {lanes} type veth peer name {far} netns {switch} {lanes}"
            ));
            must(&format!("-n {switch} link set {far} master br0 up"));
            must(&format!("-n {name} addr add 10.88.0.{}/24 dev {far}", index + 1));
            must(&format!("-n {name} link set {far} up"));
            // XDP sends frames as they are: their checksums must be whole, and the far end must
            // take frames.
            network.run(host, "ethtool", &["-K", &far, "tx", "off"]);
            network.run("sw", "ethtool", &["-K", &far, "gro", "on"]);
        }
        let forwarding = format!("net.ipv4.conf.{}.forwarding=1", network.interface("r"));
        network.run("r", "sysctl", &["-qw", &forwarding]);
        network.passing = Some(network.pass());
        Some(network)
    }

    /// Gives each host an address of IPv6 too, by its place: fd88::1 is the first.
    pub(crate) fn add_ipv6(&self) {
        for (index, host) in HOSTS.iter().enumerate() {
            let (place, interface) = (self.name(host), self.interface(host));
            let address = format!("fd88::{}/64", index + 1);
            must(&format!("-n {place} addr add {address} dev {interface} nodad"));
        }
    }

    /// A program before the switch that passes what the router's sends back.
    fn pass(&self) -> Attached {
        within(&self.name("sw"), || {
            let interface = interface_index(&self.interface("r")).expect("the interface");
            let pass = Object::load(PASS).expect("the kernel takes it");
            pass.attach("pass", interface, Mode::Native).expect("it is attached")
        })
    }

    pub(crate) fn name(&self, host: &str) -> String {
        format!("{}{host}", self.id)
    }

    pub(crate) fn interface(&self, host: &str) -> String {
        format!("{}{host}", self.id)
    }

    /// A command on a host. `ip netns exec` would put another /sys in the place of that with the
    /// pinned programs.
    pub(crate) fn command(&self, host: &str, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.name(host))).arg(program);
        command
    }

    pub(crate) fn run(&self, host: &str, program: &str, args: &[&str]) {
        let output = self.command(host, program).args(args).output().expect("it runs");
        assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    }

    pub(crate) fn tailcut(&self, host: &str) -> Command {
        self.command(host, env!("CARGO_BIN_EXE_tailcut"))
    }

    pub(crate) fn servers(&self) -> Vec<Service> {
        let serve = |index: usize| {
            let mut command = self.tailcut(HOSTS[index]);
            let listen = format!("10.88.0.{}:8000", index + 1);
            command.args(["serve", "--app", "synthetic", "--router", ROUTER, "--listen", &listen]);
            Service::start_command(&mut command, 1)
        };
        (2..HOSTS.len()).map(serve).collect()
    }

    fn router(&self, policy: &str, control: &Path) -> Service {
        // A busy machine may stop servers for longer than any network would.
        self.router_that_waits(policy, control, "30s")
    }

    fn router_that_waits(&self, policy: &str, control: &Path, silent_after: &str) -> Service {
        self.router_by(self.tailcut("r"), (policy, silent_after), control)
    }

    /// Started by a command that has yet to be told what to do.
    pub(crate) fn router_by(
        &self,
        mut command: Command,
        (policy, silent_after): (&str, &str),
        control: &Path,
    ) -> Service {
        self.route(&mut command, &self.interface("r"), &["--policy", policy]);
        command.args(["--silent-after", silent_after]).arg("--control").arg(control);
        Service::start_command(&mut command, 1)
    }

    /// Tells a command to route by XDP on an interface.
    pub(crate) fn route(&self, command: &mut Command, interface: &str, more: &[&str]) {
        command.args(["route", "--listen", ROUTER, "--dataplane", "xdp", "--interface", interface]);
        command.args(more);
        command.args(
            (2..HOSTS.len())
                .flat_map(|at| ["--server".to_owned(), format!("10.88.0.{}:8000", at + 1)]),
        );
    }

    /// Path at which a router pins its program.
    pub(crate) fn pinned(&self) -> PathBuf {
        self.pinned_as(&self.interface("r"))
    }

    /// Path at which a router pins its program for an interface of this name.
    pub(crate) fn pinned_as(&self, interface: &str) -> PathBuf {
        let space = std::fs::metadata(Path::new("/run/netns").join(self.name("r")));
        let space = space.expect("the namespace").ino();
        Path::new("/sys/fs/bpf/tailcut").join(format!("{interface}-{space}"))
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.passing = None;
        let pinned = self.pinned();
        for host in HOSTS.iter().chain(&["sw"]) {
            let _ = ip(&format!("netns del {}", self.name(host)));
        }
        // Of a router that was killed.
        let _ = Command::new("rm").arg("-r").arg(pinned).output();
    }
}

#[test]
fn requests_are_placed_by_xdp_and_a_router_that_is_killed_is_not_missed() {
    let Some(network) = Network::create() else { return };
    let _servers = network.servers();
    let control = std::env::temp_dir().join(format!("{}.sock", network.id));
    let router = network.router("jbsq:8", &control);
    settle(&control);
    let load = ["measure", "--target", ROUTER, "--app", "synthetic:exp:100us", "--rate", "500"];
    let times = ["--duration", "3s", "--warmup", "500ms", "--json", "-"];
    let patience = ["--timeout", "30s"];
    let mut measure = network.tailcut("c");
    measure.args(load).args(times).args(patience).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = measure.spawn().expect("the binary starts");
    wait_for(&control, "xdp_placed", 500);
    router.signal("KILL");
    drop(router);
    assert!(network.pinned().join("native").exists(), "it goes on without its router");
    let router = network.router("jbsq:8", &control);
    let result = finish(child);
    let count = |name: &str| result["counts"][name].as_u64().expect("a count");
    // What was sent again while no router was there, and may run once, the next cannot know of: it
    // is refused, and so is what it has held. Of what the program places nothing is missed.
    assert_eq!(count("replied") + count("refused"), count("sent"), "{}", result["counts"]);
    assert!(count("refused") * 5 <= count("sent"), "{}", result["counts"]);
    let placed = counter(&control, "xdp_placed");
    // The rest came again, or while the servers of a busy machine were full.
    assert!(placed >= 800, "XDP has placed {placed} of some 1,750");
    settle(&control);
    router.signal("TERM");
    let (code, _, errors) = router.wait();
    assert_eq!(code, Some(0), "{errors}");
    assert!(!network.pinned().exists(), "it has cleaned up");
}

/// Two kills, under load: whoever was served has its reply, and the slots are free again.
#[test]
fn no_reply_is_lost_that_a_server_sent() {
    let Some(network) = Network::create() else { return };
    let servers = network.servers();
    let control = std::env::temp_dir().join(format!("{}.sock", network.id));
    let mut router = network.router("jbsq:8", &control);
    settle(&control);
    let mut measure = network.tailcut("c");
    let load = ["measure", "--target", ROUTER, "--app", "synthetic:exp:100us", "--rate", "500"];
    let times = ["--duration", "3s", "--warmup", "200ms", "--timeout", "30s", "--json", "-"];
    measure.args(load).args(times);
    let child = measure.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    for placed in [250, 500] {
        wait_for(&control, "xdp_placed", placed);
        router.signal("KILL");
        drop(router);
        router = network.router("jbsq:8", &control);
    }
    let result = finish(child.expect("the binary starts"));
    settle(&control);
    let count = |name: &str| result["counts"][name].as_u64().expect("a count");
    let (sent, replied, refused) = (count("sent"), count("replied"), count("refused"));
    // None waits in vain: who is refused came again when no router knew whether it had run.
    assert_eq!((replied + refused, count("timeout"), count("lost")), (sent, 0, 0));
    assert!(refused * 5 <= sent, "{}", result["counts"]);
    drop(router);
    // Each ran once; those of the warm-up are not among the calls that count.
    let served: u64 = servers.into_iter().map(|server| counts(server, ["requests"])[0]).sum();
    assert!(replied <= served, "{served} were served: {}", result["counts"]);
}

/// Its requests may run twice, and so have another server.
#[test]
fn a_server_that_dies_is_not_missed() {
    let Some(network) = Network::create() else { return };
    let servers = network.servers();
    let control = std::env::temp_dir().join(format!("{}.sock", network.id));
    let _router = network.router_that_waits("jbsq:8", &control, "300ms");
    settle(&control);
    let mut measure = network.tailcut("c");
    let load = ["measure", "--target", ROUTER, "--app", "synthetic:exp:100us", "--rate", "500"];
    let times = ["--duration", "3s", "--warmup", "200ms", "--timeout", "30s", "--json", "-"];
    measure.args(load).args(times).arg("--idempotent");
    let child = measure.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    wait_for(&control, "xdp_placed", 250);
    servers[0].signal("KILL");
    let dead = |status: &Value| status["servers"][0].clone();
    wait(&control, |status| dead(status)["state"] == "silent");
    let placed = dead(&status(&control))["placed"].clone();
    let result = finish(child.expect("the binary starts"));
    let count = |name: &str| result["counts"][name].as_u64().expect("a count");
    assert_eq!(count("replied") + count("refused"), count("sent"), "{}", result["counts"]);
    assert!(count("refused") * 5 <= count("sent"), "{}", result["counts"]);
    let dead = dead(&status(&control));
    assert_eq!((&dead["state"], &dead["placed"]), (&Value::from("silent"), &placed));
}

/// Requests that the program cannot place because all servers are full come to the router past the
/// kernel's stack.
#[test]
fn held_requests_come_by_af_xdp() {
    let Some(network) = Network::create() else { return };
    let _servers = network.servers();
    let control = std::env::temp_dir().join(format!("{}.sock", network.id));
    let router = network.router("jbsq:1", &control);
    settle(&control);
    let before = counter(&control, "xdp_direct_in");
    let result = load(&network, &["--outstanding", "16"]);
    assert_eq!(result["replied"], result["sent"], "{result}");
    let held = counter(&control, "xdp_up_full") + counter(&control, "xdp_up_held");
    let direct = counter(&control, "xdp_direct_in") - before;
    assert!(held > 100 && direct >= held, "{held} went up, {direct} came past the stack");
    settle(&control);
    router.signal("TERM");
    let (code, _, errors) = router.wait();
    assert_eq!(code, Some(0), "{errors}");
}

/// It has a socket at each, for what goes up.
#[test]
fn an_interface_of_two_queues_is_one_router() {
    let Some(network) = Network::with_queues(2) else { return };
    let interface = network.interface("r");
    let _servers = network.servers();
    let control = std::env::temp_dir().join(format!("{}.sock", network.id));
    let router = network.router("jbsq:1", &control);
    settle(&control);
    let before = counter(&control, "xdp_direct_in");
    for outstanding in ["2", "16"] {
        let result = load(&network, &["--outstanding", outstanding, "--connections", "16"]);
        assert_eq!(result["replied"], result["sent"], "{result}");
    }
    let placed = counter(&control, "xdp_placed");
    let held = counter(&control, "xdp_up_full") + counter(&control, "xdp_up_held");
    let direct = counter(&control, "xdp_direct_in") - before;
    assert!(placed > 100, "{placed} were placed");
    assert!(held > 100 && direct >= held, "{held} went up, {direct} came past the stack");
    let shown = network.command("r", "ethtool").args(["-S", &interface]).output().expect("it runs");
    let shown = String::from_utf8(shown.stdout).expect("a text");
    for queue in 0..2 {
        let name = format!("rx_queue_{queue}_xdp_packets:");
        let count =
            shown.lines().find_map(|line| line.trim().strip_prefix(&name)?.trim().parse().ok());
        assert!(count > Some(100_u64), "{count:?} packets at queue {queue}");
    }
    settle(&control);
    router.signal("TERM");
    assert_eq!(router.wait().0, Some(0));
}

/// A router that may not lock the memory says so, and takes by the kernel's stack what goes up.
#[test]
fn without_af_xdp_held_requests_come_by_the_kernel() {
    let Some(network) = Network::create() else { return };
    let _servers = network.servers();
    let control = std::env::temp_dir().join(format!("{}.sock", network.id));
    let mut command = network.command("r", "prlimit");
    command.args(["--memlock=65536", "setpriv", "--bounding-set", "-ipc_lock"]);
    command.args(["--inh-caps", "-ipc_lock", env!("CARGO_BIN_EXE_tailcut")]);
    let router = network.router_by(command, ("jbsq:1", "30s"), &control);
    settle(&control);
    let result = load(&network, &["--outstanding", "16"]);
    assert_eq!(result["replied"], result["sent"], "{result}");
    let held = counter(&control, "xdp_up_full") + counter(&control, "xdp_up_held");
    assert!(held > 100, "{}", status(&control));
    assert!(status(&control)["counters"]["xdp_direct_in"].is_null(), "{}", status(&control));
    router.signal("TERM");
    let (code, _, errors) = router.wait();
    assert_eq!(code, Some(0), "{errors}");
    assert!(errors.contains("no AF_XDP") && errors.contains("CAP_IPC_LOCK"), "{errors}");
}

/// Calls for two seconds, more at once than servers where so many are outstanding; their counts.
fn load(network: &Network, more: &[&str]) -> Value {
    let mut measure = network.tailcut("c");
    measure.args(["measure", "--target", ROUTER, "--app", "synthetic:exp:1ms"]);
    measure.args(["--duration", "2s", "--warmup", "0s", "--timeout", "30s", "--json", "-"]);
    measure.args(more);
    let child = measure.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    finish(child.expect("the binary starts"))["counts"].clone()
}

/// One in twenty requests, replies and reports is lost: each call has its reply, none runs twice,
/// and in the end no place is taken.
#[test]
fn what_the_network_loses_is_not_missed() {
    let Some(network) = Network::create() else { return };
    for host in HOSTS.iter().filter(|&&host| host != "r") {
        let chain = |hook: &str| {
            format!(
                "chain {hook} {{ type filter hook {hook} priority 0; \
                 meta l4proto udp numgen random mod 20 == 0 drop; }}"
            )
        };
        let table = format!("table inet loss {{ {}; {}; }}", chain("input"), chain("output"));
        network.run(host, "nft", &[&table]);
    }
    let servers = network.servers();
    let control = std::env::temp_dir().join(format!("{}.sock", network.id));
    let _router = network.router("jbsq:8", &control);
    settle(&control);
    // What is sent again to a server that has just started may have been sent before that: it would
    // be uncertain.
    let settled_at = Clock.now();
    wait(&control, |_| Clock.now() - settled_at > 100_000_000);
    within(&network.name("c"), || {
        let builder = ClientBuilder::new().timeout(Duration::from_secs(30));
        let client = builder.connect(ROUTER).expect("a client");
        for call in 0..CALLS {
            // The time at the server, in ns.
            let reply = client.call(&100_000_u64.to_be_bytes());
            assert!(reply.is_ok(), "call {call}: {reply:?}");
        }
    });
    let placed = counter(&control, "xdp_placed");
    assert!(placed * 4 >= CALLS * 3, "XDP has placed {placed} of {CALLS}");
    settle(&control);
    let served: u64 = servers.into_iter().map(|server| counts(server, ["requests"])[0]).sum();
    assert_eq!(served, CALLS);
}

#[test]
fn what_xdp_cannot_do_is_named() {
    let Some(network) = Network::create() else { return };
    let refusal = |args: &[&str]| {
        let mut command = network.tailcut("r");
        let output = command.arg("route").args(["--server", "10.88.0.3:8000"]).args(args).output();
        let output = output.expect("it runs");
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let interface = network.interface("r");
    let xdp = ["--listen", ROUTER, "--dataplane", "xdp", "--interface", &interface, "--policy"];
    let with = |policy: &'static str| [&xdp[..], &[policy]].concat();
    assert!(refusal(&with("jsq:3")).contains("knows the policies random, rr, jsq:2, jbsq:N"));
    assert!(refusal(&["--listen", ROUTER, "--dataplane", "xdp"]).contains("--interface IF"));
    let everywhere =
        ["--listen", "0.0.0.0:8000", "--dataplane", "xdp", "--policy", "rr", "--interface"];
    assert!(refusal(&[&everywhere[..], &[&interface]].concat()).contains("name it in --listen"));
    let off = format!("net.ipv4.conf.{interface}.forwarding=0");
    network.run("r", "sysctl", &["-qw", &off]);
    assert!(
        refusal(&with("rr")).contains(&format!("sysctl -w net.ipv4.conf.{interface}.forwarding=1"))
    );
    let absent =
        ["--listen", ROUTER, "--dataplane", "xdp", "--policy", "rr", "--interface", "no-such"];
    assert!(refusal(&absent).contains("no interface is named no-such"));
}

/// Waits until nothing is outstanding at any server.
pub(crate) fn settle(control: &Path) {
    wait(control, |status| {
        let servers = status["servers"].as_array().expect("servers");
        servers.iter().all(|server| server["outstanding"] == 0 && server["state"] == "in_service")
    });
}

pub(crate) fn wait_for(control: &Path, name: &str, least: u64) {
    wait(control, |status| status["counters"][name].as_u64() >= Some(least));
}

/// Each look starts a process, so that this waits for a minute and more.
pub(crate) fn wait(control: &Path, holds: impl Fn(&Value) -> bool) {
    let held = (0..20_000).any(|_| holds(&status(control)));
    assert!(held, "{}", status(control));
}

pub(crate) fn counter(control: &Path, name: &str) -> u64 {
    status(control)["counters"][name].as_u64().expect("a counter")
}

pub(crate) fn status(control: &Path) -> Value {
    let text = succeed(&["control", control.to_str().expect("a text"), "status", "--json", "-"]);
    serde_json::from_str(&text).expect("JSON")
}

/// Runs in a namespace, on a thread of its own, since that does not come back.
pub(crate) fn within<T: Send>(namespace: &str, f: impl FnOnce() -> T + Send) -> T {
    let enter = || {
        let file = File::open(Path::new("/run/netns").join(namespace)).expect("the namespace");
        let kind = Some(LinkNameSpaceType::Network);
        move_into_link_name_space(file.as_fd(), kind).expect("to enter it");
        f()
    };
    std::thread::scope(|scope| scope.spawn(enter).join().expect("no failure in the namespace"))
}

pub(crate) fn must(arguments: &str) {
    ip(arguments).expect("a network");
}

fn ip(arguments: &str) -> Result<(), String> {
    let output =
        Command::new("ip").args(arguments.split(' ')).output().map_err(|e| e.to_string())?;
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() { Ok(()) } else { Err(error) }
}

/// A client, a router and four servers.
pub(crate) const HOSTS: [&str; 6] = ["c", "r", "a", "b", "d", "e"];

pub(crate) const ROUTER: &str = "10.88.0.2:8000";

/// Made while datagrams are lost.
const CALLS: u64 = 1_000;
