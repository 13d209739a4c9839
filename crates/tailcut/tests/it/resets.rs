//! Servers that have no key of a client's epoch, over sockets.

use std::time::Duration;

use tailcut::sealed::{EpochKey, HopKey, Keys, Secret};
use tailcut::{ClientBuilder, Error, KeySource, LiveKeys, Protocol, Server, ServerBuilder};
use tailcut_net::clock::Clock;
use tailcut_net::keys::file;
use tailcut_proto::rpc::{DropReason, Failure};

use crate::group::{group, now_ms, of};

/// A group's keys of these epochs, the last of which is current.
fn of_epochs(epochs: &[u8]) -> Keys {
    let began_ms = now_ms() / 100_000 * 100_000 - 1_000_000;
    let epoch = |&epoch: &u8| EpochKey {
        epoch,
        from_ms: began_ms + u64::from(epoch) * 1_000,
        secret: Secret::new([epoch; 32]),
        hop: HopKey::default(),
    };
    let reset = Some(HopKey::new([9; 16]));
    Keys { reset, epochs: epochs.iter().map(epoch).collect(), ..group(0) }
}

/// A server that echoes, until the process ends.
fn serve(protocol: Protocol, keys: &LiveKeys) -> std::net::SocketAddr {
    let builder = ServerBuilder::new().protocol(protocol).seal(keys);
    let mut server: Server = builder.bind("127.0.0.1:0").expect("a server");
    let address = server.local_address();
    std::thread::spawn(move || {
        // It is there as long as the test.
        let _ = server.run(|request| {
            let _ = request.reply_in_place(|_| ());
        });
    });
    address
}

fn client(
    protocol: Protocol,
    keys: impl Into<LiveKeys>,
    server: std::net::SocketAddr,
) -> tailcut::Client {
    let builder = ClientBuilder::new().protocol(protocol).timeout(Duration::from_secs(20));
    builder.seal(keys).connect(server).expect("a client")
}

fn is_no_key(error: &Error) -> bool {
    matches!(error, Error::Failed { source: Failure::Refused(DropReason::NoKey), .. })
}

#[test]
fn a_call_under_a_lost_key_ends_at_once_and_succeeds_once_the_key_is_there() {
    [Protocol::R2p2, Protocol::Homa].into_iter().for_each(check_lost);
}

fn check_lost(protocol: Protocol) {
    let keys = LiveKeys::new(of_epochs(&[3]));
    let server = serve(protocol, &keys);
    let client = client(protocol, of(&of_epochs(&[8]), 17), server);
    let began = Clock.now();
    let error = client.call(b"request").expect_err("the server has another key");
    assert!(is_no_key(&error), "{error}");
    assert!(error.is_refused() && Clock.now() - began < 10_000_000_000, "{error}");
    keys.update(&of_epochs(&[3, 8])).expect("they follow");
    // The server takes them with its next turn.
    while client.call(b"request").is_err_and(|error| is_no_key(&error)) {}
    assert_eq!(&*client.call(b"request").expect("a reply"), b"request");
}

#[test]
fn a_call_goes_again_under_the_key_that_the_server_has() {
    for protocol in [Protocol::R2p2, Protocol::Homa] {
        let server = serve(protocol, &LiveKeys::new(of_epochs(&[7])));
        let client = client(protocol, of(&of_epochs(&[7, 8]), 17), server);
        let began = Clock.now();
        assert_eq!(&*client.call(b"request").expect("a reply"), b"request");
        assert!(Clock.now() - began < 10_000_000_000);
    }
}

/// The client's file has the newer keys by then: it is read again because the server has none of
/// the old one.
#[test]
fn an_answer_has_a_client_read_its_file_again() {
    [Protocol::R2p2, Protocol::Homa].into_iter().for_each(check_read_again);
}

fn check_read_again(protocol: Protocol) {
    let path = std::env::temp_dir().join(format!("tailcut-{}-resets.keys", std::process::id()));
    file::create(&path, &of(&of_epochs(&[5]), 17)).expect("a file");
    let source = KeySource::open(&path).expect("its keys");
    let server = serve(protocol, &LiveKeys::new(of_epochs(&[8])));
    let client = client(protocol, &source, server);
    file::replace(&path, &of(&of_epochs(&[8]), 17)).expect("nothing is in the way");
    let began = Clock.now();
    while client.call(b"request").is_err() {
        assert!(Clock.now() - began < 10_000_000_000, "the new keys are read");
    }
    std::fs::remove_file(&path).expect("it is there");
}
