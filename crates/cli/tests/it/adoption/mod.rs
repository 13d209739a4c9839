//! Existing servers behind `tailcut bridge`, and their unmodified clients before `tailcut gateway`.

mod carriers;
mod client;
mod groups;
mod http;
mod redis;
mod sealed;
mod trouble;

use crate::harness::{Admin, Service};

/// A bridge before a server, and its admin port.
fn bridge(app: &str, to: &str, more: &[&str]) -> (Service, Admin) {
    let args =
        ["bridge", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--app", app, "--to", to];
    let mut service = Service::start(&[&args, more].concat(), 1);
    let admin = service.admin();
    (service, admin)
}

/// A gateway before a router or a bridge, and its admin port.
fn gateway(app: &str, to: &str, more: &[&str]) -> (Service, Admin) {
    gateway_with(app, &[&["--to", to], more].concat())
}

/// A gateway whose flags say where its calls go, and its admin port.
fn gateway_with(app: &str, more: &[&str]) -> (Service, Admin) {
    let args = ["gateway", "--listen", "tcp://127.0.0.1:0", "--admin", "127.0.0.1:0", "--app", app];
    // A busy machine may stop any of the processes.
    let patience: &[&str] = if more.contains(&"--timeout") { &[] } else { &["--timeout", "30s"] };
    let mut service = Service::start(&[&args, patience, more].concat(), 1);
    let admin = service.admin();
    (service, admin)
}

/// A router before servers that are ready.
fn route(servers: &[&Service]) -> Service {
    route_with(servers, &[])
}

/// As [`route`], with more flags.
fn route_with(servers: &[&Service], more: &[&str]) -> Service {
    let mut args = vec!["route", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
    args.extend(more);
    for server in servers {
        args.extend(["--server", server.address()]);
    }
    let mut service = Service::start(&args, 1);
    let admin = service.admin();
    admin.wait_for("tailcut_route_servers_in_service", servers.len() as f64);
    service
}

/// Waits until a sample is so small.
fn wait_until_at_most(admin: &Admin, sample: &str, most: f64) {
    let has_come = (0..10_000).any(|_| admin.value(sample) <= most);
    assert!(has_come, "{sample} stays at {}", admin.value(sample));
}

/// Waits until nothing is held anywhere.
fn wait_until_quiet(gateway: &Admin, bridges: &[&Admin]) {
    for sample in ["client_connections", "held_bytes", "outstanding_calls"] {
        wait_until_at_most(gateway, &format!("tailcut_gateway_{sample}"), 0.0);
    }
    for bridge in bridges {
        for sample in ["outstanding_requests", "held_requests"] {
            wait_until_at_most(bridge, &format!("tailcut_bridge_{sample}"), 0.0);
        }
    }
}
