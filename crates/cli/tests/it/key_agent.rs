//! A key agent from the command line, and every process of a sealed service that asks it.

use std::fs;
use std::process::Child;
use std::time::Duration;

use rcgen::SanType;

use crate::harness::{
    Files, Service, assert_all_replied, dns, finish, measure, run, start_measure, succeed, tailcut,
    uri,
};

impl Files {
    /// A file for `--seal` that names the agent.
    fn asking(&self, name: &str, agent: &str) -> String {
        let [ca, cert, key] =
            ["ca.pem", &format!("{name}.pem"), &format!("{name}.key")].map(|file| self.path(file));
        let shown = format!("ca {ca}\ncert {cert}\nkey {key}\n");
        self.write(&format!("{name}.keys"), &format!("tailcut-keys-from 1\nagent {agent}\n{shown}"))
    }

    fn asking_by_secret(&self, name: &str, agent: &str) -> String {
        let psk = self.path(&format!("{name}.psk"));
        let text = format!("tailcut-keys-from 1\nagent {agent}\npsk {psk}\n");
        self.write(&format!("{name}.keys"), &text)
    }
}

/// A command whose log says what becomes of its keys.
fn told(args: &[&str]) -> Service {
    Service::start_command(tailcut().args(args).env("TAILCUT_LOG", "info"), 1)
}

/// A group with an agent, which begins to listen at an address.
fn agent(files: &Files, listen: &str) -> Service {
    let [group, list] = ["servers.group", "clients"].map(|name| files.path(name));
    let [cert, key, ca] = ["agent.pem", "agent.key", "ca.pem"].map(|name| files.path(name));
    let listen = format!("tcp://{listen}");
    let files = ["--seal", &group, "--clients", &list, "--cert", &cert, "--key", &key];
    let more = ["--client-ca", &ca, "--every", "2s", "--listen", &listen];
    told(&[&["keys", "serve"], &files[..], &more].concat())
}

fn prepare(name: &str) -> Files {
    let files = Files::new(name);
    succeed(&["keys", "new", &files.path("servers.group"), "--group", "search"]);
    succeed(&["keys", "psk", &files.path("batch.psk")]);
    files.certify(&[
        ("agent", SanType::IpAddress([127, 0, 0, 1].into())),
        ("server", uri("spiffe://example.org/search/server")),
        ("router", uri("spiffe://example.org/search/router")),
        ("web", dns("web.example.org")),
        ("stranger", uri("spiffe://example.org/search/stranger")),
    ]);
    let list = format!(
        "tailcut-key-clients 1\n\
         spiffe://example.org/search/server server\n\
         spiffe://example.org/search/router router\n\
         dns:web.example.org client 17\n\
         psk:{} client 18\n",
        files.path("batch.psk")
    );
    files.write("clients", &list);
    files
}

/// A server, and a router before it.
fn serve(files: &Files, agent: &str) -> (Service, Service) {
    let server = files.asking("server", agent);
    let server = told(&["serve", "--listen", "127.0.0.1:0", "--app", "echo", "--seal", &server]);
    let router = files.asking("router", agent);
    // Nothing is held, so that nothing is refused for overload where this host is busy.
    let route = ["route", "--listen", "127.0.0.1:0", "--policy", "rr", "--silent-after", "30s"];
    let to_server = ["--server", server.address(), "--seal", &router];
    let router = told(&[&route[..], &to_server].concat());
    (server, router)
}

fn is_running(clients: &mut [Child]) -> bool {
    clients.iter_mut().any(|client| client.try_wait().expect("it is ours").is_none())
}

const LOAD: [&str; 8] =
    ["--app", "echo:64", "--outstanding", "4", "--duration", "10s", "--warmup", "100ms"];

