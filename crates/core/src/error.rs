//! The error type of all crates.
//!
//! A caller rarely distinguishes more than file, memory, device and its own input. So there is one
//! opaque type with predicates, and every message names the operation, the location and the
//! numbers. A broken internal invariant is not an error: it panics through [`broken_invariant`].

use std::fmt;

/// `std::result::Result` with the crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error whose message names the file, field, offset, shape, node or device.
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

    /// A caller's mistake: a wrong shape, an unbound symbol, an option out of range.
    pub fn invalid(message: impl Into<String>) -> Error {
        Error::new(Kind::Invalid, message)
    }

    /// A file that is truncated, malicious or of another format.
    pub fn bad_file(message: impl Into<String>) -> Error {
        Error::new(Kind::BadFile, message)
    }

    /// A failed system operation: opening, reading, writing.
    pub fn io(message: impl Into<String>, source: std::io::Error) -> Error {
        Error::new(Kind::Io, message).with_source(source)
    }

    /// Not enough memory: needed and available, both in bytes.
    pub fn out_of_memory(what: impl fmt::Display, need: u64, have: u64) -> Error {
        Error::new(
            Kind::OutOfMemory,
            format!("out of memory for {what}: need {need} bytes, have {have} bytes"),
        )
    }

    /// The device is gone.
    pub fn device_lost(message: impl Into<String>) -> Error {
        Error::new(Kind::DeviceLost, message)
    }

    /// The device or its driver reported an error.
    pub fn device(message: impl Into<String>) -> Error {
        Error::new(Kind::Device, message)
    }

    /// Valid, but not supported by this build, device or engine.
    pub fn unsupported(message: impl Into<String>) -> Error {
        Error::new(Kind::Unsupported, message)
    }

    /// A kernel that did not compile.
    pub fn compile(message: impl Into<String>) -> Error {
        Error::new(Kind::Compile, message)
    }

    /// Adds the underlying error.
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

    /// A copy with the same kind and message; the source becomes text.
    pub fn duplicate(&self) -> Error {
        let message = match &self.0.source {
            Some(source) => format!("{}: {source}", self.0.message),
            None => self.0.message.clone(),
        };
        Error::new(self.0.kind, message)
    }

    /// Whether memory, or a memory budget, was exhausted.
    pub fn is_out_of_memory(&self) -> bool {
        self.0.kind == Kind::OutOfMemory
    }

    /// Whether the device is lost and must be reopened.
    pub fn is_device_lost(&self) -> bool {
        self.0.kind == Kind::DeviceLost
    }

    /// Whether the request is valid but not supported here.
    pub fn is_unsupported(&self) -> bool {
        self.0.kind == Kind::Unsupported
    }

    /// Whether a file is invalid: truncated, malicious, or of another format.
    pub fn is_bad_file(&self) -> bool {
        self.0.kind == Kind::BadFile
    }

    /// Whether a kernel failed to compile.
    pub fn is_compile(&self) -> bool {
        self.0.kind == Kind::Compile
    }

    /// Whether the system could not read or write, or a peer was unreachable.
    pub fn is_io(&self) -> bool {
        self.0.kind == Kind::Io
    }

    /// Whether a device failed other than by running out of memory or being lost.
    pub fn is_device(&self) -> bool {
        self.0.kind == Kind::Device
    }

    /// Whether the caller's input is invalid.
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

/// Panics on a broken invariant of this crate, which no input may cause.
#[cold]
#[track_caller]
pub fn broken_invariant(what: impl fmt::Display) -> ! {
    panic!("broken invariant of warploom, please report it: {what}")
}
