//! HTTP over streams: hyper, which knows nothing of tailcut, serves and fetches as it does over
//! TCP.
//!
//! `http serve ADDRESS` serves until its standard input ends, `http get ADDRESS PATH` fetches and
//! prints. Without arguments it starts a server in a process of its own and fetches from it.

use std::convert::Infallible;
use std::io::BufRead;
use std::process::{Command, Stdio};

use http_body_util::{BodyExt, Empty, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response, client, server};
use hyper_util::rt::TokioIo;
use tailcut::stream::{Stream, StreamListener};

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["serve", address] => serve(address).await,
        ["get", address, path] => {
            println!("{}", get(address, path).await?);
            Ok(())
        }
        _ => both().await,
    }
}

async fn serve(address: &str) -> Result<(), Failure> {
    let mut listener = StreamListener::bind(address)?;
    println!("serving on {}", listener.local_address());
    let end = tokio::task::spawn_blocking(|| std::io::stdin().lines().for_each(drop));
    tokio::pin!(end);
    loop {
        tokio::select! {
            _ = &mut end => return Ok(()),
            accepted = listener.accept() => {
                let (stream, peer) = accepted?;
                let answer = service_fn(move |request: Request<Incoming>| async move {
                    let text = format!("{peer} asks for {}", request.uri().path());
                    Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(text))))
                });
                tokio::spawn(server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), answer));
            }
        }
    }
}

async fn get(address: &str, path: &str) -> Result<String, Failure> {
    let stream = Stream::connect(address).await?;
    let (mut sender, connection) = client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let connection = tokio::spawn(connection);
    let request = Request::get(path).header("host", address).body(Empty::<Bytes>::new())?;
    let body = sender.send_request(request).await?.into_body().collect().await?.to_bytes();
    drop(sender);
    connection.await??;
    Ok(String::from_utf8(body.to_vec())?)
}

async fn both() -> Result<(), Failure> {
    let mut server = Command::new(std::env::current_exe()?);
    let mut server = server
        .args(["serve", "127.0.0.1:0"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    std::io::BufReader::new(server.stdout.take().ok_or("no output")?).read_line(&mut line)?;
    let address = line.trim().strip_prefix("serving on ").ok_or("the server does not serve")?;
    for path in ["/", "/tail", "/cut"] {
        println!("{}", get(address, path).await?);
    }
    // The end of its input ends it.
    drop(server.stdin.take());
    server.wait()?;
    Ok(())
}
