//! The two generations of servers.

use super::config::Speaks;

/// A generation of servers, and its scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lane {
    V1 = 0,
    Extension = 1,
}

impl Lane {
    pub(super) fn of(speaks: Speaks) -> Self {
        match speaks {
            Speaks::V1 => Self::V1,
            Speaks::Extension => Self::Extension,
        }
    }

    pub(super) fn other(self) -> Self {
        match self {
            Self::V1 => Self::Extension,
            Self::Extension => Self::V1,
        }
    }
}
