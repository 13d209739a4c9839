//! Errors in the text form of an application, or in what a carrier is to carry of it.

use thiserror::Error;

use crate::distribution::DistributionError;
use crate::quantity::QuantityError;

/// Reason why an application was refused.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum AppError {
    /// A name that no codec has.
    #[error("{name:?} is no application; write {forms}")]
    Unknown {
        /// The name that was given.
        name: String,
        /// Text forms of all applications.
        forms: String,
    },
    /// An option that the application does not have.
    #[error("{app} has no option {option:?}; it has {known}")]
    OptionUnknown {
        /// Name of the application.
        app: &'static str,
        /// Option that was given.
        option: String,
        /// Options that the application has.
        known: String,
    },
    /// An option given twice.
    #[error("{app}: {option} is given twice")]
    Repeated {
        /// Name of the application.
        app: &'static str,
        /// Name of the option.
        option: &'static str,
    },
    /// An option without its value.
    #[error("{app}: write {option}=VALUE")]
    ValueMissing {
        /// Name of the application.
        app: &'static str,
        /// Name of the option.
        option: &'static str,
    },
    /// An option that has no default.
    #[error("{app} needs {option}=")]
    Required {
        /// Name of the application.
        app: &'static str,
        /// Name of the option.
        option: &'static str,
    },
    /// Quotes that are not closed, or go on behind it.
    #[error("{app}: a value in quotes ends with them; within it write \\\" \\\\ \\r \\n \\t")]
    Quotes {
        /// Name of the application.
        app: &'static str,
    },
    /// Options that exclude each other.
    #[error("{0} do not go together")]
    Together(&'static str),
    /// A value that the option does not take.
    #[error("{option} must be {rule}, but is {value:?}")]
    Value {
        /// Name of the option.
        option: &'static str,
        /// Values that the option takes.
        rule: &'static str,
        /// Value that was given.
        value: String,
    },
    /// A number that is none.
    #[error("{option}: {source}")]
    Quantity {
        /// Option that the number is for.
        option: &'static str,
        /// Error in the number.
        source: QuantityError,
    },
    /// A distribution that is none.
    #[error("{option}: {source}")]
    Distribution {
        /// Option that the distribution is for.
        option: &'static str,
        /// Error in the distribution.
        source: DistributionError,
    },
    /// A distribution of sizes of which none would do.
    #[error("no size of {distribution} would do for {what}: they have {min} to {max} bytes here")]
    Sizes {
        /// Thing that the sizes are for.
        what: &'static str,
        /// The distribution.
        distribution: String,
        /// The least.
        min: u64,
        /// The most.
        max: u64,
    },
    /// An echo that the carrier does not carry.
    #[error("an echo has {min} to {max} bytes here")]
    EchoBytes {
        /// The least.
        min: u64,
        /// The most.
        max: u64,
    },
    /// A command that is none.
    #[error("the command {text:?}: {reason}")]
    Template {
        /// Command that was given.
        text: String,
        /// Reason why it is no command.
        reason: &'static str,
    },
    /// A request that is none.
    #[error("http: {0}")]
    Http(&'static str),
    /// A file that was to hold a body or requests.
    #[error("{path}: {reason}")]
    File {
        /// The file as it was named.
        path: String,
        /// Reason why the file cannot be used.
        reason: String,
    },
    /// A call of gRPC that is none.
    #[error("grpc: {0}")]
    Grpc(&'static str),
    /// An application that is spoken over connections alone.
    #[error("{app} is spoken over TCP and TLS alone")]
    Messages {
        /// Name of the application.
        app: &'static str,
    },
    /// An application that needs a connection.
    #[error("{app} is not spoken over UDP")]
    Datagrams {
        /// Name of the application.
        app: &'static str,
    },
}
