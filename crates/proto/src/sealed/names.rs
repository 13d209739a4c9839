//! Names of the nodes of a group, as packets bear them.

/// Sender and receiver of a packet; 0 where a packet names none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Names {
    /// Name of the receiver.
    pub(super) receiver: u64,
    /// Name of the sender.
    pub(super) sender: u64,
}

/// The name of a server or router: that of its address without the low byte, in which each of the
/// threads that share the address has its number.
#[derive(Clone, Copy, Debug)]
pub(super) struct OwnName {
    /// By which others name it.
    pub(super) name: u64,
    /// Number of the member among those who share it.
    pub(super) member: u8,
}

impl OwnName {
    /// The name with the number of the member.
    pub(super) fn instance(self) -> u64 {
        self.name | u64::from(self.member)
    }
}

/// A name without the number of a member.
pub(super) fn name_of(instance: u64) -> u64 {
    instance & !0xff
}
