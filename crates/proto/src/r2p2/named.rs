//! To whom a request has gone and by which names, as far as that tells whether it can have run.

/// Receivers of a call so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Moves {
    /// It may run once, and another one than who it goes to now may have passed it on, or have it.
    pub(super) is_moved: bool,
    /// It is moved since packet 0 has gone to one address under two names.
    pub(super) is_renamed: bool,
    /// It has gone to another target than its first.
    pub(super) has_left: bool,
    /// Names that packet 0 has had, where packets are sealed.
    pub(super) names: Named,
}

/// Names that packet 0 of a call has had.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Named {
    /// The last to the target, and to the server that has answered; 0 before.
    pub(super) known: [u64; 2],
    /// That of the last time, or of the time that is next; 0 for nobody.
    pub(super) latest: u64,
    /// It has gone by a name.
    is_sent: bool,
}

impl Named {
    /// Packet 0 has been written, by the name that was noted last.
    #[inline]
    pub(super) fn note_sent(&mut self) {
        self.is_sent |= self.latest != 0;
    }

    /// True if the call cannot run, whoever has recorded what has gone: it was for nobody. By a
    /// name, it has not run where there was no key for it, and may once there is one.
    pub(super) fn is_for_nobody(&self) -> bool {
        !self.is_sent
    }
}
