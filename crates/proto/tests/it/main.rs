//! State machines against packets made by hand; two of them together are tested in `tailcut-sim`.

mod added_policy;
mod attached;
mod client_pacing;
mod client_recovery;
mod conformance;
mod endpoints;
mod hardening;
mod homa_hardening;
mod hostile;
mod r2p2_client;
mod r2p2_client_pacing;
mod r2p2_client_timers;
mod r2p2_server;
mod r2p2_support;

mod router_accounting;
mod router_bench;
mod router_claims;
mod router_filter;
mod router_many;
mod router_requests;
mod router_shared;
mod router_silence;
mod router_tuning;
mod router_upstream;
mod scripts;
mod stream_messages;
mod stream_support;
mod unscheduled;
