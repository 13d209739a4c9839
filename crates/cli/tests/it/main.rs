//! The real binary over loopback, on free ports.

mod admin;
mod adoption;
mod agents;
mod cloning;
mod command_line;
mod compare;
mod discovery;
mod dispatch;
mod dissect;
mod freezer;
mod harness;
mod http2;
mod key_agent;
mod life;
mod live;
mod log;
mod netclone;
#[path = "../../../measure/tests/it/servers/port.rs"]
mod port;
mod postgres;
#[path = "../../../measure/tests/it/servers/process.rs"]
mod process;
mod prometheus;
mod route;
mod route_config;
mod route_emit;
mod route_xdp;
mod route_xdp_cloner;
mod route_xdp_life;
mod route_xdp_sealed;
mod sealed;
mod serve_and_measure;
mod servers;
mod several;
mod stalls;
mod systemd;
mod threads;
mod trace;
mod tutorial;
mod urls;
#[path = "../../../net/tests/it/veth/mod.rs"]
mod veth;
mod wrong_uses;
mod xdp;
