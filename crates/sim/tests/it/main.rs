//! The simulator against theory, published tables and itself; and, as `proto_*`, what endpoints and
//! routers promise each other over bad paths, for which proto would need what depends on it.

mod addressed;
mod allocations;
mod chip;
mod cloning_published;
mod cloning_theory;
mod failing;
mod faults;
mod faults_cloning;
mod faults_cookies;
mod faults_directed;
mod faults_homa;
mod faults_hostile;
mod faults_load;
mod faults_sealed;
mod faults_service;
mod homa_published;
mod homa_scale;
mod instrument;
mod lanes;
mod network;
mod overload;
mod pair;
mod proto_cloned;
mod proto_hardening;
mod proto_homa_hijacked;
mod proto_homa_pair;
mod proto_homa_partials;
mod proto_promises;
mod proto_r2p2_pair;
mod proto_routed;
mod proto_router_chain;
mod proto_stream_pair;
mod queue_grain;
mod r2p2;
mod r2p2_overload;
