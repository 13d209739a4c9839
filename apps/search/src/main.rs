//! A full-text search service over documentation, as a real program to schedule: its service times
//! are those of a real index and real queries, from microseconds for a rare word to many
//! milliseconds for a phrase of frequent ones.
//!
//! `index` makes an index of a directory, `queries` a log of queries from its words, `record`
//! measures how long each takes alone, and `serve` answers them over R2P2 and HTTP: one search at a
//! time, a process a replica, the index memory-mapped and shared by all replicas of a machine.

mod corpus;
mod http;
mod index;
mod queries;
mod serve;

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use clap::Parser;

use crate::index::Searcher;

/// Search documentation.
#[derive(Parser)]
enum Command {
    /// Make an index of all text below a directory, and a sample of its passages beside it
    Index {
        /// Directory with text, HTML and manual pages
        #[arg(long, value_name = "DIR")]
        from: PathBuf,
        /// Directory of the index, which must not be there yet
        #[arg(long, value_name = "DIR")]
        index: PathBuf,
        /// Text at most, in megabytes
        #[arg(long, value_name = "N", default_value_t = 1000)]
        megabytes_max: u64,
    },
    /// Print a log of queries, one a line, that follows from the index and a seed
    Queries {
        /// Directory of the index
        #[arg(long, value_name = "DIR")]
        index: PathBuf,
        /// Queries
        #[arg(long, value_name = "N", default_value_t = 10_000)]
        count: u32,
        /// Everything random follows from it
        #[arg(long, value_name = "N", default_value_t = 1)]
        seed: u64,
    },
    /// Print how long each query of a log takes on this thread, in nanoseconds: the least of
    /// several times
    Record {
        /// Directory of the index
        #[arg(long, value_name = "DIR")]
        index: PathBuf,
        /// The log
        #[arg(long, value_name = "FILE")]
        queries: PathBuf,
        /// Times that each is run
        #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
        times: u32,
    },
    /// Print the answer to a query
    Query {
        /// Directory of the index
        #[arg(long, value_name = "DIR")]
        index: PathBuf,
        /// Words, +words that must be there, "a phrase", +size:[100 TO 900]
        query: String,
    },
    /// Answer queries: one at a time
    Serve {
        /// Directory of the index
        #[arg(long, value_name = "DIR")]
        index: PathBuf,
        /// Address for R2P2: a call is a request of HTTP, GET /search?q=QUERY
        #[arg(long, value_name = "ADDR")]
        listen: Option<SocketAddr>,
        /// Address for HTTP/1.1
        #[arg(long, value_name = "ADDR")]
        http: Option<SocketAddr>,
    },
}

fn main() -> Result<()> {
    match Command::parse() {
        Command::Index { from, index, megabytes_max } => {
            let totals = index::build(&from, &index, megabytes_max.saturating_mul(1_000_000))?;
            eprintln!(
                "{} files, {} MB of text, {} passages",
                totals.files,
                totals.bytes / 1_000_000,
                totals.passages
            );
            Ok(())
        }
        Command::Queries { index, count, seed } => {
            for query in queries::log(&index, count, seed)? {
                println!("{query}");
            }
            Ok(())
        }
        Command::Record { index, queries, times } => record(&index, &queries, times),
        Command::Query { index, query } => {
            println!("{}", Searcher::open(&index)?.answer(&query)?);
            Ok(())
        }
        Command::Serve { index, listen, http } => {
            ensure!(listen.is_some() || http.is_some(), "--listen or --http is needed");
            serve::serve(&Searcher::open(&index)?, listen, http)
        }
    }
}

fn record(index: &Path, queries: &Path, times: u32) -> Result<()> {
    let searcher = Searcher::open(index)?;
    let log = fs::read_to_string(queries).context("cannot read the log")?;
    let log: Vec<&str> = log.lines().collect();
    let mut least_ns = vec![u128::MAX; log.len()];
    // Round by round, so that a query does not find what it has itself just read.
    for _ in 0..times {
        for (query, least_ns) in log.iter().zip(&mut least_ns) {
            let began = Instant::now();
            searcher.answer(query).with_context(|| format!("cannot run {query:?}"))?;
            *least_ns = (*least_ns).min(began.elapsed().as_nanos());
        }
    }
    least_ns.iter().for_each(|least_ns| println!("{least_ns}"));
    Ok(())
}
