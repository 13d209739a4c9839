//! Status of a call that has no response: gRPC's codes, a text, and details.

use std::fmt;
use std::sync::Arc;

use tailcut::sealed::DENIED_CODE;
use tailcut::{CallError, DropReason, Error, Failure};

/// Reason why a call has no response. A server's handler gives one, and so does a client for a call
/// that came to nothing on its way.
#[derive(Clone)]
pub struct Status {
    code: Code,
    message: String,
    details: Vec<u8>,
    source: Option<Arc<Error>>,
}

macro_rules! codes {
    ($($(#[doc = $doc:literal])* $name:ident = $number:literal, $make:ident, $text:literal;)*) => {
        /// gRPC's status codes, under their numbers.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Code {
            /// No error.
            Ok = 0,
            $($(#[doc = $doc])* $name = $number,)*
        }

        impl Code {
            /// The code of a number; [`Code::Unknown`] where there is none.
            pub fn from_number(number: u8) -> Self {
                match number {
                    0 => Self::Ok,
                    $($number => Self::$name,)*
                    _ => Self::Unknown,
                }
            }

            /// Meaning in a few words.
            pub fn description(self) -> &'static str {
                match self {
                    Self::Ok => "no error",
                    $(Self::$name => $text,)*
                }
            }
        }

        impl Status {
            $(#[doc = concat!("A status of [`Code::", stringify!($name), "`].")]
            pub fn $make(message: impl Into<String>) -> Self {
                Self::new(Code::$name, message)
            })*
        }
    };
}

codes! {
    /// The call was cancelled.
    Cancelled = 1, cancelled, "cancelled";
    /// An error of which no more is known.
    Unknown = 2, unknown, "unknown error";
    /// The request makes no sense, whatever the state of the server.
    InvalidArgument = 3, invalid_argument, "invalid argument";
    /// The deadline passed. The request may or may not have run.
    DeadlineExceeded = 4, deadline_exceeded, "deadline exceeded";
    /// The requested entity is not there.
    NotFound = 5, not_found, "not found";
    /// The entity to be made is there already.
    AlreadyExists = 6, already_exists, "already exists";
    /// The caller may not do this.
    PermissionDenied = 7, permission_denied, "permission denied";
    /// A limit or a quota is reached, or the server is overloaded.
    ResourceExhausted = 8, resource_exhausted, "resource exhausted";
    /// The state of the server is not one for this call.
    FailedPrecondition = 9, failed_precondition, "failed precondition";
    /// The call was given up for another, to be tried as a whole again.
    Aborted = 10, aborted, "aborted";
    /// Beyond what is valid now.
    OutOfRange = 11, out_of_range, "out of range";
    /// The server has no such method.
    Unimplemented = 12, unimplemented, "not implemented";
    /// An invariant is broken, or a message cannot be read.
    Internal = 13, internal, "internal error";
    /// Nobody serves there now; it may be tried again.
    Unavailable = 14, unavailable, "unavailable";
    /// Data is lost for good.
    DataLoss = 15, data_loss, "data loss";
    /// The caller has not said who it is.
    Unauthenticated = 16, unauthenticated, "not authenticated";
}

impl Status {
    /// A status with a text for people.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), details: Vec::new(), source: None }
    }

    /// A status with details for programs: bytes whose form the two ends agree on, in gRPC a
    /// `google.rpc.Status`.
    pub fn with_details(
        code: Code,
        message: impl Into<String>,
        details: impl Into<Vec<u8>>,
    ) -> Self {
        Self { details: details.into(), ..Self::new(code, message) }
    }

    /// Its code.
    pub fn code(&self) -> Code {
        self.code
    }

    /// Its text.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Its details; empty where there are none.
    pub fn details(&self) -> &[u8] {
        &self.details
    }

    /// The library's error behind it, where the call came to nothing on its way: whether the
    /// request can have run, who had it, how long to stay away.
    pub fn error(&self) -> Option<&Error> {
        self.source.as_deref()
    }
}

impl From<Error> for Status {
    fn from(error: Error) -> Self {
        let status = Self::new(code_of(&error), error.to_string());
        Self { source: Some(Arc::new(error)), ..status }
    }
}

/// The code of a call that the library could not bring to a reply.
fn code_of(error: &Error) -> Code {
    match error {
        Error::Failed { source, .. } => code_of_failure(*source),
        Error::Call { source: CallError::BadDeadline { .. }, .. } => Code::InvalidArgument,
        Error::Call { .. } => Code::ResourceExhausted,
        Error::Open { .. } | Error::NoAddress(_) | Error::Io(_) | Error::Closed { .. } => {
            Code::Unavailable
        }
        // By its access policy, before any service.
        Error::Rejected { code: DENIED_CODE, .. } => Code::PermissionDenied,
        // A server that is not of typed services has refused in its own words.
        _ => Code::Unknown,
    }
}

fn code_of_failure(failure: Failure) -> Code {
    match failure {
        Failure::Deadline => Code::DeadlineExceeded,
        Failure::Unreachable => Code::Unavailable,
        Failure::ReplyTooLarge => Code::ResourceExhausted,
        Failure::Broken => Code::DataLoss,
        Failure::Refused(reason) => match reason {
            DropReason::Overload | DropReason::TooLarge => Code::ResourceExhausted,
            DropReason::Expired => Code::DeadlineExceeded,
            DropReason::NoServer | DropReason::Stopping | DropReason::NoKey => Code::Unavailable,
            DropReason::Panicked | DropReason::Unanswered => Code::Internal,
            _ => Code::Unknown,
        },
        _ => Code::Unknown,
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_struct("Status");
        shown.field("code", &self.code).field("message", &self.message);
        if !self.details.is_empty() {
            shown.field("details", &self.details);
        }
        shown.finish()
    }
}

impl fmt::Display for Status {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.code.description(), self.message)
    }
}

