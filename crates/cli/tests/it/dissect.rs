//! Sealed captures, opened by the servers' keys, and what the dissectors for Wireshark make of
//! them.

use std::fs::{self, Permissions};
use std::io::Write as _;
use std::net::SocketAddrV4;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::{Files, Service, assert_all_replied, measure, run, succeed};

/// Protocol that carries a packet of a capture.
#[derive(Clone, Copy)]
enum Over {
    Udp,
    /// Protocol 146 over IP, that of Homa.
    Ip,
}

/// A file of `conformance/sealed`, of which those packets are read that are under the first keys.
struct Vectors {
    /// A server's, as a file of keys has them.
    keys: String,
    packets: Vec<(SocketAddrV4, SocketAddrV4, Vec<u8>)>,
}

impl Vectors {
    fn read(name: &str) -> Self {
        let path = root().join("conformance/sealed").join(name);
        let text = fs::read_to_string(path).expect("it is there");
        let (keys, packets) = text.split_once('\n').expect("keys, then packets");
        // The second key is of no time that a file can say.
        let keys = keys.strip_prefix("keys ").expect("keys").split('|');
        let keys: Vec<&str> = keys.filter(|line| !line.starts_with("key 8 ")).collect();
        let packets = packets.lines().take_while(|line| !line.starts_with("keys "));
        let packets = packets.map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            let [from, to] = [0, 1].map(|at| words[at].parse().expect("an address"));
            let digits = words[2].as_bytes().chunks(2);
            let byte = |two| {
                let two = str::from_utf8(two).expect("ASCII");
                u8::from_str_radix(two, 16).expect("digits")
            };
            (from, to, digits.map(byte).collect())
        });
        Self { keys: keys.join("\n"), packets: packets.collect() }
    }

    /// A classic capture of them, on Ethernet, whose frames end in padding.
    fn capture(&self, over: Over) -> Vec<u8> {
        let mut file = vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0];
        file.extend(1_u32.to_le_bytes());
        for (at, (from, to, packet)) in (0_u32..).zip(&self.packets) {
            let packet = match over {
                Over::Ip => packet.clone(),
                Over::Udp => udp(from.port(), to.port(), packet),
            };
            let protocol = match over {
                Over::Ip => 146,
                Over::Udp => 17,
            };
            let [high, low] = (20 + packet.len() as u16).to_be_bytes();
            let ip = [0x45, 0, high, low, 0, 1, 0x40, 0, 64, protocol, 0, 0];
            let ends = [from.ip().octets(), to.ip().octets()].concat();
            let frame = [&[2; 12][..], &[8, 0], &ip, &ends, &packet, &[0; 6]].concat();
            for word in [1_000 + at, 250, frame.len() as u32, frame.len() as u32] {
                file.extend(word.to_le_bytes());
            }
            file.extend(frame);
        }
        file
    }
}

