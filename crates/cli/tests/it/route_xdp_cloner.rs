//! NetClone's switch whose requests a program in the kernel places and clones: a client, the switch
//! and four servers, each in a network namespace of its own.

use std::path::PathBuf;
use std::process::Stdio;

use serde_json::Value;

use crate::harness::{Admin, Service, finish, succeed};
use crate::route_xdp::{Network, counter, status, wait, within};

/// A switch between a client and servers.
struct Bench {
    network: Network,
    control: PathBuf,
    is_ipv6: bool,
}

impl Bench {
    fn new() -> Option<Self> {
        let network = Network::create()?;
        network.run("r", "ip", &["link", "set", "lo", "up"]);
        let control = std::env::temp_dir().join(format!("{}.sock", network.id));
        Some(Self { network, control, is_ipv6: false })
    }

    fn over_ipv6() -> Option<Self> {
        let bench = Self { is_ipv6: true, ..Self::new()? };
        bench.network.add_ipv6();
        Some(bench)
    }

    fn address(&self, id: usize) -> String {
        match self.is_ipv6 {
            false => format!("10.88.0.{}:1000", id + 3),
            true => format!("[fd88::{}]:1000", id + 3),
        }
    }

    fn switch_address(&self) -> &'static str {
        if self.is_ipv6 { "[fd88::2]:1000" } else { SWITCH }
    }

    /// A server of an id.
    fn server(&self, (host, id): (&str, usize), address: &str) -> Service {
        let mut command = self.network.tailcut(host);
        let app = ["--app", "synthetic:exp:100us", "--workers", "4"];
        command.args(["serve", "--transport", "netclone", "--listen", address]).args(app);
        command.args(["--server-id", &id.to_string()]);
        Service::start_command(&mut command, 1)
    }

    fn servers(&self) -> Vec<Service> {
        let serve = |(id, host): (usize, &&str)| self.server((host, id), &self.address(id));
        SERVERS.iter().enumerate().map(serve).collect()
    }

    fn switch(&self, policy: &str) -> Service {
        let mut command = self.network.tailcut("r");
        command.args(["route", "--transport", "netclone", "--listen", self.switch_address()]);
        command.args(["--policy", policy]);
        command.args(["--dataplane", "xdp", "--interface", &self.network.interface("r")]);
        command.args((0..SERVERS.len()).flat_map(|id| ["--server".to_owned(), self.address(id)]));
        // A busy machine may stop servers for longer than any network would.
        command.args(["--silent-after", "30s", "--admin", "127.0.0.1:0", "--control"]);
        Service::start_command(command.arg(&self.control), 1)
    }

    /// A load, all of which is answered.
    fn measure(&self) {
        let mut measure = self.network.tailcut("c");
        let load = ["--app", "echo:0", "--rate", "500", "--duration", "600ms", "--warmup", "200ms"];
        measure.args(["measure", "--transport", "netclone", "--netclone-servers", "4"]).args(load);
        measure.args(["--target", self.switch_address(), "--timeout", "30s", "--json", "-"]);
        measure.stdout(Stdio::piped()).stderr(Stdio::piped());
        let counts = finish(measure.spawn().expect("the binary starts"))["counts"].clone();
        assert!(counts["sent"].as_u64() > Some(100), "{counts}");
        assert_eq!(counts["replied"], counts["sent"], "{counts}");
    }

    /// Changes a server.
    fn change(&self, what: &str, address: &str) {
        succeed(&["control", self.control.to_str().expect("a text"), what, address]);
    }

    fn of_server(&self, address: &str) -> Value {
        let status = status(&self.control);
        let servers = status["servers"].as_array().expect("servers");
        let found = servers.iter().find(|server| server["address"] == address);
        found.expect("it is known").clone()
    }

    fn is_attached(&self) -> bool {
        let mut command = self.network.command("r", "ip");
        let output = command.args(["link", "show", &self.network.interface("r")]).output();
        String::from_utf8_lossy(&output.expect("it runs").stdout).contains("xdp")
    }
}

