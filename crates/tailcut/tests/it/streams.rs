//! Streams over real sockets: hyper, which knows nothing of tailcut, between two processes, and
//! what sockets promise besides.

use std::convert::Infallible;
use std::future::Future;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode, client, server};
use hyper_util::rt::TokioIo;
use tailcut::stream::{
    Config, Fault, HomaConfig, Stream, StreamBuilder, StreamConnector, StreamListener,
};
use tailcut::{DatapathKind, Protocol};
use tailcut_net::clock::Clock;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::child::Server;
use crate::library;

/// Set in the process that serves.
const SERVER: &str = "TAILCUT_TEST_HTTP_SERVER";
/// Its test.
const TEST: &str = "streams::the_process_that_serves";

/// Bytes of a body of a length.
fn body(len: usize) -> Bytes {
    (0..len).map(|at| (at.wrapping_mul(0x9e37_79b1) >> 24) as u8).collect::<Vec<u8>>().into()
}

fn run<T>(task: impl Future<Output = T>) -> T {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        tokio::time::timeout(Duration::from_secs(100), task).await.expect("it ends")
    })
}

/// The other process: `/len/N` answers with a body of that length, and a POST with its body.
async fn serve(mut listener: StreamListener) {
    while let Ok((stream, _)) = listener.accept().await {
        let answer = service_fn(|request: Request<Incoming>| async move {
            let len = request.uri().path().strip_prefix("/len/").and_then(|len| len.parse().ok());
            let body = match len {
                Some(len) => body(len),
                None => request.into_body().collect().await.expect("a body").to_bytes(),
            };
            Ok::<_, Infallible>(Response::new(Full::new(body)))
        });
        tokio::spawn(
            server::conn::http1::Builder::new()
                .half_close(true)
                .serve_connection(TokioIo::new(stream), answer),
        );
    }
}

/// Serves when this is the process that the other tests have started, until its standard input
/// ends.
#[test]
fn the_process_that_serves() {
    if std::env::var_os(SERVER).is_none() {
        return;
    }
    run(async {
        let listener = StreamListener::bind("127.0.0.1:0").unwrap();
        println!("\nserving on {}", listener.local_address());
        let end = tokio::task::spawn_blocking(|| std::io::stdin().lines().for_each(drop));
        tokio::select! {
            _ = end => {}
            () = serve(listener) => {}
        }
    });
}

async fn fetch(
    connector: &StreamConnector,
    target: SocketAddr,
    request: Request<Full<Bytes>>,
) -> Bytes {
    let stream = connector.connect(target).await.expect("a stream");
    let (mut sender, connection) =
        client::conn::http1::handshake(TokioIo::new(stream)).await.expect("a connection");
    let connection = tokio::spawn(connection);
    let response = sender.send_request(request).await.expect("a response");
    assert_eq!(response.status(), StatusCode::OK);
    let body = response.into_body().collect().await.expect("a body").to_bytes();
    drop(sender);
    connection.await.expect("it ends").expect("it ends well");
    body
}

fn get(len: usize) -> Request<Full<Bytes>> {
    Request::get(format!("/len/{len}")).header("host", "streams").body(Full::default()).unwrap()
}

fn post(len: usize) -> Request<Full<Bytes>> {
    Request::post("/").header("host", "streams").body(Full::new(body(len))).unwrap()
}

#[test]
fn an_http_library_fetches_from_another_process() {
    let server = Server::start(TEST, (SERVER, "1"));
    run(async {
        let connector = StreamBuilder::new().connector("127.0.0.1:0").unwrap();
        for len in [0, 1000, 100_000, 10_000_000] {
            assert!(
                fetch(&connector, server.address, get(len)).await == body(len),
                "{len} bytes there"
            );
            assert!(
                fetch(&connector, server.address, post(len)).await == body(len),
                "{len} bytes there and back"
            );
        }
    });
}

#[test]
fn many_requests_run_at_once() {
    let server = Server::start(TEST, (SERVER, "1"));
    run(async {
        let connector = StreamBuilder::new().connector("127.0.0.1:0").unwrap();
        let fetches = (0..40).map(|place| {
            let (connector, target, len) =
                (connector.clone(), server.address, [0, 10, 30_000, 500_000][place % 4]);
            tokio::spawn(async move {
                let request = if place % 2 == 0 { get(len) } else { post(len) };
                assert!(fetch(&connector, target, request).await == body(len), "{len} bytes");
            })
        });
        for fetch in fetches.collect::<Vec<_>>() {
            fetch.await.unwrap();
        }
    });
}

