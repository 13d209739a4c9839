//! Number of times that this process has been forked.

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

/// Forks between the process that began to count and this one: a child has another number than its
/// parent.
#[inline]
pub(crate) fn forks() -> u32 {
    FORKS.load(Ordering::Relaxed)
}

/// Begins to count.
pub(crate) fn count_forks() {
    static COUNTS: Once = Once::new();
    COUNTS.call_once(|| {
        // SAFETY: the handler is a function without state, and does nothing but add to a number,
        // which a child of a process with several threads may do.
        let failed = unsafe { libc::pthread_atfork(None, None, Some(note_fork)) };
        assert_eq!(failed, 0, "memory for a handler of forks");
    });
}

extern "C" fn note_fork() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

static FORKS: AtomicU32 = AtomicU32::new(0);

#[cfg(test)]
mod tests {
    use tailcut_proto::endpoint::Endpoint;
    use tailcut_proto::sealed::{Cipher, Keys, Role};

    use crate::driver::{Driver, Wait};
    use crate::keys::file;
    use crate::open::{Opening, Protocol};

    fn keys() -> Keys {
        let epochs = vec![file::new_key(1, 1_000).expect("random numbers")];
        let (role, group, cipher) = (Role::Server, "g".to_owned(), Cipher::Aes128Gcm);
        Keys { role, group, cipher, reset: None, epochs }
    }

    /// True if a child's turns are refused, and nothing leaves there.
    fn is_refused_in_child(driver: &mut Driver<Endpoint>) -> bool {
        // SAFETY: the child calls the driver alone, and ends without what runs at an exit.
        match unsafe { libc::fork() } {
            0 => {
                let is_refused = driver.turn().is_err() && driver.flush(1) == 0;
                // SAFETY: it ends the process.
                unsafe { libc::_exit(if is_refused { 7 } else { 8 }) }
            }
            child => {
                let mut status = 0;
                // SAFETY: the place outlives the call.
                let ended = unsafe { libc::waitpid(child, &raw mut status, 0) };
                assert_eq!(ended, child, "a child");
                libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 7
            }
        }
    }

    #[test]
    fn a_child_seals_nothing_in_the_name_of_its_parent() {
        let (server, client) = (keys(), keys().for_role(Role::Client(3)).expect("a server's"));
        for protocol in [Protocol::R2p2, Protocol::Homa] {
            for (is_server, keys) in [(true, Some(&server)), (false, Some(&client)), (true, None)] {
                let keys = keys.map(|keys| keys.clone().into());
                let mut opening = Opening { protocol, keys, ..Opening::default() };
                let is_sealed = opening.keys.is_some();
                opening.r2p2.serving.is_enabled = is_server;
                opening.homa.serving.is_enabled = is_server;
                let mut driver = Driver::new(Wait::BusyPoll).expect("a driver");
                opening.add(&mut driver, ([127, 0, 0, 1], 0).into()).expect("an endpoint");
                assert_eq!(is_refused_in_child(&mut driver), is_sealed, "{protocol:?}");
                driver.turn().expect("the parent goes on");
            }
        }
    }
}
