//! Sealed streams over real sockets.

use std::future::Future;
use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tailcut::sealed::{Access, Role, Secret};
use tailcut::stream::{Config, Fault, HomaConfig, Stream, StreamBuilder, StreamListener};
use tailcut::{LiveAccess, LiveKeys};

use crate::child::Server;
use crate::group::{fresh_group, group, in_a_row, now_ms, of};

/// Set in the process that serves, to where it listens and when its key began.
const SERVER: &str = "TAILCUT_TEST_SEALED_STREAMS";
/// Its test.
const TEST: &str = "streams_sealed::the_process_that_serves";

fn run<T>(task: impl Future<Output = T>) -> T {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        tokio::time::timeout(Duration::from_secs(100), task).await.expect("it ends")
    })
}

fn message(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at.wrapping_mul(0x9e37_79b1) >> 24) as u8).collect()
}

/// A stream that is soon given up.
fn hasty() -> StreamBuilder {
    let mut homa = HomaConfig::default();
    homa.recovery.peer_silence_ns_max = 300_000_000;
    let config = Config { open_ns_max: 400_000_000, ..Config::default() };
    StreamBuilder::new().config(config).homa_config(homa)
}

async fn accepted(listener: &mut StreamListener, client: Stream) -> (Stream, Stream) {
    let (server, _) = listener.accept().await.expect("a stream");
    (client, server)
}

/// Carries bytes from one end to the other.
async fn carry(from: &mut Stream, to: &mut Stream, bytes: &[u8]) {
    let mut read = vec![0; bytes.len()];
    let reading = async {
        let mut at = 0;
        while at < read.len() {
            match to.read(&mut read[at..]).await.expect("it goes on") {
                0 => panic!("it ends after {at} bytes"),
                len => at += len,
            }
        }
    };
    let (written, ()) = tokio::join!(from.write_all(bytes), reading);
    written.expect("it goes on");
    assert!(read == bytes, "{} bytes", bytes.len());
}

/// Datagrams between one client and a listener, all of which it keeps.
struct Relay {
    /// Address that the client connects to.
    address: SocketAddr,
    /// Both sockets: towards the client, and towards the listener.
    sockets: [Arc<UdpSocket>; 2],
    /// Datagrams that have passed.
    passed: Arc<Mutex<Passed>>,
    is_over: Arc<AtomicBool>,
}

/// Datagrams, each with the socket that it left through.
type Passed = Vec<(usize, Vec<u8>)>;

impl Relay {
    fn new(listener: SocketAddr) -> Self {
        let socket = || Arc::new(UdpSocket::bind("127.0.0.1:0").expect("a port"));
        let sockets = [socket(), socket()];
        sockets[1].connect(listener).expect("an address");
        let address = sockets[0].local_addr().expect("it is bound");
        let relay = Self { address, sockets, passed: Arc::default(), is_over: Arc::default() };
        let client: Arc<Mutex<Option<SocketAddr>>> = Arc::default();
        for way in [0, 1] {
            let (sockets, passed) = (relay.sockets.clone(), relay.passed.clone());
            let (client, is_over) = (client.clone(), relay.is_over.clone());
            sockets[way].set_read_timeout(Some(Duration::from_millis(20))).expect("it has one");
            std::thread::spawn(move || {
                let mut buffer = [0; 65_536];
                while !is_over.load(Ordering::Relaxed) {
                    let Ok((len, from)) = sockets[way].recv_from(&mut buffer) else { continue };
                    let bytes = &buffer[..len];
                    passed.lock().unwrap().push((1 - way, bytes.to_vec()));
                    let mut client = client.lock().unwrap();
                    // What is lost at a full socket is sent again.
                    let _ = match (way, *client) {
                        (0, _) => {
                            *client = Some(from);
                            sockets[1].send(bytes)
                        }
                        (_, Some(to)) => sockets[0].send_to(bytes, to),
                        (_, None) => Ok(0),
                    };
                }
            });
        }
        relay
    }

