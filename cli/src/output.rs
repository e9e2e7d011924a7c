//! Standard output that records whether it was written to and whether its reader closed it.

use std::io::{self, ErrorKind, StdoutLock, Write};
use std::sync::atomic::{AtomicBool, Ordering};

static WRITTEN: AtomicBool = AtomicBool::new(false);

/// Standard output; its broken pipes are distinct from those of other streams ([`is_closed`]).
pub(crate) struct Out(StdoutLock<'static>);

/// Locks standard output.
pub(crate) fn stdout() -> Out {
    Out(io::stdout().lock())
}

/// Returns whether the command has written to standard output.
pub(crate) fn is_written() -> bool {
    WRITTEN.load(Ordering::Relaxed)
}

/// Returns whether the error is a broken pipe of [`stdout`]: the reader, such as `head`, has closed
/// it, which is not a failure of the command.
pub(crate) fn is_closed(error: &anyhow::Error) -> bool {
    let mut of_system = error.chain().filter_map(|e| e.downcast_ref::<io::Error>());
    of_system.any(|e| e.get_ref().is_some_and(|inner| inner.is::<Closed>()))
}

/// Marks the broken pipe of standard output in an [`io::Error`].
#[derive(Debug)]
struct Closed;

impl std::fmt::Display for Closed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("standard output was closed by its reader")
    }
}

impl std::error::Error for Closed {}

fn marked(error: io::Error) -> io::Error {
    match error.kind() {
        ErrorKind::BrokenPipe => io::Error::new(ErrorKind::BrokenPipe, Closed),
        _ => error,
    }
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.0.write(bytes).map_err(marked)?;
        WRITTEN.store(true, Ordering::Relaxed);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(marked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;

    #[test]
    fn only_standard_output_is_closed() {
        let broken = || io::Error::from(ErrorKind::BrokenPipe);
        let of = |error: io::Error| Err::<(), _>(error).context("writing").unwrap_err();
        assert!(is_closed(&of(marked(broken()))));
        assert!(!is_closed(&of(broken())));
        assert!(!is_closed(&of(marked(ErrorKind::StorageFull.into()))));
    }
}
