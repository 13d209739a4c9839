//! gRPC by tonic: a unary service of bytes, without generated code.

use std::convert::Infallible;
use std::net::{SocketAddr, TcpListener};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, BufMut};
use http::uri::PathAndQuery;
use tonic::body::Body;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::server::{NamedService, UnaryService};
use tonic::transport::server::TcpIncoming;
use tonic::transport::{
    Certificate, Channel, ClientTlsConfig, Endpoint, Identity, Server, ServerTlsConfig,
};
use tonic::{Request, Response, Status};

use crate::files::{Files, SERVER_NAME};
use crate::slices::{LOOPBACK, MESSAGE, Slice, beside, keep_outstanding, on_server_core, runtime};

/// An echo server; its address.
pub(crate) fn serve(files: &Files) -> SocketAddr {
    let listener = TcpListener::bind(LOOPBACK).expect("a port");
    let address = listener.local_addr().expect("it is bound");
    listener.set_nonblocking(true).expect("the option");
    let identity = Identity::from_pem(files.read("server.pem"), files.read("server.key"));
    let authority = Certificate::from_pem(files.read("ca.pem"));
    let tls = ServerTlsConfig::new().identity(identity).client_ca_root(authority);
    on_server_core(move || {
        runtime().block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).expect("a listener");
            let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
            let mut server = Server::builder().tls_config(tls).expect("a certificate");
            let served = server.add_service(Echo).serve_with_incoming(incoming).await;
            served.expect("the server's calls");
        });
    });
    address
}

/// A channel from the client's files on, and a call on it.
pub(crate) async fn call(files: &Files, server: SocketAddr) {
    let identity = Identity::from_pem(files.read("client.pem"), files.read("client.key"));
    let authority = Certificate::from_pem(files.read("ca.pem"));
    let tls = ClientTlsConfig::new().ca_certificate(authority).identity(identity);
    let endpoint = Endpoint::from_shared(format!("https://{server}")).expect("an address");
    let endpoint = endpoint.tls_config(tls.domain_name(SERVER_NAME)).expect("a certificate");
    let mut client = tonic::client::Grpc::new(endpoint.connect().await.expect("it listens"));
    echo(&mut client).await;
}

async fn echo(client: &mut tonic::client::Grpc<Channel>) {
    client.ready().await.expect("a connection");
    let path = PathAndQuery::from_static("/echo.Echo/Echo");
    let reply = client.unary(Request::new(MESSAGE.to_vec()), path, Bytes).await;
    assert_eq!(reply.expect("a reply").into_inner(), MESSAGE);
}

/// Echoes for so long, with a call of each of `outstanding` tasks on one channel without TLS.
pub(crate) fn run(outstanding: usize, slice_ns: u64) -> Slice {
    let listener = TcpListener::bind(LOOPBACK).expect("a port");
    let address = listener.local_addr().expect("it is bound");
    listener.set_nonblocking(true).expect("the option");
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    beside(
        || {
            runtime().block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener).expect("a listener");
                let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
                let server = Server::builder().add_service(Echo);
                let stopped = async { stopped.await.unwrap_or_default() };
                let served = server.serve_with_incoming_shutdown(incoming, stopped).await;
                served.expect("the server's calls");
            });
        },
        || {
            runtime().block_on(async {
                let endpoint = Endpoint::from_shared(format!("http://{address}"));
                let channel = endpoint.expect("an address").connect().await.expect("it listens");
                let slice = keep_outstanding(outstanding, slice_ns, || {
                    let mut client = tonic::client::Grpc::new(channel.clone());
                    async move { echo(&mut client).await }
                })
                .await;
                stop.send(()).expect("the server waits for it");
                slice
            })
        },
    )
}

/// Answers what it is sent.
#[derive(Clone, Copy, Debug)]
struct Echo;

type Answer<T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send>>;

impl UnaryService<Vec<u8>> for Echo {
    type Response = Vec<u8>;
    type Future = Answer<Response<Vec<u8>>, Status>;

    fn call(&mut self, request: Request<Vec<u8>>) -> Self::Future {
        Box::pin(async move { Ok(Response::new(request.into_inner())) })
    }
}

impl NamedService for Echo {
    const NAME: &'static str = "echo.Echo";
}

impl tower_service::Service<http::Request<Body>> for Echo {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Answer<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(async { Ok(tonic::server::Grpc::new(Bytes).unary(Self, request).await) })
    }
}

/// Messages as they are.
#[derive(Clone, Copy, Debug)]
struct Bytes;

impl Encoder for Bytes {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, item: Vec<u8>, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put_slice(&item);
        Ok(())
    }
}

impl Decoder for Bytes {
    type Item = Vec<u8>;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Vec<u8>>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining()).into()))
    }
}

impl Codec for Bytes {
    type Encode = Vec<u8>;
    type Decode = Vec<u8>;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}
