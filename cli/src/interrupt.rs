//! Handles Ctrl-C, SIGHUP and SIGTERM: text generation and file writing end cleanly, anything else
//! ends at once.

use anyhow::Context;
use std::sync::atomic::{AtomicBool, Ordering};

static WRITING: AtomicBool = AtomicBool::new(false);
static ASKED: AtomicBool = AtomicBool::new(false);

/// Installs the signal handler. Outside of [`writing`] to [`ended`], and at a second signal, the
/// process exits with code 130.
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
    // Under `nohup`, hangups stay ignored.
    #[cfg(unix)]
    if ignored {
        ignore_hangup();
    }
    Ok(())
}

/// Makes the process ignore SIGHUP; returns whether it did before.
#[cfg(unix)]
fn ignore_hangup() -> bool {
    // SAFETY: a signal that is ignored runs no code, and SIGHUP may be ignored.
    unsafe { libc::signal(libc::SIGHUP, libc::SIG_IGN) == libc::SIG_IGN }
}

/// Begins a section in which the first signal only sets the flag of [`asked`].
pub(crate) fn writing() {
    WRITING.store(true, Ordering::SeqCst);
}

/// Ends the section of [`writing`] and clears the flag: a later signal ends the process.
pub(crate) fn ended() {
    WRITING.store(false, Ordering::SeqCst);
    ASKED.store(false, Ordering::SeqCst);
}

/// Returns whether a signal has arrived in the section of [`writing`].
pub(crate) fn asked() -> bool {
    ASKED.load(Ordering::SeqCst)
}
