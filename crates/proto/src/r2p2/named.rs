//! By which names a request has gone, as far as that tells whether it can have run.

/// By which names packet 0 of a call has gone.
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
