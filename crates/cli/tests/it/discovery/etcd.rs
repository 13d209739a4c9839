//! A real etcd, which is restarted while it is relied on.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use super::{path, value, wait_for_servers, wait_until};
use crate::harness::{Admin, Service, assert_all_replied, finish, serve, start_measure, succeed};
use crate::port;

/// An etcd of one member; killed when dropped.
struct Etcd {
    child: Child,
    client: String,
    peer: String,
    data: PathBuf,
}

impl Etcd {
    /// None, where it is not installed.
    fn start(name: &str) -> Option<Self> {
        if Command::new("etcd").arg("--version").output().is_err() {
            println!("SKIPPED: etcd is missing (Debian: etcd-server)");
            return None;
        }
        let [client, peer] = [(); 2].map(|()| format!("http://127.0.0.1:{}", port::free()));
        let data = path(&format!("etcd-{name}"));
        let child = Self::run(&client, &peer, &data);
        let etcd = Self { child, client, peer, data };
        etcd.wait();
        Some(etcd)
    }

    fn run(client: &str, peer: &str, data: &PathBuf) -> Child {
        Command::new("etcd")
            .args(["--listen-client-urls", client, "--advertise-client-urls", client])
            .args(["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer])
            .args(["--initial-cluster", &format!("default={peer}")])
            .arg("--data-dir")
            .arg(data)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts")
    }

    fn kill(&mut self) {
        self.child.kill().and_then(|()| self.child.wait()).expect("it ends");
    }

    fn restart(&mut self) {
        self.child = Self::run(&self.client, &self.peer, &self.data);
        self.wait();
    }

    /// Waits until it has a leader, and so answers.
    fn wait(&self) {
        wait_until("etcd", || self.ask("health", "").contains("true"));
    }

    fn ask(&self, place: &str, body: &str) -> String {
        let mut command = Command::new("curl");
        command.args(["-s", "-m", "5", &format!("{}/{place}", self.client)]);
        if !body.is_empty() {
            command.args(["-d", body]);
        }
        let output = command.output().expect("curl");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn put(&self, key: &str, value: &str) {
        let [key, value] = [key, value].map(base64);
        let said = self.ask("v3/kv/put", &format!("{{\"key\":\"{key}\",\"value\":\"{value}\"}}"));
        assert!(said.contains("revision"), "{said}");
    }

    fn delete(&self, key: &str) {
        let said = self.ask("v3/kv/deleterange", &format!("{{\"key\":\"{}\"}}", base64(key)));
        assert!(said.contains("\"deleted\":\"1\""), "{said}");
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill().and_then(|()| self.child.wait());
        let _ = fs::remove_dir_all(&self.data);
    }
}

fn base64(text: &str) -> String {
    use base64::Engine as _;
    base64::prelude::BASE64_STANDARD.encode(text)
}

#[test]
fn keys_are_servers_and_what_is_none_is_counted() {
    let Some(etcd) = Etcd::start("keys") else { return };
    let servers = [(); 2].map(|()| serve("synthetic", &[]));
    let [first, second] = servers.each_ref().map(Service::address);
    etcd.put(&format!("/s/{first}"), "");
    etcd.put("/s/nonsense", "no server");
    etcd.put("/other/server", "127.0.0.1:9");
    let (_router, admin) =
        super::router(&format!("etcd:http://127.0.0.1:1,{}/s/", etcd.client), &[]);
    wait_for_servers(&admin, &[first]);
    assert_eq!(value(&admin, "refused"), 1.0);
    etcd.put("/s/b", &format!("{second} weight=3"));
    wait_for_servers(&admin, &[first, second]);
    let weight = format!("tailcut_route_server_weight{{server=\"{second}\"}}");
    wait_until("a weight", || admin.value(&weight) == 3.0);
    etcd.delete("/s/b");
    wait_for_servers(&admin, &[first]);
}

/// Restarts the first of the servers where it was, and puts it behind the others.
fn restart_first(servers: &mut Vec<Service>, admin: &Admin) {
    let server = servers.remove(0);
    let address = server.address().to_owned();
    server.signal("TERM");
    let (code, _, stderr) = server.wait();
    assert_eq!(code, Some(0), "{stderr}");
    servers.push(Service::start(&["serve", "--app", "synthetic", "--listen", &address], 1));
    let state = format!("tailcut_route_server_state{{server=\"{address}\",state=\"in_service\"}}");
    wait_until("a server that is back", || admin.value(&state) == 1.0);
}

/// Under load all servers are restarted one after the other, etcd is killed and restarted, the
/// configuration is reloaded both ways, and servers come and go: every call is answered.
#[test]
fn no_call_is_lost_while_everything_is_restarted_and_reloaded() {
    let Some(mut etcd) = Etcd::start("restarted") else { return };
    let mut servers: Vec<Service> = (0..4).map(|_| serve("synthetic", &[])).collect();
    let at: Vec<String> = servers.iter().map(|server| server.address().to_owned()).collect();
    for address in &at[..3] {
        etcd.put(&format!("/s/{address}"), "");
    }
    let (config, control) = (path("restarted.toml"), path("restarted.sock"));
    let control = control.to_str().expect("a text");
    let text = |more: &str| {
        format!(
            "listen = '127.0.0.1:0'\nadmin = '127.0.0.1:0'\ncontrol = '{control}'\nhold = '30s'\n\
             silent-after = '30s'\ndiscover = 'etcd:{}/s/'\n{more}",
            etcd.client
        )
    };
    fs::write(&config, text("")).expect("a file");
    let with_queue = text("queue = 2000\n");
    let mut router = Service::start(&["route", "--config", config.to_str().expect("a text")], 1);
    let admin = router.admin();
    wait_for_servers(&admin, &[&at[0], &at[1], &at[2]]);
    let load =
        ["--app", "synthetic:exp:500us", "--rate", "400", "--duration", "4s", "--warmup", "0"];
    let measurement = start_measure(router.address(), &load);
    admin.wait_for("tailcut_route_forwarded_total", 50.0);
    etcd.kill();
    restart_first(&mut servers, &admin);
    wait_until("away", || value(&admin, "up") == 0.0);
    fs::write(&config, with_queue).expect("a file");
    succeed(&["control", control, "reload"]);
    wait_for_servers(&admin, &[&at[0], &at[1], &at[2]]);
    etcd.restart();
    restart_first(&mut servers, &admin);
    wait_until("back", || value(&admin, "up") == 1.0);
    etcd.put(&format!("/s/{}", at[3]), "");
    wait_for_servers(&admin, &[&at[0], &at[1], &at[2], &at[3]]);
    restart_first(&mut servers, &admin);
    router.signal("HUP");
    etcd.delete(&format!("/s/{}", at[0]));
    wait_for_servers(&admin, &[&at[1], &at[2], &at[3]]);
    assert_all_replied(&finish(measurement));
    let reloads = admin.value("tailcut_route_reloads_total{result=\"done\"}");
    assert_eq!((reloads, admin.value("tailcut_route_reload_ok")), (2.0, 1.0));
}
