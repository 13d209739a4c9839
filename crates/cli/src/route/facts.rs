//! What a router tells of its reloads and of its sources of servers.

use crate::control::protocol;

/// What has become of changes so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    /// Reloads that were carried out.
    pub(super) reloads: u64,
    /// Reloads that were refused.
    pub(super) reloads_refused: u64,
    /// Why the last one was, if it was.
    pub(super) refusal: Option<String>,
    /// The sources of `--discover`.
    pub(super) sources: Vec<SourceFacts>,
}

/// How a source stands.
#[derive(Clone, Debug)]
pub(super) struct SourceFacts {
    pub(super) source: String,
    /// Servers of it that hold, those that others name too and those of another IP family among
    /// them.
    pub(super) servers: usize,
    /// What it names that is no server.
    pub(super) refused: usize,
    /// Answers so far.
    pub(super) answers: u64,
    /// Failures to get one.
    pub(super) failures: u64,
    /// It names nobody, which is not believed yet.
    pub(super) is_empty: bool,
    /// What is wrong, while it is away.
    pub(super) problem: Option<String>,
}

impl SourceFacts {
    /// For `tailcut control`.
    pub(super) fn status(&self) -> protocol::Source {
        let Self { source, servers, refused, answers, failures, is_empty, problem } = self.clone();
        protocol::Source { source, servers, refused, answers, failures, is_empty, problem }
    }
}
