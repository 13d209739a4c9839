//! From a .proto to typed services over tailcut, in a build script, without protoc.
//!
//! ```no_run
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     tailcut_build::compile_protos("proto/helloworld.proto")?;
//!     Ok(())
//! }
//! ```
//!
//! A program includes the result by `tailcut_services::include_proto!("helloworld")`, under the
//! name of the .proto's package. It has the messages, as prost makes them, and for a service
//! `Greeter` three modules: `greeter_server` with the trait `Greeter` and `GreeterServer`,
//! `greeter_client` with `GreeterClient`, and `greeter_service`, which has all of them. The program
//! depends on `tailcut-services`, `prost`, and `prost-types` where the .proto uses Google's own
//! messages.
//!
//! `option idempotency_level` of a method says whether its calls may be cloned and sent again:
//! `IDEMPOTENT` and `NO_SIDE_EFFECTS` do. A method that streams is refused.

mod definition;

use std::io;
use std::path::{Path, PathBuf};

use prost_types::FileDescriptorSet;

use crate::definition::Definitions;

/// Compiles a .proto, whose imports are beside it, into the build script's output directory.
///
/// # Errors
///
/// As [`Builder::compile`].
pub fn compile_protos(proto: impl AsRef<Path>) -> Result<(), Error> {
    let proto = proto.as_ref();
    let directory = proto.parent().filter(|parent| !parent.as_os_str().is_empty());
    configure().compile(&[proto], &[directory.unwrap_or(Path::new("."))])
}

/// A builder with the defaults.
pub fn configure() -> Builder {
    Builder { messages: prost_build::Config::new(), out_dir: None }
}

/// Compiler of .proto files to Rust.
#[derive(Debug)]
pub struct Builder {
    messages: prost_build::Config,
    out_dir: Option<PathBuf>,
}

/// Reason why .proto files did not become Rust.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file is not there, or is no .proto.
    #[error("{0}")]
    Proto(#[from] protox::Error),
    /// A method streams.
    #[error(
        "{0} streams, which typed services do not: give it one request and one reply, or use \
         tailcut::stream for it"
    )]
    Streaming(String),
    /// The result was not written.
    #[error("the generated code was not written: {0}")]
    Write(#[from] io::Error),
}

impl Builder {
    /// Directory of the result. Default: the build script's output directory, `OUT_DIR`.
    #[must_use]
    pub fn out_dir(mut self, directory: impl Into<PathBuf>) -> Self {
        self.out_dir = Some(directory.into());
        self
    }

    /// Changes how messages become Rust: derives, maps, bytes and paths of prost's own.
    #[must_use]
    pub fn messages(mut self, change: impl FnOnce(&mut prost_build::Config)) -> Self {
        change(&mut self.messages);
        self
    }

    /// Compiles .proto files, whose imports are below `includes`, and has the build script run
    /// again when one of them changes.
    ///
    /// # Errors
    ///
    /// [`Error::Proto`] names file and line, [`Error::Streaming`] the method.
    pub fn compile(
        mut self,
        protos: &[impl AsRef<Path>],
        includes: &[impl AsRef<Path>],
    ) -> Result<(), Error> {
        if self.out_dir.is_none() {
            // Where there is no such directory, this is no build script.
            protos.iter().for_each(|proto| {
                println!("cargo:rerun-if-changed={}", proto.as_ref().display());
            });
        }
        let files = protox::compile(protos, includes)?;
        if let Some(method) = streaming_method(&files) {
            return Err(Error::Streaming(method));
        }
        if let Some(directory) = self.out_dir {
            self.messages.out_dir(directory);
        }
        self.messages.service_generator(Box::new(Definitions));
        Ok(self.messages.compile_fds(files)?)
    }
}

/// The path of the first method that streams.
fn streaming_method(files: &FileDescriptorSet) -> Option<String> {
    let services =
        files.file.iter().flat_map(|file| file.service.iter().map(move |s| (file.package(), s)));
    let mut methods = services
        .flat_map(|(package, service)| service.method.iter().map(move |m| (package, service, m)));
    let (package, service, method) =
        methods.find(|(_, _, method)| method.client_streaming() || method.server_streaming())?;
    let dot = if package.is_empty() { "" } else { "." };
    Some(format!("/{package}{dot}{}/{}", service.name(), method.name()))
}