fn udp(source: u16, target: u16, payload: &[u8]) -> Vec<u8> {
    let len = (8 + payload.len() as u16).to_be_bytes();
    [&source.to_be_bytes()[..], &target.to_be_bytes(), &len, &[0, 0], payload].concat()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Fields of each packet of a capture by tshark with our dissectors; `None` where there is no
/// tshark.
fn fields(files: &Files, capture: &str, fields: &[&str]) -> Option<Vec<Vec<String>>> {
    let mut tshark = Command::new("tshark");
    tshark
        .env("WIRESHARK_CONFIG_DIR", files.path("wireshark"))
        .args(["-r", capture, "-T", "fields"]);
    for name in ["r2p2", "homa"] {
        let script = root().join(format!("tools/wireshark/{name}.lua"));
        tshark.args(["-X", &format!("lua_script:{}", script.display())]);
    }
    // The vectors of Homa are between ports that are R2P2's else.
    let of_homa = if capture.contains("homa") { ["9", "8000"] } else { ["8000", "9"] };
    for (name, port) in ["r2p2.ports", "homa.ports"].iter().zip(of_homa) {
        tshark.args(["-o", &format!("{name}:{port}")]);
    }
    tshark.args(["-o", "ip.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE"]);
    fields.iter().for_each(|field| {
        tshark.args(["-e", field]);
    });
    let Ok(output) = tshark.output() else {
        assert!(std::env::var_os("CI").is_none_or(|is_ci| is_ci != "true"), "CI has it");
        let skipped = "SKIPPED: tshark is not installed; `scripts/setup test` installs it";
        writeln!(std::io::stderr(), "{skipped}").expect("standard error");
        return None;
    };
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let lines = String::from_utf8(output.stdout).expect("a text");
    Some(lines.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect())
}

/// Opens a capture of vectors; what `dissect` prints is then what tshark reads in the copy, packet
/// by packet.
fn check(name: &str, over: Over) {
    check_count(name, over, Vectors::read(name).packets.len());
}

/// Checks as [`check`] does, with so many packets.
fn check_count(name: &str, over: Over, count: usize) {
    let files = Files::new(&format!("dissect-{name}-{}", over as u8));
    let vectors = Vectors::read(name);
    let keys = files.write("keys", &vectors.keys);
    fs::set_permissions(&keys, Permissions::from_mode(0o600)).expect("it is ours");
    let [sealed, opened] = ["sealed.pcap", "opened.pcapng"].map(|name| files.path(name));
    fs::write(&sealed, vectors.capture(over)).expect("there is room");
    let text = succeed(&["dissect", &sealed, "--seal", &keys, "--opened", &opened]);
    assert!(text.ends_with(&format!("\n{count} sealed packets are open in the copy\n")), "{text}");
    // Of a copy nothing is sealed any more.
    let lines = |text: &str| -> Vec<String> {
        let packet = |line: &str| Some(line.split_once(": ")?.1.to_owned());
        text.lines().filter_map(packet).take(count).collect()
    };
    let (sealed_lines, open_lines) = (lines(&text), lines(&succeed(&["dissect", &opened])));
    assert_eq!(open_lines.len(), count);
    for (sealed, open) in sealed_lines.iter().zip(&open_lines) {
        let (open, note) =
            open.split_once(" # ").expect("a comment says what its trailer has told");
        let rest = sealed.strip_prefix(open).unwrap_or_else(|| panic!("{sealed} is not {open}"));
        let is_told = note.starts_with("was sealed, ") && rest.starts_with(", opened, ");
        assert!(is_told || rest == format!(", {note}"), "{sealed} and {note}");
    }
    let wanted = ["r2p2.summary", "homa.summary", "ip.checksum.status", "udp.checksum.status"];
    let Some(found) = fields(&files, &opened, &wanted) else { return };
    let summaries = found.iter().map(|fields| format!("{}{}", fields[0], fields[1]));
    let expected = open_lines.iter().map(|line| line.split(" # ").next().unwrap_or_default());
    assert_eq!(summaries.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
    let udp = match over {
        Over::Udp => "1",
        Over::Ip => "",
    };
    assert!(found.iter().all(|fields| fields[2] == "1" && fields[3] == udp), "{found:?}");
}

#[test]
fn sealed_packets_of_r2p2_are_open_in_the_copy() {
    check("packets.txt", Over::Udp);
}

/// Two datagrams hold 20 of 24 requests and 20 of their replies.
#[test]
fn packets_that_went_together_are_each_open_in_the_copy() {
    check_count("coalesced.txt", Over::Udp, 44);
}

#[test]
fn sealed_packets_of_homa_are_open_in_the_copy() {
    check("homa.txt", Over::Udp);
    check("homa.txt", Over::Ip);
}

/// A trace of real calls: what is read in the copy are their bytes.
#[test]
fn calls_are_read_by_wireshark_in_the_copy_of_a_trace() {
    let files = Files::new("dissect-trace");
    let [servers, _, client] = files.keys();
    let [trace, opened] = ["trace.pcapng", "opened.pcapng"].map(|name| files.path(name));
    let load = ["--app", "echo:64", "--rate", "200", "--duration", "200ms", "--warmup", "50ms"];
    for (transport, protocol) in [("r2p2", "r2p2"), ("homa", "homa")] {
        let serve = ["serve", "--listen", "127.0.0.1:0", "--app", "echo", "--transport", transport];
        let server = Service::start(&[&serve[..], &["--seal", &servers]].concat(), 1);
        let more = ["--transport", transport, "--seal", &client, "--trace", &trace];
        assert_all_replied(&measure(server.address(), &[&load[..], &more].concat()));
        succeed(&["dissect", &trace, "--seal", &servers, "--opened", &opened]);
        let payload = format!("{protocol}.payload");
        let Some(found) = fields(&files, &opened, &[&payload, "frame.comment"]) else { return };
        let is_echo = |fields: &&Vec<String>| fields[0].ends_with(&"5a".repeat(32));
        assert!(found.iter().filter(is_echo).count() > 20, "{found:?}");
        let is_told =
            |fields: &Vec<String>| fields[1].starts_with("was sealed, by client 17, epoch");
        assert!(found.iter().any(is_told), "{found:?}");
    }
}

#[test]
fn a_copy_is_refused_that_could_not_be_what_it_is_for() {
    let files = Files::new("dissect-refused");
    let [servers, _, client] = files.keys();
    let capture = files.path("sealed.pcap");
    fs::write(&capture, Vectors::read("packets.txt").capture(Over::Udp)).expect("there is room");
    let dissect = ["dissect", &capture, "--opened"];
    let refused = |more: &[&str], text: &str| {
        let output = run(&[&dissect[..], more].concat());
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && stderr.contains(text), "{stderr}");
    };
    refused(&[&files.path("out")], "--seal");
    refused(&[&capture, "--seal", &servers], "is the capture itself");
    refused(&[&files.path("out"), "--seal", &client], "only a server's keys open packets");
    refused(&[&files.path("no/out"), "--seal", &servers], "cannot create the opened capture");
}
