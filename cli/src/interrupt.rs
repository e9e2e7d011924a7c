//! Ctrl-C, SIGHUP and SIGTERM: they end text generation or file writing cleanly, and anything else
//! at once.

use anyhow::Context;
use std::sync::atomic::{AtomicBool, Ordering};

static WRITING: AtomicBool = AtomicBool::new(false);
static ASKED: AtomicBool = AtomicBool::new(false);

/// Installs the handler. Outside of [`writing`], and at the second signal, the process exits: 130.
pub(crate) fn listen() -> anyhow::Result<()> {
    #[cfg(unix)]
    let ignored = ignore_hangup();
    ctrlc::set_handler(|| {
        let again = ASKED.swap(true, Ordering::SeqCst);
        if again || !WRITING.load(Ordering::SeqCst) {
            std::process::exit(130);
        }
    })
    .context("cannot listen for Ctrl-C")?;
    // A process started by `nohup` continues.
    #[cfg(unix)]
    if ignored {
        ignore_hangup();
    }
    Ok(())
}

/// Ignores hangups; returns whether they were ignored before.
#[cfg(unix)]
fn ignore_hangup() -> bool {
    // SAFETY: a signal that is ignored runs no code, and SIGHUP may be ignored.
    unsafe { libc::signal(libc::SIGHUP, libc::SIG_IGN) == libc::SIG_IGN }
}

/// From now on an interrupt only sets a flag.
pub(crate) fn writing() {
    WRITING.store(true, Ordering::SeqCst);
}

/// Writing has ended: a later interrupt ends the process.
pub(crate) fn ended() {
    WRITING.store(false, Ordering::SeqCst);
    ASKED.store(false, Ordering::SeqCst);
}

/// Whether there was an interrupt.
pub(crate) fn asked() -> bool {
    ASKED.load(Ordering::SeqCst)
}