/// Keys are used for two seconds each, and the agent is away for one of them.
#[test]
fn all_get_their_keys_from_an_agent_and_no_call_is_lost_by_rotations() {
    let files = prepare("agent-load");
    let mut first = agent(&files, "127.0.0.1:0");
    let address = first.address().to_owned();
    let (mut server, mut router) = serve(&files, &address);
    let keys = [files.asking("web", &address), files.asking_by_secret("batch", &address)];
    let start = |keys| start_measure(router.address(), &[&LOAD[..], &["--seal", keys]].concat());
    let mut clients = [start(&keys[0]), start(&keys[1])];
    let mut missing = vec!["role=client 17", "role=client 18"];
    while !missing.is_empty() {
        let line = first.wait_for_line("keys handed out");
        missing.retain(|role| !line.contains(role));
    }
    first.wait_for_line("a key was added");
    first.signal("TERM");
    let (code, _, stderr) = first.wait();
    assert_eq!(code, Some(0), "{stderr}");
    server.wait_for_line("keys are not renewed, and the old ones stay");
    let second = agent(&files, &address);
    while is_running(&mut clients) {
        std::thread::park_timeout(Duration::from_millis(50));
    }
    let results: Vec<_> = clients.into_iter().map(finish).collect();
    for service in [&mut server, &mut router] {
        service.wait_for_line("keys have been renewed");
    }
    // Who has only what there is now is understood.
    let short =
        ["--app", "echo:64", "--outstanding", "4", "--duration", "300ms", "--warmup", "100ms"];
    assert_all_replied(&measure(router.address(), &[&short[..], &["--seal", &keys[1]]].concat()));
    let told = [router, server, second].map(|service| {
        service.signal("TERM");
        service.wait().2
    });
    for result in results {
        assert_eq!(result["counts"]["replied"], result["counts"]["sent"], "{result:#} {told:#?}");
    }
    for name in ["seal_unknown_keys", "seal_forged", "seal_outdated"] {
        let counted = told.iter().find(|text| text.contains(name));
        assert_eq!(counted, None, "{name}");
    }
    // Secrets are in no log.
    for file in ["servers.group", "batch.psk"] {
        let text = fs::read_to_string(files.path(file)).expect("it is ours");
        let secrets = text.split_whitespace().filter(|word| word.len() == 64);
        assert!(secrets.clone().count() > 0);
        assert!(secrets.into_iter().all(|secret| told.iter().all(|log| !log.contains(secret))));
    }
}

/// Whoever is not listed hears so, and so does the agent's owner, who adds it without a restart.
#[test]
fn an_identity_that_is_not_listed_is_refused_until_it_is() {
    let files = prepare("agent-refuses");
    let mut agent = agent(&files, "127.0.0.1:0");
    let address = agent.address().to_owned();
    let (_server, router) = serve(&files, &address);
    let keys = files.asking("stranger", &address);
    let load = ["--app", "echo:64", "--outstanding", "4", "--duration", "300ms", "--seal", &keys];
    let target = router.address().to_owned();
    let output = run(&[&["measure", "--target", &target], &load[..]].concat());
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    let refused = "refused: spiffe://example.org/search/stranger is not listed";
    assert!(!output.status.success() && stderr.contains(refused), "{stderr}");
    assert!(stderr.contains(&address), "{stderr}");
    let line = agent.wait_for_line("an identity was refused");
    assert!(line.contains("spiffe://example.org/search/stranger is not listed"), "{line}");

    let list = fs::read_to_string(files.path("clients")).expect("it is ours");
    let list = list + "spiffe://example.org/search/stranger client 20\n";
    files.write("clients", &list);
    agent.wait_for_line("the list of those who may have keys is read again");
    assert_all_replied(&measure(&target, &load));

    // Nobody is there.
    let nobody = files.asking("web", "127.0.0.1:1");
    let refused = run(&["serve", "--listen", "127.0.0.1:0", "--app", "echo", "--seal", &nobody]);
    let stderr = String::from_utf8_lossy(&refused.stderr);
    assert!(stderr.contains("the key agent at 127.0.0.1:1: "), "{stderr}");
    assert!(!refused.status.success());
}

/// Clients that are listed by certificate get no keys from an agent without a certificate, which
/// says so.
#[test]
fn an_agent_without_a_certificate_tells_whom_it_leaves_out() {
    let files = prepare("agent-secrets");
    let [group, list] = ["servers.group", "clients"].map(|name| files.path(name));
    let serve = ["keys", "serve", "--listen", "tcp://127.0.0.1:0"];
    let mut agent = told(&[&serve[..], &["--seal", &group, "--clients", &list]].concat());
    let line = agent.wait_for_line("listed by certificate");
    assert!(line.contains("count=3"), "{line}");
    let keys = files.asking_by_secret("batch", agent.address());
    let shown = succeed(&["keys", "show", &keys]);
    assert!(shown.starts_with("keys of a key agent"), "{shown}");
    agent.signal("TERM");
    let (code, _, stderr) = agent.wait();
    assert_eq!(code, Some(0), "{stderr}");
}