impl std::error::Error for Status {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().map(|error| error as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(reason: DropReason) -> Code {
        code_of_failure(Failure::Refused(reason))
    }

    #[test]
    fn a_number_is_its_code() {
        for number in 0..=16 {
            assert_eq!(Code::from_number(number) as u8, number);
        }
    }

    /// Calls that a server's access policy refuses, which no service has seen.
    #[test]
    fn what_a_policy_refuses_is_denied_and_other_rejections_are_unknown() {
        let rejected = |code| {
            let target = ([127, 0, 0, 1], 9).into();
            Status::from(Error::Rejected { target, server: None, code, text: "why".to_owned() })
        };
        assert_eq!(rejected(DENIED_CODE).code(), Code::PermissionDenied);
        assert!(rejected(DENIED_CODE).message().contains("why"));
        assert_eq!(rejected(DENIED_CODE + 1).code(), Code::Unknown);
    }

    #[test]
    fn a_number_beyond_the_codes_is_unknown() {
        assert_eq!(Code::from_number(17), Code::Unknown);
        assert_eq!(Code::from_number(255), Code::Unknown);
    }

    #[test]
    fn a_call_that_came_to_nothing_has_the_code_that_grpc_gives_it() {
        assert_eq!(code_of_failure(Failure::Deadline), Code::DeadlineExceeded);
        assert_eq!(code_of_failure(Failure::Unreachable), Code::Unavailable);
        assert_eq!(refused(DropReason::Stopping), Code::Unavailable);
        assert_eq!(refused(DropReason::Overload), Code::ResourceExhausted);
        assert_eq!(refused(DropReason::Panicked), Code::Internal);
        assert_eq!(refused(DropReason::Uncertain), Code::Unknown);
    }

    #[test]
    fn the_library_s_error_stays_at_hand() {
        let status = Status::from(Error::NoAddress("nowhere".to_owned()));
        assert!(matches!(status.error(), Some(Error::NoAddress(name)) if name == "nowhere"));
        assert!(status.message().contains("nowhere"));
    }
}
