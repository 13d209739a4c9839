//! Borrowed bytes that something without a lifetime may hold for a while.

use std::marker::PhantomData;
use std::process;
use std::sync::Arc;

/// Lends bytes for as long as it lives. Whoever has them must have released them by then.
#[derive(Debug)]
pub struct Loan<'a> {
    /// Bytes that are handed out; counts who has them.
    bytes: Arc<Borrowed>,
    /// The bytes outlive it.
    lender: PhantomData<&'a [u8]>,
}

/// Bytes that a [`Loan`] vouches for.
#[derive(Debug)]
struct Borrowed {
    /// The first of them.
    start: *const u8,
    /// Number of bytes.
    len: usize,
}

impl<'a> Loan<'a> {
    /// Lends `bytes`.
    fn new(bytes: &'a [u8]) -> Self {
        let borrowed = Borrowed { start: bytes.as_ptr(), len: bytes.len() };
        Self { bytes: Arc::new(borrowed), lender: PhantomData }
    }

    /// The bytes, for somebody who releases them while this lives.
    pub fn lend(&self) -> Arc<dyn AsRef<[u8]> + Send + Sync> {
        self.bytes.clone()
    }

    /// Runs `borrow` with a loan, which ends with it. That it cannot be forgotten is what makes it
    /// sound.
    pub fn scope<T>(bytes: &'a [u8], borrow: impl FnOnce(&Self) -> T) -> T {
        borrow(&Self::new(bytes))
    }
}

impl Drop for Loan<'_> {
    /// Bytes that somebody still has would dangle: that is a broken invariant, after which nothing
    /// may go on.
    fn drop(&mut self) {
        if Arc::get_mut(&mut self.bytes).is_none() {
            process::abort();
        }
    }
}

impl AsRef<[u8]> for Borrowed {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: they are bytes of a slice that is borrowed for as long as the loan lives, and the
        // loan ends the process if anybody has them when it ends.
        unsafe { std::slice::from_raw_parts(self.start, self.len) }
    }
}

// SAFETY: it is a shared slice of bytes, which may be read from any thread.
unsafe impl Send for Borrowed {}
// SAFETY: as above.
unsafe impl Sync for Borrowed {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lends_the_bytes_that_it_was_given() {
        let bytes = [1, 2, 3];
        let sum = Loan::scope(&bytes, |loan| {
            let lent = loan.lend();
            (*lent).as_ref().iter().sum::<u8>()
        });
        assert_eq!(sum, 6);
    }
}
