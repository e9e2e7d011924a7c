//! The error type of all crates.
//!
//! Callers rarely need to distinguish more than bad files, exhausted memory, device failures and
//! invalid input. So there is one opaque type with predicates, and every message names the
//! operation, the location and the values involved. A broken internal invariant is not an error: it
//! panics through [`broken_invariant`].
//!
//! `# Errors` sections begin with the kind of error: for *Invalid*, [`Error::is_invalid`] is true,
//! for *Bad file*, [`Error::is_bad_file`], and so on.

use std::fmt;

/// A [`std::result::Result`] with [`Error`] as its default error type.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error. Its message names the file, field, offset, shape, node or device at fault.
pub struct Error(Box<Inner>);

struct Inner {
    kind: Kind,
    message: String,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Invalid,
    BadFile,
    Io,
    OutOfMemory,
    DeviceLost,
    Device,
    Unsupported,
    Compile,
}

impl Error {
    fn new(kind: Kind, message: impl Into<String>) -> Error {
        Error(Box::new(Inner { kind, message: message.into(), source: None }))
    }

    /// Creates an error for invalid input: a wrong shape, an unbound symbol, an option out of
    /// range.
    pub fn invalid(message: impl Into<String>) -> Error {
        Error::new(Kind::Invalid, message)
    }

    /// Creates an error for a file that is truncated, malicious or in the wrong format.
    pub fn bad_file(message: impl Into<String>) -> Error {
        Error::new(Kind::BadFile, message)
    }

    /// Creates an error for a failed system operation: opening, reading, writing.
    pub fn io(message: impl Into<String>, source: std::io::Error) -> Error {
        Error::new(Kind::Io, message).with_source(source)
    }

    /// Creates an error for `what`, which needs `need` bytes of memory when only `have` are
    /// available.
    pub fn out_of_memory(what: impl fmt::Display, need: u64, have: u64) -> Error {
        Error::new(
            Kind::OutOfMemory,
            format!("out of memory for {what}: need {need} bytes, have {have} bytes"),
        )
    }

    /// Creates an error for a device that is lost and must be reopened.
    pub fn device_lost(message: impl Into<String>) -> Error {
        Error::new(Kind::DeviceLost, message)
    }

    /// Creates an error for a failure that a device or its driver reported.
    pub fn device(message: impl Into<String>) -> Error {
        Error::new(Kind::Device, message)
    }

    /// Creates an error for a valid request that this build, device or engine does not support.
    pub fn unsupported(message: impl Into<String>) -> Error {
        Error::new(Kind::Unsupported, message)
    }

    /// Creates an error for a kernel that failed to compile.
    pub fn compile(message: impl Into<String>) -> Error {
        Error::new(Kind::Compile, message)
    }

    /// Sets the underlying error, which [`std::error::Error::source`] returns.
    pub fn with_source(
        mut self,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Error {
        self.0.source = Some(source.into());
        self
    }

    /// Prefixes the message with its location: `context: message`. The kind is unchanged.
    pub fn context(mut self, context: impl fmt::Display) -> Error {
        self.0.message = format!("{context}: {}", self.0.message);
        self
    }

    /// Returns a copy with the same kind. The source cannot be cloned, so its text is appended to
    /// the message.
    pub fn duplicate(&self) -> Error {
        let message = match &self.0.source {
            Some(source) => format!("{}: {source}", self.0.message),
            None => self.0.message.clone(),
        };
        Error::new(self.0.kind, message)
    }

    /// Returns whether memory, or a memory budget, was exhausted.
    pub fn is_out_of_memory(&self) -> bool {
        self.0.kind == Kind::OutOfMemory
    }

    /// Returns whether the device is lost and must be reopened.
    pub fn is_device_lost(&self) -> bool {
        self.0.kind == Kind::DeviceLost
    }

    /// Returns whether the request is valid but not supported by this build, device or engine.
    pub fn is_unsupported(&self) -> bool {
        self.0.kind == Kind::Unsupported
    }

    /// Returns whether a file is invalid: truncated, malicious, or in the wrong format.
    pub fn is_bad_file(&self) -> bool {
        self.0.kind == Kind::BadFile
    }

    /// Returns whether a kernel failed to compile.
    pub fn is_compile(&self) -> bool {
        self.0.kind == Kind::Compile
    }

    /// Returns whether a system operation failed, such as a file read or write or a network
    /// transfer.
    pub fn is_io(&self) -> bool {
        self.0.kind == Kind::Io
    }

    /// Returns whether a device failed other than by running out of memory or being lost.
    pub fn is_device(&self) -> bool {
        self.0.kind == Kind::Device
    }

    /// Returns whether the caller's input is invalid.
    pub fn is_invalid(&self) -> bool {
        self.0.kind == Kind::Invalid
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.0.kind, self.0.message)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_ref().map(|s| &**s as &(dyn std::error::Error + 'static))
    }
}

/// Panics because an invariant of this workspace is broken. No input may cause this, so it is
/// always a bug.
#[cold]
#[track_caller]
pub fn broken_invariant(what: impl fmt::Display) -> ! {
    panic!("broken invariant of warploom, please report it: {what}")
}