#[test]
fn one_connection_carries_many_requests() {
    let server = Server::start(TEST, (SERVER, "1"));
    run(async {
        let stream = Stream::connect(server.address).await.unwrap();
        let (mut sender, connection) =
            client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        for place in 0..200 {
            let len = place * 37;
            sender.ready().await.unwrap();
            let response = sender.send_request(post(len)).await.unwrap();
            assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), body(len));
        }
    });
}

/// A client that says nothing more after its request, as `nc -N` does.
#[test]
fn a_client_may_end_its_direction_before_the_answer() {
    let server = Server::start(TEST, (SERVER, "1"));
    run(async {
        let mut stream = Stream::connect(server.address).await.unwrap();
        let request = "GET /len/3000000 HTTP/1.1\r\nhost: streams\r\nconnection: close\r\n\r\n";
        AsyncWriteExt::write_all(&mut stream, request.as_bytes()).await.unwrap();
        AsyncWriteExt::shutdown(&mut stream).await.unwrap();
        let mut response = Vec::new();
        AsyncReadExt::read_to_end(&mut stream, &mut response).await.unwrap();
        assert!(response.starts_with(b"HTTP/1.1 200 OK\r\n"));
        assert!(response.ends_with(&body(3_000_000)));
    });
}

#[test]
fn a_process_that_dies_ends_its_streams() {
    let server = Server::start(TEST, (SERVER, "1"));
    run(async {
        let mut homa = HomaConfig::default();
        homa.recovery.peer_silence_ns_max = 300_000_000;
        let builder = StreamBuilder::new().homa_config(homa);
        let mut stream = builder.connect(server.address).await.unwrap();
        stream
            .write_all(b"POST / HTTP/1.1\r\nhost: streams\r\ncontent-length: 100000000\r\n\r\n")
            .await
            .unwrap();
        drop(server);
        let error = loop {
            if let Err(error) = stream.write_all(&[0; 100_000]).await {
                break error;
            }
        };
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
        assert_eq!(stream.read(&mut [0; 10]).await.unwrap_err().kind(), ErrorKind::TimedOut);
    });
}

/// A listener and a stream of it, both sides.
async fn pair(builder: &StreamBuilder) -> (StreamListener, Stream, Stream) {
    let mut listener = builder.bind("127.0.0.1:0").unwrap();
    let client = builder.connect(listener.local_address()).await.unwrap();
    let (server, peer) = listener.accept().await.unwrap();
    assert_eq!((peer.port(), server.peer_address()), (client.local_address().port(), peer));
    (listener, client, server)
}

#[test]
fn the_side_that_accepts_may_speak_first() {
    run(async {
        let (_listener, mut client, mut server) = pair(&StreamBuilder::new()).await;
        server.write_all(b"220 ready").await.unwrap();
        server.shutdown().await.unwrap();
        assert_eq!(client.read_to_end().await.unwrap(), b"220 ready");
        client.write_all(b"bye").await.unwrap();
        client.shutdown().await.unwrap();
        assert_eq!(server.read_to_end().await.unwrap(), b"bye");
        assert_eq!(server.write(b"x").await.unwrap_err().kind(), ErrorKind::BrokenPipe);
    });
}

/// A datapath over IP in the disguise of TCP; another as it is.
fn disguised((protocol, datapath): library::Transport) -> library::Transport {
    match datapath {
        DatapathKind::Ip => (protocol, DatapathKind::HijackedTcp),
        other => (protocol, other),
    }
}

/// Several packets each way over every datapath that this process may use.
#[test]
fn a_stream_goes_over_any_datapath_of_homa() {
    let over_homa = library::transports().filter(|of| of.0 == Protocol::Homa);
    for (_, datapath) in over_homa.flat_map(|of| [of, disguised(of)]) {
        run(async {
            let builder = StreamBuilder::new().datapath(datapath);
            let (_listener, mut client, mut server) = pair(&builder).await;
            let sent = body(300_000);
            let (bytes, echo) = (sent.clone(), sent.len());
            let writing = tokio::spawn(async move {
                client.write_all(&bytes).await.unwrap();
                let mut back = vec![0; echo];
                client.read_exact(&mut back).await.unwrap();
                back
            });
            let mut heard = vec![0; sent.len()];
            server.read_exact(&mut heard).await.unwrap();
            server.write_all(&heard).await.unwrap();
            assert_eq!(writing.await.unwrap(), sent, "over {datapath:?}");
        });
    }
}

#[test]
fn a_stream_in_the_disguise_of_tcp_names_its_address() {
    let builder = StreamBuilder::new().datapath(DatapathKind::HijackedTcp);
    let error = builder.bind("0.0.0.0:0").expect_err("its checksum covers the source");
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
}

#[test]
fn what_was_written_arrives_although_the_stream_is_dropped() {
    run(async {
        let (_listener, mut client, mut server) = pair(&StreamBuilder::new()).await;
        client.write_all(&body(900_000)).await.unwrap();
        drop(client);
        assert!(server.read_to_end().await.unwrap() == body(900_000));
    });
}

