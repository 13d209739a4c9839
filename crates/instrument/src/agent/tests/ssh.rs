//! Agents over a real sshd: three network namespaces, a coordinator's and two hosts', with keys of
//! their own.
//!
//! Everything is in a temporary directory: host keys, the user's key, known hosts, and the cache
//! that the binary is copied to.

use std::env;
use std::fmt::Write as _;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{self, Command};

use super::Directory;
use super::processes::{AGENT, COORDINATOR, PAYLOAD, Process, TEST};

const HOSTS: [(&str, &str); 2] = [("one", "10.77.1.2"), ("two", "10.77.2.2")];

/// Two hosts with an sshd each, and a host that reaches them.
struct Network {
    directory: Directory,
    /// They end before the namespaces do.
    daemons: Vec<Process>,
    namespaces: Namespaces,
}

/// Their common prefix; they go when this is dropped.
struct Namespaces(String);

impl Namespaces {
    fn name(&self, of: &str) -> String {
        format!("{}-{of}", self.0)
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for of in ["from", "one", "two"] {
            // It may never have come to be.
            let _ = Command::new("ip").args(["netns", "del", &self.name(of)]).output();
        }
    }
}

impl Network {
    /// `None` where it cannot be made, which is said.
    fn make(of: &str) -> Option<Self> {
        if let Some(reason) = missing() {
            println!("SKIPPED: {reason}");
            return None;
        }
        let mut network = Self {
            directory: Directory::new(),
            daemons: Vec::new(),
            namespaces: Namespaces(format!("tailcut-{}-{of}", process::id())),
        };
        network.connect();
        network.write_keys();
        for (host, address) in HOSTS {
            network.start_sshd(host, address);
        }
        Some(network)
    }

    fn connect(&self) {
        for of in ["from", "one", "two"] {
            succeed(&["ip", "netns", "add", &self.namespaces.name(of)]);
        }
        let from = self.namespaces.name("from");
        for (host, address) in HOSTS {
            let name = self.namespaces.name(host);
            let gateway = format!("{}1/24", &address[..address.len() - 1]);
            succeed(&[
                "ip", "-n", &from, "link", "add", host, "type", "veth", "peer", "name", "eth0",
                "netns", &name,
            ]);
            succeed(&["ip", "-n", &from, "addr", "add", &gateway, "dev", host]);
            succeed(&["ip", "-n", &from, "link", "set", host, "up"]);
            succeed(&["ip", "-n", &name, "addr", "add", &format!("{address}/24"), "dev", "eth0"]);
            succeed(&["ip", "-n", &name, "link", "set", "eth0", "up"]);
            succeed(&["ip", "-n", &name, "link", "set", "lo", "up"]);
        }
    }

    fn write_keys(&self) {
        fs::set_permissions(self.directory.root(), Permissions::from_mode(0o700)).unwrap();
        let mut known = String::new();
        for name in ["user", "one", "two"] {
            let file = self.directory.path(name).display().to_string();
            succeed(&["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", &file]);
        }
        for (host, address) in HOSTS {
            let public = fs::read_to_string(self.directory.path(&format!("{host}.pub"))).unwrap();
            writeln!(known, "{address} {public}").unwrap();
        }
        fs::write(self.directory.path("known_hosts"), known).unwrap();
        fs::write(self.directory.path("known_nobody"), "").unwrap();
        for (config, known) in
            [("ssh_config", "known_hosts"), ("ssh_config_strange", "known_nobody")]
        {
            let root = self.directory.root().display();
            // What such a configuration asks for is what tailcut must not do.
            let text = format!(
                "User root\nIdentitiesOnly yes\nIdentityFile {root}/user\nUserKnownHostsFile {root}/{known}\n\
                 GlobalKnownHostsFile /dev/null\nStrictHostKeyChecking no\n"
            );
            fs::write(self.directory.path(config), text).unwrap();
        }
    }

