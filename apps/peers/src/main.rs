//! tailcut beside what it may replace, on this machine.
//!
//! | run | shows |
//! |---|---|
//! | `echo` | echoes of 32 B through Aeron, tonic and QUIC, each in turns with tailcut, one outstanding and 64 |
//! | `first-call` | the first call of a new client, beside a channel of tonic with TLS |
//!
//! `make peers` runs `echo`. Aeron is a feature (`--features aeron`), since its C takes cmake and
//! minutes to compile.

#[cfg(feature = "aeron")]
mod aeron;
mod echo;
mod files;
mod first_call;
mod grpc;
mod quic;
mod slices;
#[path = "../../../crates/net/benches/support/mod.rs"]
mod support;

fn main() {
    let mut arguments = std::env::args_os().skip(1);
    let command = arguments.next().unwrap_or_default();
    match (command.to_str(), arguments.next()) {
        (Some("echo" | ""), None) => echo::run(),
        (Some("first-call"), directory) => first_call::run(directory),
        _ => {
            eprintln!("usage: tailcut-peers [echo | first-call]");
            std::process::exit(2);
        }
    }
}
