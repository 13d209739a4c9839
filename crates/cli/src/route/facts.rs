//! Facts of a router about its reloads and its sources of servers.

use crate::control::protocol;

/// Outcomes of changes so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    /// Reloads that were carried out.
    pub(super) reloads: u64,
    /// Reloads that were refused.
    pub(super) reloads_refused: u64,
    /// Reason why the last reload was refused; `None` if it was not.
    pub(super) refusal: Option<String>,
    /// The sources of `--discover`.
    pub(super) sources: Vec<SourceFacts>,
}

/// State of a source.
#[derive(Clone, Debug)]
pub(super) struct SourceFacts {
    pub(super) source: String,
    /// Servers of it that hold, those that others name too and those of another IP family among
    /// them.
    pub(super) servers: usize,
    /// Number of its entries that are no servers.
    pub(super) refused: usize,
    /// Answers so far.
    pub(super) answers: u64,
    /// Failures to get one.
    pub(super) failures: u64,
    /// It names nobody, which is not believed yet.
    pub(super) is_empty: bool,
    /// Error while it is away; `None` otherwise.
    pub(super) problem: Option<String>,
}

impl SourceFacts {
    /// For `tailcut control`.
    pub(super) fn status(&self) -> protocol::Source {
        let Self { source, servers, refused, answers, failures, is_empty, problem } = self.clone();
        protocol::Source { source, servers, refused, answers, failures, is_empty, problem }
    }
}
