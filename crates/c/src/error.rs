//! Codes, and the text of the last error of a thread.

use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

use tailcut::{AnswerError, Error, Failure};

/// How a function ended.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// As it should.
    Ok = 0,
    /// A pointer that may not be null is, a text is not UTF-8, an address is not HOST:PORT, or a
    /// file of keys or of a policy cannot be read or holds none.
    InvalidArgument = 1,
    /// No socket is to be had at the address.
    Open = 2,
    /// The call was not made: too long, too many outstanding, or a timeout out of range.
    NotCalled = 3,
    /// The deadline passed. The request may or may not have run.
    Deadline = 4,
    /// Nobody answers there.
    Unreachable = 5,
    /// The server or the router refused the request; `tailcut_last_error` has the reason.
    Refused = 6,
    /// The server's application refused it; `tailcut_last_rejection` has its code.
    Rejected = 7,
    /// The reply is too long.
    TooLarge = 8,
    /// The request to be answered is gone: cancelled, expired or answered before.
    Gone = 9,
    /// The socket has become useless.
    Io = 10,
    /// A fault of tailcut's own.
    Internal = 11,
}

#[derive(Default)]
struct Last {
    text: CString,
    rejection: u32,
}

thread_local! {
    static LAST: RefCell<Last> = RefCell::default();
}

/// The text of this thread's last error, up to its next one; empty before the first.
#[unsafe(no_mangle)]
pub extern "C" fn tailcut_last_error() -> *const c_char {
    LAST.with_borrow(|last| last.text.as_ptr())
}

/// The number by which a server's application refused this thread's last call that ended by
/// `TAILCUT_CODE_REJECTED`.
#[unsafe(no_mangle)]
pub extern "C" fn tailcut_last_rejection() -> u32 {
    LAST.with_borrow(|last| last.rejection)
}

/// Why a function did not succeed.
pub(crate) struct Failed {
    code: Code,
    text: String,
    rejection: Option<u32>,
}

impl Failed {
    pub(crate) fn argument(text: impl Into<String>) -> Self {
        Self { code: Code::InvalidArgument, text: text.into(), rejection: None }
    }

    /// A file that options name, and that cannot be had.
    pub(crate) fn file(error: io::Error) -> Self {
        Self::argument(error.to_string())
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        let code = match &error {
            Error::Open { .. } | Error::NoAddress(_) => Code::Open,
            Error::Call { .. } => Code::NotCalled,
            Error::Rejected { .. } => Code::Rejected,
            Error::Failed { source: Failure::Deadline, .. } => Code::Deadline,
            Error::Failed { source: Failure::Unreachable, .. } => Code::Unreachable,
            Error::Failed { source: Failure::ReplyTooLarge, .. } => Code::TooLarge,
            Error::Failed { .. } => Code::Refused,
            _ => Code::Io,
        };
        let rejection = match &error {
            Error::Rejected { code, .. } => Some(*code),
            _ => None,
        };
        Self { code, text: error.to_string(), rejection }
    }
}

impl From<AnswerError> for Failed {
    fn from(error: AnswerError) -> Self {
        let code = match error {
            AnswerError::Gone => Code::Gone,
            _ => Code::TooLarge,
        };
        Self { code, text: error.to_string(), rejection: None }
    }
}

/// Runs what a function of the header does, and keeps the text of its error.
pub(crate) fn guard(work: impl FnOnce() -> Result<(), Failed>) -> Code {
    // What has panicked is ours, and its owner hears of it by a code.
    let failed = match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => return Code::Ok,
        Ok(Err(failed)) => failed,
        Err(panic) => {
            let text = panic.downcast_ref::<&str>().copied();
            let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
            let text = text.unwrap_or("a panic").to_owned();
            Failed { code: Code::Internal, text, rejection: None }
        }
    };
    LAST.with_borrow_mut(|last| {
        let bytes: Vec<u8> = failed.text.into_bytes();
        let bytes = bytes.into_iter().filter(|&byte| byte != 0).collect::<Vec<_>>();
        last.text = CString::new(bytes).unwrap_or_default();
        last.rejection = failed.rejection.unwrap_or(last.rejection);
    });
    failed.code
}
