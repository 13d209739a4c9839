//! Memory over rounds of many calls at once, and under what strangers send, in processes of their
//! own, so that nobody else's is counted.

use std::net::UdpSocket;
use std::process::Command;
use std::time::Duration;

use tailcut::{ClientBuilder, Config, Server};
use tailcut_wire::r2p2::{MessageType, RequestRepr, Route, RpcId, Segment, SessionId};
use zerocopy::IntoBytes;

/// Calls at once; 4096 of them are outstanding, the others wait for a permit.
const CALLS: usize = 100_000;

/// The first make room; the others must find it.
const ROUNDS: usize = 10;
const WARM_ROUNDS: usize = 5;

/// Timeout of a call.
const TIMEOUT: Duration = Duration::from_secs(4);

/// Set in the process of its own.
const IS_CHILD: &str = "TAILCUT_TEST_ROUNDS";

/// Datagrams of the flood, each of a session of its own.
const FLOOD: u64 = 96_000;

/// Datagrams at a time, and clients that send them.
const BURST: u64 = 64;
const CLIENTS: u64 = 2_000;

#[test]
fn a_hundred_thousand_calls_at_once_are_answered_in_flat_memory() {
    let name = "memory::a_hundred_thousand_calls_at_once_are_answered_in_flat_memory";
    let Some(resident) = resident_in_rounds(name, rounds) else { return };
    assert_eq!(resident.len(), ROUNDS);
    let warm = resident[..WARM_ROUNDS].iter().max().expect("a round");
    let later = resident[WARM_ROUNDS..].iter().max().expect("a round");
    // A queue that doubles late is less; 32 B kept of each call would be more.
    assert!(later.saturating_sub(*warm) <= warm / 4, "{resident:?} kB");
}

/// 7.3 MB of requests of 76 bytes, of as many sessions: what is remembered so that none runs twice
/// is within the limit of all that is held, as are the replies that are kept.
#[test]
fn sessions_of_strangers_are_remembered_within_the_limit_of_what_is_held() {
    let name = "memory::sessions_of_strangers_are_remembered_within_the_limit_of_what_is_held";
    let Some(resident) = resident_in_rounds(name, strangers) else { return };
    let [before, after] = resident[..] else { panic!("{resident:?}") };
    let limit_kb = (Config::default().serving.held_bytes_max + (32 << 20)) as u64 / 1024;
    assert!(after.saturating_sub(before) < limit_kb, "{resident:?} kB, at most {limit_kb} more");
}

/// Kilobytes that a process of its own has in memory at each time that `task` tells; `None` in that
/// process, which runs the test of this name again.
fn resident_in_rounds(name: &str, task: impl FnOnce()) -> Option<Vec<u64>> {
    if std::env::var_os(IS_CHILD).is_some() {
        task();
        return None;
    }
    let this = std::env::current_exe().expect("a path");
    let mut command = Command::new(this);
    let args = ["--exact", name, "--nocapture", "--test-threads=1"];
    command.env(IS_CHILD, "");
    // One arena of the allocator's: which thread finds room in whose is no question of ours.
    let output = command.args(args).env("MALLOC_ARENA_MAX", "1").output().expect("it starts");
    let text = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}{stderr}");
    let resident = text.split(" kB resident").filter_map(|line| line.rsplit(' ').next());
    let resident: Vec<u64> = resident.filter_map(|number| number.parse().ok()).collect();
    println!("{resident:?} kB");
    Some(resident)
}

/// The flood, and a server that answers it.
fn strangers() {
    let mut server = Server::bind("127.0.0.1:0").expect("a server");
    let (address, handle) = (server.local_address(), server.stop_handle());
    let serving = std::thread::spawn(move || {
        server.run(|request| {
            let _ = request.reply_in_place(|bytes| bytes.reverse());
        })
    });
    let clients: Vec<UdpSocket> = (0..CLIENTS)
        .map(|client| UdpSocket::bind(("127.0.0.1", 0)).unwrap_or_else(|_| panic!("{client}")))
        .collect();
    let mut answered = 0;
    println!(" {} kB resident", resident_kb());
    for first in (0..FLOOD).step_by(BURST as usize) {
        for session in first..first + BURST {
            let client = &clients[(session % CLIENTS) as usize];
            client.send_to(&request(session + 1), address).expect("it is sent");
        }
        // The answer to the last shows that the server has had all.
        let last = &clients[((first + BURST - 1) % CLIENTS) as usize];
        last.set_read_timeout(Some(Duration::from_millis(100))).expect("an option");
        answered += u64::from(last.recv(&mut [0; 2_000]).is_ok());
    }
    println!(" {} kB resident", resident_kb());
    assert!(answered > FLOOD / BURST / 2, "{answered} bursts were answered");
    handle.stop();
    serving.join().expect("no panic").expect("it serves");
}

/// The first request of a session, 76 bytes.
fn request(session: u64) -> Vec<u8> {
    let repr = RequestRepr {
        segment: Segment { message_len: 4, segment_len: 1380, index: 0, count: 1 },
        deadline_us: 1_000_000,
        ..RequestRepr::control(MessageType::Request, 1, RpcId::new(SessionId(session), 60_000))
    };
    let bytes = [repr.header().as_bytes(), Route::default().as_bytes(), b"ping"].concat();
    assert_eq!(bytes.len(), 76);
    bytes
}

/// The process of its own.
fn rounds() {
    let mut server = Server::bind("127.0.0.1:0").expect("a server");
    let (address, handle) = (server.local_address(), server.stop_handle());
    let serving = std::thread::spawn(move || {
        server.run(|request| {
            // A client that has gone needs no answer.
            let _ = request.reply_in_place(|bytes| bytes.reverse());
        })
    });
    // The default of a second is enough, but where other tests take the cores for long.
    let client = ClientBuilder::new().timeout(TIMEOUT).connect_async(address).expect("a client");
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    for _ in 0..ROUNDS {
        runtime.block_on(async {
            let calls: Vec<_> = (0..CALLS).map(|_| client.call(*b"stressed")).collect();
            for call in calls {
                assert_eq!(call.await.expect("a reply"), b"desserts");
            }
        });
        println!(" {} kB resident", resident_kb());
    }
    handle.stop();
    serving.join().expect("no panic").expect("it serves");
}

/// Kilobytes of this process that are in memory.
fn resident_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("a file");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}