#[test]
fn a_stream_dropped_with_bytes_unread_is_reset() {
    run(async {
        let (_listener, mut client, mut server) = pair(&StreamBuilder::new()).await;
        server.write_all(b"will you read it?").await.unwrap();
        let mut first = [0; 1];
        client.read(&mut first).await.unwrap();
        drop(client);
        let error = server.read(&mut [0; 10]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
    });
}

#[test]
fn a_reader_that_stops_stops_the_writer() {
    run(async {
        let config = Config { window_max: 100_000, window_min: 10_000, ..Config::default() };
        let (_listener, mut client, mut server) = pair(&StreamBuilder::new().config(config)).await;
        let mut written = 0;
        while let Ok(taken) =
            tokio::time::timeout(Duration::from_millis(300), client.write(&[7; 50_000])).await
        {
            written += taken.unwrap();
            assert!(written <= 1_000_000, "it goes on");
        }
        let (read, shut) = tokio::join!(server.read_to_end(), client.shutdown());
        assert_eq!((read.unwrap().len(), shut.is_ok()), (written, true));
    });
}

#[test]
fn nobody_listens_where_nobody_listens() {
    run(async {
        let connector = StreamBuilder::new().connector("127.0.0.1:0").unwrap();
        let error = Stream::connect(connector.local_address()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        assert_eq!(error.get_ref().and_then(|inner| inner.downcast_ref()), Some(&Fault::Refused));
        let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let builder =
            StreamBuilder::new().config(Config { open_ns_max: 50_000_000, ..Config::default() });
        let error = builder.connect(silent.local_addr().unwrap()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
    });
}

/// The host says so (ICMP port unreachable): nobody waits for the 5 s that an answer may take.
#[test]
fn a_closed_port_refuses_at_once() {
    run(async {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let nobody = std::net::UdpSocket::bind(address).unwrap().local_addr().unwrap();
            let connector = StreamBuilder::new().connector(address).unwrap();
            for _ in 0..10 {
                let started = Clock.now();
                let error = connector.connect(nobody).await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{error}");
                let took_ns = Clock.now() - started;
                assert!(took_ns < 1_000_000_000, "{took_ns} ns");
            }
        }
    });
}

/// Opens many streams at once; returns those that were opened.
async fn open_many(connector: &StreamConnector, target: SocketAddr, count: usize) -> Vec<Stream> {
    let opening = (0..count).map(|_| {
        let connector = connector.clone();
        tokio::spawn(async move { connector.connect(target).await })
    });
    let mut streams = Vec::new();
    for stream in opening.collect::<Vec<_>>() {
        streams.extend(stream.await.unwrap().inspect_err(|error| {
            assert_eq!(error.kind(), ErrorKind::QuotaExceeded, "{error}");
        }));
    }
    streams
}

#[test]
fn one_peer_holds_thousands_of_idle_streams_and_others_open_and_carry() {
    run(async {
        let mut listener = StreamListener::bind("127.0.0.1:0").unwrap();
        let target = listener.local_address();
        let acceptor = tokio::spawn(async move {
            let mut idle = Vec::new();
            while let Ok((mut stream, peer)) = listener.accept().await {
                if peer.ip().to_string() == "127.0.0.1" {
                    idle.push(stream);
                    continue;
                }
                tokio::spawn(async move {
                    let bytes = stream.read_to_end().await.unwrap();
                    stream.write_all(&bytes).await.unwrap();
                    stream.shutdown().await.unwrap();
                });
            }
        });
        let greedy = StreamBuilder::new().connector("127.0.0.1:0").unwrap();
        let streams = open_many(&greedy, target, 4100).await;
        assert_eq!(streams.len(), 4096);
        let other = StreamBuilder::new().connector("127.0.0.2:0").unwrap();
        for mut stream in open_many(&other, target, 20).await {
            stream.write_all(&body(200_000)).await.unwrap();
            stream.shutdown().await.unwrap();
            assert!(stream.read_to_end().await.unwrap() == body(200_000));
        }
        acceptor.abort();
    });
}

#[test]
fn a_listener_that_is_dropped_leaves_its_streams() {
    run(async {
        let (listener, mut client, mut server) = pair(&StreamBuilder::new()).await;
        let target = listener.local_address();
        drop(listener);
        client.write_all(b"still here").await.unwrap();
        client.shutdown().await.unwrap();
        assert_eq!(server.read_to_end().await.unwrap(), b"still here");
        assert_eq!(Stream::connect(target).await.unwrap_err().kind(), ErrorKind::ConnectionRefused);
    });
}
