//! Servers of others, as Debian has them: what a newcomer points `tailcut measure` at.

use std::fs;
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

pub(crate) use crate::process::Server;

/// A redis-server that holds nothing, with more arguments.
pub(crate) fn redis(more: &[&str]) -> Option<Server> {
    let more: Vec<String> = more.iter().map(|&word| word.to_owned()).collect();
    Server::start("redis-server", "redis-server", |port, directory| {
        let directory = directory.to_string_lossy();
        let own =
            ["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--dir", &directory];
        own.map(str::to_owned).into_iter().chain(more.clone()).collect()
    })
}

/// A memcached.
pub(crate) fn memcached() -> Option<Server> {
    Server::start("memcached", "memcached", |port, _| {
        let own =
            ["-l", "127.0.0.1", "-p", &port.to_string(), "-U", &port.to_string(), "-u", "nobody"];
        own.map(str::to_owned).to_vec()
    })
}

/// An NGINX with a page at `/`, one that is forbidden and one that fails; with TLS where it is
/// asked for.
pub(crate) fn nginx(with_tls: bool) -> Option<Server> {
    nginx_listening(if with_tls { "ssl" } else { "" })
}

/// An NGINX with HTTP/2: over TLS beside HTTP/1.1, in clear alone.
pub(crate) fn nginx_2(with_tls: bool) -> Option<Server> {
    nginx_listening(if with_tls { "ssl http2" } else { "http2" })
}

/// An nghttpd, which speaks HTTP/2 in clear, over the files of its directory; `prepare` writes them
/// and gives more arguments.
pub(crate) fn nghttpd(prepare: impl Fn(&Path) -> Vec<String>) -> Option<Server> {
    Server::start("nghttpd", "nghttp2-server", |port, directory| {
        let place = directory.to_string_lossy().into_owned();
        let own = ["--no-tls", "-a", "127.0.0.1", "-d", &place].map(str::to_owned);
        own.into_iter().chain(prepare(directory)).chain([port.to_string()]).collect()
    })
}

/// An NGINX whose `listen` has these words.
fn nginx_listening(word: &str) -> Option<Server> {
    let with_tls = word.contains("ssl");
    Server::start("nginx", "nginx", |port, directory| {
        let place = directory.to_string_lossy().into_owned();
        let tls = if with_tls {
            certificate(directory);
            format!("ssl_certificate {place}/cert.pem; ssl_certificate_key {place}/key.pem;")
        } else {
            String::new()
        };
        let config = format!(
            "daemon off; master_process off; pid {place}/pid; error_log {place}/error.log;
             events {{ worker_connections 256; }}
             http {{ access_log off; keepalive_requests 1000000; client_body_temp_path {place}/body;
               proxy_temp_path {place}/proxy; fastcgi_temp_path {place}/fastcgi;
               uwsgi_temp_path {place}/uwsgi; scgi_temp_path {place}/scgi;
               server {{ listen 127.0.0.1:{port} {word}; {tls}
                 location = / {{ return 200 'hello'; }}
                 location = /a,b {{ return 200 'comma'; }}
                 location = /large {{ alias {place}/large; }}
                 location = /forbidden {{ return 403; }}
                 location = /failing {{ return 500; }}
                 location / {{ return 404; }} }} }}"
        );
        fs::write(directory.join("large"), vec![b'x'; 200_000]).expect("a file");
        fs::write(directory.join("nginx.conf"), config).expect("a file");
        vec!["-c".to_owned(), format!("{place}/nginx.conf")]
    })
}

/// A certificate that nobody has signed, for `localhost` and 127.0.0.1, and its key.
pub(crate) fn certificate(directory: &Path) {
    let output = Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
        ])
        .args(["-days", "2", "-subj", "/CN=tailcut test"])
        .args(["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE"])
        .args(["-keyout", "key.pem", "-out", "cert.pem"])
        .current_dir(directory)
        .output()
        .expect("openssl is there");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Sends a line to a server and reads what comes back at once.
pub(crate) fn say(server: &Server, line: &str) -> String {
    use std::io::{Read as _, Write as _};
    let mut stream = TcpStream::connect(server.address).expect("it listens");
    stream.write_all(line.as_bytes()).expect("it reads");
    let mut bytes = [0; 4_096];
    let len = stream.read(&mut bytes).expect("it answers");
    String::from_utf8_lossy(&bytes[..len]).into_owned()
}