    /// All that has passed goes again, from where it came.
    fn replay(&self, client: SocketAddr) -> usize {
        let passed = self.passed.lock().unwrap().clone();
        for (way, bytes) in &passed {
            let _ = match way {
                0 => self.sockets[0].send_to(bytes, client),
                _ => self.sockets[1].send(bytes),
            };
        }
        passed.len()
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

#[test]
fn sealed_streams_carry_both_ways_and_tell_who_has_opened_them() {
    run(async {
        let keys = fresh_group();
        let builder = StreamBuilder::new().seal(keys.clone());
        let mut listener = builder.bind("127.0.0.1:0").unwrap();
        let target = listener.local_address();
        for client in [3, 70_000] {
            let builder = StreamBuilder::new().seal(of(&keys, client));
            let opened = builder.connect(target).await.unwrap();
            let (mut opened, mut taken) = accepted(&mut listener, opened).await;
            assert_eq!((taken.identity(), opened.identity()), (Some(client), None));
            for len in [1, 1_000, 100_000, 8 << 20] {
                carry(&mut taken, &mut opened, &message(len)).await;
                carry(&mut opened, &mut taken, &message(len)).await;
            }
            opened.shutdown().await.unwrap();
            assert_eq!(taken.read(&mut [0; 10]).await.unwrap(), 0);
            taken.shutdown().await.unwrap();
            assert_eq!(opened.read_to_end().await.unwrap(), b"");
        }
    });
}

/// Somebody between both ends reads nothing, and what goes again changes nothing.
#[test]
fn who_is_on_the_way_reads_nothing_and_replays_in_vain() {
    run(async {
        let keys = fresh_group();
        let builder = StreamBuilder::new().seal(keys.clone());
        let mut listener = builder.bind("127.0.0.1:0").unwrap();
        let relay = Relay::new(listener.local_address());
        let client = StreamBuilder::new().seal(of(&keys, 3)).connect(relay.address).await.unwrap();
        let (mut client, mut server) = accepted(&mut listener, client).await;
        let text = "the quick brown fox jumps over the lazy dog ".repeat(40_000);
        carry(&mut client, &mut server, text.as_bytes()).await;
        carry(&mut server, &mut client, text.as_bytes()).await;
        let is_read = |bytes: &[u8]| bytes.windows(9).any(|piece| piece == b"brown fox");
        assert!(relay.passed.lock().unwrap().iter().all(|(_, bytes)| !is_read(bytes)));
        assert!(relay.replay(client.local_address()) > 100);
        carry(&mut server, &mut client, b"and on").await;
        carry(&mut client, &mut server, b"and on").await;
        client.shutdown().await.unwrap();
        server.shutdown().await.unwrap();
        assert_eq!(client.read_to_end().await.unwrap(), b"", "nothing has come twice");
        assert_eq!(server.read_to_end().await.unwrap(), b"", "nothing has come twice");
    });
}

/// Whoever has no keys, or others, is told so when nobody has answered.
#[test]
fn ends_without_the_same_keys_open_nothing() {
    run(async {
        let keys = fresh_group();
        let mut others = keys.clone();
        others.epochs[0].secret = Secret::new([8; 32]);
        let sealed = StreamBuilder::new().seal(keys.clone()).bind("127.0.0.1:0").unwrap();
        let open = StreamListener::bind("127.0.0.1:0").unwrap();
        for (builder, listener, is_told) in [
            (hasty().seal(of(&others, 3)), &sealed, true),
            (hasty().seal(of(&keys, 3)), &open, true),
            (hasty(), &sealed, false),
        ] {
            let error = builder.connect(listener.local_address()).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
            let fault = error.get_ref().and_then(|inner| inner.downcast_ref::<Fault>());
            assert_eq!(fault == Some(&Fault::NoKeys), is_told, "{error}");
        }
    });
}

#[test]
fn keys_of_another_role_are_refused_with_the_reason() {
    run(async {
        let keys = fresh_group();
        let [router, client] = [Role::Router, Role::Client(3)].map(|role| keys.for_role(role));
        let (router, client) = (router.unwrap(), client.unwrap());
        let rules: Access = "tailcut-access 1\nallow any *".parse().unwrap();
        let sealed = || StreamBuilder::new().seal(keys.clone());
        let of_client = || StreamBuilder::new().seal(client.clone());
        for (refused, expected) in [
            (StreamBuilder::new().seal(router).bind("127.0.0.1:0").map(drop), "router's"),
            (of_client().bind("127.0.0.1:0").map(drop), "a client's keys"),
            (sealed().connector("127.0.0.1:0").map(drop), "a server's keys"),
            (StreamBuilder::new().access(rules.clone()).bind("127.0.0.1:0").map(drop), "keys too"),
            (of_client().access(rules).connector("127.0.0.1:0").map(drop), "listener's"),
        ] {
            let error = refused.expect_err(expected);
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            assert!(error.to_string().contains(expected), "{error}");
        }
    });
}

#[test]
fn a_policy_says_who_opens_streams_and_may_change() {
    run(async {
        let keys = fresh_group();
        let rules = |client: u32| format!("tailcut-access 1\nallow {client} *").parse().unwrap();
        let access = LiveAccess::new(rules(3));
        let builder = StreamBuilder::new().seal(keys.clone()).access(&access);
        let mut listener = builder.bind("127.0.0.1:0").unwrap();
        let target = listener.local_address();
        let connect = async |client| hasty().seal(of(&keys, client)).connect(target).await;
        let opened = connect(3).await.unwrap();
        let (mut opened, mut taken) = accepted(&mut listener, opened).await;
        carry(&mut taken, &mut opened, b"hello").await;
        let error = connect(4).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
        access.update(rules(4));
        let error = connect(3).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
        connect(4).await.unwrap();
        // What it has open ends with the next message.
        let error = loop {
            if let Err(error) = opened.write_all(b"more").await {
                break error;
            }
            tokio::task::yield_now().await;
        };
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
    });
}

/// Epochs that begin in a row, each known to nobody before the one before is in use; at last the
/// listener alone has something to say.
#[test]
fn keys_follow_while_streams_run() {
    // A message that takes as long as two of them is lost.
    const EVERY_MS: u64 = 1_000;
    run(async {
        let began_ms = now_ms();
        let until = |at| in_a_row((began_ms, EVERY_MS), at);
        let server_keys = LiveKeys::new(until(2));
        let client_keys = LiveKeys::new(of(&until(2), 3));
        let listening = StreamBuilder::new().seal(&server_keys);
        let mut listener = listening.bind("127.0.0.1:0").unwrap();
        let target = listener.local_address();
        let config = Config { keepalive_ns: 20_000_000, ..Config::default() };
        let builder = StreamBuilder::new().seal(&client_keys).config(config);
        let opened = builder.connect(target).await.unwrap();
        let (mut opened, mut taken) = accepted(&mut listener, opened).await;
        for at in 3..9 {
            assert!(server_keys.update(&until(at)).expect("they follow"));
            assert!(client_keys.update(&of(&until(at), 3)).expect("they follow"));
            while now_ms() < began_ms + (at - 1) * EVERY_MS {
                carry(&mut taken, &mut opened, &message(5_000)).await;
                if at < 6 {
                    carry(&mut opened, &mut taken, &message(5_000)).await;
                }
            }
        }
    });
}

/// Serves when this is the process that another test has started: echoes until it is killed.
#[test]
fn the_process_that_serves() {
    let Ok(told) = std::env::var(SERVER) else { return };
    run(async {
        let (address, from_ms) = told.split_once(' ').expect("both");
        let builder = StreamBuilder::new().seal(group(from_ms.parse().expect("a time")));
        let mut listener = builder.bind(address).unwrap();
        println!("\nserving on {}", listener.local_address());
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut buffer = [0; 1_000];
                while let Ok(len @ 1..) = stream.read(&mut buffer).await {
                    if stream.write_all(&buffer[..len]).await.is_err() {
                        break;
                    }
                }
            });
        }
    });
}