#[test]
fn requests_are_cloned_by_xdp_and_servers_change_while_it_runs() {
    let Some(bench) = Bench::new() else { return };
    let mut servers = bench.servers();
    let mut switch = bench.switch("netclone");
    bench.measure();
    // The first requests have shown the ways.
    let before = ["xdp_placed", "xdp_cloned", "xdp_replies_forwarded", "xdp_dropped_filtered"]
        .map(|name| counter(&bench.control, name));
    assert!(before.iter().all(|&count| count > 50), "{before:?}");
    let admin = switch.admin();
    let placed = within(&bench.network.name("r"), || {
        Admin(admin.0.clone()).value("tailcut_route_xdp_placed_total")
    });
    assert!(placed >= before[0] as f64, "{placed}");

    bench.change("drain", &bench.address(0));
    let drained = bench.of_server(&bench.address(0));
    assert_eq!(drained["state"], "draining");
    bench.measure();
    assert_eq!(bench.of_server(&bench.address(0))["placed"], drained["placed"], "it gets nothing");
    assert!(counter(&bench.control, "xdp_placed") > before[0], "pairs of the others go on in XDP");

    bench.change("remove", &bench.address(0));
    servers.remove(0);
    let successor = "10.88.0.3:1001";
    servers.push(bench.server(("a", 0), successor));
    bench.change("add", successor);
    bench.measure();
    let placed = bench.of_server(successor)["placed"].as_u64();
    assert!(placed > Some(20), "{placed:?}");
    let unresolved = counter(&bench.control, "xdp_up_unresolved");
    bench.measure();
    let unresolved = counter(&bench.control, "xdp_up_unresolved") - unresolved;
    assert!(unresolved < 20, "XDP has all pairs again, and {unresolved} requests went up");

    switch.signal("TERM");
    let (code, _, errors) = switch.wait();
    assert_eq!(code, Some(0), "{errors}");
    assert!(!bench.is_attached(), "it has detached the program");
}

#[test]
fn requests_over_ipv6_are_cloned() {
    let Some(bench) = Bench::over_ipv6() else { return };
    let _servers = bench.servers();
    let _switch = bench.switch("netclone");
    bench.measure();
    let counts = ["xdp_placed", "xdp_cloned", "xdp_replies_forwarded", "xdp_dropped_filtered"]
        .map(|name| counter(&bench.control, name));
    assert!(counts.iter().all(|&count| count > 50), "{counts:?}");
}

#[test]
fn a_switch_that_is_killed_leaves_nothing_behind() {
    let Some(bench) = Bench::new() else { return };
    let _servers = bench.servers();
    let switch = bench.switch("netclone+racksched");
    bench.measure();
    assert!(counter(&bench.control, "xdp_placed") > 50);
    assert!(bench.is_attached());
    switch.signal("KILL");
    drop(switch);
    let _switch = bench.switch("netclone+racksched");
    bench.measure();
    wait(&bench.control, |status| status["counters"]["xdp_placed"].as_u64() > Some(50));
}

#[test]
fn what_the_cloner_cannot_do_is_named() {
    let Some(bench) = Bench::new() else { return };
    let interface = bench.network.interface("r");
    let refusal = |args: &[&str]| {
        let mut command = bench.network.tailcut("r");
        command.args(["route", "--transport", "netclone", "--server", "10.88.0.3:1000"]).args(args);
        let output = command.args(["--dataplane", "xdp"]).output().expect("it runs");
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert!(refusal(&["--listen", SWITCH]).contains("--interface IF"));
    let everywhere = ["--listen", "0.0.0.0:1000", "--interface", &interface];
    assert!(refusal(&everywhere).contains("requests for one address"));
    bench.network.add_ipv6();
    let other = ["--listen", "[fd88::2]:1000", "--interface", &interface];
    assert!(refusal(&other).contains("give it an IPv6 address"));
    let absent = ["--listen", SWITCH, "--interface", "no-such"];
    assert!(refusal(&absent).contains("no interface is named no-such"));
}

const SWITCH: &str = "10.88.0.2:1000";

/// The hosts of servers, by their ids.
const SERVERS: [&str; 4] = ["a", "b", "d", "e"];
