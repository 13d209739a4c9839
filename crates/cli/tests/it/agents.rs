//! Agents and coordinators that know each other by certificates.

use std::process::Output;

use rcgen::SanType;

use crate::harness::{Files, Service, assert_all_replied, dns, measure, run, serve, succeed, uri};

/// Files for `--key-file`, of an agent, whom it admits and whom not.
fn prepare(name: &str) -> Files {
    let files = Files::new(name);
    files.certify(&[
        ("agent", SanType::IpAddress([127, 0, 0, 1].into())),
        ("bench", uri("spiffe://example.org/bench")),
        ("web", dns("web.example.org")),
        ("stranger", uri("spiffe://example.org/stranger")),
    ]);
    let admitted = "admit spiffe://example.org/bench\nadmit dns:web.example.org\n";
    for (name, more) in [("agent", admitted), ("bench", ""), ("web", ""), ("stranger", "")] {
        files.name_certificates(name, more);
    }
    files
}

impl Files {
    fn name_certificates(&self, name: &str, more: &str) -> String {
        let [ca, cert, key] =
            ["ca.pem", &format!("{name}.pem"), &format!("{name}.key")].map(|file| self.path(file));
        let text = format!("tailcut-certificates 1\nca {ca}\ncert {cert}\nkey {key}\n{more}");
        self.write(&format!("{name}.run"), &text)
    }
}

const LOAD: [&str; 8] =
    ["--app", "echo:64", "--rate", "500", "--duration", "500ms", "--warmup", "100ms"];

/// A load by an agent, whose coordinator has a file.
fn load(target: &str, place: &str, file: &str) -> Output {
    let whom = ["measure", "--target", target, "--agent", place, "--key-file", file];
    run(&[&whom[..], &LOAD].concat())
}

#[test]
fn who_has_an_admitted_certificate_has_an_agent_load() {
    let files = prepare("agents-admitted");
    let server = serve("echo", &[]);
    let agent = Service::start(
        &["agent", "--listen", "127.0.0.1:0", "--key-file", &files.path("agent.run")],
        1,
    );
    let place = format!("tcp:{}", agent.address());
    for name in ["bench", "web"] {
        let file = files.path(&format!("{name}.run"));
        let whom = ["--agent", &place, "--key-file", &file];
        assert_all_replied(&measure(server.address(), &[&whom[..], &LOAD].concat()));
    }
    // Certificates are renewed, by another authority too, while the agent runs.
    files.certify(&[
        ("agent", SanType::IpAddress([127, 0, 0, 1].into())),
        ("bench", uri("spiffe://example.org/bench")),
    ]);
    // They are read once a second at most.
    let mut tries = (0..10).map(|_| load(server.address(), &place, &files.path("bench.run")));
    let is_loaded =
        |output: Output| output.status.code().is_some_and(|code| code == 0 || code == 3);
    assert!(tries.any(is_loaded), "whoever has a renewed certificate is let in");
    let old = load(server.address(), &place, &files.path("web.run"));
    assert_eq!(old.status.code(), Some(1), "{old:?}");
}

/// By keys of its own, which no coordinator sends; and with none it says so.
#[test]
fn an_agent_seals_what_it_loads_by_its_own_keys() {
    let files = Files::new("agents-sealed");
    let [servers, _, client] = files.keys();
    let own = files.path("agent.keys");
    succeed(&["keys", "derive", &servers, &own, "--client", "18"]);
    let policy = files.write("access", "tailcut-access 1\nallow 18 *\n");
    let server = serve("echo", &["--seal", &servers, "--access", &policy]);
    let agent = ["agent", "--listen", "127.0.0.1:0"];
    let [sealed, open] =
        [&["--seal", &own][..], &[]].map(|seal| Service::start(&[&agent[..], seal].concat(), 1));
    let place = |agent: &Service| format!("tcp:{}", agent.address());
    let result = measure(
        server.address(),
        &[&LOAD[..], &["--seal", &client, "--agent", &place(&sealed)]].concat(),
    );
    assert_all_replied(&result);
    let refused = |agent: &Service, seal: &[&str]| {
        let whom = ["measure", "--target", server.address(), "--agent", &place(agent)];
        let output = run(&[&whom[..], &LOAD, seal].concat());
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let told = refused(&open, &["--seal", &client]);
    assert!(told.contains("it has no keys: start the agent with --seal FILE"), "{told}");
    let told = refused(&sealed, &["--timeout", "50ms"]);
    assert!(told.contains("does not answer"), "an agent seals what is to be sealed alone: {told}");
}

#[test]
fn who_has_none_is_told_why() {
    let files = prepare("agents-refused");
    let key = files.path("shared.run");
    assert!(run(&["agent", "--make-key", &key]).status.success());
    let listening =
        |file: &str| Service::start(&["agent", "--listen", "127.0.0.1:0", "--key-file", file], 1);
    let agent = listening(&files.path("agent.run"));
    let place = format!("tcp:{}", agent.address());
    let check = |place: &str, file: &str, expected: &str| {
        let output = load("127.0.0.1:9", place, file);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{error}");
        assert!(error.contains(expected), "{error}");
    };
    let stranger = files.path("stranger.run");
    check(&place, &stranger, "does not take the certificate that it was shown, or who has it");
    let misled = files.name_certificates("bench", "name load.example.org\n");
    check(&place, &misled, "shows a certificate that is not taken");
    // Who shares a key shows another certificate than those of the authority.
    check(&place, &key, "has another key, or a certificate of another authority");
    let of_key = listening(&key);
    let place = format!("tcp:{}", of_key.address());
    check(&place, &stranger, "has another key, or a certificate of another authority");
    let alone = run(&["agent", "--listen", "127.0.0.1:0", "--key-file", &stranger]);
    let error = String::from_utf8_lossy(&alone.stderr);
    assert!(error.contains("nobody is admitted: add a line `admit IDENTITY`"), "{error}");
}
