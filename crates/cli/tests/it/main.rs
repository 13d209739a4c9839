//! The real binary over loopback, on free ports.

mod admin;
mod adoption;
mod cloning;
mod command_line;
mod compare;
mod dispatch;
mod freezer;
mod harness;
mod life;
mod live;
mod log;
mod netclone;
#[path = "../../../measure/tests/it/servers/port.rs"]
mod port;
#[path = "../../../measure/tests/it/servers/process.rs"]
mod process;
mod prometheus;
mod route;
mod route_xdp;
mod sealed;
mod serve_and_measure;
mod servers;
mod several;
mod stalls;
mod systemd;
mod threads;
mod trace;
mod urls;
#[path = "../../../net/tests/it/veth/mod.rs"]
mod veth;
mod wrong_uses;
mod xdp;
