//! Traces of the real binary, and what `dissect` prints of them.

use std::net::{SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread;

use crate::harness::{Service, measure, run, serve, succeed};

/// A path of no file, which differs between tests.
fn trace_path(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("tailcut-trace-{}-{name}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    path
}

/// Contents of a trace, whose file is removed.
fn dissected(path: &PathBuf) -> String {
    let text = succeed(&["dissect", path.to_str().expect("a text")]);
    std::fs::remove_file(path).expect("it was written");
    text
}

/// Carries datagrams to `server` and back, and drops every tenth on the way there. It lasts as long
/// as the process.
fn lossy_relay(server: SocketAddr) -> SocketAddr {
    let front = Arc::new(UdpSocket::bind("127.0.0.1:0").unwrap());
    let back = Arc::new(UdpSocket::bind("127.0.0.1:0").unwrap());
    let address = front.local_addr().unwrap();
    back.connect(server).unwrap();
    // Whoever sent last gets the replies: there is one client at a time.
    let client = Arc::new(Mutex::new(address));
    let there = (Arc::clone(&front), Arc::clone(&back), Arc::clone(&client));
    thread::spawn(move || {
        let (front, back, client) = there;
        let mut bytes = [0; 65_536];
        for count in 1_u64.. {
            let (len, from) = front.recv_from(&mut bytes).unwrap();
            *client.lock().unwrap() = from;
            if count % 10 != 0 {
                let _ = back.send(&bytes[..len]);
            }
        }
    });
    thread::spawn(move || {
        let mut bytes = [0; 65_536];
        // A server that is gone ends it.
        while let Ok(len) = back.recv(&mut bytes) {
            let _ = front.send_to(&bytes[..len], *client.lock().unwrap());
        }
    });
    address
}

const LOAD: [&str; 8] =
    ["--app", "echo:64", "--rate", "500", "--duration", "400ms", "--warmup", "100ms"];

#[test]
fn a_client_traces_what_it_sends_again() {
    let server = serve("echo", &[]);
    let relay = lossy_relay(server.address().parse().unwrap()).to_string();
    let path = trace_path("client");
    measure(&relay, &[&LOAD[..], &["--trace", path.to_str().unwrap()]].concat());
    let text = dissected(&path);
    let resent = text.lines().find(|line| line.contains(" retransmit "));
    assert!(
        resent.is_some_and(|line| line.contains(&format!("> {relay}: R2P2 request"))),
        "{text}"
    );
    assert!(text.lines().any(|line| line.contains(" # resent +")), "{text}");
    assert!(text.contains(&format!(" {relay} > 127.0.0.1:")), "replies are traced: {text}");
}

#[test]
fn a_server_traces_one_client_of_homa() {
    let path = trace_path("server");
    let more = ["--transport", "homa", "--trace", path.to_str().unwrap(), "--trace-max", "4k"];
    let server = serve("echo", &more);
    let target = server.address().to_owned();
    // A request before the load is another client's.
    measure(&target, &[&LOAD[..], &["--transport", "homa", "--no-probe"]].concat());
    server.signal("INT");
    server.wait();
    assert!(std::fs::metadata(&path).unwrap().len() <= 4_000);
    let text = dissected(&path);
    assert!(text.lines().all(|line| line.contains(&target) || line.contains(" # ")), "{text}");
    let client = text.split(' ').nth(1).expect("an address").to_owned();
    let packets = text.lines().filter(|line| line.contains(" > "));
    assert!(packets.clone().all(|line| line.contains(&client)), "{text}");
    assert!(packets.count() > 4, "{text}");
    assert!(text.ends_with("# the trace is full and ends here\n"), "{text}");
}

#[test]
fn a_router_traces_where_a_clients_requests_went() {
    let server = serve("echo", &[]);
    let path = trace_path("router");
    let args = ["route", "--listen", "127.0.0.1:0", "--silent-after", "30s", "--server"];
    let more = [server.address(), "--trace", path.to_str().unwrap()];
    let router = Service::start(&[&args[..], &more].concat(), 1);
    measure(router.address(), &LOAD);
    router.signal("INT");
    router.wait();
    let text = dissected(&path);
    let client = text.split(' ').nth(1).expect("an address");
    let placed = format!(" # placed on {} for {client}", server.address());
    assert!(text.lines().any(|line| line.ends_with(&placed)), "{text}");
}

#[test]
fn what_has_no_endpoints_has_no_trace() {
    let path = trace_path("none");
    let args = ["serve", "--listen", "127.0.0.1:0", "--app", "echo", "--transport", "tcp"];
    let output = run(&[&args[..], &["--trace", path.to_str().unwrap()]].concat());
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("--trace is for endpoints of R2P2 and Homa"), "{stderr}");
    assert!(!path.exists());
}
