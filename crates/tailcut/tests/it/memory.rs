//! Memory over rounds of many calls at once, in a process of its own, so that nobody else's is
//! counted.

use std::process::Command;
use std::time::Duration;

use tailcut::{ClientBuilder, Server};

/// Calls at once; 4096 of them are outstanding, the others wait for a permit.
const CALLS: usize = 100_000;

/// The first make room; the others must find it.
const ROUNDS: usize = 10;
const WARM_ROUNDS: usize = 5;

/// Timeout of a call.
const TIMEOUT: Duration = Duration::from_secs(4);

/// Set in the process of its own.
const IS_CHILD: &str = "TAILCUT_TEST_ROUNDS";

#[test]
fn a_hundred_thousand_calls_at_once_are_answered_in_flat_memory() {
    if std::env::var_os(IS_CHILD).is_some() {
        return rounds();
    }
    let this = std::env::current_exe().expect("a path");
    let name = "memory::a_hundred_thousand_calls_at_once_are_answered_in_flat_memory";
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
    assert_eq!(resident.len(), ROUNDS, "{text}");
    println!("{resident:?} kB");
    let warm = resident[..WARM_ROUNDS].iter().max().expect("a round");
    let later = resident[WARM_ROUNDS..].iter().max().expect("a round");
    // A queue that doubles late is less; 32 B kept of each call would be more.
    assert!(later.saturating_sub(*warm) <= warm / 4, "{resident:?} kB");
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
