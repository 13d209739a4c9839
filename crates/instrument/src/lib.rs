//! An instrument for the latency of servers: what loads them, soundly measures what becomes of it,
//! and says whether that can be relied on.
//!
//! [`measure`] makes the measurement that an [`Experiment`] describes, by threads of this process
//! or by agents on other hosts, and gives a [`MeasureResult`](result::MeasureResult). A
//! [`View`](view::View) follows it while it is made.
//!
//! ```no_run
//! use tailcut_instrument::experiment::{Experiment, Load};
//! use tailcut_instrument::{job::Transport, measure, view::Silent};
//!
//! let targets = vec!["127.0.0.1:6379".to_owned()];
//! let experiment = Experiment::new(Transport::Tcp, "redis", targets, Load::Rate(10_000.0))?;
//! let result = measure(experiment, &mut Silent)?;
//! println!("p99 {:?} us", result.point.latency_us.intended.p99);
//! # Ok::<(), anyhow::Error>(())
//! ```
//!
//! | module | what it is |
//! |---|---|
//! | [`experiment`] | what is measured, with its defaults, and the jobs of its agents |
//! | [`pattern`] | which loads, one after the other |
//! | [`job`] | what an agent is asked to do, and what it tells |
//! | [`apps`] | the applications that can be measured: those of `tailcut_measure`, and those that draw random words themselves |
//! | [`engine`] | the agent of this process: load threads |
//! | [`agent`] | agents on other hosts, both ends |
//! | `coordinator` | one load over all agents |
//! | [`view`] | the interface to what shows how far a run is |
//! | [`record`], `clocks` | what a measurement keeps |
//! | [`host_load`], [`packet_drops`] | what the kernel tells of this host meanwhile |
//! | `assemble`, [`result`], [`saved`] | from there to the result, and a result from a file |
//! | [`csv`], [`hdr`], [`otlp`], [`samples`] | exports |
//! | [`text_file`], [`distribution_file`] | files that a person names |
//!
//! Errors are for people: each says what could not be done, and what would help where that is
//! known.

pub mod agent;
pub mod apps;
mod assemble;
mod clocks;
pub mod clones;
mod coordinator;
pub mod csv;
pub mod distribution_file;
pub mod engine;
mod environment;
pub mod experiment;
pub mod hdr;
pub mod host_load;
pub mod job;
mod measure;
pub mod network;
pub mod otlp;
pub mod packet_drops;
pub mod pattern;
pub mod percentile;
pub mod record;
pub mod result;
#[cfg(test)]
#[path = "tests/sample.rs"]
mod sample;
pub mod samples;
pub mod saved;
mod system_roots;
pub mod text_file;
pub mod view;

pub use experiment::Experiment;
pub use measure::measure;