    fn start_sshd(&mut self, host: &str, address: &str) {
        let root = self.directory.root().display();
        let config = format!(
            "Port 22\nListenAddress {address}\nHostKey {root}/{host}\nAuthorizedKeysFile {root}/user.pub\nPidFile none\n\
             PermitRootLogin prohibit-password\nPasswordAuthentication no\nKbdInteractiveAuthentication no\nUsePAM no\n\
             StrictModes no\nPrintMotd no\nSetEnv XDG_CACHE_HOME={root}/cache-{host} PATH=/usr/bin:/bin\n"
        );
        let file = self.directory.path(&format!("sshd_config_{host}"));
        fs::write(&file, config).unwrap();
        let name = self.namespaces.name(host);
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &name, "/usr/sbin/sshd", "-D", "-e", "-f"]).arg(&file);
        let daemon = Process::start(&mut command);
        daemon.warns("Server listening on ");
        self.daemons.push(daemon);
    }

    /// A coordinator of agents over ssh, with this configuration. The binary that it copies is a
    /// script that becomes this test.
    fn coordinate(&self, hosts: &[&str], config: &str) -> Process {
        let payload = self.directory.path("payload");
        let test = env::current_exe().unwrap();
        let script = format!(
            "#!/bin/sh\n{AGENT}=--stdio exec {} --exact {TEST} --nocapture\n",
            test.display()
        );
        fs::write(&payload, script).unwrap();
        let config = self.directory.path(config);
        let specs: Vec<String> =
            hosts.iter().map(|host| format!("ssh:{host},config={}", config.display())).collect();
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespaces.name("from")]).arg(&test).args([
            "--exact",
            TEST,
            "--nocapture",
        ]);
        command.env(COORDINATOR, specs.join(" ")).env(PAYLOAD, &payload);
        Process::start(&mut command)
    }

    /// Paths that the binary was copied to on a host.
    fn copies(&self, host: &str) -> Vec<String> {
        let cache = self.directory.path(&format!("cache-{host}")).join("tailcut");
        let Ok(entries) = fs::read_dir(cache) else { return Vec::new() };
        let files = entries.flat_map(|entry| fs::read_dir(entry.unwrap().path()).unwrap());
        files.map(|file| file.unwrap().path().display().to_string()).collect()
    }
}

/// Prerequisite that a run of this test lacks.
fn missing() -> Option<&'static str> {
    let is_root = Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout == b"0\n");
    let has = |path: &str| Path::new(path).exists();
    if !is_root {
        Some("network namespaces need root")
    } else if !has("/usr/sbin/sshd") || !has("/usr/bin/ssh") {
        Some("no OpenSSH server and client (scripts/setup test)")
    } else if fs::create_dir_all("/run/sshd").is_err() {
        Some("cannot make /run/sshd, which sshd needs")
    } else {
        None
    }
}

fn succeed(line: &[&str]) {
    let output = Command::new(line[0]).args(&line[1..]).output().expect("it is installed");
    assert!(output.status.success(), "{line:?}: {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_binary_that_is_not_there_is_copied_and_loads_until_its_host_is_lost() {
    let Some(mut network) = Network::make("a") else { return };
    let hosts = HOSTS.map(|(_, address)| address);
    assert!(network.copies("one").is_empty());
    let coordinator = network.coordinate(&hosts, "ssh_config");
    println!("two hosts are loading{}", coordinator.says("loading"));
    for (host, _) in HOSTS {
        let copies = network.copies(host);
        assert!(matches!(&copies[..], [only] if only.ends_with("/tailcut")), "{copies:?}");
    }
    // The session's own process goes on without the listening one, so it is the network that is
    // lost.
    succeed(&["ip", "-n", &network.namespaces.name("two"), "link", "set", "eth0", "down"]);
    let why = coordinator.says("failed: ");
    assert!(why.contains(hosts[1]) && why.contains("said nothing for"), "{why}");
    drop(coordinator);

    // A second run finds the copy, and one that was changed is replaced.
    succeed(&["ip", "-n", &network.namespaces.name("two"), "link", "set", "eth0", "up"]);
    let [copy] = &network.copies("one")[..] else { panic!("one copy") };
    let copied = fs::metadata(copy).unwrap().modified().unwrap();
    network.coordinate(&hosts[..1], "ssh_config").says("loading");
    assert_eq!(fs::metadata(copy).unwrap().modified().unwrap(), copied, "it was not copied again");
    fs::write(copy, "#!/bin/sh\necho not the one\n").unwrap();
    network.coordinate(&hosts[..1], "ssh_config").says("loading");
    assert!(fs::read_to_string(copy).unwrap().contains(TEST), "it was copied again");
    network.daemons.clear();
}

#[test]
fn an_unknown_host_key_is_refused_whatever_the_configuration_says() {
    let Some(network) = Network::make("b") else { return };
    let why = network.coordinate(&[HOSTS[0].1], "ssh_config_strange").says("refused: ");
    assert!(why.contains(HOSTS[0].1) && why.contains("Host key verification failed"), "{why}");
    assert_eq!(
        fs::read_to_string(network.directory.path("known_nobody")).unwrap(),
        "",
        "nothing was learnt"
    );
}