/// The streams of the process before end, and the next one is taken, all from one socket.
#[test]
fn a_listener_that_starts_again_ends_streams_and_takes_others() {
    let from_ms = now_ms() - 60_000;
    let server = Server::start(TEST, (SERVER, &format!("127.0.0.1:0 {from_ms}")));
    run(async {
        let keys = of(&group(from_ms), 3);
        let connector = hasty().seal(keys).connector("127.0.0.1:0").unwrap();
        let echo = async |stream: &mut Stream| -> std::io::Result<()> {
            stream.write_all(b"hello").await?;
            let mut buffer = [0; 5];
            let mut at = 0;
            while at < 5 {
                match stream.read(&mut buffer[at..]).await? {
                    0 => return Err(ErrorKind::UnexpectedEof.into()),
                    len => at += len,
                }
            }
            assert_eq!(&buffer, b"hello");
            Ok(())
        };
        let address = server.address;
        let mut before = connector.connect(address).await.unwrap();
        echo(&mut before).await.unwrap();
        drop(server);
        let server = Server::start(TEST, (SERVER, &format!("{address} {from_ms}")));
        let error = echo(&mut before).await.unwrap_err();
        assert!(
            matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::TimedOut),
            "{error}"
        );
        let mut after = connector.connect(server.address).await.unwrap();
        echo(&mut after).await.unwrap();
    });
}
