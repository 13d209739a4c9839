//! The real binary over loopback, on free ports.

mod admin;
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
mod serve_and_measure;
mod servers;
mod several;
mod stalls;
mod systemd;
mod threads;
mod trace;
mod urls;
mod wrong_uses;
