//! Statistics against reference values, the controller step by step, and applications against real
//! servers.

mod added_codec;
mod arrival_fit;
mod control;
mod differences;
mod servers;
mod statistics_vectors;
