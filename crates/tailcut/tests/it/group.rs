//! Keys of a group.

use tailcut::sealed::{Cipher, EpochKey, HopKey, Keys, Role, Secret};

pub(crate) fn now_ms() -> u64 {
    std::time::UNIX_EPOCH.elapsed().expect("after 1970").as_millis() as u64
}

fn of_epochs(epochs: Vec<EpochKey>) -> Keys {
    Keys {
        role: Role::Server,
        group: "test".into(),
        cipher: Cipher::Aes128Gcm,
        reset: None,
        epochs,
    }
}

/// A group's keys, whose epoch began at a time.
pub(crate) fn group(from_ms: u64) -> Keys {
    let secret = Secret::new([7; 32]);
    of_epochs(vec![EpochKey { epoch: 1, from_ms, secret, hop: HopKey::default() }])
}

/// A group's keys, whose epoch has begun no longer ago than sessions can tell.
pub(crate) fn fresh_group() -> Keys {
    group(now_ms() - 60_000)
}

pub(crate) fn of(keys: &Keys, client: u32) -> Keys {
    keys.for_role(Role::Client(client)).expect("a server's keys")
}

/// Epochs that begin in a row, each known to nobody before the one before is in use: the three up
/// to the last.
pub(crate) fn in_a_row((began_ms, every_ms): (u64, u64), last: u64) -> Keys {
    let epoch = |at: u64| EpochKey {
        epoch: at as u8,
        from_ms: began_ms + at * every_ms,
        secret: Secret::new([at as u8; 32]),
        hop: HopKey::default(),
    };
    of_epochs((last.saturating_sub(2)..=last).map(epoch).collect())
}
