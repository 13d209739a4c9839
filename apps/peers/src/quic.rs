//! QUIC by quinn: a stream of one connection for each call.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use quinn::{ClientConfig, Connection, Endpoint, ServerConfig};
use rcgen::CertifiedKey;
use rustls::RootCertStore;
use rustls::pki_types::PrivatePkcs8KeyDer;

use crate::slices::{MESSAGE, Slice, beside, keep_outstanding, runtime};

/// Echoes for so long, with a call of each of `outstanding` tasks.
pub(crate) fn run(outstanding: usize, slice_ns: u64) -> Slice {
    let CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed([NAME.to_owned()]).expect("a certificate");
    let certificate = cert.der().clone();
    let key = PrivatePkcs8KeyDer::from(signing_key.serialize_der());
    let server = ServerConfig::with_single_cert(vec![certificate.clone()], key.into());
    let server = server.expect("a certificate");
    let socket = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let target = socket.local_addr().expect("it is bound");
    beside(
        || {
            runtime().block_on(async {
                let config = quinn::EndpointConfig::default();
                let runtime = Arc::new(quinn::TokioRuntime);
                let endpoint = Endpoint::new(config, Some(server), socket, runtime);
                answer(endpoint.expect("a socket")).await;
            });
        },
        || {
            runtime().block_on(async {
                let mut authorities = RootCertStore::empty();
                authorities.add(certificate).expect("a certificate");
                let config = ClientConfig::with_root_certificates(Arc::new(authorities));
                let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
                let mut endpoint = Endpoint::client(any).expect("a socket");
                endpoint.set_default_client_config(config.expect("an authority"));
                let connection = endpoint.connect(target, NAME).expect("an address").await;
                let connection = connection.expect("a connection");
                let slice = keep_outstanding(outstanding, slice_ns, || call(&connection)).await;
                // The server ends with its only connection.
                connection.close(0_u32.into(), b"");
                endpoint.wait_idle().await;
                slice
            })
        },
    )
}

async fn call(connection: &Connection) {
    let (mut send, mut receive) = connection.open_bi().await.expect("a stream");
    send.write_all(&MESSAGE).await.expect("a request");
    send.finish().expect("an end");
    let reply = receive.read_to_end(MESSAGE.len()).await.expect("a reply");
    assert_eq!(reply, MESSAGE);
}

/// Serves one connection until its client closes it.
async fn answer(endpoint: Endpoint) {
    let connection = endpoint.accept().await.expect("a client").await.expect("a connection");
    while let Ok((mut send, mut receive)) = connection.accept_bi().await {
        tokio::spawn(async move {
            let request = receive.read_to_end(MESSAGE.len()).await.expect("a request");
            send.write_all(&request).await.expect("a client that waits");
            send.finish().expect("an end");
        });
    }
}

const NAME: &str = "server.example";
